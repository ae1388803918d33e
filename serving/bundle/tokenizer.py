"""SentencePiece tokenizers with the ids `pad 0, unk 1, bos 2, eos 3`. `TextTokenizer` is the
interface of all kinds of vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import sentencepiece

from serving.search.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

_VANISHING = (PAD_ID, BOS_ID, EOS_ID)
_SEGMENTATIONS = 64
_SPACE = "\u2581"
"""The sign for the space before a word."""


class TextTokenizer(Protocol):
    """The operations on a vocabulary that the handling of texts needs."""

    @property
    def unk_id(self) -> int:
        """The id of unknown pieces."""
        ...

    @property
    def eos_id(self) -> int:
        """The id of the end of a text."""
        ...

    @property
    def beginning(self) -> tuple[int, ...]:
        """Ids that stand before a text at the beginning of a document."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without bos and eos."""
        ...

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, without bos and eos."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of the given ids."""
        ...

    def pieces(self, ids: list[int]) -> list[str]:
        """The written form of each id."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end of each id in a text, in characters."""
        ...

    def decoded_spans(self, ids: list[int]) -> list[tuple[int, int]]:
        """Begin and end of each id in the text of `decode`, in characters."""
        ...

    def segmentations(self, text: str) -> list[list[int]]:
        """Some segmentations of a text into ids, the likeliest first."""
        ...

    def is_byte(self, token_id: int) -> bool:
        """Whether the id stands for one byte of a character."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether the id has no text and does not end a character, as with padding."""
        ...

    def control_id(self, piece: str) -> int | None:
        """The id of a piece that no text is encoded to, or None if there is no such piece."""
        ...

    def serialized(self) -> bytes:
        """The bytes of the file that the vocabulary was read from, for a copy of it."""
        ...


@runtime_checkable
class Scored(Protocol):
    """A vocabulary that scores its words."""

    def score(self, word: str) -> float | None:
        """The score of a word, which is greater for likelier ones; None if it is not one piece."""
        ...


def ids_of_pieces(tokenizer: TextTokenizer) -> dict[str, int]:
    """The id of each written form."""
    written = tokenizer.pieces(list(range(tokenizer.vocab_size)))
    return {piece: token_id for token_id, piece in enumerate(written)}


class Tokenizer:
    """A SentencePiece model.

    Raises ValueError if the model's special ids are not the project's.
    """

    unk_id, eos_id = UNK_ID, EOS_ID
    beginning = (EOS_ID,)
    """The id that ends the text before a new one."""

    def __init__(self, path: str | Path) -> None:
        self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        found = (
            self._model.pad_id(),
            self._model.unk_id(),
            self._model.bos_id(),
            self._model.eos_id(),
        )
        if found != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise ValueError(
                f"{path}: special ids (pad, unk, bos, eos) must be (0, 1, 2, 3), got {found}; "
                "train the model with `python -m macaron tokenizer`"
            )

    @property
    def vocab_size(self) -> int:
        """Number of pieces, special ones included."""
        return int(self._model.vocab_size())

    def encode(self, text: str) -> list[int]:
        """Piece ids of one text, without bos and eos."""
        return list(self._model.encode(text))

    def encode_batch(self, texts: list[str], threads: int = -1) -> list[list[int]]:
        """Piece ids of many texts, without bos and eos."""
        return list(self._model.encode(texts, num_threads=threads))

    def decode(self, ids: list[int]) -> str:
        """Text of the given ids; special ids other than unk are dropped."""
        return str(self._model.decode([i for i in ids if i not in _VANISHING]))

    def pieces(self, ids: list[int]) -> list[str]:
        """The written form of each id."""
        return [str(self._model.id_to_piece(i)) for i in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end of each id in a text, in characters. Of the bytes of a character only the
        last one has its width."""
        return list(self._model.encode(text, return_type="offset_mapping")["offsets"])

    def decoded_spans(self, ids: list[int]) -> list[tuple[int, int]]:
        """`spans` in the text of `decode`; ids that it drops have no width."""
        kept = [i for i in ids if i not in _VANISHING]
        found = iter(self._model.decode(kept, return_type="offset_mapping")["offsets"])
        spans = [(0, 0)]
        for token_id in ids:
            spans.append((spans[-1][1],) * 2 if token_id in _VANISHING else next(found))
        return spans[1:]

    def segmentations(self, text: str) -> list[list[int]]:
        """Some segmentations of a text into pieces, the likeliest first."""
        found = self._model.nbest_encode_as_ids(text, nbest_size=_SEGMENTATIONS)
        return [list(ids) for ids in found]

    def is_byte(self, token_id: int) -> bool:
        """Whether the id stands for one byte of a character that is not a piece."""
        return bool(self._model.is_byte(token_id))

    def is_control(self, token_id: int) -> bool:
        """Whether the id has no text: padding, bos, eos and tags of languages."""
        return bool(self._model.is_control(token_id))

    def control_id(self, piece: str) -> int | None:
        """The id of a control piece, which no text is encoded to and which `decode` drops; None if
        there is no such piece."""
        found = int(self._model.piece_to_id(piece))
        return found if self._model.is_control(found) else None

    def score(self, word: str) -> float | None:
        """The score of the piece that is this word; None if there is none."""
        found = int(self._model.piece_to_id(f"{_SPACE}{word}"))
        return None if found == UNK_ID else float(self._model.get_score(found))

    def serialized(self) -> bytes:
        """The bytes of the model file."""
        return bytes(self._model.serialized_model_proto())
