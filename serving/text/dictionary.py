"""A bilingual dictionary of words that a model does not know, and how they are found in a text.

An entry has a word and its translations. A word is written `singular/plural`, or alone if it has
one form; an adjective may have four (`moisi/moisie/moisis/moisies`), and German ones are written
alone. The first translation is the one to write; the others are right as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from serving.errors import BundleError
from serving.text.glossary import Match
from serving.text.inflection import plain

_ADVICE = "write it again with `macaron export dictionary`"
_LETTERS = r"(?:[^\W\d_][\u0300-\u036f]*)+"
WORD = re.compile(rf"{_LETTERS}(?:[-\u2010\u2011]{_LETTERS})*")
"""Pattern of the words of a text; `l'ail` are two."""
_ONE = r"(?=[^\t,/]*[^\W\d_])[^\t,/]+"
_FORMS = re.compile(rf"{_ONE}(?:/{_ONE}(?:/{_ONE}/{_ONE})?)?")
"""Pattern of a word: alone, with its plural, or with the four forms of an adjective."""
_LINE = re.compile(rf"[\w-]+\t{_FORMS.pattern}\t[\w-]+\t{_FORMS.pattern}(?:, {_FORMS.pattern})*")
_MOST_WORDS = 8
"""Most words of an entry that are looked up together."""
_SHORT = 3
"""Most letters of German nouns whose genitive in -es may be another word: `Wal`, but `Wales`."""
_LIGHT = ("e", "el", "em", "en", "er", "ling")
"""Ends of German nouns whose genitive has no e."""


class DictionaryEntry(NamedTuple):
    """A word and its translations, as files have them: a row of tab-separated values."""

    source: str
    """Language code of the word."""
    word: str
    """One word with its forms, separated by slashes."""
    target: str
    translations: str
    """One or more words with their forms, separated by commas."""


class _Meaning(NamedTuple):
    """What a form of a word means."""

    source: str
    target: str
    others: tuple[str, ...]
    plural: str = ""
    """The plural of `target`, if the form may be either."""


class _Pair:
    """The words of one pair of languages. Files are long and each process has its own copy, so an
    entry is one string here, and what a word means is read when a text has it."""

    def __init__(self, source: str, entries: Sequence[str]) -> None:
        """`entries` are words and their translations, with a tab between them."""
        self._source = source
        self.entries: dict[str, str] = {}
        """The entry of each form, written or made by rule, whose words are separated by blanks.
        Words with which longer forms begin are there as well, with nothing if they have no entry of
        their own."""
        self._longest: dict[str, int] = {}
        """The most words of a form, by its first word, if there are several."""
        for entry in entries:
            for form in _written(entry):
                self._add(form, entry)
        if source == "de":
            for entry in entries:  # no rule's form displaces one that is written
                for form, _ in _inflected(_forms(entry)):
                    self._add(form, entry)

    def _add(self, form: str, entry: str) -> None:
        first, *rest = form.split(" ")
        if rest:
            self._longest[first] = max(self._longest.get(first, 1), 1 + len(rest))
            self.entries.setdefault(first, "")
        if not self.entries.get(form):
            self.entries[form] = entry

    def longest(self, words: Sequence[str]) -> tuple[int, _Meaning] | None:
        """The meaning of the longest form with which words begin, and its number of words."""
        for length in range(min(self._longest.get(words[0], 1), len(words)), 0, -1):
            form = " ".join(words[:length])
            if entry := self.entries.get(form):
                return length, _meaning(self._source, entry, form)
        return None


class Dictionary:
    """The entries of a bundle's dictionary, indexed for lookup; immutable. Of several entries with
    the same form the first one counts."""

    def __init__(self, entries: Iterable[DictionaryEntry]) -> None:
        by_pair: dict[tuple[str, str], list[str]] = defaultdict(list)
        for source, word, target, translations in entries:
            by_pair[source, target].append(f"{word}\t{translations}")
        self._pairs = {pair: _Pair(pair[0], every) for pair, every in by_pair.items()}
        self.first_words = {pair: every.entries.keys() for pair, every in self._pairs.items()}
        """The words with which the entries of each pair of languages begin, in all forms, among
        longer forms. A text that has none of them, nor begins with one that lacks its capital, has
        no entry."""

    def found(self, text: str, source: str, target: str) -> tuple[Match, ...]:
        """The words of a text that have an entry, in order; of overlapping ones the first, and of
        those that begin together the longest."""
        pair = self._pairs.get((source, target))
        if pair is None:
            return ()
        spans = [each.span() for each in WORD.finditer(text)]
        words = [plain(text[slice(*span)]) for span in spans]
        found, number = list[Match](), 0
        while number < len(words):
            longest = pair.longest(words[number : number + _MOST_WORDS])
            if number == 0 and source == "de" and _is_verb(words):
                longest = None
            elif longest is None and number == 0:  # with a capital because it is the first
                small = words[0][:1].lower() + words[0][1:]
                longest = pair.longest([small, *words[1:_MOST_WORDS]])
            length, meaning = longest or (1, None)
            if meaning is not None:
                span = spans[number][0], spans[number + length - 1][1]
                found.append(Match(span, *meaning))
            number += length
        return tuple(found)


def read_dictionary(path: Path) -> Dictionary:
    """The dictionary of a bundle's file. Raises BundleError for a file that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise BundleError(f"{path}: cannot be read ({error}); {_ADVICE}") from error
    for number, line in enumerate(lines, 1):
        if _LINE.fullmatch(line) is None:
            raise BundleError(f"{path}: line {number}{_fault_of_line(line)}; {_ADVICE}")
    return Dictionary(DictionaryEntry(*line.split("\t")) for line in lines)


def _fault_of_line(line: str) -> str:
    cells = line.split("\t")
    if len(cells) != len(DictionaryEntry._fields) or not all(map(str.strip, cells)):
        return f" must have a language, a word, a language and its translations, got {line[:60]!r}"
    return (
        f": {fault_of(cells[1]) or fault_of(cells[3]) or 'must have one word in its second cell'}"
    )


def words_of(cell: str) -> list[str]:
    """The words of a cell, which are separated by commas, each with its forms."""
    return [word for part in cell.split(",") if (word := part.strip())]


def fault_of(cell: str) -> str:
    """What is wrong with a cell of words; empty if nothing is."""
    for word in words_of(cell) or [""]:
        if _FORMS.fullmatch(word) is None:
            return (
                f"{word!r} must be a word, a singular and a plural with a slash between them, or "
                "the four forms of an adjective"
            )
    return ""


def _forms(entry: str) -> list[str]:
    """The forms of an entry's word, as they are written."""
    return entry[: entry.index("\t")].split("/")


def _written(entry: str) -> list[str]:
    """The forms of an entry's word, as texts are searched for them: words separated by blanks."""
    return [form if form.isalpha() else " ".join(WORD.findall(form)) for form in _forms(entry)]


def _meaning(source: str, entry: str, form: str) -> _Meaning:
    """What a form of an entry's word means, by the numbers of both."""
    translations = words_of(entry[entry.index("\t") + 1 :])
    written = [word.split("/") for word in translations]
    one, many = written[0][0], written[0][-1]
    every = tuple(dict.fromkeys(form for forms in written for form in forms))
    forms = _forms(entry)
    singular, *more = forms
    if len(more) != 1:  # an adjective, or a word with one form
        return _Meaning(singular, one, every)
    [plural] = more
    as_written = _written(entry)
    if form not in as_written:
        form = next(base for made, base in _inflected(forms) if made == form)
    is_one = form in (singular, as_written[0])
    if singular == plural or (not is_one and source == "de" and _is_weak(singular, plural)):
        return _Meaning(plural, one, every, many)
    return _Meaning(singular, one, every) if is_one else _Meaning(plural, many, every)


def _is_weak(singular: str, plural: str) -> bool:
    """Whether a German plural may be a singular as well: `der Beamte`, `die Beamten`."""
    return singular.endswith("er") and plural == singular[:-1]


def _is_verb(words: Sequence[str]) -> bool:
    """Whether a German sentence begins with a verb that is a plural elsewhere: `Backen Sie`."""
    return words[0].endswith("n") and words[1:2] in (["Sie"], ["wir"])


def _inflected(forms: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The forms of a German word that are made by rule, each with the one of its `forms` that it is
    made of: those of an adjective (`dunkel`, `dunkle`), the genitive of a singular, whatever its
    gender, and the dative of a plural."""
    singular, *more = forms
    if singular[0].islower():
        stem = singular.removesuffix("e")
        stems = [stem, f"{stem[:-2]}{stem[-1]}"] if stem.endswith(("el", "er")) else [stem]
        ends = ("e", "en", "er", "es", "em")
        yield from ((f"{each}{end}", singular) for each in stems for end in ends)
        return
    hissing = singular.endswith(("s", "ß", "x", "z"))
    if not hissing:
        yield f"{singular}s", singular
    if hissing or (len(singular) > _SHORT and not singular.endswith(_LIGHT)):
        yield f"{singular}es", singular
    if len(more) == 1 and not more[0].endswith(("n", "s")):
        yield f"{more[0]}n", more[0]
