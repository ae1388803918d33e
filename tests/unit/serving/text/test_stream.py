"""Text from tokens as they come: what is sent never changes, and holds no part of a stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.bundle.tokenizer import Tokenizer
from serving.text.stream import TextStream, readable
from training.vocabularies.sentence_pieces import train_tokenizer


class Letters:
    """Ids are code points; from 256 less than 512 they are bytes of UTF-8."""

    def decode(self, ids: list[int]) -> str:
        content = b"".join(
            bytes([i - 256]) if self.is_byte(i) else chr(i).encode("utf-8") for i in ids
        )
        return content.decode("utf-8", errors="replace")

    def is_byte(self, token_id: int) -> bool:
        return 256 <= token_id < 512

    def is_control(self, token_id: int) -> bool:
        return False


def run(tokenizer: Letters | Tokenizer, ids: list[int], stops: tuple[str, ...] = ()) -> list[str]:
    stream = TextStream(tokenizer, (), stops)
    parts = []
    for token in ids:
        parts.append(stream.push(token))
        if stream.stopped:
            return parts
    return [*parts, stream.finish()]


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_the_text_ends_before_the_first_stop_string(text: str, stops: tuple[str, ...]) -> None:
    parts = run(Letters(), [ord(letter) for letter in text], stops)
    # By the time it is complete, a stop string ends the text at its own beginning.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert "".join(parts) == text
        return
    seen = text[: min(ends)]
    begin = min(seen.find(stop) for stop in stops if stop in seen)
    assert "".join(parts) == text[:begin]


def test_what_may_be_a_stop_string_is_held_back() -> None:
    stream = TextStream(Letters(), (), ("END", "NO"))
    sent = [stream.push(ord(letter)) for letter in "a ENEND"]
    assert sent == ["a", " ", "", "", "EN", "", ""]
    assert stream.stopped
    assert stream.length == 4


@given(st.text(alphabet="aä€😀", max_size=20))
def test_bytes_become_whole_characters(text: str) -> None:
    ids = [256 + byte for byte in text.encode("utf-8")]
    parts = run(Letters(), ids)
    assert "".join(parts) == text
    assert all("\ufffd" not in part for part in parts)


def test_half_a_character_at_the_end_is_left_out() -> None:
    ids = [ord("x"), *(256 + byte for byte in "😀".encode()[:3])]
    assert "".join(run(Letters(), ids)) == "x"
    broken = [256 + 0xFF, ord("y")]
    assert "".join(run(Letters(), broken)) == "\ufffdy"


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("pieces") / "tokenizer.model"
    texts = ["the cat sat on the mat", "a dog ate the cat", "mats and cats"] * 20
    train_tokenizer(texts, path, vocab_size=275, model_type="unigram", character_coverage=1.0)
    return Tokenizer(path)


@given(
    text=st.text(alphabet="theca dogäß😀", max_size=60), split=st.integers(0, 60), data=st.data()
)
def test_pieces_in_parts_give_the_whole_text(
    pieces: Tokenizer, text: str, split: int, data: st.DataObject
) -> None:
    ids = pieces.encode(text) * data.draw(st.integers(1, 3))
    prompt, rest = ids[:split], ids[split:]
    stream = TextStream(pieces, prompt)
    sent = "".join([*map(stream.push, rest), stream.finish()])
    whole = pieces.decode(ids)
    if prompt and pieces.is_byte(prompt[-1]):
        assert whole.endswith(sent)
    else:
        assert pieces.decode(prompt) + sent == whole


def test_a_long_text_is_the_same_as_a_whole(pieces: Tokenizer, tmp_path: Path) -> None:
    del tmp_path
    ids = pieces.encode("the cat ate a dog " * 60)
    assert "".join(run(pieces, ids)) == pieces.decode(ids)  # type: ignore[arg-type]


def test_many_bytes_are_decoded_in_time_that_grows_with_them() -> None:
    sizes = []

    class Counting(Letters):
        def decode(self, ids: list[int]) -> str:
            sizes.append(len(ids))
            return super().decode(ids)

    ids = [256 + byte for byte in ("€" * 1000).encode()]
    assert "".join(run(Counting(), ids)) == "€" * 1000
    assert max(sizes) < 100


def test_padding_among_bytes_ends_no_character(pieces: Tokenizer) -> None:
    ids = pieces.encode("€")
    parts = run(pieces, [*ids[:-1], 0, 2, ids[-1]])
    assert "".join(parts) == "€"
    assert readable(pieces, [*pieces.encode("ab"), ids[-2]]) == "ab"


@given(text=st.text(alphabet="the cadoß😀½Ａ ", max_size=40))
def test_offsets_point_into_the_text(pieces: Tokenizer, text: str) -> None:
    ids, offsets = pieces.encode(text), [begin for begin, _ in pieces.spans(text)]
    assert len(ids) == len(offsets)
    assert offsets == sorted(offsets)
    assert all(0 <= offset <= len(text) for offset in offsets)
