"""Labelled texts on which an encoder is scored, against counting and scipy itself."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from export.errors import ExportError
from export.texts.labelled import cosine, read_task
from serving.bundle.encoder_tokenizer import EncoderTokenizer
from training.errors import CorpusError
from training.vocabularies.word_pieces import train_word_pieces

LABELS = ("no", "perhaps", "yes")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> EncoderTokenizer:
    path = tmp_path_factory.mktemp("pieces") / "pieces.json"
    train_word_pieces(["ein haus", "das alte haus"], path, 40, lowercase=True)
    return EncoderTokenizer(path, 40, 7)


def write(folder: Path, *rows: str) -> Path:
    path = folder / "table.tsv"
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_classes_are_scored_by_how_many_are_right(
    tokenizer: EncoderTokenizer, tmp_path: Path
) -> None:
    path = write(tmp_path, "ein haus\tyes", "das haus\tno", "alte\tperhaps", "haus\tyes")
    task = read_task(path, tokenizer, LABELS)
    assert (task.name, task.metric, task.lines) == ("table.tsv", "accuracy", 4)
    (texts,) = task.texts
    assert texts == [tokenizer.encode(text) for text in ("ein haus", "das haus", "alte", "haus")]
    # The largest number of each row: yes, no, yes, yes.
    found = np.array([[0, 1, 2], [5, 1, 2], [0, 1, 2], [-3, -2, -1]], np.float32)
    assert task.measure([found]) == pytest.approx(75.0)


def test_a_pair_of_texts_is_one_input_of_a_classifier(
    tokenizer: EncoderTokenizer, tmp_path: Path
) -> None:
    path = write(tmp_path, "ein haus\tdas haus\tyes", "alte\thaus\tno")
    ((first, second),) = read_task(path, tokenizer, LABELS).texts
    assert first == tokenizer.encode("ein haus", "das haus", truncate=True)
    assert 1 in second.segments


def test_likeness_is_scored_by_the_order_of_its_angles(
    tokenizer: EncoderTokenizer, tmp_path: Path
) -> None:
    scores = [4.5, 0.5, 3.0, 1.0, 3.0]
    path = write(tmp_path, *(f"haus\talte\t{score}" for score in scores))
    task = read_task(path, tokenizer, ())
    assert (task.metric, task.lines) == ("Spearman", 5)
    assert task.texts == [[tokenizer.encode(text)] * 5 for text in ("haus", "alte")]
    generator = np.random.default_rng(0)
    found = [generator.normal(size=(5, 4)).astype(np.float32) for _ in range(2)]
    angles = [
        float(one @ other / math.sqrt((one @ one) * (other @ other)))
        for one, other in zip(*found, strict=True)
    ]
    wanted = 100 * spearmanr(angles, scores).statistic
    assert task.measure(found) == pytest.approx(wanted, rel=1e-5)


def test_long_texts_lose_their_end(tokenizer: EncoderTokenizer, tmp_path: Path) -> None:
    path = write(tmp_path, "das alte haus " * 9 + "\tyes", "haus\tno")
    ((long, _),) = read_task(path, tokenizer, LABELS).texts
    assert len(long.ids) == 7


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (["haus\tyes", "alte\tnever"], LABELS, "line 2: no class of the model is called 'never'"),
        (["haus\tyes", "alte\tyes"], LABELS, "all lines have the same label"),
        (["a\tb\t1", "c\td\t1.0"], (), "all lines have the same label"),
        (["haus\t1", "alte\t2"], (), "line 1: must have 3 columns, got 2"),
        (["a\tb\tc\tyes", "a\tb\tc\tno"], LABELS, "line 1: must have 2 or 3 columns, got 4"),
    ],
)
def test_what_tells_nothing_is_refused(
    rows: list[str],
    labels: tuple[str, ...],
    message: str,
    tokenizer: EncoderTokenizer,
    tmp_path: Path,
) -> None:
    with pytest.raises(ExportError, match=message):
        read_task(write(tmp_path, *rows), tokenizer, labels)


def test_a_score_is_a_number(tokenizer: EncoderTokenizer, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"table\.tsv:2"):
        read_task(write(tmp_path, "a\tb\t1", "c\td\tmuch"), tokenizer, ())


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**31))
def test_the_cosine_is_that_of_each_pair_of_rows(rows: int, width: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    first, second = (generator.normal(size=(rows, width)).astype(np.float32) for _ in range(2))
    first[0] = 0.0  # has no direction
    found = cosine(first, second)
    assert found[0] == 0.0
    for row in range(1, rows):
        one, other = first[row].astype(float), second[row].astype(float)
        wanted = one @ other / math.sqrt(one @ one) / math.sqrt(other @ other)
        assert found[row] == pytest.approx(wanted, abs=1e-5)
