"""Set phrases: sentences whose translations are known, such as greetings, wishes and the ends of
letters. Models translate them word by word if they have seen them too rarely.

A phrase may have names: `Liebe {name},` is the beginning of a letter to anybody.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from serving.errors import BundleError
from serving.text.offices import is_office

_ADVICE = "write it again with `macaron export phrases`"
_MARKED = re.compile(r"(?P<begin>[¿¡]?)(?P<words>.*?)\s?(?P<end>[.!?…:,]?)", re.DOTALL)
_BEGINNINGS = {"!": "¡", "?": "¿"}
"""Marks with which Spanish sentences begin, by their ends."""
_INTERCHANGED = ("", ".", "!")
"""Ends that make no other sentence of the same words."""
_OF_LETTERS = (",", ":", *_INTERCHANGED)
"""Ends that make no other greeting at the beginning of a letter."""
_SPACED = frozenset("!?:")
"""Marks with a space before them in French."""
_SLOT = re.compile(r"\{[a-z]+\}")
_NAME = r"(\S+(?: \S+){0,3})"
"""Pattern of what may be a name of up to four words."""
_WORD_OF_NAME = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*\.?")
"""Pattern of the words of names, of titles and of initials."""
_PARTICLES = frozenset(
    """
    al bin da dal de del della den der des di do dos du el la las le los ter van von vom zu zum zur
    """.split()  # noqa: SIM905
)
"""Words in small letters within names."""
_PRONOUNS = frozenset("du dich dir ihr euch sie ihnen toi vous tú usted ustedes".split())  # noqa: SIM905
"""Words that are no names, whatever their capitals."""
_LONGEST = 120
"""Most characters of a text with names, and of a greeting before a sentence."""


class Phrase(NamedTuple):
    """A phrase and its translation, as files have them: a row of tab-separated values."""

    source: str
    """Language code of the text."""
    text: str
    target: str
    translation: str


class _Marked(NamedTuple):
    words: str
    end: str


class _Written(NamedTuple):
    """A translation as it is written."""

    text: str
    large: str
    """For a text that begins with a capital."""


class _Named(NamedTuple):
    """A phrase with names."""

    pattern: re.Pattern[str]
    """Matches its words; a group for each name."""
    slots: tuple[str, ...]
    written: dict[str, _Written]
    """Its translation by the end of the text."""


class Phrases:
    """Set phrases. Capitals do not count, nor does the end, be it a full stop, an exclamation mark
    or nothing; the translation gets the same end. The comma or colon after a greeting at the
    beginning of a letter may be any of these too, and the end of a letter may have a comma. Of
    several translations of a phrase the first one counts."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self._known: dict[tuple[str, str, str], _Written] = {}
        self._before_names: dict[tuple[str, str, str], _Written] = {}
        """Translations of phrases with a comma, which stand before a name in the next line."""
        self._named: dict[tuple[str, str, str], list[_Named]] = defaultdict(list)
        self._greetings: set[tuple[str, str]] = set()
        """The first words of greetings at the beginning of letters, by their language."""
        for phrase in phrases:
            text = _marked(phrase.text)
            written = dict(_written(phrase))
            first = _first_word(text.words)
            comma = written.pop(",") if text.end in _INTERCHANGED else None
            if text.end == ",":
                self._greetings.add((phrase.source, first))
            if _SLOT.search(text.words):
                named = _Named(_pattern(text.words), tuple(_SLOT.findall(text.words)), written)
                self._named[phrase.source, phrase.target, first].append(named)
                continue
            for end, each in written.items():
                # Many people leave out marks at the beginning and blanks before those at the end.
                for form in (_with_end(text.words, end, phrase.source), text.words + end):
                    self._known.setdefault((phrase.source, phrase.target, _small(form)), each)
            if comma:
                form = _small(f"{text.words},")
                self._before_names.setdefault((phrase.source, phrase.target, form), comma)

    def translation(self, text: str, source: str, target: str) -> str | None:
        """The translation of a text that is a phrase, and None of any other."""
        found = self._translation(text, source, target)
        if found is not None:
            return found
        text = text.strip()
        written = self._before_names.get((source, target, _small(text)))
        return None if written is None else _in_case(written, text)

    def _translation(self, text: str, source: str, target: str) -> str | None:
        """The translation of a text with one of the ends that its phrase may have."""
        text = text.strip()
        written = self._known.get((source, target, _small(text)))
        if written is not None:
            return _in_case(written, text)
        if len(text) > _LONGEST:
            return None
        words, end = _marked(text)
        named = self._named.get((source, target, _first_word(words)), ())
        found = [
            (sum(map(len, names)), number, names)
            for number, each in enumerate(named)
            if end in each.written and (names := _names(each.pattern, words))
        ]
        if not found:
            return None
        _, number, names = min(found)  # the one that knows most of the words
        translation = _in_case(named[number].written[end], text)
        for slot, name in zip(named[number].slots, names, strict=True):
            translation = translation.replace(slot, name)
        return translation

    def greeting(self, text: str, source: str, target: str) -> int:
        """The end of a greeting, as letters begin, before the rest of a sentence: `Liebe Anna, wie
        geht es dir?` 0 if there is none."""
        if (source, _first_word(text)) not in self._greetings:
            return 0
        if self._translation(text, source, target):
            return 0
        ends = [found.end() for found in re.finditer(",(?= )", text[:_LONGEST])]
        known = (end for end in reversed(ends) if self._translation(text[:end], source, target))
        return next(known, 0)


def read_phrases(path: Path) -> Phrases:
    """The phrases of a bundle's file. Raises BundleError for a file that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise BundleError(f"{path}: cannot be read ({error}); {_ADVICE}") from error
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) != len(Phrase._fields) or not all(map(str.strip, row)):
            raise BundleError(
                f"{path}: line {number} must have a language, a phrase, a language and a "
                f"translation, got {lines[number - 1][:60]!r}; {_ADVICE}"
            )
        if fault := fault_of(Phrase(*row)):
            raise BundleError(f"{path}: line {number}: {fault}; {_ADVICE}")
    return Phrases(Phrase(*row) for row in rows)


def fault_of(phrase: Phrase) -> str:
    """What is wrong with the names of a phrase; empty if nothing is."""
    slots = _SLOT.findall(phrase.text)
    if sorted(slots) != sorted(_SLOT.findall(phrase.translation)) or len(slots) > len(set(slots)):
        return (
            f"{phrase.text!r} and {phrase.translation!r} must have the same names, each once, "
            "written as {name}"
        )
    if phrase.text.startswith("{"):
        return f"{phrase.text!r} must begin with a word, not with a name"
    return ""


def _written(phrase: Phrase) -> Iterator[tuple[str, _Written]]:
    """Each end that a text may have, with the translation."""
    text, translation = _marked(phrase.text), _marked(phrase.translation)
    large = translation.words
    if not text.words[:1].isupper():
        large = large[:1].upper() + large[1:]
    others = next((ends for ends in (_INTERCHANGED, _OF_LETTERS) if text.end in ends), ())
    ends = {end: end if end in _INTERCHANGED else translation.end for end in others}
    ends[text.end] = translation.end
    if text.end in _INTERCHANGED:
        ends[","] = ","
    for end, own in ends.items():
        yield (
            end,
            _Written(*(_with_end(each, own, phrase.target) for each in (translation.words, large))),
        )


def _in_case(written: _Written, text: str) -> str:
    return written.large if text[:1].isupper() else written.text


def _pattern(words: str) -> re.Pattern[str]:
    fixed = _SLOT.split(words)
    return re.compile(_NAME.join(f"(?i:{re.escape(_straight(part))})" for part in fixed))


def _names(pattern: re.Pattern[str], words: str) -> tuple[str, ...]:
    """The names in the words of a text; none if it is another text."""
    found = pattern.fullmatch(_straight(words))
    if found is None:
        return ()
    spans = [found.span(number) for number in range(1, pattern.groups + 1)]
    names = tuple(words[begin:end] for begin, end in spans)
    return names if all(map(_is_name, names)) else ()


def _is_name(text: str) -> bool:
    """Whether a text has the form of a name: words with capitals, and particles before them; and is
    no office."""
    words = text.split(" ")
    if text.lower() in _PRONOUNS or is_office(words[-1]):
        return False
    if words[-1] in _PARTICLES or not all(map(_WORD_OF_NAME.fullmatch, words)):
        return False
    return all(not word[0].islower() or word in _PARTICLES for word in words)


def _first_word(text: str) -> str:
    return _small(text.split(" ", 1)[0].rstrip(",:.!?"))


def _straight(text: str) -> str:
    return text.replace("’", "'")


def _small(text: str) -> str:
    return _straight(text).casefold()


def _marked(text: str) -> _Marked:
    found = _MARKED.fullmatch(text.strip())
    assert found  # every text has words, if only none
    return _Marked(found["words"], found["end"])


def _with_end(words: str, end: str, language: str) -> str:
    if language == "es" and end in _BEGINNINGS and not any(mark in words for mark in "¿¡"):
        words = _BEGINNINGS[end] + words
    space = " " if language == "fr" and end in _SPACED else ""
    return f"{words}{space}{end}"
