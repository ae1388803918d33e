"""Vocabularies of language models in files of `tokenizers`: bytes, special tokens, whole
characters."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from serving.bundle.fast_vocabulary import FastVocabulary
from serving.search.ids import SpecialIds
from serving.text.stream import TextStream
from tests.toy.language_checkpoints import END, ROWS, START, VOCABULARY, write_tokenizer
from tests.toy.turns import turns_beside

IDS = SpecialIds(pad=0, unk=0, bos=0, eos=2)
TEXTS = [
    "the old man",
    " a\n\n b ",
    "Zürich, 3 % ≠ 漢字! 🙂👩‍👩‍👧",
    "é" * 9,
    f"x{START}y{END}",
    "▁",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    write_tokenizer(folder / "plain", begins=False)
    write_tokenizer(folder / "begins", begins=True)
    return folder


@pytest.fixture(scope="module")
def vocabulary(folder: Path) -> FastVocabulary:
    return FastVocabulary(folder / "plain" / "tokenizer.json", ROWS, IDS)


def test_texts_come_back(vocabulary: FastVocabulary) -> None:
    ids = [vocabulary.encode(text) for text in TEXTS]
    assert [vocabulary.decode(each) for each in ids] == TEXTS
    assert vocabulary.encode_batch(TEXTS) == ids


def test_no_text_reaches_a_special_token(vocabulary: FastVocabulary) -> None:
    text = f"x{START}y{END}"
    assert not any(vocabulary.is_control(number) for number in vocabulary.encode(text))
    assert [number for number in vocabulary.encode_marked(text) if number < 3] == [1, 2]
    assert vocabulary.decode(vocabulary.encode_marked(text)) == "xy"
    assert (vocabulary.control_id(START), vocabulary.control_id("the")) == (1, None)
    assert vocabulary.special_tokens == ["<|end|>", START, END]


@pytest.mark.parametrize("name", ["encode", "encode_marked", "spans"])
def test_other_threads_run_while_a_long_text_is_read(vocabulary: FastVocabulary, name: str) -> None:
    read = getattr(vocabulary, name)
    read("a")  # the first call may load something
    assert turns_beside(lambda: read("w" * 200_000)) > 20


def test_each_id_has_a_written_form_of_its_own(vocabulary: FastVocabulary) -> None:
    written = vocabulary.pieces(list(range(ROWS)))
    assert len(set(written)) == ROWS
    assert written[VOCABULARY:] == [f"<unused{number}>" for number in range(VOCABULARY, ROWS)]
    assert " the" in written
    assert "<0xC3>" in written
    for number, form in enumerate(written):
        if not vocabulary.is_control(number) and not vocabulary.is_byte(number):
            assert vocabulary.decode([number]) == form
    assert vocabulary.decode(list(range(VOCABULARY, ROWS))) == ""


def test_what_the_file_puts_before_a_text_is_its_beginning(folder: Path) -> None:
    begins = FastVocabulary(folder / "begins" / "tokenizer.json", ROWS, IDS)
    assert (begins.beginning, begins.eos_id) == ((0,), 2)
    assert FastVocabulary(folder / "plain" / "tokenizer.json", ROWS, IDS).beginning == ()
    library = Tokenizer.from_file(str(folder / "begins" / "tokenizer.json"))
    assert [0, *begins.encode("the man")] == library.encode("the man").ids


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.text(max_size=12),
    text=st.text(alphabet=st.sampled_from("aé≠漢🙂\u200d ▁\n"), max_size=120),
    noise=st.lists(st.integers(0, VOCABULARY - 1), max_size=30),
)
def test_a_stream_cuts_no_character(
    vocabulary: FastVocabulary, prompt: str, text: str, noise: list[int]
) -> None:
    prompt = prompt.encode("utf-8", "ignore").decode().replace("\ufffd", "")
    stream = TextStream(vocabulary, vocabulary.encode(prompt))
    parts = [stream.push(number) for number in vocabulary.encode(text)]
    assert "".join(parts) == text
    assert all("\ufffd" not in part for part in parts)
    # Bytes that are no characters: what streams is what one decoding gives, but for an end that
    # lacks bytes.
    stream = TextStream(vocabulary, ())
    streamed = "".join(map(stream.push, noise))
    whole = vocabulary.decode(noise)
    assert whole.startswith(streamed)
    assert set(whole[len(streamed) :]) <= {"\ufffd"}


def test_ids_have_their_places_in_texts(vocabulary: FastVocabulary) -> None:
    text = "the man ≠ 漢"
    ids = vocabulary.encode(text)
    spans = vocabulary.decoded_spans(ids)
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    for number, (begin, end) in zip(ids, spans, strict=True):
        if not vocabulary.is_byte(number):
            assert vocabulary.decode([number]) == text[begin:end]
    assert [begin for begin, _ in vocabulary.spans("the man")] == [
        begin for begin, _ in vocabulary.decoded_spans(vocabulary.encode("the man"))
    ]


def test_bytes_beside_pieces_are_bytes(tmp_path: Path) -> None:
    """As in files that were made of SentencePiece models."""
    pieces = ["<unk>", "<s>", "</s>", "▁a", *(f"<0x{byte:02X}>" for byte in range(256))]
    tree = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i in range(3)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)},
                  "merges": [], "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
    }  # fmt: skip
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tree))
    vocabulary = FastVocabulary(path, len(pieces), SpecialIds(pad=0, unk=0, bos=1, eos=2))
    ids = [3, *vocabulary.encode("漢")[-3:]]
    assert [vocabulary.is_byte(number) for number in ids] == [False, True, True, True]
    stream = TextStream(vocabulary, ())
    assert [stream.push(number) for number in ids] == ["a", "", "", "漢"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree.update(decoder=None), "a decoder, which makes text"),
        (lambda tree: tree["model"]["vocab"].update(more=ROWS), f"ids up to {ROWS}, the model"),
        (
            lambda tree: tree.update(
                post_processor={
                    "type": "TemplateProcessing",
                    "single": [
                        {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": END, "type_id": 0}},
                    ],
                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
                    "special_tokens": {END: {"id": END, "ids": [2], "tokens": [END]}},
                }
            ),
            "adds ids after a text",
        ),
    ],
)
def test_other_files_are_refused(
    folder: Path, tmp_path: Path, change: object, message: str
) -> None:
    tree = json.loads((folder / "plain" / "tokenizer.json").read_text())
    change(tree)  # type: ignore[operator]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=message):
        FastVocabulary(path, ROWS, IDS)


def test_special_ids_are_within_the_model(folder: Path) -> None:
    with pytest.raises(ValueError, match=rf"eos must be in \[0, {ROWS - 1}\], got {ROWS}"):
        FastVocabulary(
            folder / "plain" / "tokenizer.json", ROWS, SpecialIds(pad=0, unk=0, bos=0, eos=ROWS)
        )
