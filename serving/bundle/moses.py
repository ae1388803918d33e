"""Vocabularies of Moses tokens (Koehn et al. 2007) split by BPE (Sennrich et al. 2016), as in many
checkpoints of other projects.

`sacremoses` tokenizes and `subword-nmt` splits. Both come with the extra `moses`, so this module is
imported for such bundles only.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from sacremoses import MosesDetokenizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE

from serving.bundle.pieces import check_special_ids, read_vocabulary
from serving.search.ids import SpecialIds

GOES_ON = "@@"
"""The end of a piece that its word continues after."""
HYPHEN = "@-@"
"""The token of a hyphen within a word."""
_SIGNS = {
    "&amp;": "&",
    "&apos;": "'",
    "&quot;": '"',
    "&lt;": "<",
    "&gt;": ">",
    "&#124;": "|",
    "&#91;": "[",
    "&#93;": "]",
    "&bar;": "|",
    "&bra;": "[",
    "&ket;": "]",
}
"""The escapes of special characters in Moses, and in older versions of it."""
_UNIT = re.compile("|".join(_SIGNS) + "|.", re.DOTALL)
_VERSION = re.compile(r"#version: 0\.[12](\.0+)*")
_MOST_CACHED = 100_000
"""Number of words whose pieces are cached."""

Span = tuple[int, int]


@dataclass(frozen=True)
class MosesRules:
    """The rules by which the texts of one side are tokenized and split."""

    language: str
    """Language of the Moses rules (ISO 639-1)."""
    escape: bool
    """Whether special characters are escaped, such as `&apos;`."""
    hyphens: bool
    """Whether hyphens within words become the token `@-@`."""
    lowercase: bool
    """Whether texts are in small letters."""
    codes: str
    """The BPE merges: the content of a file of subword-nmt, with its version line."""

    def to_bytes(self) -> bytes:
        """The content of a bundle's file; `read_rules` reads it."""
        return (json.dumps(asdict(self), ensure_ascii=False, indent=0) + "\n").encode()


def read_rules(content: bytes) -> MosesRules:
    """Parse the rules of a bundle's file; raises ValueError if it is not such a file, or if
    subword-nmt cannot read the merges."""
    tree = json.loads(content)
    kinds = {
        field.name: {"str": str, "bool": bool}[str(field.type)] for field in fields(MosesRules)
    }
    if not isinstance(tree, dict) or tree.keys() != kinds.keys():
        raise ValueError(f"the rules must be a JSON object of {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(tree[name]) is not kind:
            raise ValueError(f"{name} must be a {kind.__name__}, got {tree[name]!r}")
    version, *merges = tree["codes"].rstrip("\n").split("\n")
    if not _VERSION.fullmatch(version):
        raise ValueError(f"codes must begin with '#version: 0.1' or 0.2, got {version!r}")
    for number, line in enumerate(merges, 2):
        if len(line.split(" ")) != 2:  # the code that reads them would end the process
            raise ValueError(f"line {number} of codes must be two pieces, got {line!r}")
    return MosesRules(**tree)


class MosesVocabulary:
    """Converts text to the ids of a vocabulary and back.

    `rules` is the content of a file of `MosesRules`, `vocabulary` that of a JSON file as in
    `PieceVocabulary`. There are no byte pieces: characters outside the vocabulary are unknown.
    Raises ValueError if a file is malformed, or if a special id lies outside the vocabulary.
    """

    def __init__(self, rules: bytes, vocabulary: bytes, special_ids: SpecialIds) -> None:
        self._content, self._rules = rules, read_rules(rules)
        self._pieces, self._control = read_vocabulary(vocabulary)
        check_special_ids(special_ids, len(self._pieces))
        self.unk_id, self.eos_id = special_ids.unk, special_ids.eos
        self.beginning = (self.eos_id,)
        """Ids that stand before a text at the beginning of a document."""
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i not in self._control}
        language = self._rules.language.partition("-")[0]
        self._tokenizer = MosesTokenizer(language)
        # Its Czech rules join any numbers if a text ends with one, and fail at some hyphens.
        self._detokenizer = MosesDetokenizer("" if language == "cs" else language)
        self._bpe = BPE(io.StringIO(self._rules.codes), separator=GOES_ON)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without its end."""
        cut = [piece for word in self._words(text) for piece in self._cut(word)]
        return [self._ids.get(piece, self.unk_id) for piece in cut]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of many texts, without their ends."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: list[int]) -> str:
        """Text of the given ids; control pieces are dropped."""
        words = ["".join(part for _, part in word) for word in self._joined(ids)]
        return str(self._detokenizer.detokenize(words, unescape=self._rules.escape))

    def pieces(self, ids: list[int]) -> list[str]:
        """The written form of each id."""
        return [self._pieces[i] for i in ids]

    def spans(self, text: str) -> list[Span]:
        """Begin and end of each id in a text, in characters; ids that share a character all get its
        span."""
        found: list[Span] = []
        for word in self._words(text):
            parts = [_part(piece) for piece in self._cut(word)]
            found += self._lay(parts, self._folded(text), found[-1][1] if found else 0)
        return found

    def decoded_spans(self, ids: list[int]) -> list[Span]:
        """`spans` in the text of `decode`; ids that it drops have no width."""
        text, end = self.decode(ids), 0
        places: dict[int, Span] = {}
        for word in self._joined(ids):
            laid = self._lay([part for _, part in word], text, end)
            places |= {number: span for (number, _), span in zip(word, laid, strict=True)}
            end = laid[-1][1]
        spans: list[Span] = [(0, 0)]
        for number in range(len(ids)):
            spans.append(places.get(number, (spans[-1][1],) * 2))
        return spans[1:]

    def segmentations(self, text: str) -> list[list[int]]:
        """The only segmentation of a text."""
        return [self.encode(text)]

    def is_byte(self, token_id: int) -> bool:
        """False: this vocabulary has no byte pieces."""
        del token_id
        return False

    def is_open(self, token_id: int) -> bool:
        """Whether the next id may change the text of this one: a word that continues, or a sign
        that a hyphen may follow."""
        piece = self._pieces[token_id]
        last = _UNIT.findall(piece)[-1:]
        return piece.endswith(GOES_ON) or not all(_SIGNS.get(unit, unit).isalnum() for unit in last)

    def is_control(self, token_id: int) -> bool:
        """Whether `decode` drops the id."""
        return token_id in self._control

    def control_id(self, piece: str) -> int | None:
        """The id of a control piece, or None if there is no such piece."""
        return next((i for i in self._control if self._pieces[i] == piece), None)

    def serialized(self) -> bytes:
        """The bytes of the file of rules."""
        return self._content

    def _folded(self, text: str) -> str:
        """The text in small letters if the vocabulary has no capitals; the length stays the
        same."""
        if not self._rules.lowercase:
            return text
        return "".join(
            low if len(low := character.lower()) == 1 else character for character in text
        )

    def _words(self, text: str) -> list[str]:
        """The tokens of a text, by Moses' rules."""
        words = self._tokenizer.tokenize(
            self._folded(text),
            aggressive_dash_splits=self._rules.hyphens,
            escape=self._rules.escape,
        )
        return list(words)

    def _cut(self, word: str) -> list[str]:
        if len(self._bpe.cache) > _MOST_CACHED:
            self._bpe.cache.clear()
        return list(self._bpe.segment_tokens([word]))

    def _joined(self, ids: Sequence[int]) -> list[list[tuple[int, str]]]:
        """The words, each as the parts of its pieces, with the indices of the ids."""
        words: list[list[tuple[int, str]]] = []
        goes_on = False
        for number, token_id in enumerate(ids):
            if token_id in self._control:
                continue
            if not goes_on:
                words.append([])
            piece = self._pieces[token_id]
            words[-1].append((number, _part(piece)))
            goes_on = piece.endswith(GOES_ON)
        return words

    def _lay(self, parts: Sequence[str], text: str, at: int) -> list[Span]:
        """Find the parts of the next word in a text, from `at` on. The text has the characters of
        its words in the same order; spaces and characters that Moses drops stand between them."""
        word = "".join(parts)
        units = [word] if word == HYPHEN else _UNIT.findall(word) if self._rules.escape else word
        begins, ends = [], []
        for unit in units:
            sign = "-" if unit == HYPHEN else _SIGNS.get(unit, unit)
            while at < len(text) and (text[at].isspace() or text[at] < " "):
                at += 1
            begins += [at] * len(unit)
            at += text.startswith(sign, at)
            ends += [at] * len(unit)
        spans, cut = [], 0
        for part in parts:
            begin = begins[cut] if cut < len(begins) else at
            cut += len(part)
            spans.append((begin, ends[cut - 1] if part else begin))
        return spans


def _part(piece: str) -> str:
    """The text of a piece within its word."""
    return piece.removesuffix(GOES_ON)
