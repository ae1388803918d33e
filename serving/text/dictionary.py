"""A bilingual dictionary of words that a model does not know, and how they are found in a text.

An entry has a word and its translations. A word is written `singular/plural`, or alone if it has
one form; an adjective may have four (`moisi/moisie/moisis/moisies`), and German ones are written
alone. The first translation is the one to write; the others are right as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from serving.errors import BundleError
from serving.text.alignment import Span
from serving.text.glossary import Match
from serving.text.inflection import plain

_ADVICE = "write it again with `macaron export dictionary`"
_LETTERS = r"(?:[^\W\d_][\u0300-\u036f]*)+"
_WORD = re.compile(rf"{_LETTERS}(?:[-\u2010\u2011]{_LETTERS})*")
"""Pattern of the words of a text; `l'ail` are two."""
_SHORT = 3
"""Most letters of German nouns whose genitive in -es may be another word: `Wal`, but `Wales`."""
_LIGHT = ("e", "el", "em", "en", "er", "ling")
"""Ends of German nouns whose genitive has no e."""


class DictionaryEntry(NamedTuple):
    """A word and its translations, as files have them: a row of tab-separated values."""

    source: str
    """Language code of the word."""
    word: str
    """One word, with its plural after a slash if it has one."""
    target: str
    translations: str
    """One or more words, separated by commas; each with its plural after a slash if it has one."""


@dataclass(frozen=True)
class _Form:
    """A form of a word, and what it means."""

    source: str
    target: str
    others: tuple[str, ...]
    plural: str = ""
    """The plural of `target`, if the form may be either."""


@dataclass
class _Pair:
    """The words of one pair of languages."""

    forms: dict[tuple[str, ...], _Form] = field(default_factory=dict)
    """By the words that they are made of."""
    longest: dict[str, int] = field(default_factory=dict)
    """The most words of a form, by its first word."""

    def add(self, form: str, meaning: _Form) -> None:
        """Note a form, unless another entry has it."""
        key = tuple(map(plain, _WORD.findall(form)))
        if key and key not in self.forms:
            self.forms[key] = meaning
            self.longest[key[0]] = max(self.longest.get(key[0], 0), len(key))


class Dictionary:
    """The entries of a bundle's dictionary, indexed for lookup; immutable. Of several entries with
    the same form the first one counts."""

    def __init__(self, entries: Iterable[DictionaryEntry]) -> None:
        self._pairs: dict[tuple[str, str], _Pair] = {}
        rows = [(entry, *_meanings(entry)) for entry in entries]
        for entry, listed, _ in rows:
            pair = self._pairs.setdefault((entry.source, entry.target), _Pair())
            for form, meaning in listed:
                pair.add(form, meaning)
        for entry, _, inflected in rows:  # no rule's form displaces one that is written
            for form, meaning in inflected:
                self._pairs[entry.source, entry.target].add(form, meaning)

    def found(self, text: str, source: str, target: str) -> tuple[Match, ...]:
        """The words of a text that have an entry, in order; of overlapping ones the first, and of
        those that begin together the longest."""
        pair = self._pairs.get((source, target))
        if pair is None:
            return ()
        words = [(each.span(), plain(each[0])) for each in _WORD.finditer(text)]
        found, end = list[Match](), 0
        for number, (span, word) in enumerate(words):
            if number < end:
                continue
            first = word
            if number == 0 and word not in pair.longest:
                first = word[:1].lower() + word[1:]
            for length in range(pair.longest.get(first, 0), 0, -1):
                rest = words[number + 1 : number + length]
                form = pair.forms.get((first, *(each for _, each in rest)))
                if form is not None and len(rest) == length - 1:
                    whole: Span = (span[0], rest[-1][0][1] if rest else span[1])
                    found.append(Match(whole, form.source, form.target, form.others, form.plural))
                    end = number + length
                    break
        return tuple(found)


def read_dictionary(path: Path) -> Dictionary:
    """The dictionary of a bundle's file. Raises BundleError for a file that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise BundleError(f"{path}: cannot be read ({error}); {_ADVICE}") from error
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) != len(DictionaryEntry._fields) or not all(map(str.strip, row)):
            raise BundleError(
                f"{path}: line {number} must have a language, a word, a language and its "
                f"translations, got {lines[number - 1][:60]!r}; {_ADVICE}"
            )
        if fault := fault_of(row[1]) or fault_of(row[3]):
            raise BundleError(f"{path}: line {number}: {fault}; {_ADVICE}")
    return Dictionary(DictionaryEntry(*row) for row in rows)


def words_of(cell: str) -> list[str]:
    """The words of a cell, which are separated by commas, each with its plural if it has one."""
    return [word for part in cell.split(",") if (word := part.strip())]


def fault_of(cell: str) -> str:
    """What is wrong with a cell of words; empty if nothing is."""
    for word in words_of(cell) or [""]:
        forms = word.split("/")
        if len(forms) not in (1, 2, 4) or not all(_WORD.search(form) for form in forms):
            return (
                f"{word!r} must be a word, a singular and a plural with a slash between them, or "
                "the four forms of an adjective"
            )
    return ""


def _meanings(entry: DictionaryEntry) -> tuple[list[tuple[str, _Form]], list[tuple[str, _Form]]]:
    """The forms of an entry's word that are written, and those that follow by rule."""
    written = [word.split("/") for word in words_of(entry.translations)]
    one, many = written[0][0], written[0][-1]
    every = tuple(dict.fromkeys(form for forms in written for form in forms))
    singular, *rest = entry.word.split("/")
    as_one = _Form(singular, one, every)
    if len(rest) != 1:  # an adjective, or a word with one form
        inflected = _adjectives(singular) if entry.source == "de" else []
        listed = [(form, as_one) for form in (singular, *rest)]
        return listed, [
            (form, as_one) for form in (*_genitives(singular, entry.source), *inflected)
        ]
    plural = rest[0]
    as_many = _Form(plural, many, every)
    if _is_either(singular, plural, entry.source):
        as_many = _Form(plural, one, every, many)
        as_one = as_many if singular == plural else as_one
    return [(singular, as_one), (plural, as_many)], [
        *((form, as_one) for form in _genitives(singular, entry.source)),
        *((form, as_many) for form in _datives(plural, entry.source)),
    ]


def _is_either(singular: str, plural: str, language: str) -> bool:
    """Whether a plural may be a singular: `der Teller`, `die Teller`; `der Beamte`."""
    weak = language == "de" and singular.endswith("er") and plural == singular[:-1]
    return singular == plural or weak


def _genitives(singular: str, language: str) -> Iterator[str]:
    """The genitive of a German noun, whatever its gender."""
    if language != "de" or singular[0].islower() or singular.endswith(("s", "ß", "x", "z")):
        return
    yield f"{singular}s"
    if len(singular) > _SHORT and not singular.endswith(_LIGHT):
        yield f"{singular}es"


def _datives(plural: str, language: str) -> Iterator[str]:
    """The dative of a German plural."""
    if language == "de" and not plural.endswith(("n", "s")):
        yield f"{plural}n"


def _adjectives(word: str) -> Iterator[str]:
    """The forms of a German adjective, which has a small letter: `dunkel`, `dunkle`."""
    if not word[0].islower():
        return
    stem = word.removesuffix("e")
    stems = [stem, f"{stem[:-2]}{stem[-1]}"] if stem.endswith(("el", "er")) else [stem]
    for each in stems:
        yield from (f"{each}e{end}" for end in ("", "n", "r", "s", "m"))
