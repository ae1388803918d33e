"""Repairs the differences of a translation from its source.

The repairs are tried in this order: take the next best hypothesis without a fault; correct a figure
that became another one, or a name that was copied or broken; decode the sentence once more, with
the missing part as a required term; put the source's form, or the name in the target's language,
where the model's attention points. If none succeeds, there is a warning.

A label that a model copies is decoded once more as well, with a small letter first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from serving.checking.invariants import Fault
from serving.checking.letters import fold
from serving.checking.names import WORD
from serving.checking.repairs import (
    RepairedBy,
    first_without_faults,
    left_of,
    put_right,
    repairs,
    wishes,
)
from serving.errors import InvalidOptionError
from serving.search.beams.constraints import Constraints
from serving.search.beams.sentence import Original, Sentence
from serving.text.edits import Edit, edited, edited_links
from serving.text.terms import TermReader, Terms
from serving.translation.results import Again, Done, TextHypothesis, Translation

_WORSE = 0.5
"""Largest drop of the score in a second search. A far less probable output is hardly a sentence
(docs/background/decisions.md)."""
_MOST_FAULTS = 3
"""Largest number of faults with which a sentence is decoded once more. It helped only two of 18
sentences with more, which were long lists of figures and took longest
(docs/background/decisions.md)."""
Hypotheses = tuple[TextHypothesis, ...]


def verified(
    sentence: Sentence,
    original: Original,
    translation: Translation,
    wrong: Sequence[Fault],
    others: Callable[[], Hypotheses],
    reader: TermReader,
) -> Done | Again:
    """The translation, repaired as far as possible, or the sentence to decode instead. `wrong` are
    the faults of the first search's translation, at least one.

    `others` returns the hypotheses beyond the requested ones. Streamed text cannot change, so a
    streamed sentence gets no other hypothesis and no part of the source.
    """
    first = original.first
    if first is None:
        return _after_first(sentence, original, translation, wrong, others, reader)
    assert isinstance(first, Translation)
    second = _after_second(sentence, original, first, translation, wrong, others)
    return Done(_as_asked(second, first))


def _after_first(
    sentence: Sentence,
    original: Original,
    translation: Translation,
    wrong: Sequence[Fault],
    others: Callable[[], Hypotheses],
    reader: TermReader,
) -> Done | Again:
    if not sentence.streamed:
        better = _better(original, translation, others(), wrong)
        if better is not None:
            return Done(_repaired(better, wrong, "hypothesis"))
        edits = put_right(original.text, translation.text, (), (original.source, original.target))
        names = {fault.wanted for fault in wrong if fault.kind == "names"}
        if edits and all(edit.text in names or _alike(translation.text, edit) for edit in edits):
            return Done(_repaired(_edited(translation, edits), wrong, "source"))
    constraints = None if sentence.constraints else _constraints(wrong, reader)
    if constraints is None and not _places_unknown(sentence, translation, wrong):
        put_in = None if sentence.streamed else _from_source(original, translation, wrong)
        return Done(put_in or _warned(translation, wrong))
    # The attention will say where what is still missing belongs.
    second = replace(original, first=translation)
    return Again(replace(sentence, text=original.text, constraints=constraints, original=second))


def _after_second(
    sentence: Sentence,
    original: Original,
    first: Translation,
    second: Translation,
    wrong: Sequence[Fault],
    others: Callable[[], Hypotheses],
) -> Translation:
    if second.hypotheses[0].score < first.hypotheses[0].score - _WORSE and not sentence.streamed:
        return _from_source(original, first, wrong) or _warned(first, wrong)
    left = left_of(wrong, original.text, second.text, (original.source, original.target))
    if not left:
        return _repaired(second, wrong, "search")
    if sentence.streamed:
        return _warned(second, left)
    better = _better(original, second, others(), wrong)
    if better is not None:
        return _repaired(better, wrong, "search")
    for tried in (second, first):
        found = _from_source(original, tried, wrong)
        if found is not None:
            return found
    return _warned(first, wrong) if len(wrong) <= len(left) else _warned(second, left)


def _from_source(
    original: Original, tried: Translation, wrong: Sequence[Fault]
) -> Translation | None:
    """The translation with the source's forms in their places; None if the places are unknown."""
    links = tried.hypotheses[0].alignment or ()
    edits = put_right(original.text, tried.text, links, (original.source, original.target))
    return _repaired(_edited(tried, edits), wrong, "source") if edits else None


def _better(
    original: Original, translation: Translation, others: Hypotheses, wrong: Sequence[Fault]
) -> Translation | None:
    """The translation with the best hypothesis first that has neither the faults `wrong` nor
    others; None if there is none."""
    hypotheses = (*translation.hypotheses, *others)
    texts = [hypothesis.text for hypothesis in hypotheses]
    number = first_without_faults(original.text, texts, (original.source, original.target), wrong)
    if number is None:
        return None
    ordered = (hypotheses[number], *hypotheses[:number], *hypotheses[number + 1 :])
    return _with(translation, ordered[: len(translation.hypotheses)])


def _places_unknown(sentence: Sentence, translation: Translation, wrong: Sequence[Fault]) -> bool:
    """Whether names are all that is missing, and a second search, of the same sentence with word
    links, would say where they belong."""
    return (
        not sentence.streamed
        and sentence.constraints is None
        and translation.hypotheses[0].alignment is None
        and all(fault.kind == "names" for fault in wrong)
    )


def _warned(translation: Translation, left: Sequence[Fault]) -> Translation:
    kinds = (fault.kind for fault in left if not fault.elsewhere)
    warnings = dict.fromkeys((*translation.warnings, *kinds))
    return replace(translation, warnings=tuple(warnings))


def _as_asked(second: Translation, first: Translation) -> Translation:
    """The result of the second search, without word links unless the request asked for them, and
    without a warning about terms that no client required."""
    warnings = tuple(warning for warning in second.warnings if warning != "constraints")
    hypotheses = second.hypotheses
    if first.hypotheses[0].alignment is None:
        hypotheses = tuple(replace(hypothesis, alignment=None) for hypothesis in hypotheses)
    return replace(second, warnings=warnings, hypotheses=hypotheses)


def _repaired(translation: Translation, wrong: Sequence[Fault], by: RepairedBy) -> Translation:
    return replace(translation, repaired=repairs(wrong, by))


def _with(translation: Translation, hypotheses: Hypotheses) -> Translation:
    return replace(translation, text=hypotheses[0].text, hypotheses=hypotheses)


def _alike(text: str, edit: Edit) -> bool:
    """Whether most digits of two figures are equal, so that one replaces the other."""
    old = sorted(filter(str.isdecimal, text[slice(*edit.span)]))
    new = sorted(filter(str.isdecimal, edit.text))
    shared = sum(min(old.count(digit), new.count(digit)) for digit in set(old))
    return bool(shared) and 2 * shared >= min(len(old), len(new))


def _edited(translation: Translation, edits: Sequence[Edit]) -> Translation:
    best = translation.hypotheses[0]
    links = None if best.alignment is None else edited_links(best.alignment, edits)
    changed = replace(best, text=edited(best.text, edits), alignment=links)
    return _with(translation, (changed, *translation.hypotheses[1:]))


def _constraints(found: Sequence[Fault], reader: TermReader) -> Constraints | None:
    """The constraints of a second search; None if it would not help, or if the model cannot write
    them."""
    if len(found) > _MOST_FAULTS:
        return None
    wanted = wishes(found)
    if not wanted:
        return None
    try:
        return reader.constraints("", Terms(wanted.required, wanted.forbidden))
    except InvalidOptionError:
        return None


def read_again_if_copied(
    sentence: Sentence, text: str, ids: Sequence[int], *, alignments: bool
) -> Sentence:
    """The sentence of a label, which is streamed at its end, and is replaced if it is copied by the
    one with this text and these ids."""
    other = replace(
        sentence, source=ids, text=text if alignments else None, original=None, streamed=False
    )
    return replace(sentence, streamed=False, if_copied=other)


def is_copied(label: str, translation: str) -> bool:
    """Whether a translation has the first word of the label, if only with other diacritics."""
    first, *_ = WORD.findall(fold(label))
    return first in WORD.findall(fold(translation))
