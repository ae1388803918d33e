"""Texts of an export, checked before the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from export.bundle import export_bundle
from export.errors import ExportError
from export.parity import DevSet
from export.texts import Text, TextPair, fitting_sentences, fitting_windows
from training.config import TextConfig
from training.errors import CorpusError
from training.perplexity import Window


def written(folder: Path, source: str, reference: str) -> TextPair:
    (folder / "a").write_text(source)
    (folder / "b").write_text(reference)
    return TextPair("news", folder / "a", folder / "b")


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
        export_bundle(
            tmp_path / "nowhere", tmp_path / "out", precision="fp32", target="cpu", **texts
        )
    assert not (tmp_path / "out").exists()


def test_int8_is_fitted_to_the_last_sentences_that_have_words(tmp_path: Path) -> None:
    pair = written(tmp_path, "", "")
    sources = ["", *(f"Satz {n}." for n in range(100)), "12", "---", " "]
    assert fitting_sentences(pair, DevSet(sources, sources)) == sources[37:101]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_sentences_with_words_are_refused_before_anything_is_loaded(
    tmp_path: Path, count: int
) -> None:
    lines = "eins zwei\n" * count + "12\n" * 80
    text = written(tmp_path, lines, lines)
    message = f"a: int8 is fitted to at least 8 sentences with words, got {count}; .*--dev.*fp32"
    with pytest.raises(ExportError, match=message):
        export_bundle(
            tmp_path / "nowhere", tmp_path / "out", precision="int8", target="cpu", dev=text
        )
    with pytest.raises(Exception, match="nowhere"):  # fp32 is fitted to nothing
        export_bundle(
            tmp_path / "nowhere", tmp_path / "out", precision="fp32", target="cpu", dev=text
        )


def windows(*lengths: int) -> list[Window]:
    return [Window(np.zeros(length + 1, np.int32), length) for length in lengths]


def test_windows_to_fit_to_are_others_than_those_compared_where_they_are_enough() -> None:
    text = Text("own", Path("valid.txt"))
    many = windows(*[16] * 60)
    assert fitting_windows(text, many) == many[8:40]
    few = windows(*[40] * 8, 3)
    assert fitting_windows(text, few) == few
    with pytest.raises(
        ExportError, match=r"valid\.txt: .* at least 128 tokens of text, got 120; .*fp32"
    ):
        fitting_windows(text, windows(60, 60))


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
            Text("own", tmp_path / name, clean).read(data)
