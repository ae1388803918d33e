"""SentencePiece models whose pieces have ids of a separate vocabulary, as in checkpoints of other
projects. The models of source and target may share one vocabulary."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import sentencepiece

from serving.search.ids import SpecialIds

_SEGMENTATIONS = 64
_SPACE = "\u2581"


class PieceVocabulary:
    """Converts text to the ids of a vocabulary and back, by a SentencePiece model.

    The vocabulary is the content of a JSON file: `pieces` has the written form of each id,
    `control` the ids that no text is encoded to and that `decode` drops. A piece of the model that
    the vocabulary does not have is unknown; byte pieces are optional. Raises ValueError if the
    content is malformed, or if a special id lies outside the vocabulary.
    """

    def __init__(self, model: Path, vocabulary: bytes, special_ids: SpecialIds) -> None:
        self._model = sentencepiece.SentencePieceProcessor(model_file=str(model))
        self._pieces, self._control = read_vocabulary(vocabulary)
        check_special_ids(special_ids, len(self._pieces))
        self.unk_id, self.eos_id = special_ids.unk, special_ids.eos
        self.beginning = (self.eos_id,)
        """Ids that stand before a text at the beginning of a document."""
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i not in self._control}
        own = [str(self._model.id_to_piece(i)) for i in range(self._model.vocab_size())]
        self._known = frozenset(own)
        self._bytes = frozenset(
            self._ids[piece]
            for i, piece in enumerate(own)
            if self._model.is_byte(i) and piece in self._ids
        )

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without its end."""
        return self._ids_of(self._model.encode(text, return_type=str))

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, without their ends."""
        return [self._ids_of(pieces) for pieces in self._model.encode(texts, return_type=str)]

    def decode(self, ids: list[int]) -> str:
        """Text of the given ids; control pieces are dropped."""
        pieces = self._written(ids)
        text = str(self._model.decode(pieces)) if pieces else ""
        return text.replace(_SPACE, " ")[self._lead(pieces) :]

    def pieces(self, ids: list[int]) -> list[str]:
        """The written form of each id."""
        return [self._pieces[i] for i in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end of each id in a text, in characters."""
        return list(self._model.encode(text, return_type="offset_mapping")["offsets"])

    def decoded_spans(self, ids: list[int]) -> list[tuple[int, int]]:
        """`spans` in the text of `decode`; ids that it drops have no width."""
        pieces = self._written(ids)
        lead = self._lead(pieces)
        found: Iterator[tuple[int, int]] = iter(())
        if pieces:
            found = iter(self._model.decode(pieces, return_type="offset_mapping")["offsets"])
        spans = [(0, 0)]
        for token_id in ids:
            if token_id in self._control:
                spans.append((spans[-1][1],) * 2)
            else:
                begin, end = next(found)
                spans.append((max(0, begin - lead), max(0, end - lead)))
        return spans[1:]

    def segmentations(self, text: str) -> list[list[int]]:
        """Some segmentations of a text, the likeliest first; a BPE model has only one."""
        try:
            found = self._model.nbest_encode_as_pieces(text, nbest_size=_SEGMENTATIONS)
        except RuntimeError:
            return [self.encode(text)]
        return [self._ids_of(pieces) for pieces in found]

    def is_byte(self, token_id: int) -> bool:
        """Whether the id stands for one byte of a character that is not a piece."""
        return token_id in self._bytes

    def is_control(self, token_id: int) -> bool:
        """Whether `decode` drops the id."""
        return token_id in self._control

    def control_id(self, piece: str) -> int | None:
        """The id of a control piece, or None if there is no such piece."""
        return next((i for i in self._control if self._pieces[i] == piece), None)

    def serialized(self) -> bytes:
        """The bytes of the model file."""
        return bytes(self._model.serialized_model_proto())

    def _ids_of(self, pieces: Sequence[str]) -> list[int]:
        """Ids of pieces. A piece that the model does not know is looked up as it is: the vocabulary
        also has the pieces of the other side."""
        return [self._ids.get(piece, self.unk_id) for piece in pieces]

    def _written(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[i] for i in ids if i not in self._control]

    def _lead(self, pieces: Sequence[str]) -> int:
        """Number of characters before the text: the model drops the leading space of its own first
        piece only."""
        foreign = bool(pieces) and pieces[0] not in self._known
        return 1 if foreign and pieces[0].startswith(_SPACE) else 0


def check_special_ids(special_ids: SpecialIds, size: int) -> None:
    """Raise ValueError if a special id of texts lies outside a vocabulary of this size. The start
    and padding ids of the decoder may lie outside the source's vocabulary."""
    for name, found in (("unk", special_ids.unk), ("eos", special_ids.eos)):
        if not 0 <= found < size:
            raise ValueError(f"{name} must be in [0, {size - 1}], got {found}")


def read_vocabulary(content: bytes) -> tuple[list[str], frozenset[int]]:
    """The pieces and control ids of a vocabulary file; raises ValueError if it is malformed."""
    tree = json.loads(content)
    fits = isinstance(tree, dict) and tree.keys() == {"pieces", "control"}
    fits = fits and all(isinstance(part, list) for part in tree.values())
    if not fits or not all(isinstance(piece, str) for piece in tree["pieces"]):
        raise ValueError("the vocabulary must have two lists, pieces and control")
    size = len(tree["pieces"])
    for number in tree["control"]:
        if type(number) is not int or not 0 <= number < size:
            raise ValueError(f"control ids must be in [0, {size - 1}], got {number!r}")
    return tree["pieces"], frozenset(tree["control"])


def vocabulary_file(pieces: Sequence[str], control: Collection[int]) -> bytes:
    """The content that `read_vocabulary` reads."""
    tree = {"pieces": list(pieces), "control": sorted(control)}
    return (json.dumps(tree, ensure_ascii=False, indent=0) + "\n").encode()
