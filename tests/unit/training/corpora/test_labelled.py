"""Tables of labelled text: columns found or named, kinds, and what is wrong with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from training.corpora.labelled import LabelledLine, hold_out, read_sheet, targets
from training.derive.grid import Labelled, find_files, resolve
from training.errors import ConfigError, CorpusError
from training.recipe.encoder_sections import LabelledConfig
from training.tasks.finetuning import read_splits


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def config(path: Path, kind: str | None = None) -> LabelledConfig:
    return resolve(Labelled(path, None, kind))


@pytest.mark.parametrize(
    ("name", "text", "kind", "columns", "labels"),
    [
        ("a.tsv", "x\tfirst text\ny\tsecond text\nx\tthird\n", "single", (2, 1), ("x", "y")),
        ("a.tsv.gz", "one text\tno\nother\tyes\nthird\tno\n", "single", (1, 2), ("no", "yes")),
        ("a.csv", 'Text,Label\n"a, b",10\nc,9\n', "single", ("Text", "Label"), ("9", "10")),
        ("a.jsonl", '{"id": 7, "text": "a", "intent": "x"}\n{"intent": "y", "text": "b", "id": 8}',
         "single", ("text", "intent"), ("x", "y")),
        ("a.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tp\n1\tc\td\tq\n", "pair",
         ("sentence1", "sentence2", "label"), ("p", "q")),
        ("a.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\ta\tb\n0\t7\t8\tc\td\n",
         "pair", ("#1 String", "#2 String", "Quality"), ("0", "1")),
        ("a.tsv", "sentence1\tsentence2\tscore\na\tb\t2.5\nc\td\t5\n", "regression",
         ("sentence1", "sentence2", "score"), ()),
        ("a.tsv", "wer?\tx\tyes\nwas?\tx\tno\nwo?\tz\tyes\n", "pair", (1, 2, 3), ("no", "yes")),
    ],
)  # fmt: skip
def test_columns_and_kind_are_found(
    tmp_path: Path,
    name: str,
    text: str,
    kind: str,
    columns: tuple[int | str, ...],
    labels: tuple[str, ...],
) -> None:
    found = config(write(tmp_path, name, text))
    assert (found.kind, found.columns, found.labels) == (kind, columns, labels)


def test_the_range_of_scores_is_that_of_training(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "sentence1\tsentence2\tscore\na\tb\t2.5\nc\td\t5\ne\tf\t0\n")
    found = config(path)
    assert found.score_range == (0.0, 5.0)
    lines = read_sheet(path).lines(found.columns, 2)
    assert targets(path, lines, found) == [0.5, 1.0, 0.0]


def test_pairs_that_are_alike_have_no_label(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "ein Hund\ta dog\neine Katze\ta cat\n")
    assert config(path, "contrastive").columns == (1, 2)


def test_quotes_count_in_csv_alone(tmp_path: Path) -> None:
    text = 'text,label\n"two\nlines ""quoted""",x\nb,y\n'
    assert read_sheet(write(tmp_path, "a.csv", text)).rows[0] == (2, ['two\nlines "quoted"', "x"])
    assert read_sheet(write(tmp_path, "a.tsv", '"a\tx\nb"\ty\n')).rows[0] == (1, ['"a', "x"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "a\tx\nb\ty\tz\n", "a.tsv:2: has 3 columns, line 1 has 2"),
        ("a.csv", 'text,label\n"a\nb",x\nc\n', "a.csv:4: has 1 columns, line 1 has 2"),
        ("a.csv", 'text,label\n"a" b,x\n', "a.csv:2: not a CSV row"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "a"}\n',
         r"a.jsonl:2: has the keys \['text'\], the first line \['label', 'text'\]"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n\n[1]\n', "a.jsonl:3: a line must be a JSON obj"),
        ("a.jsonl", "{]\n", "a.jsonl:1: not a JSON value"),
        ("a.tsv", "a\tx\n \ty\n", "a.tsv:2: column 1 is empty"),
        ("a.tsv", "", "a.tsv: the file has no rows"),
        ("a.tsv", "a\tx\nb\tx\n", "a.tsv: all lines have the label 'x'"),
        ("a.tsv", "a\tb\tc\td\ne\tf\tg\th\n", "which of its 4 columns are texts and label"),
        ("a.tsv", "".join(f"a{n}\tb{n}\n" for n in range(60)), "has 60 different values in 60 li"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        config(write(tmp_path, name, text))


def test_a_column_that_is_not_there_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text,label\na,x\nb,y\n")
    with pytest.raises(CorpusError, match="no column 'txt'; did you mean 'text'"):
        resolve(Labelled(path, None, None, ("txt", "label")))
    with pytest.raises(CorpusError, match="has 2 columns, column 3 is wanted"):
        resolve(Labelled(path, None, None, (1, 3)))


def test_a_label_that_training_has_not_is_reported_with_its_line(tmp_path: Path) -> None:
    data = LabelledConfig(train="a", labels=("no", "yes"))
    lines = [LabelledLine(1, ("a",), "no"), LabelledLine(7, ("b",), "yess")]
    message = "dev.tsv:7: the label 'yess' is not one of the 2 in training; did you mean 'yes'"
    with pytest.raises(CorpusError, match=message):
        targets(Path("dev.tsv"), lines, data)
    scored = LabelledConfig(train="a", kind="regression", score_range=(0.0, 1.0))
    with pytest.raises(CorpusError, match=r"dev.tsv:1: the score must be a number, got 'no'"):
        targets(Path("dev.tsv"), lines, scored)


def test_a_share_is_held_out_and_each_label_stays_in_training() -> None:
    lines = [LabelledLine(n, (str(n),), "rare" if n == 5 else "x") for n in range(50)]
    train, held = hold_out(lines, 0.2, classes=True)
    assert len(held) == 10
    assert sorted([*train, *held], key=lambda line: line.number) == lines
    assert lines[5] in train
    assert hold_out(lines, 0.2, classes=True) == (train, held)
    assert len(hold_out(lines, 0.9, classes=True)[1]) == 45
    scored = [LabelledLine(n, (str(n),), str(n)) for n in range(50)]
    assert len(hold_out(scored, 0.2, classes=True)[1]) == 0
    assert len(hold_out(scored, 0.2, classes=False)[1]) == 10


def test_a_folder_is_a_task(tmp_path: Path) -> None:
    train, dev = write(tmp_path, "train.tsv.gz", ""), write(tmp_path, "val.tsv.gz", "")
    write(tmp_path, "test.tsv.gz", "")
    assert find_files(tmp_path) == (train, dev)
    assert find_files(train) == (train, None)
    write(tmp_path, "dev.tsv", "")
    with pytest.raises(ConfigError, match=r"holds dev.tsv, val.tsv.gz; name one"):
        find_files(tmp_path)
    train.unlink()
    with pytest.raises(ConfigError, match=r"holds no train"):
        find_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a", "label": ["x", "y"]}', r"a.jsonl:2: column 'label' is \["),
        ('{"text": "a", "label": ["x", "y"]}', "a line has one label, a string or a number"),
        ('{"text": "a", "label": ["x"]}', "column 'label' is .* fit a model to each, or keep one"),
        ('{"text": "a", "label": []}', "a line has one label"),
        ('{"text": "a", "label": {"x": 1}}', "a line has one label"),
        ('{"text": ["a", "b"], "label": "x"}', "column 'text' is .* a text must be one string"),
        ('{"text": "a", "label": null}', "column 'label' is empty"),
        ('{"text": null, "label": "x"}', "column 'text' is empty"),
    ],
)  # fmt: skip
def test_a_text_and_a_label_are_no_lists(tmp_path: Path, text: str, message: str) -> None:
    good = '{"text": "c", "label": "y"}\n'
    path = write(tmp_path, "a.jsonl", f"{good}{text}\n{good}")
    with pytest.raises(CorpusError, match=message):
        config(path)


def test_lists_in_columns_that_nobody_reads_do_not_matter(tmp_path: Path) -> None:
    lines = '{"text": "a", "label": 1, "tags": [1]}\n{"text": "b", "label": true, "tags": null}\n'
    assert config(write(tmp_path, "a.jsonl", lines)).labels == ("1", "true")


FEW = [
    ("a\tx\nb\ty\nc\tz\n", None, "no line is left to validate on, for each of its 3 .* --dev FILE"),
    ("a\tx\nb\ty\n", "single", "no line is left to validate on"),
    ("a\tx\n", None, "all lines have the label 'x'; give lines of two classes"),
    ("a\t0.5\n", None, "all lines have the score 0.5; give lines of two scores"),
    ("a\t0.5\nb\t0.5\nc\t0.5\n", None, "all lines have the score 0.5"),
    ("a\tb\n", "contrastive", "at least 2 lines must be left to learn from, got 0 of 1"),
    ("a\tb\nc\td\n", "contrastive", "at least 2 lines .* got 1 of 2; give more lines, or others"),
    ("a\tx\nb\ty\nc\tx\n", None, None),
    ("a\t0.5\nb\t1.5\n", None, None),
    ("a\tb\nc\td\ne\tf\n", "contrastive", None),
]


@pytest.mark.parametrize(("text", "kind", "message"), FEW)
def test_a_few_lines_are_learnt_or_what_is_needed_is_reported(
    tmp_path: Path, text: str, kind: str | None, message: str | None
) -> None:
    path = write(tmp_path, "a.tsv", text)
    if message is None:
        assert all(read_splits(config(path, kind)))
        return
    with pytest.raises(CorpusError, match=message):
        read_splits(config(path, kind))


def test_lines_to_validate_on_leave_all_others_to_learn_from(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a\tx\nb\ty\n")
    found = resolve(Labelled(path, write(tmp_path, "dev.tsv", "c\tx\n")))
    assert [len(lines) for lines in read_splits(found)] == [2, 1]
