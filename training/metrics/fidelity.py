"""Errors that word scores hardly show: copies, loops, lost numbers and lost placeholders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LOOP = re.compile(r"(.{2,60}?)\1{3}", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:[.,'’]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
_PLACEHOLDER = re.compile(
    r"https?://[^\s<>\"]*[^\s<>\".,;:!?)]"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\$?\{\{?[^{}\s]+\}\}?"  # {name}, {{name}}, ${name}
    r"|(?<![\d%])%(?:\([^()\s]+\)|\d+\$)?[sdifu@](?!\w)"  # %s, %(name)s, %1$s
)


@dataclass(frozen=True)
class Fidelity:
    """Shares, 0 to 1; blank sources are left out."""

    copied: float
    """Share of translations that equal their source apart from white space."""
    repeated: float
    """Share of translations with a piece of text four times in a row, although the source has
    none."""
    numbers_kept: float | None
    """Share of the sources' numbers that are in the translation, however grouped ("1.000,5" is
    "1,000.5"); None if no source has one."""
    placeholders_kept: float | None
    """Share of the sources' `{name}`, `%s`, `${x}`, addresses and the like that are unchanged in
    the translation; None if no source has one."""


def measure_fidelity(sources: list[str], translations: list[str]) -> Fidelity:
    """Compare translations with sources in the same order."""
    pairs = [
        (source, translation)
        for source, translation in zip(sources, translations, strict=True)
        if source.strip()
    ]
    return Fidelity(
        copied=_share(source.split() == target.split() for source, target in pairs) or 0.0,
        repeated=_share(_loops(target) and not _loops(source) for source, target in pairs) or 0.0,
        numbers_kept=_share(kept for pair in pairs for kept in kept_of(*map(numbers_of, pair))),
        placeholders_kept=_share(
            kept for pair in pairs for kept in kept_of(*map(_PLACEHOLDER.findall, pair))
        ),
    )


def _share(outcomes: Iterable[bool]) -> float | None:
    counts = Counter(outcomes)
    return counts[True] / counts.total() if counts else None


def _loops(text: str) -> bool:
    """Whether a piece of 2 to 60 characters with a letter occurs four times in a row."""
    return any(any(map(str.isalpha, match[1])) for match in _LOOP.finditer(text))


def numbers_of(text: str) -> list[str]:
    """The digits of each number, except in placeholders and addresses."""
    return [re.sub(r"\D", "", number) for number in _NUMBER.findall(_PLACEHOLDER.sub(" ", text))]


def kept_of(wanted: list[str], found: list[str]) -> Iterator[bool]:
    """Yield for each wanted item whether it was found. Each found item is used at most once."""
    left = Counter(found)
    for item in wanted:
        yield left[item] > 0
        left[item] -= 1
