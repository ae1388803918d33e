"""Word-level vocabularies: a text file with one type per line, whose id is the number of the line,
from 0."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from serving.lines import decode_lines
from serving.search.ids import EOS_ID, UNK_ID

UNK, EOS = "<unk>", "<eos>"


class WordVocabulary:
    """Converts text to ids and back, word by word; words are separated by white space.

    `<unk>` and `<eos>` have the project's ids, 1 and 3. A vocabulary of a published size has no
    room for padding and bos, so ids 0 and 2 are words. Raises ValueError if the file is not such a
    vocabulary.
    """

    unk_id, eos_id = UNK_ID, EOS_ID
    beginning = (EOS_ID,)
    """The id that ends the text before a new one."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        self._types = decode_lines(content)
        self._content = content
        self._ids = {type_: id_ for id_, type_ in enumerate(self._types)}
        for id_, special in ((UNK_ID, UNK), (EOS_ID, EOS)):
            if self._ids.get(special) != id_:
                raise ValueError(
                    f"{path}:{id_ + 1}: must be {special}, whose id is {id_}; "
                    "let `python -m macaron tokenizer` write the file"
                )
        if len(self._ids) < len(self._types):
            twice = Counter(self._types).most_common(1)[0][0]
            raise ValueError(f"{path}: {twice!r} occurs twice; each type must have one line")

    @property
    def vocab_size(self) -> int:
        """Number of types, `<unk>` and `<eos>` included."""
        return len(self._types)

    def encode(self, text: str) -> list[int]:
        """Ids of the words of one text, without eos."""
        return [self._ids.get(word, UNK_ID) for word in text.split()]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of the words of many texts, without eos."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: list[int]) -> str:
        """The words with spaces between them; eos is dropped."""
        return " ".join(self._types[i] for i in ids if i != EOS_ID)

    def pieces(self, ids: list[int]) -> list[str]:
        """The written form of each id."""
        return [self._types[i] for i in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end of each word of a text, in characters."""
        return [word.span() for word in re.finditer(r"\S+", text)]

    def decoded_spans(self, ids: list[int]) -> list[tuple[int, int]]:
        """`spans` in the text of `decode`; eos has no width."""
        spans, end = [], -1
        for token_id in ids:
            begin = max(0, end) if token_id == EOS_ID else end + 1
            end = begin if token_id == EOS_ID else begin + len(self._types[token_id])
            spans.append((begin, end))
        return spans

    def segmentations(self, text: str) -> list[list[int]]:
        """The only segmentation of a text."""
        return [self.encode(text)]

    def is_byte(self, token_id: int) -> bool:
        """False: no word is a byte."""
        del token_id
        return False

    def is_control(self, token_id: int) -> bool:
        """Whether the id is eos, the only id without text."""
        return token_id == EOS_ID

    def control_id(self, piece: str) -> int | None:
        """None: every word can occur in a text, so there are no control pieces."""
        del piece
        return None

    def serialized(self) -> bytes:
        """The bytes of the vocabulary file."""
        return self._content
