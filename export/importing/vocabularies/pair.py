"""Finds what toolkits leave to their users, for models of one pair of languages: the languages, and
the files that cut texts into pieces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import find_pair
from export.importing.model import LanguageChoice, Pieces
from export.importing.vocabularies.languages import short_code
from export.importing.vocabularies.moses import find_codes, is_cut_by_bpe, moses_rules
from serving.bundle.languages import Languages

_PAIR = ("source.spm", "target.spm")
_SHARED = ("sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "spiece.model")
_TAG = re.compile(r">>.+<<|__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
"""The language tags of models of several languages: Marian, M2M100, NLLB and mBART."""


@dataclass(frozen=True)
class Written:
    """The written forms of the ids of both sides."""

    source: list[str]
    target: list[str]

    @property
    def differ(self) -> bool:
        """Whether the sides have vocabularies of their own."""
        return self.source != self.target


def one_pair(source: Path, choice: LanguageChoice, package: Mapping[str, Any]) -> Languages:
    """The languages of the choice, else those that a package states (`from_code`, `to_code`);
    raises ExportError unless they are one pair."""
    codes = []
    for chosen, name, option in (
        (choice.source, "from_code", "--from"),
        (choice.target, "to_code", "--to"),
    ):
        code = short_code(str(package[name])) if name in package else None
        found = chosen or ((code,) if code else ())
        if len(found) != 1:
            raise ExportError(
                f"{source}: does not say which languages the model translates; give one with "
                f"{option} CODE, got {','.join(found) or 'none'}"
            )
        codes.append(found)
    return Languages(source=codes[0], target=codes[1])


def check_tags(source: Path, written: Written) -> None:
    """Raise ExportError for a vocabulary with tags of several languages, if the checkpoint does
    not say how they are used."""
    tag = next(filter(_TAG.fullmatch, (*written.source, *written.target)), None)
    if tag is not None:
        raise ExportError(
            f"{source}: the vocabulary has tags of languages ({tag!r}), and nothing says how "
            "they are used; import the checkpoint of transformers that it comes from"
        )


def find_pieces(
    source: Path,
    written: Written,
    control: Sequence[str],
    languages: Languages,
    *places: Path,
) -> Pieces:
    """The vocabulary with the file that cuts texts for it, found in one of the folders. The
    vocabulary shows whether it belongs to SentencePiece or to BPE codes. `control` are the pieces
    that no text has. Raises ExportError if the file is not there."""
    sides = (written.source, written.target)
    silent = [frozenset(i for i, piece in enumerate(side) if piece in control) for side in sides]
    found = dict.fromkeys((*places, source))
    moses = None
    if any(map(is_cut_by_bpe, sides)):
        paths = find_codes(source, found)
        codes = (languages.source[0], languages.target[0])
        first, second = map(moses_rules, paths, codes, sides)
        moses = (first, second)
    else:
        paths = find_sentencepiece(source, *places)
    if not written.differ:
        return Pieces(written.target, silent[1], *paths, moses=moses)
    return Pieces(written.target, silent[1], *paths, written.source, silent[0], moses)


def special_piece_ids(
    source: Path, written: Sequence[str], pieces: Mapping[str, str]
) -> dict[str, int]:
    """The ids of special pieces, by their role; raises ExportError for one that is not in the
    vocabulary."""
    for piece in pieces.values():
        if piece not in written:
            raise ExportError(f"{source}: the piece {piece!r} is not in the vocabulary")
    return {name: written.index(piece) for name, piece in pieces.items()}


def check_special(source: Path, written: Written, ids: Mapping[str, int]) -> None:
    """Raise ExportError if the source's own vocabulary has these pieces at other ids: the
    unknown and the end have one id on both sides."""
    for piece, number in ids.items():
        if written.source[number : number + 1] != [piece]:
            raise ExportError(
                f"{source}: {piece!r} has the id {number} in the target's vocabulary and another "
                "in the source's, which is not supported; both must have one"
            )


def find_sentencepiece(source: Path, *places: Path) -> tuple[Path, Path]:
    """The SentencePiece models of source and target in one of the folders; raises ExportError
    if there are none."""
    found = find_pair(dict.fromkeys((*places, source)), _PAIR, _SHARED)
    if found is not None:
        return found
    raise ExportError(
        f"{source}: no SentencePiece model there, by which texts were cut into pieces; put it "
        f"beside the weights as {' and '.join(_PAIR)}, or as {_SHARED[0]} where both sides share "
        "one"
    )
