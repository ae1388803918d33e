"""The SentencePiece tokenizer, on a model trained here."""

from __future__ import annotations

import io
import re
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.bundle.load_tokenizer import load_tokenizer
from serving.bundle.manifest import Manifest, ModelSizes, TokenizerFiles
from serving.bundle.tokenizer import Tokenizer
from serving.errors import BundleError
from serving.search.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tests.toy.corpus import toy_pairs
from training.vocabularies.sentence_pieces import train_tokenizer


def named(path: Path, vocab_size: int) -> Manifest:
    """What a manifest says of a tokenizer, and nothing else."""
    files = TokenizerFiles(kind="sentencepiece", source_file=path.name, target_file=path.name)
    sizes = ModelSizes.model_construct(vocab_size=vocab_size)
    return Manifest.model_construct(tokenizer=files, sizes=sizes)


TEXTS = [text for pair in toy_pairs(500, seed=1) for text in pair]
VOCABULARY = 400


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "toy.model"
    train_tokenizer(TEXTS, path, vocab_size=VOCABULARY)
    return path


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(path)


def test_known_text_comes_back(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == VOCABULARY
    for text in TEXTS[::50]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert len(ids) < 0.7 * len(text)
    assert tokenizer.encode_batch(TEXTS[:9]) == [tokenizer.encode(text) for text in TEXTS[:9]]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Cn", "Co", "Zs"])))
@example(text="\ufffd")
def test_any_text_is_encoded_without_loss_but_for_normalisation(
    tokenizer: Tokenizer, text: str
) -> None:
    ids = tokenizer.encode(text)
    assert all(UNK_ID < i < VOCABULARY and i not in (BOS_ID, EOS_ID) for i in ids)
    decoded = tokenizer.decode(ids)
    # Written again, a normalised text stays as it is.
    assert tokenizer.decode(tokenizer.encode(decoded)) == decoded
    if text.isascii() or unicodedata.normalize("NFKC", text) == text.casefold() == text:
        # U+FFFD stands for what could not be read; SentencePiece makes it a blank.
        assert decoded.replace(" ", "") == text.replace(" ", "").replace("\ufffd", "")


@pytest.mark.parametrize(
    "text", ["the tree", "  ein Haus\u00a0 \uff21\ufb01 x", "\U0001f600 漢字, ä\u0308", "a\tb"]
)
def test_spans_cover_the_text_in_order(tokenizer: Tokenizer, text: str) -> None:
    ids, spans = tokenizer.encode(text), tokenizer.spans(text)
    decoded, found = tokenizer.decode(ids), tokenizer.decoded_spans(ids)
    for places, whole in ((spans, text.strip()), (found, decoded)):
        assert len(places) == len(ids)
        assert [begin for begin, _ in places[1:]] == [end for _, end in places[:-1]]
        assert places[-1][1] - places[0][0] == len(whole)
    for token_id, (begin, end) in zip(ids, found, strict=True):
        if not tokenizer.is_byte(token_id):
            (piece,) = tokenizer.pieces([token_id])
            assert decoded[begin:end].strip() == piece.replace("\u2581", " ").strip()


def test_ids_that_vanish_have_no_width(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.encode("the tree")[:2]
    plain = tokenizer.decoded_spans([first, second])
    spans = tokenizer.decoded_spans([BOS_ID, first, PAD_ID, second, EOS_ID])
    assert [spans[1], spans[3]] == plain
    assert [spans[0], spans[2], spans[4]] == [(0, 0), (plain[0][1],) * 2, (plain[1][1],) * 2]


def test_only_words_that_are_one_piece_have_a_score(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.pieces(list(range(VOCABULARY)))
    words = [piece[1:] for piece in pieces if re.fullmatch("\u2581[a-z]{3,}", piece)]
    scores = [tokenizer.score(word) for word in words]
    assert len(words) > 10
    assert None not in scores
    assert scores == sorted(scores, key=lambda score: -(score or 0.0))  # the likeliest come first
    assert tokenizer.score(words[0] * 2) is None
    assert tokenizer.score(words[0].upper()) is None


def test_segmentations_are_of_the_same_text(tokenizer: Tokenizer) -> None:
    found = tokenizer.segmentations("the tree")
    assert tokenizer.encode("the tree") in found
    assert len(found) > 1
    assert {tokenizer.decode(ids) for ids in found} == {"the tree"}


@pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>", "<unk>", "a </s> b", "<0x0A>"])
def test_names_of_special_pieces_are_only_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", ["", " ", "\t\n ", "\u3000"])
def test_blank_text_has_no_pieces(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == []


def test_special_ids_vanish_when_decoded(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("der Hund")
    assert tokenizer.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == "der Hund"
    assert tokenizer.pieces([PAD_ID, UNK_ID, BOS_ID, EOS_ID]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert "".join(tokenizer.pieces(ids)) == "▁der▁Hund"


def test_foreign_special_ids_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=buffer, vocab_size=100, minloglevel=2
    )
    path = tmp_path / "foreign.model"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match=r"must be \(0, 1, 2, 3\), got \(-1, 0, 1, 2\)"):
        Tokenizer(path)
    with pytest.raises(BundleError, match=r"must be \(0, 1, 2, 3\)"):
        load_tokenizer(tmp_path, path.name, named(path, 100))


def test_a_tokenizer_must_fit_its_model(path: Path) -> None:
    manifest = named(path, VOCABULARY)
    assert load_tokenizer(path.parent, path.name, manifest).vocab_size == VOCABULARY
    with pytest.raises(BundleError, match="tokenizer has 400 ids, the model 401"):
        load_tokenizer(path.parent, path.name, named(path, VOCABULARY + 1))


def test_the_bytes_are_the_file(path: Path, tokenizer: Tokenizer) -> None:
    assert tokenizer.serialized() == path.read_bytes()
