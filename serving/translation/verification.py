"""A translation compared with its source, and what becomes of it where the two differ.

The next best hypothesis without a fault is taken; else a figure that became another one is put
right where it stands; else the sentence is decoded once more, with what is missing as a required
term; else the source's form is put where the model's attention says. What is left is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from serving.bundle.languages import Languages
from serving.checking.invariants import Fault, faults, is_noteworthy
from serving.checking.repairs import (
    Edit,
    RepairedBy,
    edited,
    edited_links,
    first_without_faults,
    left_of,
    put_right,
    repairs,
    wishes,
)
from serving.errors import InvalidOptionError
from serving.search.beams.constraints import Constraints
from serving.search.beams.sentence import Original, Sentence
from serving.text.terms import TermReader, Terms
from serving.translation.results import Again, Done, TextHypothesis, Translation

_WORSE = 0.5
"""How much lower the score of a second search may be: what is far less likely is hardly a sentence
(docs/background/decisions.md)."""
_MOST_FAULTS = 3
"""With how many a sentence is decoded once more. Of 18 with more of them, long lists of figures,
that helped two (docs/background/decisions.md), and they take longest."""
Hypotheses = tuple[TextHypothesis, ...]


def original_of(
    text: str, languages: Languages, source: str | None, target: str | None
) -> Original:
    """What the translation of a text is compared with; `languages` are those of the model, which
    count where it has one pair and the text's are not given."""
    ours = source or (languages.source[0] if len(languages.source) == 1 else None)
    theirs = target or (languages.target[0] if len(languages.target) == 1 else None)
    return Original(text, ours, theirs, is_noteworthy(text))


def verified(
    sentence: Sentence,
    original: Original,
    translation: Translation,
    others: Callable[[], Hypotheses],
    reader: TermReader,
) -> Done | Again:
    """The translation, put right if need be, or the sentence to decode in its place.

    `others` gives the hypotheses that were not asked for. What has been streamed stays, so that of
    a streamed sentence no other hypothesis is taken, and nothing is put in.
    """
    first = original.first
    if first is None:
        return _after_first(sentence, original, translation, others, reader)
    assert isinstance(first, Translation)
    return Done(_as_asked(_after_second(sentence, original, first, translation, others), first))


def _after_first(
    sentence: Sentence,
    original: Original,
    translation: Translation,
    others: Callable[[], Hypotheses],
    reader: TermReader,
) -> Done | Again:
    languages = original.source, original.target
    wrong = faults(original.text, translation.text, languages)
    if not wrong:
        return Done(translation)
    if not sentence.streamed:
        better = _better(original, translation, others(), wrong)
        if better is not None:
            return Done(_repaired(better, wrong, "hypothesis"))
        edits = put_right(original.text, translation.text, (), languages)
        if edits and all(_alike(translation.text, edit) for edit in edits):
            return Done(_repaired(_edited(translation, edits), wrong, "source"))
    constraints = None if sentence.constraints else _constraints(wrong, reader)
    if constraints is None:
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
    others: Callable[[], Hypotheses],
) -> Translation:
    languages = original.source, original.target
    wrong = faults(original.text, first.text, languages)
    if second.hypotheses[0].score < first.hypotheses[0].score - _WORSE and not sentence.streamed:
        return _from_source(original, first, wrong) or _warned(first, wrong)
    left = left_of(wrong, original.text, second.text, languages)
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
    """The translation with the source's own forms in their places; None where these are not
    known."""
    links = tried.hypotheses[0].alignment or ()
    edits = put_right(original.text, tried.text, links, (original.source, original.target))
    return _repaired(_edited(tried, edits), wrong, "source") if edits else None


def _better(
    original: Original, translation: Translation, others: Hypotheses, wrong: Sequence[Fault]
) -> Translation | None:
    """The translation with the best hypothesis that has none of the faults `wrong`, and no other,
    before the rest."""
    hypotheses = (*translation.hypotheses, *others)
    texts = [hypothesis.text for hypothesis in hypotheses]
    number = first_without_faults(original.text, texts, (original.source, original.target), wrong)
    if number is None:
        return None
    ordered = (hypotheses[number], *hypotheses[:number], *hypotheses[number + 1 :])
    return _with(translation, ordered[: len(translation.hypotheses)])


def _warned(translation: Translation, left: Sequence[Fault]) -> Translation:
    kinds = (fault.kind for fault in left if not fault.elsewhere)
    warnings = dict.fromkeys((*translation.warnings, *kinds))
    return replace(translation, warnings=tuple(warnings))


def _as_asked(second: Translation, first: Translation) -> Translation:
    """What the second search found, without links where they were not asked for, and without the
    warning of a term that no client has required."""
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
    """Whether most digits of a figure are those of the one that takes its place."""
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
    """What a second search is held to; None where that would not help, or cannot be written."""
    if len(found) > _MOST_FAULTS:
        return None
    wanted = wishes(found)
    if not wanted:
        return None
    try:
        return reader.constraints("", Terms(wanted.required, wanted.forbidden))
    except InvalidOptionError:
        return None
