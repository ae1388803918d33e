"""Texts of an export, checked before the work."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from export.bundles.language import trained_language_model
from export.bundles.subject import Form
from export.bundles.translation import trained_translation
from export.errors import ExportError
from export.texts.dev_set import DevSet
from export.texts.texts import DocumentsFile, TextPair, Texts, fitting_sentences, fitting_windows
from training.errors import CorpusError
from training.recipe.config import TextConfig
from training.results.perplexity import Window


def written(folder: Path, source: str, reference: str) -> TextPair:
    (folder / "a").write_text(source)
    (folder / "b").write_text(reference)
    return TextPair("news", folder / "a", folder / "b")


read_run = partial(trained_translation, shortlist=False)


@pytest.mark.parametrize(
    ("source", "reference", "error", "message"),
    [
        ("eins\nzwei\n", "one\n", CorpusError, "b:2: line missing"),
        ("\n \n", "\n\n", ExportError, "a: no pair has words on both sides; .* for news"),
        ("eins\n\n", "\none\n", ExportError, "a: no pair has words on both sides"),
    ],
)
@pytest.mark.parametrize("use", ["dev", "tests"])
def test_a_text_that_cannot_be_used_is_refused_before_anything_is_loaded(
    tmp_path: Path, source: str, reference: str, error: type[Exception], message: str, use: str
) -> None:
    text = written(tmp_path, source, reference)
    texts = {"dev": text} if use == "dev" else {"tests": (text,)}
    with pytest.raises(error, match=message):
        # There is no such checkpoint, which would be the first to show.
        read_run(tmp_path / "nowhere", Form("fp32"), Texts(**texts))


def fitted(precision: str, sources: list[str]) -> list[str]:
    pair = TextPair("news", Path("a"), Path("b"))
    text = DevSet(sources, sources)
    return [sources[n] for n in fitting_sentences(precision, "static", pair.source, text)]


def test_int8_is_fitted_to_the_last_sentences_that_have_words() -> None:
    sources = ["", *(f"Satz {n}." for n in range(100)), "12", "---", " "]
    assert fitted("int8", sources) == sources[37:101]


def test_activations_of_16_bits_are_fitted_to_nothing() -> None:
    text = DevSet(["12"], ["12"])
    assert fitting_sentences("int8", "row16", Path("a"), text) == []


def test_fp16_is_fitted_to_sentences_from_all_of_the_text() -> None:
    sources = ["", *(f"Satz {n}." for n in range(600)), "12"]
    assert fitted("fp16", sources) == sources[1:601:3]
    few = sources[:9]
    assert fitted("fp16", few) == few[1:]


@pytest.mark.parametrize(
    ("precision", "target", "instead"),
    [("int8", "cpu", "fp32 or --activations row16"), ("fp16", "cuda", "bf16 or fp32")],
)
@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_sentences_with_words_are_refused_before_anything_is_loaded(
    tmp_path: Path, count: int, precision: str, target: str, instead: str
) -> None:
    lines = "eins zwei\n" * count + "12\n" * 80
    text = written(tmp_path, lines, lines)
    message = (
        f"a: {precision} is fitted to at least 8 sentences with words, got {count}; .*--dev .*"
        f"--precision {instead}$"
    )
    with pytest.raises(ExportError, match=message):
        read_run(tmp_path / "nowhere", Form(precision, target), Texts(dev=text))
    for unfitted in instead.split(" or "):
        wide = unfitted == "--activations row16"
        form = Form("int8", target, "row16") if wide else Form(unfitted, target)
        with pytest.raises(Exception, match="nowhere"):  # the text is no obstacle any more
            read_run(tmp_path / "nowhere", form, Texts(dev=text))


def windows(*lengths: int) -> list[Window]:
    return [Window(np.zeros(length + 1, np.int32), length) for length in lengths]


def test_windows_to_fit_to_are_others_than_those_compared_where_they_are_enough() -> None:
    text = Path("valid.txt")
    many = windows(*[16] * 60)
    assert fitting_windows("int8", text, many) == many[8:40]
    few = windows(*[40] * 8, 3)
    assert fitting_windows("int8", text, few) == few
    assert fitting_windows("fp16", text, many) == many
    assert fitting_windows("bf16", text, windows(1)) == fitting_windows("fp32", text, many) == []


@pytest.mark.parametrize(
    ("precision", "target", "instead"),
    [("int8", "cpu", "fp32"), ("fp16", "cuda", "bf16 or fp32")],
)
def test_too_few_tokens_are_refused_before_a_language_model_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, target: str, instead: str
) -> None:
    (tmp_path / "valid.txt").write_text("words\n")
    data = SimpleNamespace(segment_length=16)
    trained = SimpleNamespace(recipe=SimpleNamespace(data=data), model=None, tokenizer=None)
    monkeypatch.setattr("export.bundles.language.load_language_model", lambda _: trained)
    monkeypatch.setattr("export.texts.texts.read_documents", lambda *_: (["words"], None))
    monkeypatch.setattr("export.bundles.language.compared_windows", lambda *_: windows(60, 67))
    message = (
        rf"valid\.txt: {precision} is fitted to at least 128 tokens of text, got 127; .*--text .*"
        f"--precision {instead}$"
    )
    text = Texts(text=tmp_path / "valid.txt")
    with pytest.raises(ExportError, match=message):
        trained_language_model(tmp_path / "run", Form(precision, target), text)
    assert [path.name for path in tmp_path.iterdir()] == ["valid.txt"]


@pytest.mark.parametrize("name", ["news.txt", "validation.txt"])
@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, CorpusError, "cannot be read"),
        (b"\n \n", ExportError, "no line has words; give another text for own"),
        (b"one\ntwo \xff\n", CorpusError, ":2: not UTF-8"),
    ],
)
def test_a_text_of_a_language_model_that_cannot_be_used(
    tmp_path: Path, name: str, content: bytes | None, error: type[Exception], message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    data = TextConfig(train=("a",), validation="b")
    for clean in (False, True):
        with pytest.raises(error, match=f"{name}.*{message}|{name}{message}"):
            DocumentsFile("own", tmp_path / name, clean).read(data)
