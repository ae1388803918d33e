"""Vocabularies in headers of GGUF, against the libraries that they come from."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tokenizers import Tokenizer

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.language_models.gguf.tokenizer import read_gguf_tokenizer
from serving.bundle.fast_vocabulary import BYTES
from serving.search.ids import SpecialIds
from tests.toy.corpus import toy_pairs

TEXTS = [
    "the old man sees a house",
    " two  spaces   three\n\nlines\ttab ",
    "Zürich, 3 % ≠ 漢字! 🙂 naïve",
    "I'll WE'VE HelloWorld iPhone 12345 x/y//\r\n  z",
    "▁ e\u0301 ﬁ \u00a0 ...",
    "",
]
IDS = SpecialIds(pad=0, unk=0, bos=1, eos=2)


def header(**told: Any) -> Options:
    return Options(Path("m.gguf"), {f"tokenizer.ggml.{name}": v for name, v in told.items()})


@pytest.fixture(scope="module", params=[True, False], ids=["with a prefix", "without"])
def pieces(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    """A model of SentencePiece, and what a converter writes of it."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for pair in toy_pairs(300, seed=4) for text in pair]),
        model_writer=written,
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        add_dummy_prefix=request.param,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        control_symbols=["<turn>"],
        user_defined_symbols=["\n\n"],
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    count = range(model.vocab_size())
    kinds = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1
        for i in count
    ]
    tokens = [model.id_to_piece(i) for i in count]
    kinds[tokens.index("\n\n")] = 4
    told = {"model": "llama", "tokens": tokens, "scores": [model.get_score(i) for i in count]}
    return model, told | {"token_type": kinds, "add_space_prefix": request.param}


def test_pieces_are_those_of_sentencepiece(pieces: tuple[Any, dict[str, Any]]) -> None:
    model, told = pieces
    content = read_gguf_tokenizer(header(**told), told["tokens"], IDS, strips=False)
    tokenizer = Tokenizer.from_str(content.decode())
    # SentencePiece takes the mark for a space; behind pieces of the user's own, as behind control
    # tokens, llama.cpp begins a text anew, with its prefix.
    unlike = ("▁", "\n\n") if told["add_space_prefix"] else ("▁",)
    for text in TEXTS:
        if not any(part in text for part in unlike):
            found = tokenizer.encode(text, add_special_tokens=False).ids
            assert found == model.encode(text), text
            assert tokenizer.decode(found) == model.decode(found)
    turn = told["tokens"].index("<turn>")
    assert tokenizer.encode("<turn>").ids == [1, turn]
    assert tokenizer.encode("the").ids == [1, *model.encode("the")]
    plain = header(**told, add_bos_token=False)
    content = read_gguf_tokenizer(plain, told["tokens"], IDS, strips=True)
    stripped = Tokenizer.from_str(content.decode())
    rest = tokenizer.encode("<turn>the", add_special_tokens=False).ids
    assert stripped.encode("<turn>  the").ids == rest


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"scores": [0.0]}, "scores must be of 3 tokens, got 1"),
        ({"scores": [0.0] * 3}, "pieces for all bytes, and <0x00> is missing"),
        ({"token_type": [1]}, "token_type must be of 3 tokens, got 1"),
        ({"add_eos_token": True}, "add_eos_token True is not supported"),
        ({"model": "gpt2", "pre": "tekken"}, "tokenizer.ggml.pre 'tekken' is not supported"),
    ],
)
def test_what_is_not_supported_is_named(changed: dict[str, Any], words: str) -> None:
    tokens = ["<unk>", "<s>", "</s>"]
    with pytest.raises(ExportError, match=f"m.gguf: .*{words}"):
        read_gguf_tokenizer(header(**{"model": "llama"} | changed), tokens, IDS, strips=False)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("qwen2", ["I", "'ll", " WE", "'VE", " HelloWorld", " ", "1", "2", " /", " é"]),
        ("dbrx", ["I", "'ll", " WE", "'VE", " HelloWorld", " ", "12", " /", " e", "\u0301"]),
        ("smaug-bpe", ["I", "'ll", " WE", "'VE", " HelloWorld", " ", "12", " /", " e", "\u0301"]),
        ("gpt-4o", ["I'll", " WE'VE", " Hello", "World", " ", "12", " /", " e\u0301"]),
        ("olmo", ["I", "'ll", " WE", "'", "VE", " HelloWorld", " 12", " /", " é"]),
    ],
)
def test_words_are_split_as_the_name_says(kind: str, words: list[str]) -> None:
    """Each word is a piece, which merges of a wider one would hide."""
    tokens = ["<unk>", "<s>", "</s>", *BYTES]
    told = header(model="gpt2", pre=kind, merges=[], tokens=tokens)
    tokenizer = Tokenizer.from_str(read_gguf_tokenizer(told, tokens, IDS, strips=False).decode())
    assert tokenizer.pre_tokenizer is not None
    text = "I'll WE'VE HelloWorld 12 / e\u0301"
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    spans = [span for _, span in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    assert [text[begin:end] for begin, end in spans] == words
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text
