"""How a model reads a sentence whose capitals it has rarely seen, and how its translation is
written: whole sentences in capitals, words in capitals within a sentence, and short labels.

A word gets the case in which the vocabulary has it as one piece, if that is likelier than its
capitals: acronyms, names and words that the vocabulary does not know stay as they are
(docs/background/decisions.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from serving.text.alignment import Span
from serving.text.placing.capitals import (
    in_capitals,
    in_ordinary_case,
    is_acronym,
    is_small_word,
    raised,
)
from serving.text.placing.links import overlapping
from serving.text.placing.placement import Translated

Scores = Callable[[str], float | None]
"""The score of a word in the vocabulary, which is greater for likelier words; None if it is not one
piece."""
_LABEL = re.compile(r"[^\W\d_]{2,}(?: [^\W\d_]+(?:['’-][^\W\d_]+)*){0,2}:?")
_TITLE = re.compile(r"[^\W\d_]+(?:['’ -][^\W\d_]+)*")
_WORDS_OF_TITLE = 3
"""Least number of words of a title."""
_BETWEEN_NOUNS = frozenset(
    "A An And As At By For From In Is Of On Or Our The To With Your".split()  # noqa: SIM905
)
"""English words with a capital only in titles where all words have one."""
_NAMES = frozenset(
    """
    Angel Baker Bath Bill Blanca Brown Bush Carmen Clara Clément Constant Cruz Dawn Dean Dolores
    Drew Edge Excel Faith Fleur Flora Frank Gable Gates Grace Grant Guy Hope Iris Ivy Jack Jean Joy
    June Juste King Lance Lily Luz Marguerite Marina Marine Mark Max May Miles Nancy Nice Niger
    Olive Outlook Pat Paz Petit Pierre Pilar Polish Prudence Ray Rich Rob Roman Rosa Rose Ruby Rust
    Sandy Sat Slack Smith Sol Steam Sun Swift Turkey Valence Victor Violette Will Word
    """.split()  # noqa: SIM905
)
"""Names of people, places, products, days and months that are also words."""
_CODE = re.compile(r"[][<>=|]")
_SHORT, _LIKELY = 3, -10.0
"""Length of short words, and the score that they need: rare ones are the beginnings of others."""
_OF_BEST = 0.8
"""Share of the best link's probability from which a word is a translation, too: of `never` only
`jamais` is written in capitals in `ne dois JAMAIS`, but both words in `RIGHT AWAY`."""
_MEASURED = frozenset(("de", "en", "es", "fr"))
"""Languages of the sentences that are read so: there it was measured."""
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CHUNK = re.compile(r"[^\s.,:;!?…()¿¡]+")
_APART = re.compile(r"(?:^|(?<=[\s(¿¡]))[^\W\d_]+(?=[.,:;!?…)]*(?:\s|$))")
"""A word that is neither quoted nor a part of a code or a compound."""
_SHORT_WORDS = {
    "de": "ab am du er es im ja so wo zu",
    "en": "be do he if is me my no so we",
    "es": "el mi no si sí su ti tu tú yo",
    "fr": "ce je ma ne sa si ta tu un",
}
"""Words of two letters that are emphasised; most others in capitals are acronyms."""
_OTHER_MEANINGS = frozenset(
    """
    AIDS ALS ARM BASIC BILD CAT DIN DOS ESO EST GAP ICE MAC MARIA MIT MUNDO ONCE PIN POP RAM ROM SAT
    SEAT SIM SPIEGEL SWIFT TAN USA VISA WELT WHO ZEIT
    """.split()  # noqa: SIM905
)
"""Acronyms and names that are also words."""
_KEYS_AND_MARKS = frozenset(
    """
    ALT BACK CTRL DEL END ENTER ESC ESCAPE HOME LICENSE NEXT README RETURN SHIFT SPACE TAB TODO
    """.split()  # noqa: SIM905
)
"""Keys and buttons, and names of files and marks."""
_ORDINARY = {"de": frozenset(("MIT",)), "es": frozenset(("TAN", "TODO"))}
"""Those of them that are common words of a language."""
_OF_PROGRAMS = frozenset(
    """
    AND CASE CREATE DELETE DROP ELSE EXISTS FALSE FOR FROM GET GROUP HAVING HEAD INSERT INTO JOIN
    LIKE LIMIT NULL OR ORDER PATCH POST PUT REPEAT SELECT SET TABLE TRUE UNION UPDATE VALUES WHERE
    WHILE XOR
    """.split()  # noqa: SIM905
)
"""Words of programming languages and protocols. In a sentence with one of them, others in capitals
are such words, too."""


class CasedSentence(NamedTuple):
    """A sentence as the model reads it."""

    text: str
    whole: bool = False
    """Whether all of its translation is written in capitals."""
    emphasised: tuple[Span, ...] = ()
    """Spans of words whose translations are written in capitals; word links show these."""
    label: bool = False
    """Whether the translation begins with a capital, unless its first word has one elsewhere: of a
    label, or of a title."""

    def written(self, translated: Translated) -> Translated:
        """The translation as it is written."""
        if self.whole:
            return raised(translated)
        if self.label:
            first = _WORD.search(translated.text)
            spans = [(first.start(), first.start() + 1)] if first and first[0].islower() else []
            return raised(translated, spans)
        if not self.emphasised:
            return translated
        spans = [span for word in self.emphasised for span in _translations(word, translated)]
        return raised(translated, spans)


def cased_sentence(
    text: str, words: str, language: str, kept: Collection[Span], score: Scores | None
) -> CasedSentence:
    """How to read a sentence; `words` is the sentence without its `kept` objects, and without
    `score` the vocabulary tells nothing."""
    if words.isupper() and in_capitals(words):
        return CasedSentence(in_ordinary_case(text, language, kept), whole=True)
    if score is None or language not in _MEASURED:
        return CasedSentence(text)
    if text == words and is_label(text, language):
        return CasedSentence(text, label=True)
    if text == words and language == "en" and _is_title(text):
        return CasedSentence(_WORD.sub(lambda word: _in_title(word, score), text), label=True)
    spans = _emphasised(words, language, score)
    if not spans:
        return CasedSentence(text)
    read = list(text)
    first = next(i for i, c in enumerate(text) if c.isalpha())
    for begin, end in spans:
        read[begin:end] = _likelier(text[begin:end], language, score) or text[begin:end]
        if begin == first:
            read[begin] = text[begin]
    whole = words.isupper() and len(spans) == len(_WORD.findall(words))
    return CasedSentence("".join(read), whole, () if whole else spans)


def is_label(text: str, language: str) -> bool:
    """Whether a text is a few words with one capital, at its beginning, and without an end, such as
    the label of a button or an item of a list. In German any noun has a capital."""
    return (
        language in _MEASURED - {"de"}
        and _LABEL.fullmatch(text) is not None
        and text[0].isupper()
        and text[1:].islower()
    )


def label_in_small_letters(text: str, language: str, score: Scores) -> str | None:
    """A label with a small letter first, as which it is likelier: models take a lone word with a
    capital for a name, and copy it. None for a text that is none or has a name, and if the capital
    is likelier."""
    if not is_label(text, language) or not _is_likelier_small(text.split()[0].strip(":"), score):
        return None
    return text[0].lower() + text[1:]


def _is_likelier_small(word: str, score: Scores) -> bool:
    """Whether a word with a capital first is likelier in small letters, and no known name."""
    small, own = score(word.lower()), score(word)
    return word not in _NAMES and small is not None and (own is None or small > own)


def _is_title(text: str) -> bool:
    """Whether all words of an English text have a capital, those between nouns too: `Terms And
    Conditions`."""
    words = _WORD.findall(text)
    return (
        len(words) >= _WORDS_OF_TITLE
        and _TITLE.fullmatch(text) is not None
        and all(word[0].isupper() for word in words)
        and not _BETWEEN_NOUNS.isdisjoint(words[1:-1])
    )


def _in_title(word: re.Match[str], score: Scores) -> str:
    """A word of a title as it is read."""
    first = word.start() == 0
    return word[0].lower() if not first and _is_likelier_small(word[0], score) else word[0]


def _translations(word: Span, translated: Translated) -> list[Span]:
    """The words of a translation that are linked to a word, without those that it has linked much
    less."""
    links = [link for link in translated.links if overlapping([word], link.source)]
    least = _OF_BEST * max((link.probability for link in links), default=0.0)
    return [link.target for link in links if link.probability >= least]


def _emphasised(words: str, language: str, score: Scores) -> tuple[Span, ...]:
    """The words in capitals that are ordinary words. Adjacent ones are all so or none: a name of
    several words is not divided."""
    runs: list[list[re.Match[str]]] = []
    for found in _CHUNK.finditer(words):
        if len(found[0]) == 1 or not found[0].isupper():
            continue
        if found[0] in _OF_PROGRAMS:
            return ()
        if runs and words[runs[-1][-1].end() : found.start()].isspace():
            runs[-1].append(found)
        else:
            runs.append([found])
    if not runs or _CODE.search(words):
        return ()
    return tuple(
        found.span()
        for run in runs
        if all(
            _APART.match(words, found.start()) and _likelier(found[0], language, score)
            for found in run
        )
        for found in run
    )


def _likelier(word: str, language: str, score: Scores) -> str | None:
    """The case in which a word in capitals is likelier; None if it stays as it is."""
    small = word.lower()
    if len(small) != len(word) or _stays(word, small, language):
        return None
    forms = [small]
    if language == "de" and not is_small_word(small):
        forms.append(word[0] + small[1:])  # only here is it a noun rather than a name
    scores = {form: found for form in forms if (found := score(form)) is not None}
    if len(word) <= _SHORT:
        scores = {form: found for form, found in scores.items() if found > _LIKELY}
    own = score(word)
    if not scores or (own is not None and own >= max(scores.values())):
        return None
    return max(scores, key=lambda form: scores[form])


def _stays(word: str, small: str, language: str) -> bool:
    """Whether a word in capitals is no ordinary word of its language, whatever its score."""
    if len(word) == 2 and small not in _SHORT_WORDS[language].split():
        return True
    known = word in _OTHER_MEANINGS or word in _KEYS_AND_MARKS
    return is_acronym(word, language) or (known and word not in _ORDINARY.get(language, ()))
