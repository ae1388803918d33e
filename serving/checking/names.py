"""Checks that names of countries, languages and cities stand in a translation in some form.

The names are those of Unicode CLDR, as Babel has them, and of places.tsv
(docs/background/decisions.md).
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.checking.dates import is_in_date, months, weekdays
from serving.checking.letters import fold
from serving.text.alignment import Span
from serving.text.kept.masks import MASKS

WORD = re.compile(r"[^\W\d_]+")
_NAME = re.compile(r"[^\W\d_]{2,}(?:[ .-]{1,2}[^\W\d_]+){0,2}")
"""A name of up to three words. Those with signs, such as `Congo - Kinshasa`, are not written so in
sentences."""
_BEGINNING, _OF_LONG = 3, 4
"""So many letters a word for a people shares with its country, `Polish` and `Poland`, and with one
of at least seven letters: `Indian` is no form of `Indonesia`."""
_LONG = 7
_WITHIN = 5
"""So many letters of a name show it in a compound: `südkoreanisch`."""
_FORMS = {
    "de": re.compile("(?:iens?|isch(?:e[mnrs]?)?|deutsch|er[ns]?|in|innen|en?)$"),
    "en": re.compile("(?:ish|ese|ab|an|ch|ic?|iard|ss|k|rb|at|nn|ole|ede|ane|man|men)s?$"),
    "es": re.compile("(?:[aeio]|an|in|ol)s?$"),
    "fr": re.compile("(?:[ao]is|c|e|ain|al|and|ien|in|ol)s?$"),
}
"""Endings, without diacritics, of words for peoples and their languages. Only between these
languages are names looked for: there it was measured."""
_SIMILAR, _VERY_SIMILAR = 0.7, 0.8
"""Similarity from which a word with a capital, and one without, is taken for a broken form of a
name: `Tadschistan` for `Tajikistan`, `bolivies` for `Bolivia`, but not `planned` for `Poland`."""
_REMEMBERED = 64
"""Number of language pairs whose names are kept."""
_COMPILED = 2048
"""Number of names whose patterns are kept."""
_SHORTEST_LANGUAGE = 4
"""Least letters of a language's name: `ido` is also a Spanish verb."""
_CONTINENTS = ("002", "005", "009", "142", "150")
_AMBIGUOUS = frozenset("AC AQ CP DG EA EU EZ GB HK IM JE MO PS QO RE TA UM UN US XA XB ZZ".split())  # noqa: SIM905
"""Territories with other common names in many languages (`US`, `GB`), and those whose names are
also words (`Ascension`, `Jersey`)."""
_ALSO_PEOPLE = frozenset(("Chad", "Florence", "Georgia", "Hesse", "Jordan", "Sofia", "Sofía"))
"""Names of countries, regions and cities that are more often something else, or a person."""
_CONTINENTS_OF_CITIES = ("Africa/", "America/", "Asia/", "Australia/", "Europe/")
_ALSO_WORDS = frozenset(("Bretaña", "Center", "Nice", "Nome", "Oral", "Regina", "Resolute"))
_PLACES = Path(__file__).with_name("places.tsv")
"""Cities and regions with other names in other languages, which CLDR does not have."""
_NO_LANGUAGES = frozenset(("cr", "la", "ve"))
"""Languages whose names are also words: `cree` and `venda` are Spanish verbs, `Latin` is a part of
`Latin America`."""
_ARTICLES = frozenset(("Den", "El", "La", "Las", "Le", "Les", "Los", "The"))
"""Articles with which names begin in lists, but not in sentences: `Le Caire`, `au Caire`."""
_SPOKEN = re.compile(
    r"\b(?:in|into|know|learn(?:ing)?|learns|speak(?:ing)?|speaks|spoke|teach(?:es)?|teaching|"
    r"understands?) \Z"
)
"""The English words before a language, where it is neither an adjective nor a people."""
_CAPITAL_BEFORE = re.compile(r"\b[A-Z\u00c0-\u00de][\w.-]* \Z")
_CAPITAL_AFTER = re.compile(r" [A-Z\u00c0-\u00de]")
_QUOTES = re.compile('["\u201c\u201e\u00ab\u2018\u201a]')
_ALSO: Mapping[str, tuple[str, ...]] = {
    "CH": ("schweiz", "suisse", "suiz", "swiss"),
    "DK": ("dan",),
    "FI": ("finn",),
    "FR": ("fren",),
    "GR": ("grie",),
    "IE": ("iris",),
    "NL": ("dutch", "holl", "neer", "holand"),
    "PL": ("polac",),
    "TR": ("turc", "turk"),
    "da": ("dane", "dano"),
    "nl": ("dutch", "holl", "nied", "holand"),
    "pl": ("pole", "polo"),
    "weekday 5": ("sonnabend",),
}
"""Further beginnings of words for a country or language, by its code: `French` for `France`."""


@dataclass(frozen=True)
class LostName:
    """A name of a source that its translation has in no form."""

    span: Span
    """Its span in the source."""
    wanted: str
    """The name in the target's language."""


@dataclass(frozen=True)
class _Name:
    source: str
    target: str
    words: tuple[str, ...]
    """The words of `target`, in small letters without diacritics."""
    beginnings: tuple[str, ...]
    """The first letters of the words."""
    also: tuple[str, ...]
    """Beginnings of other words for it."""
    code: str
    """Its code, which tells of what kind it is."""

    @property
    def is_language(self) -> bool:
        return len(self.code) == 2 and self.code.islower()

    @property
    def is_of_month(self) -> bool:
        return self.code.startswith("month ")

    @property
    def is_of_calendar(self) -> bool:
        return self.is_of_month or self.code.startswith("weekday ")

    @property
    def joined(self) -> str:
        """The words in one."""
        return "".join(self.words)

    def has_form(self, word: str, forms: re.Pattern[str]) -> bool:
        """Whether a folded word is the name, inflected, in a compound, or, with an ending of
        `forms`, a word for its people."""
        if self.is_of_month:
            return word in self.words
        if word.startswith((*self.words, *self.also)):
            return True
        if any(own[:_WITHIN] in word[1:] for own in self.words):
            return True
        has_people = not self.is_of_calendar
        return has_people and word.startswith(self.beginnings) and bool(forms.search(word))


def lost_names(
    source: str, output: str, source_language: str | None, target_language: str | None
) -> Iterator[LostName]:
    """The names of the source that are missing in the output.

    A name counts in any form: as an adjective, as a people, or inflected. A name that differs in
    both languages is missing if it was copied. Nothing is found for languages other than those of
    `_FORMS`.
    """
    found = _found(source, source_language, target_language)
    missing = [(span, name) for span, name in found if not _is_written(name, output)]
    if not missing:
        return
    words = [fold(word) for word in WORD.findall(output)]
    forms = _FORMS[_primary(target_language)]
    english = _primary(source_language) == "en"
    for span, name in missing:
        if _whole(name.source).search(output):  # copied
            lost = name.is_of_calendar or not _in_a_name(source, span)
        elif english and name.is_language and not _is_spoken(source, span):
            lost = False  # `French fries` are `frites`
        else:
            with_other_accents = name.joined in words
            lost = with_other_accents or not any(name.has_form(word, forms) for word in words)
        if lost:
            yield LostName(span, name.target)


def _is_written(name: _Name, text: str) -> bool:
    """Whether a name begins a word of a text, in any case; a month is a whole word, since `May`
    begins `maybe`."""
    found = _beginning(name.target).search(text)
    return found is not None and not (name.is_of_month and text[found.end() :][:1].isalpha())


@functools.lru_cache(_COMPILED)
def _beginning(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(name)}", re.IGNORECASE)


@functools.lru_cache(_COMPILED)
def _whole(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(name)}\b")


def likely_places(lost: str, wanted: str, output: str) -> Iterator[Span]:
    """The words of an output in whose place a lost name may belong, the likeliest first: copies of
    the source's name, then similar words."""
    copies = [match.span() for match in _whole(lost).finditer(output)]
    yield from copies
    count = len(lost.split())
    words = list(WORD.finditer(output))
    similar = []
    for first, last in zip(words, words[count - 1 :], strict=False):
        span = first.start(), last.end()
        alike = max(_similarity(output[slice(*span)], name) for name in (lost, wanted))
        least = _SIMILAR if output[span[0]].isupper() else _VERY_SIMILAR
        if alike >= least and span not in copies:
            similar.append((-alike, span))
    yield from (span for _, span in sorted(similar))


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, fold(one), fold(other)).ratio()


def has_names(source: str, source_language: str | None, target_language: str | None) -> bool:
    """Whether a text has names that would be looked for in its translation."""
    return next(_found(source, source_language, target_language), None) is not None


def _in_a_name(source: str, span: Span) -> bool:
    """Whether a name may be part of another one, which is kept as it is: `Sony Australia`, or one
    in quotation marks."""
    before = _CAPITAL_BEFORE.search(source, 0, span[0])
    if before is not None and source[: before.start()].strip():  # it does not begin the sentence
        return True
    return _CAPITAL_AFTER.match(source, span[1]) is not None or _QUOTES.search(source) is not None


def _found(
    source: str, source_language: str | None, target_language: str | None
) -> Iterator[tuple[Span, _Name]]:
    """The names of a text, in order; of names within each other only the longest."""
    known, done = _known(source_language, target_language), 0
    # `Englisch` does not translate `English` as an adjective or a people.
    nouns = _primary(source_language) == "en" and _primary(target_language) == "de"
    for match in WORD.finditer(source):
        begin = match.start()
        for name in known.get(match[0], ()) if begin >= done else ():
            span = begin, begin + len(name.source)
            if (
                source.startswith(name.source, begin)
                and _ends_word(source, *span)
                and (not name.is_of_month or is_in_date(source, span))
                and (not (nouns and name.is_language) or _is_spoken(source, span))
            ):
                done = span[1]
                yield span, name
                break


def _is_spoken(text: str, span: Span) -> bool:
    """Whether an English word is a language, and neither an adjective nor a people."""
    alone = text.strip() == text[slice(*span)]
    return alone or _SPOKEN.search(text, 0, span[0]) is not None


def _ends_word(text: str, begin: int, end: int) -> bool:
    """Whether a span is whole words, and no part of a compound with a hyphen."""
    after = text[end : end + 1]
    return not (after.isalnum() or after == "-" or text[begin - 1 : begin] == "-")


@functools.lru_cache(_REMEMBERED)
def first_words(source_language: str | None, target_language: str | None) -> frozenset[str]:
    """The words with which names begin that are looked for; none for other languages."""
    return frozenset(_known(source_language, target_language))


def _primary(language: str | None) -> str:
    """The language of a code with a region or script: `de` of `de-AT`."""
    return (language or "").partition("-")[0].lower()


@functools.lru_cache(_REMEMBERED)
def _known(
    source_language: str | None, target_language: str | None
) -> Mapping[str, Sequence[_Name]]:
    """The names in both languages by their first word, the longest first."""
    languages = _primary(source_language), _primary(target_language)
    if not _FORMS.keys() >= set(languages):
        return {}
    ours, theirs = map(_names, languages)
    found: dict[str, list[_Name]] = {}
    targets: dict[str, set[str]] = {}
    for code, name in ours.items():
        targets.setdefault(name, set()).add(theirs.get(code, ""))
    for code, name in ours.items():
        first = WORD.match(name)
        one = targets[name] == {theirs.get(code)}  # and not both a city and a country
        if one and first and name not in _ALSO_PEOPLE | _ALSO_WORDS:
            words = fold(theirs[code]).replace("-", " ").split()
            large = tuple(word for word in words if len(word) > _BEGINNING) or tuple(words)
            beginnings = tuple(
                word[: _BEGINNING if len(word) < _LONG else _OF_LONG] for word in large
            )
            entry = _Name(name, theirs[code], large, beginnings, _ALSO.get(code, ()), code)
            found.setdefault(first[0], []).append(entry)
    return {
        first: sorted(names, key=lambda name: -len(name.source)) for first, names in found.items()
    }


@functools.cache
def _names(language: str) -> Mapping[str, str]:
    """The names of countries, languages and cities in a language, by their codes."""
    from babel import Locale  # here: slow to import, and not always needed

    locale = Locale(language)
    places = {
        code: str(name)
        for code, name in locale.territories.items()
        if (len(code) == 2 and code not in _AMBIGUOUS) or code in _CONTINENTS
    }
    languages = {
        code: str(name)
        for code, name in locale.languages.items()
        if len(code) == 2 and len(str(name)) >= _SHORTEST_LANGUAGE and code not in _NO_LANGUAGES
    }
    calendar = {**months(language), **weekdays(language)}
    return (
        _fit(_places(language))
        | _fit(_cities(locale.time_zones))
        | _fit((places | languages | calendar).items())
    )


def _places(language: str) -> Iterator[tuple[str, str]]:
    """The names of `places.tsv` in a language, by their German ones."""
    head, *rows = (line.split("\t") for line in _PLACES.read_text("utf-8").splitlines())
    for row in rows:
        yield f"place {row[0]}", row[head.index(language)]


def _cities(zones: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Cities that time zones are named after. Where CLDR has no name of its own for a language, the
    zone's is its name."""
    for zone in _zones():
        if zone.startswith(_CONTINENTS_OF_CITIES):
            named: str | None = zones.get(zone, {}).get("city")
            yield zone, named or zone.rpartition("/")[2].replace("_", " ")


@functools.cache
def _zones() -> frozenset[str]:
    """The time zones whose cities CLDR names in one of the languages."""
    from babel import Locale

    return frozenset(str(zone) for language in _FORMS for zone in Locale(language).time_zones)


def _fit(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Those names that are written so in sentences, and are not read in place of anything else."""
    written = ((code, name.replace("&", "and")) for code, name in names if name not in MASKS)
    return {
        code: name
        for code, name in written
        if _NAME.fullmatch(name) and name.partition(" ")[0] not in _ARTICLES
    }
