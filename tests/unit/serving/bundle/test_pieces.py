"""SentencePiece models whose pieces have the ids of another vocabulary."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from serving.bundle.load_tokenizer import load_tokenizer
from serving.bundle.manifest import Manifest, ModelSizes, TokenizerFiles
from serving.bundle.pieces import PieceVocabulary, vocabulary_file
from serving.errors import BundleError
from serving.search.ids import SpecialIds
from serving.text.stream import TextStream
from tests.toy.corpus import toy_pairs

TEXTS = [text for pair in toy_pairs(300, seed=2) for text in pair]
IDS = SpecialIds(pad=5, unk=3, bos=5, eos=0)


def train(path: Path, **options: Any) -> sentencepiece.SentencePieceProcessor:
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=buffer, minloglevel=2, **options
    )
    path.write_bytes(buffer.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def vocabulary(model: sentencepiece.SentencePieceProcessor) -> tuple[list[str], bytes]:
    """The model's pieces in another order, a tag, and pieces that it does not have."""
    own = [model.id_to_piece(i) for i in range(3, model.vocab_size())]
    written = ["</s>", "▁fremd", ">>fra<<", "<unk>", "wort", "<pad>", *reversed(own)]
    return written, vocabulary_file(written, {0, 2, 5})


@pytest.fixture(scope="module", params=["unigram", "bpe", "bytes"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("pieces") / "a.model"
    if request.param == "bytes":
        model = train(path, vocab_size=400, byte_fallback=True)
    else:
        model = train(path, vocab_size=150, model_type=request.param)
    return request.param, model, PieceVocabulary(path, vocabulary(model)[1], IDS)


def test_ids_stand_for_the_pieces_of_the_model(tokenizer: Any) -> None:
    _, model, found = tokenizer
    for text in TEXTS[::40]:
        ids = found.encode(text)
        assert found.pieces(ids) == model.encode(text, return_type=str)
        assert found.decode(ids) == text
        spans = found.spans(text)
        assert "".join(text[slice(*span)] for span in spans) == text
        assert ids in found.segmentations(text)
    assert found.encode_batch(TEXTS[:9]) == [found.encode(text) for text in TEXTS[:9]]
    assert found.vocab_size == len(vocabulary(model)[0])


def test_what_nothing_stands_for_is_unknown_or_bytes(tokenizer: Any) -> None:
    kind, _, found = tokenizer
    ids = found.encode("der ☃")
    if kind == "bytes":
        assert [found.is_byte(i) for i in ids[-3:]] == [True] * 3
        assert found.decode(ids) == "der ☃"
        assert found.unk_id not in ids
    else:
        assert ids[-1] == found.unk_id == 3
        assert not any(map(found.is_byte, range(found.vocab_size)))


def test_text_reaches_no_control_piece(tokenizer: Any) -> None:
    found = tokenizer[2]
    assert found.control_id(">>fra<<") == 2
    assert found.control_id("▁fremd") is None
    for text in (">>fra<< der", "</s>", "<pad>"):
        assert not {0, 2, 5} & set(found.encode(text))
    assert found.decode([2, *found.encode("der Hund"), 0, 5]) == "der Hund"


def test_pieces_of_another_model_are_written_as_words(tokenizer: Any) -> None:
    found = tokenizer[2]
    ids = [1, 4, *found.encode("der Hund"), 1]
    text = found.decode(ids)
    assert text == "fremdwort der Hund fremd"
    spans = found.decoded_spans([2, *ids, 0])
    assert spans[0] == (0, 0)
    assert "".join(text[slice(*span)] for span in spans) == text
    stream = TextStream(found, ())
    parts = [stream.push(i) for i in [2, *found.encode("der Hund"), 1, 4, 0]]
    assert "".join(parts) == "der Hund fremdwort"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not a tokenizer"),
        (b"[]", "two lists"),
        (b'{"pieces": ["a"], "control": [], "more": 1}', "two lists"),
        (b'{"pieces": [1], "control": []}', "two lists"),
        (b'{"pieces": ["a"], "control": [1]}', "control ids must be in [0, 0], got 1"),
        (b'{"pieces": ["a"], "control": [true]}', "control ids"),
        (b'{"pieces": ["a", "b"], "control": []}', "unk must be in [0, 1], got 3"),
    ],
)
def test_a_vocabulary_that_is_none(tmp_path: Path, content: bytes, reason: str) -> None:
    train(tmp_path / "a.model", vocab_size=150)
    (tmp_path / "v.json").write_bytes(content)
    files = TokenizerFiles(
        kind="pieces", source_file="a.model", target_file="a.model", vocabulary_file="v.json"
    )
    sizes = ModelSizes.model_construct(vocab_size=1)
    manifest = Manifest.model_construct(tokenizer=files, sizes=sizes, special_ids=IDS)
    with pytest.raises(BundleError) as caught:
        load_tokenizer(tmp_path, "a.model", manifest)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert json.loads(vocabulary_file(["a"], {0})) == {"pieces": ["a"], "control": [0]}
