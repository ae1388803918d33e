"""Training a SentencePiece model."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece

from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tests.toy.corpus import toy_pairs
from training.errors import ConfigError
from training.runs.folder import load_tokenizer
from training.vocabularies.sentence_pieces import train_tokenizer

TEXTS = [text for pair in toy_pairs(200, seed=1) for text in pair]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_any_text_survives_the_round_trip(tmp_path: Path, model_type: str) -> None:
    path = tmp_path / "toy.model"
    train_tokenizer(TEXTS, path, vocab_size=340, model_type=model_type)
    tokenizer = Tokenizer(path)
    assert tokenizer.vocab_size == 340
    for text in (*TEXTS[:5], "日本語 🎉", "Ωmega"):  # bytes where no piece fits
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)


def test_equal_arguments_give_equal_files(tmp_path: Path) -> None:
    contents = []
    for sentences in (150, 150, 160):
        train_tokenizer(TEXTS, tmp_path / "toy", vocab_size=330, max_sentences=sentences)
        contents.append((tmp_path / "toy").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


@pytest.mark.parametrize(("vocab_size", "bound"), [(200, "at least"), (30_000, "at most")])
def test_a_size_that_the_text_cannot_have_is_an_error_that_names_the_bound(
    tmp_path: Path, vocab_size: int, bound: str
) -> None:
    with pytest.raises(ConfigError, match=rf"model.vocab_size must be {bound}.*{vocab_size}") as no:
        train_tokenizer(TEXTS, tmp_path / "toy.model", vocab_size=vocab_size)
    assert list(tmp_path.iterdir()) == []
    allowed = int(str(no.value).partition(f"{bound} ")[2].partition(",")[0])
    train_tokenizer(TEXTS, tmp_path / "toy.model", vocab_size=allowed)


def test_another_refusal_of_sentencepiece_keeps_its_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.vocab_size=300: .*character_coverage"):
        train_tokenizer(TEXTS, tmp_path / "toy.model", vocab_size=300, character_coverage=0.5)


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for name in ("text", "nothing"):
        with pytest.raises(ConfigError, match=f"{name}: no usable SentencePiece model"):
            load_tokenizer(tmp_path / name)


def test_a_model_with_other_special_ids_is_an_error(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(tmp_path / "other"),
        vocab_size=60,
        minloglevel=2,
    )
    with pytest.raises(ConfigError, match=r"must be \(0, 1, 2, 3\), got \(-1, 0, 1, 2\)"):
        load_tokenizer(tmp_path / "other.model")
