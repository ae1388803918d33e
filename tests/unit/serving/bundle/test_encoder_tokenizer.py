"""Texts and pairs to ids: special ones, segments, lengths."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import BertTokenizer

from export.importing.encoders.tokenizer import read_tokenizer
from serving.bundle.encoder_tokenizer import EncoderTokenizer
from serving.errors import BundleError, RequestError, TooLongError
from tests.toy.encoders import PIECES
from tests.toy.turns import turns_beside

LONG, SHORT = "the cat sat on the big red mat and the dog", "a bird flew"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    read_tokenizer(tmp_path).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def load(folder: Path, max_length: int) -> EncoderTokenizer:
    return EncoderTokenizer(folder / "tokenizer.json", len(PIECES), max_length)


@pytest.mark.parametrize("pair", [None, SHORT, LONG])
@pytest.mark.parametrize("length", [8, 9, 12, 40])
def test_what_is_too_long_is_cut_as_transformers_cuts_it(
    folder: Path, pair: str | None, length: int
) -> None:
    wanted = BertTokenizer(vocab=str(folder / "vocab.txt"))(
        LONG, pair, truncation="longest_first", max_length=length
    )
    found = load(folder, length).encode(LONG, pair, truncate=True)
    assert list(found.ids) == wanted["input_ids"]
    assert list(found.segments) == wanted["token_type_ids"]


def test_other_threads_run_while_a_long_text_is_read(folder: Path) -> None:
    tokenizer = load(folder, 8)
    assert turns_beside(lambda: tokenizer.encode("a bird flew " * 20_000, truncate=True)) > 20


def test_nothing_is_cut_unasked(folder: Path) -> None:
    tokenizer = load(folder, 8)
    with pytest.raises(TooLongError, match="at most 8 tokens, special ones included, got 13"):
        tokenizer.encode(LONG)
    with pytest.raises(TooLongError, match="at most 8 tokens, special ones included, got 17"):
        tokenizer.encode(LONG, SHORT)


def test_given_ids_get_their_special_ones(folder: Path) -> None:
    tokenizer = load(folder, 8)
    whole = tokenizer.encode(SHORT)
    assert tokenizer.complete(whole.ids[1:-1]) == whole
    long = load(folder, 40).encode(LONG).ids[1:-1]
    assert tokenizer.complete(long, truncate=True) == tokenizer.encode(LONG, truncate=True)
    with pytest.raises(TooLongError, match="got 13"):
        tokenizer.complete(long)
    with pytest.raises(RequestError, match=f"from 0 to {len(PIECES) - 1}, got 999"):
        tokenizer.complete([5, 999])


def test_a_file_that_is_no_tokenizer_or_too_large_is_refused(folder: Path) -> None:
    with pytest.raises(BundleError, match="ids, the model 7"):
        EncoderTokenizer(folder / "tokenizer.json", 7, 8)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match="not a tokenizer"):
        load(folder, 8)
