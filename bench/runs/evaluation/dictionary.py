"""Whether rare words, names, numbers and dates come out right: lines of a dictionary, and sentences
with names, by kind.

A table has a text, its translation and a kind a line (`word`, `city`, `date`, `carrier`, ...).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.reports.report import table_head, table_line
from serving.translation.translator import Translator
from training.corpora.pairs import read_lines
from training.errors import CorpusError
from training.metrics.fidelity import kept_of, numbers_of

SENTENCES = ("carrier",)
"""Kinds of lines that are sentences around a name or a number."""
DATES = ("date",)
_TOGETHER = 64
_LEADING = re.compile(r"^(?:to|the|an?|der|die|das|eine?|le|la|les|el|los|las|une?|una) (?=\w)")
_WORD = re.compile(r"\w+")
_LITTLE = {"on", "the", "of", "in", "am", "den", "der", "de", "le", "du", "el", "del"}
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th|er|º|\.)?")


@dataclass(frozen=True)
class DictionaryLine:
    """A text with its translation and its kind."""

    source: str
    target: str
    kind: str
    """Kind of the line without its domain: `word` of `word.med`."""


@dataclass(frozen=True)
class DictionaryResult:
    """The lines of a kind, or the names or numbers in sentences."""

    system: str
    kind: str
    counted: int
    right: int


def read_dictionary(path: Path, direction: str = "") -> list[DictionaryLine]:
    """The lines of a table, translated from the left column to the right one; from right to left if
    `direction`, such as `en>de`, begins with the right column's language.

    A fourth column names the only direction of a line; lines for other directions are left out.
    Raises CorpusError, with the line, for a line with fewer than three columns.
    """
    found = []
    for number, line in enumerate(read_lines(path), 1):
        cells = line.split("\t")
        if len(cells) < 3:
            raise CorpusError(
                f"{path}:{number}: a line must have a text, its translation and a kind, with tabs "
                f"between, got {len(cells)} columns"
            )
        source, target, kind, *only = cells
        if only and only[0] and direction and only[0] != direction:
            continue
        if direction.startswith("en>"):
            source, target = target, source
        found.append(DictionaryLine(source, target, kind.partition(".")[0]))
    return found


def measure_dictionary(
    systems: Mapping[str, Translator],
    languages: tuple[str, str],
    lines: Sequence[DictionaryLine],
    names: Sequence[DictionaryLine],
    progress: Callable[[str], None],
) -> list[DictionaryResult]:
    """Check each system's first translation of each text.

    A word or name is right if it is one of its translations in the table; case, punctuation and
    article do not matter. A date is right if it has the same words and numbers. In a sentence the
    names in `names` that both of its sides contain are counted, and the numbers of the reference:
    each is right if the translation contains it.
    """
    wanted: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        wanted.setdefault((line.kind, line.source), set()).add(line.target)
    places = {name.source: name.target for name in names if name.kind not in SENTENCES + DATES}
    results = []
    for system, translator in systems.items():
        asked = list(wanted)
        outputs: list[str] = []
        for start in range(0, len(asked), _TOGETHER):
            texts = [text for _, text in asked[start : start + _TOGETHER]]
            found = translator.translate(texts, source=languages[0], target=languages[1])
            outputs += [each.text for each in found]
            progress(f"{system}: {len(outputs)} of {len(asked)}")
        counts: Counter[str] = Counter()
        right: Counter[str] = Counter()
        for (kind, source), output in zip(asked, outputs, strict=True):
            for what, hit in _judged(kind, source, wanted[kind, source], output, places):
                counts[what] += 1
                right[what] += hit
        results += [DictionaryResult(system, what, counts[what], right[what]) for what in counts]
    return results


def _judged(
    kind: str, source: str, targets: set[str], output: str, places: Mapping[str, str]
) -> Iterable[tuple[str, bool]]:
    """Yield each kind that a line counts for, and whether the output is right for it."""
    if kind in DATES:
        yield kind, any(_date(output) == _date(target) for target in targets)
    elif kind not in SENTENCES:
        yield kind, plain(output) in set(map(plain, targets))
    else:
        (target, *_) = sorted(targets)
        for name in _names(source, places):
            if _holds(target, places[name]):
                yield "names in sentences", _holds(output, places[name])
        for kept in kept_of(numbers_of(target), numbers_of(output)):
            yield "numbers in sentences", kept


def plain(text: str) -> str:
    """A word without case, punctuation and article: `to run.` is `run`."""
    return _LEADING.sub("", " ".join(_WORD.findall(text.casefold())))


def _names(source: str, places: Mapping[str, str]) -> list[str]:
    """The names in a sentence; of names inside each other only the longest."""
    words = source.split()
    found: list[str] = []
    for first in range(len(words)):
        for last in range(min(len(words), first + 4), first, -1):
            name = " ".join(words[first:last]).strip(".,;:!?")
            if name in places and not any(name in longer for longer in found):
                found.append(name)
    return found


def _holds(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _date(text: str) -> Counter[str]:
    words = (word.strip(".,") for word in text.casefold().split())
    return Counter(_ORDINAL.sub(r"\1", word) for word in words if word not in _LITTLE)


def dictionary_markdown(results: Sequence[DictionaryResult]) -> str:
    """A table with a row for each kind and a column for each system."""
    systems = list(dict.fromkeys(result.system for result in results))
    kinds = list(dict.fromkeys(result.kind for result in results))
    by_place = {(result.kind, result.system): result for result in results}
    rows = table_head(["kind", "counted", *systems])
    for kind in kinds:
        own = [by_place[kind, system] for system in systems]
        shares = [f"{100 * each.right / each.counted:.1f} %" for each in own]
        rows.append(table_line([kind, f"{own[0].counted:,}", *shares]))
    return "\n".join(rows)
