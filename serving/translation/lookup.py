"""Puts the translations of a bundle's dictionary where the model did not know a word.

The model translates freely. Where its translation has none of an entry's translations, the words
that its attention links to the entry's word are replaced (`serving.translation.glossing`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from serving.checking.surnames import surnames
from serving.text.dictionary import Dictionary
from serving.text.glossary import Match, tokens
from serving.text.languages import base_language
from serving.text.offices import is_office
from serving.translation.glossing import is_large, places_of, put_terms
from serving.translation.results import TextHypothesis, Translation

_OF_NAME = re.compile(r"(?<!\w)[^\W\da-zäöü_][^\W\d_]+ von \Z")
"""Pattern of a first name with a particle: `Beatrix von`."""
_ARTICLES = "the|an?|my|your|his|her|its|our|their|some|this|that|these|those|no|any|each|every"
_ARTICLE_BEFORE = re.compile(rf"\b(?:{_ARTICLES}) \Z", re.IGNORECASE)
_SUBJECT = re.compile(
    r"\b(?:I|you|he|she|it|we|they|who|will|would|can|could|should|must|may|might|shall|let's"
    r"|don't|doesn't|didn't|won't|can't) \Z",
    re.IGNORECASE,
)
_OBJECT = re.compile(rf" (?:{_ARTICLES}|me|him|us|them|it)\b", re.IGNORECASE)
_BEFORE = re.compile(r"(?<!\w)(?<!\d )[^\W\d_]+(?= \Z)")
"""Pattern of the word right before a place in a text, without a number before it (`1 Bund
Petersilie`)."""


@dataclass(frozen=True)
class Lookup:
    """The words of a sentence that have an entry in the dictionary; at least one."""

    text: str
    """The text of the sentence."""
    entries: tuple[Match, ...]
    source: str
    """The language of the text."""
    target: str
    """The language of the translation."""
    linked: bool
    """Whether the request asked for word links, which the search had to find in any case."""


def look_up(
    dictionary: Dictionary, text: str, source: str, target: str, *, linked: bool
) -> Lookup | None:
    """The words of a sentence that have an entry and are no surnames, and no verbs of English;
    None if there are none."""
    entries = dictionary.found(text, source, target)
    if not entries:
        return None
    names = list(surnames(text, source, target))
    words = tuple(
        each
        for each in entries
        if not any(begin < each.span[1] and each.span[0] < end for begin, end in names)
        and not (base_language(source) == "en" and _may_be_verb(each, text))
    )
    return Lookup(text, words, source, target, linked) if words else None


def _may_be_verb(entry: Match, text: str) -> bool:
    """Whether an English word stands where verbs do: behind a pronoun or an auxiliary, or before
    an article without one before it (`She dyes her hair`, `Loan me some money`)."""
    begin, end = entry.span
    if " " in entry.source or _ARTICLE_BEFORE.search(text[:begin]):
        return False
    return bool(_SUBJECT.search(text[:begin]) or _OBJECT.match(text[end:]))


def is_translated(entry: Match, output: str, language: str) -> bool:
    """Whether a translation has one of an entry's, in any inflected form."""
    return bool(places_of(entry, tokens(output, language), language))


def with_entries(translation: Translation, lookup: Lookup) -> Translation:
    """The translation of a sentence with the entries that it lacks, as far as the links show where
    they belong."""
    hypotheses = tuple(_with_entries(each, lookup) for each in translation.hypotheses)
    text = hypotheses[0].text if hypotheses else translation.text
    return replace(translation, text=text, hypotheses=hypotheses)


def _with_entries(hypothesis: TextHypothesis, lookup: Lookup) -> TextHypothesis:
    entries = [each for each in lookup.entries if not _is_copied(each, lookup, hypothesis.text)]
    if entries:
        hypothesis, _ = put_terms(hypothesis, lookup.text, entries, lookup.target)
    return hypothesis if lookup.linked else replace(hypothesis, alignment=None)


def _is_copied(entry: Match, lookup: Lookup, output: str) -> bool:
    """Whether a word is in the translation as it is in the text, and is a name: it has a capital
    that words have as the first one alone (`Granada`), or stands behind another word with a capital
    that is there, too (`Mark Adler`), behind an office or behind `von`."""
    begin, end = entry.span
    word, text_before = lookup.text[begin:end], lookup.text[:begin]
    if re.search(rf"\b{re.escape(word)}\b", output) is None:
        return False
    if word[0].isupper() and entry.source[0].islower():
        return True
    if _OF_NAME.search(text_before):
        return True
    before = _BEFORE.search(text_before)
    if before is None or not before[0][0].isupper():
        return False
    if any(other.span == before.span() for other in lookup.entries):
        return False
    if is_office(before[0]):
        return True
    large = is_large(before[0], lookup.source, noun=True)
    return large and lookup.text[before.start() : end] in output
