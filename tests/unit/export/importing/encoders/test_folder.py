"""Hugging Face folders of a BERT, read and made bundles of, against `transformers` itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BertForSequenceClassification, BertModel, BertTokenizer

from export.__main__ import main
from export.bundles.subject import Form
from export.comparison.encoder import EncoderParity, check_encoder, check_metric
from export.errors import ExportError, ParityError
from export.importing.bundle import import_bundle
from export.importing.encoders.folder import read_encoder
from export.importing.model import Declared
from export.importing.subjects import ENCODER, Source
from export.texts.texts import NO_TEXTS, Texts
from tests.toy.encoders import LINES, PIECES, save_encoder, write_lines
from training.errors import CorpusError
from training.models import SentenceEmbedder, TextClassifier


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_encoder(tmp_path / "foreign")


def edit(folder: Path, file: str, change: Callable[[dict[str, object]], None]) -> None:
    tree = json.loads((folder / file).read_text())
    change(tree)
    (folder / file).write_text(json.dumps(tree))


def test_word_pieces_are_those_of_berts_own_tokenizer(folder: Path) -> None:
    tokenizer = read_encoder(folder, "mean").tokenizer
    wanted = BertTokenizer(vocab=str(folder / "vocab.txt"))
    for text in [*LINES, "Un-known, WORDS! äöü 中文", ""]:
        assert tokenizer.encode(text).ids == wanted(text)["input_ids"]
    pair = tokenizer.encode("the cat", "a dog sat")
    told = wanted("the cat", "a dog sat")
    assert (pair.ids, pair.type_ids) == (told["input_ids"], told["token_type_ids"])


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "tokenize_chinese_chars": False},
        {"strip_accents": None},
    ],
)
def test_settings_of_the_tokenizer_hold(
    folder: Path, settings: dict[str, bool], fast: bool
) -> None:
    """Those of `tokenizer_config.json` win over what `tokenizer.json` has, as in transformers."""
    if fast:
        BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
        assert (folder / "tokenizer.json").exists()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    wanted = BertTokenizer(vocab=str(folder / "vocab.txt"), **settings)
    tokenizer = read_encoder(folder, "mean").tokenizer
    for text in [*LINES, "The CAT sät", "Un-known, WORDS! äöü 中文"]:
        assert tokenizer.encode(text).ids == wanted(text)["input_ids"], settings


def test_sentences_are_in_small_letters_where_sentence_transformers_has_them_so(
    folder: Path,
) -> None:
    cased = {"do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(cased))
    wanted = BertTokenizer(vocab=str(folder / "vocab.txt"), **cased)
    before = read_encoder(folder, "mean").tokenizer.encode("The CAT sat").ids
    assert before == wanted("The CAT sat")["input_ids"]
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    found = read_encoder(folder, "mean").tokenizer.encode("The CAT sat").ids
    assert found == wanted("the cat sat")["input_ids"] != before


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("key", ["do_lower_case", "strip_accents", "tokenize_chinese_chars"])
def test_a_setting_that_is_none_is_refused(folder: Path, key: str, fast: bool) -> None:
    if fast:
        BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({key: "yes"}))
    with pytest.raises(ExportError, match=f"{key} must be true or false, got 'yes'"):
        read_encoder(folder, "mean")


def test_prompts_of_sentence_transformers_are_kept(folder: Path) -> None:
    path = folder / "config_sentence_transformers.json"
    prompts = {"query": "query: ", "passage": ""}
    for name in (None, "passage", "query"):
        path.write_text(json.dumps({"prompts": prompts, "default_prompt_name": name}))
        read = read_encoder(folder, "mean")
        assert (read.prompts, read.default_prompt) == (prompts, name)
    path.write_text(json.dumps({"default_prompt_name": "query"}))
    with pytest.raises(ExportError, match=r"must be null or one of prompts, \[\], got 'query'"):
        read_encoder(folder, "mean")
    path.write_text(json.dumps({"prompts": ["query: "]}))
    with pytest.raises(ExportError, match="prompts must map names to texts"):
        read_encoder(folder, "mean")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_an_encoder_gives_the_vectors_of_transformers(folder: Path, name: str) -> None:
    foreign = BertModel.from_pretrained(folder).eval()
    if name == "pytorch_model.bin":
        torch.save(foreign.state_dict(), folder / name)
        (folder / "model.safetensors").unlink()
    found = read_encoder(folder, "cls")
    assert isinstance(found.model, SentenceEmbedder)
    assert found.max_length == 24
    ids = torch.tensor([found.tokenizer.encode(LINES[0]).ids])
    wanted = torch.nn.functional.normalize(foreign(ids).last_hidden_state[:, 0])
    torch.testing.assert_close(found.model(ids), wanted, rtol=1e-4, atol=1e-5)


def test_a_sentence_transformers_folder_reports_its_pooling(folder: Path) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    found = read_encoder(folder)
    assert isinstance(found.model, SentenceEmbedder)
    assert (found.model.pooling, found.model.normalised, found.max_length) == ("mean", False, 16)
    edit(folder, "1_Pooling/config.json", lambda tree: tree.update(include_prompt=False))
    read_encoder(folder)
    prompts = folder / "config_sentence_transformers.json"
    prompts.write_text('{"prompts": {"query": "query: "}}')
    with pytest.raises(ExportError, match=r"include_prompt must be true, got False"):
        read_encoder(folder)
    prompts.unlink()
    edit(folder, "1_Pooling/config.json", lambda tree: tree.update(pooling_mode_cls_token=True))
    with pytest.raises(ExportError, match=r"one of \[.*\] must be true and no other"):
        read_encoder(folder)
    (folder / "modules.json").write_text("{}")
    with pytest.raises(ExportError, match=r"modules.json: must be a list of JSON objects"):
        read_encoder(folder)


def test_a_tokenizer_says_how_long_texts_may_be(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    for most, wanted in ((12, 12), (100, 24), (int(1e30), 24)):  # the last as no limit is written
        path.write_text(json.dumps({"model_max_length": most}))
        assert read_encoder(folder, "cls").max_length == wanted
    path.write_text('{"model_max_length": 12}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    assert read_encoder(folder, "cls").max_length == 16
    path.write_text('{"truncation_side": "left"}')
    with pytest.raises(ExportError, match=r"truncation_side must be 'right', got 'left'"):
        read_encoder(folder, "cls")


def test_a_classifier_keeps_its_labels(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "classifier", labels=("no", "perhaps", "yes"))
    found = read_encoder(folder)
    assert isinstance(found.model, TextClassifier)
    assert found.labels == ("no", "perhaps", "yes")
    foreign = BertForSequenceClassification.from_pretrained(folder).eval()
    ids = torch.tensor([found.tokenizer.encode(LINES[1]).ids])
    torch.testing.assert_close(found.model(ids), foreign(ids).logits, rtol=1e-4, atol=1e-5)


def test_a_list_of_names_of_classes_counts_in_its_order(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "classifier", labels=("no", "perhaps", "yes"))
    edit(folder, "config.json", lambda tree: tree.update(id2label=["a", "b", "c"]))
    assert read_encoder(folder).labels == ("a", "b", "c")
    for names, message in (
        (["a", "b"], "id2label has 2 names, of 3 classes"),
        (["a", "b", "c", "d"], "id2label has 4 names, of 3 classes"),
        ("a b c", "id2label must map numbers to names, or list the names, got 'a b c'"),
        ({"0": "a", "1": "b"}, "id2label has no 2, of 3 classes"),
        (
            {"0": "a", "1": ["b", "c"], "2": "d"},
            "one name for class 1, got \\['b', 'c'\\]",
        ),
        (["a", "b", None], "must have one name for class 2, got None"),
    ):
        edit(folder, "config.json", lambda tree, names=names: tree.update(id2label=names))
        with pytest.raises(ExportError, match=message):
            read_encoder(folder)


MISTAKES: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: edit(f, "config.json", lambda t: t.update(model_type="gpt2")), "model_type must be"),
    (lambda f: edit(f, "config.json", lambda t: t.update(hidden_act="tanh")), "hidden_act must be"),
    (
        lambda f: edit(f, "config.json", lambda t: t.pop("hidden_size")),
        "hidden_size must be an integer >= 0, got None",
    ),
    (lambda f: edit(f, "config.json", lambda t: t.update(intermediate_size=9)), "by config.json"),
    (lambda f: edit(f, "config.json", lambda t: t.update(num_hidden_layers=4)), "is missing"),
    (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
    (lambda f: (f / "config.json").unlink(), "config.json: cannot be read"),
    (lambda f: (f / "model.safetensors").write_bytes(b"no"), "model.safetensors: cannot be read"),
    (lambda f: (f / "model.safetensors").unlink(), "neither model.safetensors nor"),
    (lambda f: (f / "vocab.txt").unlink(), "neither tokenizer.json nor vocab.txt"),
    (lambda f: (f / "vocab.txt").write_text("[PAD]\n"), "there is no piece"),
    (lambda f: (f / "tokenizer.json").write_text("{}"), "not a tokenizer"),
]


@pytest.mark.parametrize(("spoil", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_a_folder_that_cannot_be_read_is_refused(
    folder: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(folder)
    with pytest.raises(ExportError, match=message):
        read_encoder(folder, "mean")


def test_a_pickle_with_code_in_it_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Path}, folder / "pytorch_model.bin")  # a class, which is no tensor
    with pytest.raises(ExportError, match="holds more than tensors"):
        read_encoder(folder, "mean")


def test_without_a_pooling_it_must_be_given(folder: Path) -> None:
    with pytest.raises(ExportError, match=r"\(BertModel\); say --pooling cls or mean"):
        read_encoder(folder)
    edit(folder, "config.json", lambda tree: tree.update(architectures=["BertForMaskedLM"]))
    with pytest.raises(ExportError, match=r"\(BertForMaskedLM\); say --pooling .* its vectors"):
        read_encoder(folder)


def test_what_is_wrong_with_a_file_is_reported_with_its_line(folder: Path, tmp_path: Path) -> None:
    lines, task = write_lines(tmp_path), tmp_path / "pairs.tsv"
    for text, message in (
        ("a\tb\t1\na\tb\n", "pairs.tsv:2: has 2 columns, line 1 has 3"),
        ("a\tb\n", "pairs.tsv, line 1: must have 3 columns, got 2"),
        ("a\tb\tmuch\n", "pairs.tsv:1: the score must be a number, got 'much'"),
        ("a\tb\t1\n", "all lines have the same label"),
    ):
        task.write_text(text)
        with pytest.raises((ExportError, CorpusError), match=message):
            import_bundle(
                folder,
                tmp_path / "out",
                Form("fp32"),
                Texts(text=lines, task=task),
                Declared(pooling="mean"),
            )
    (tmp_path / "few.txt").write_text("one line\n")
    with pytest.raises(ExportError, match="at least 16 lines with words are needed"):
        import_bundle(
            folder,
            tmp_path / "out",
            Form("fp32"),
            Texts(text=tmp_path / "few.txt"),
            Declared(pooling="mean"),
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"cosine_mean": 0.98}, "the cosine with the checkpoint is 0.9800 in the mean"),
        ({"twin_cosine": 0.99}, "the same arithmetic in PyTorch is 0.9900"),
        ({"cosine_mean": float("nan")}, "is nan in the mean"),
        ({"probability_change": 0.03}, "probabilities change by 0.0300 in the mean"),
    ],
)
def test_int8_that_is_not_good_enough_is_refused(figures: dict[str, float], message: str) -> None:
    good: dict[str, float] = {"cosine_mean": 0.995, "twin_cosine": 0.9999, "max_difference": 0.01}
    parity = EncoderParity(**({"texts": 99, "cosine_least": 0.98} | good | figures))  # type: ignore[arg-type]
    with pytest.raises(ParityError, match=message):
        check_encoder(parity, "int8", classes="probability_change" in figures)


def test_fp32_that_differs_is_refused() -> None:
    parity = EncoderParity(9, 0.01, cosine_mean=1.0, cosine_least=1.0, twin_cosine=1.0)
    check_encoder(parity, "int8", classes=False)
    with pytest.raises(ParityError, match="outputs differ by up to"):
        check_encoder(parity, "fp32", classes=False)


def test_a_metric_may_change_by_half_a_point() -> None:
    check_metric("accuracy", 90.0, 89.6)
    with pytest.raises(ParityError, match="accuracy changes from 90"):
        check_metric("accuracy", 90.0, 89.4)


def test_a_tokenizer_neither_pads_nor_cuts(folder: Path) -> None:
    tokenizer = read_encoder(folder, "mean").tokenizer
    tokenizer.enable_padding(length=20)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))
    found = read_encoder(folder, "mean").tokenizer
    assert (found.padding, found.truncation) == (None, None)
    assert len(PIECES) == found.get_vocab_size()


def test_what_an_encoder_has_no_use_for_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = str(write_lines(tmp_path))
    words = ["import", str(folder), str(tmp_path / "out"), "--pooling", "mean"]
    for option in (
        ["--dev", text, text],
        ["--test", "a", text, text],
        ["--from", "de"],
        ["--to", "de"],
        ["--licence", "MIT"],
    ):
        assert main([*words, *option]) == 1
        told = capsys.readouterr().err
        refusal = f"an encoder does not take {option[0]}; it takes --attribution, --pooling, --task"
        assert refusal in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("told", "attribution"),
    [
        (Declared(origin="toy/encoder@1"), "Imported from toy/encoder@1: an encoder. It names no"),
        (Declared(origin="toy/encoder@1", attribution="Mine."), "Mine."),
        (Declared(), ""),
    ],
)
def test_an_encoder_that_came_by_its_name_says_so(
    folder: Path, told: Declared, attribution: str
) -> None:
    source = Source(folder, Form(), NO_TEXTS, told)
    found = ENCODER.subject(read_encoder(folder, "mean"), source).facts["attribution"]
    assert found.startswith(attribution)
    assert bool(found) == bool(attribution)
