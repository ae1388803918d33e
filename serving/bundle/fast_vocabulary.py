"""Vocabularies of the `tokenizers` library: byte-level BPE, or BPE with bytes for unknown
characters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from serving.bundle.encoder_tokenizer import encoding_of
from serving.search.ids import SpecialIds

_SPACE = "\u2581"
_REPLACEMENT = "\ufffd"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class FastVocabulary:
    """Converts text to ids and back.

    Control pieces are the special tokens of the file, and ids of the model that the file does not
    list. A caller's text is never encoded to them; `encode_marked` reads special tokens that a chat
    template has written. Raises ValueError if the file is not a tokenizer of a generating model, or
    has ids that the model does not have.
    """

    def __init__(self, path: Path, vocab_size: int, special_ids: SpecialIds) -> None:
        """`vocab_size` is the model's; it may have rows for ids without a piece."""
        self._content = path.read_bytes()
        tree = _read_tree(self._content)
        self._tokenizer = self._load(marked=False)
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        added = self._tokenizer.get_added_tokens_decoder()
        highest = max(ids.values(), default=-1)
        if not 0 <= highest < vocab_size:
            raise ValueError(f"the tokenizer has ids up to {highest}, the model {vocab_size} ids")
        for name, found in vars(special_ids).items():
            if not 0 <= found < vocab_size:
                raise ValueError(f"{name} must be in [0, {vocab_size - 1}], got {found}")
        self.vocab_size = vocab_size
        """Number of ids, special ones and those without a piece included."""
        self.unk_id, self.eos_id = special_ids.unk, special_ids.eos
        self._written = [f"<unused{number}>" for number in range(vocab_size)]
        self._control = set(range(vocab_size)) - set(ids.values())
        self._bytes: set[int] = set()
        decoders = set(_kinds(tree["decoder"]))
        by_bytes, known = "ByteLevel" in decoders, BYTES.keys()
        for piece, number in ids.items():
            if number in added:
                self._written[number] = added[number].content
                if added[number].special:
                    self._control.add(number)
            elif by_bytes and known >= set(piece):
                self._add_bytes(number, bytes(map(BYTES.__getitem__, piece)))
            else:
                self._written[number] = piece
                if "ByteFallback" in decoders and _BYTE.fullmatch(piece):
                    self._bytes.add(number)
        self.beginning = self._read_beginning()
        """Ids that stand before a text at the beginning of a document."""

    @property
    def special_tokens(self) -> list[str]:
        """The written forms of the file's special tokens; `encode_marked` reads them."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return [token.content for token in added if token.special]

    def encode(self, text: str) -> list[int]:
        """Token ids of one text. A special token that the text spells out is treated as ordinary
        text."""
        return list(encoding_of(self._tokenizer, text).ids)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts."""
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [list(each.ids) for each in found]

    def encode_marked(self, text: str) -> list[int]:
        """Token ids of a text whose special tokens are written out."""
        return list(encoding_of(self._marked, text).ids)

    def marked_spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end of each id of `encode_marked` in a text, as `spans` has them; the span of a
        special token has the white space that it takes in."""
        return list(encoding_of(self._marked, text).offsets)

    def decode(self, ids: list[int]) -> str:
        """Text of the given ids. Control pieces are dropped; each run of bytes that is not a
        character becomes one or several U+FFFD."""
        kept = [number for number in ids if number not in self._control]
        return str(self._tokenizer.decode(kept, skip_special_tokens=False))

    def pieces(self, ids: list[int]) -> list[str]:
        """The written form of each id: its text, or its bytes if they are not whole characters."""
        return [self._written[number] for number in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end of each id in a text, in characters; ids that share a character all get its
        span."""
        return list(encoding_of(self._tokenizer, text).offsets)

    def decoded_spans(self, ids: list[int]) -> list[tuple[int, int]]:
        """Begin and end of each id in the text of `decode`; if several ids share a character, the
        last one gets its span."""
        ends = [0]
        for count, number in enumerate(ids, start=1):
            text = self.decode(ids[:count])
            whole = text.rstrip(_REPLACEMENT) if number in self._bytes else text
            ends.append(max(ends[-1], len(whole)))
        return list(pairwise(ends))

    def segmentations(self, text: str) -> list[list[int]]:
        """The only segmentation of a text."""
        return [self.encode(text)]

    def is_byte(self, token_id: int) -> bool:
        """Whether the bytes of an id are not whole characters: it may begin or end within a
        character."""
        return token_id in self._bytes

    def is_control(self, token_id: int) -> bool:
        """Whether `decode` drops the id."""
        return token_id in self._control

    def control_id(self, piece: str) -> int | None:
        """The id of a control piece, or None if there is no such piece."""
        return next((i for i in self._control if self._written[i] == piece), None)

    def serialized(self) -> bytes:
        """The bytes of the file."""
        return self._content

    @cached_property
    def _marked(self) -> FastTokenizer:
        """A copy of the tokenizer that reads special tokens. The copy is needed because threads
        share the original, which must not change."""
        return self._load(marked=True)

    def _load(self, *, marked: bool) -> FastTokenizer:
        tokenizer = FastTokenizer.from_str(self._content.decode())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = not marked
        return tokenizer

    def _add_bytes(self, number: int, content: bytes) -> None:
        """Note the bytes of an id. U+2581 is stored as bytes, because it means a space in written
        forms."""
        try:
            text = content.decode()
        except UnicodeDecodeError:
            self._bytes.add(number)
            text = _SPACE
        whole = _SPACE not in text
        self._written[number] = text if whole else "".join(f"<0x{byte:02X}>" for byte in content)

    def _read_beginning(self) -> tuple[int, ...]:
        """The ids that the file puts before a text. Raises ValueError if it puts any after a
        text."""
        encoded = self._tokenizer.encode("a")
        plain = self.encode("a")
        behind = len(encoded.ids) - len(plain)
        if list(encoded.ids[behind:]) != plain:
            raise ValueError(
                "the tokenizer adds ids after a text, where a language model continues"
            )
        return tuple(encoded.ids[:behind])


def _read_tree(content: bytes) -> dict[str, Any]:
    tree = json.loads(content)
    if not isinstance(tree, dict) or not isinstance(tree.get("decoder"), dict):
        raise ValueError("the tokenizer must be a JSON object with a decoder, which makes text")
    return tree


def _kinds(decoder: dict[str, Any]) -> Iterator[str]:
    """The names of a decoder and of its components."""
    yield str(decoder.get("type"))
    for part in decoder.get("decoders", ()):
        yield from _kinds(part)


def _byte_characters() -> dict[str, int]:
    """The characters that stand for bytes in byte-level BPE (Radford et al. 2019): printable
    Latin-1 characters for themselves, the others from U+0100 on, in order."""
    printable: Sequence[int] = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    found = {chr(byte): byte for byte in printable}
    return found | {chr(0x100 + place): byte for place, byte in enumerate(others)}


BYTES = _byte_characters()
"""Bytes, by the characters that stand for them."""
