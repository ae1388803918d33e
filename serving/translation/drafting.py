"""Starts a translation with the translation of a similar sentence (the draft).

The model first reads the draft's translation as a given output. Its attention shows which words of
that output come from words that both sentences share. The sentence is then decoded with the words
before the first other one as a forced prefix. If a prefix word is far less likely for the sentence
than it was for the draft, such as an article of another gender, the prefix is cut before it and the
sentence is decoded once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from serving.arrays import Doubles
from serving.bundle.tokenizer import TextTokenizer
from serving.search.beams.sentence import Beginning, Drafted, Hypothesis, Sentence
from serving.text.alignment import Span, word_spans

_CHANGED = 0.15
"""Smallest share of a word's attention that must go to changed words of the draft for the word to
count as coming from them (docs/background/decisions.md)."""
_LESS_LIKELY = 1.0
"""Largest drop of a word's log-probability from the draft to the sentence (same page)."""


def first_changed(weights_IJ: Doubles, changed: Span) -> int:
    """Number of words of a draft's translation before the first one that comes from a changed word.

    `weights_IJ` is the share of each output word's attention that each word of the draft gets;
    `changed` is the range of changed words. Returns 0 if no output word comes from them, because
    then the end of the common beginning is unknown.
    """
    shares_I = weights_IJ[:, slice(*changed)].sum(axis=1)
    found = (shares_I >= _CHANGED).nonzero()[0]
    return int(found[0]) if len(found) else 0


def begun(
    drafted: Drafted, hypothesis: Hypothesis, first_length: int, count: int, target: TextTokenizer
) -> Sentence:
    """The sentence with the first `count` ids of the draft's translation as its forced prefix,
    after the `first_length` ids of the language."""
    end = first_length + count
    prefix = hypothesis.tokens[:end]
    if not count:
        return replace(drafted.sentence, target_prefix=prefix, beginning=None)
    beginning = Beginning(target.decode(list(prefix[first_length:])), hypothesis.token_scores[:end])
    return replace(drafted.sentence, target_prefix=prefix, beginning=beginning)


def shortened(
    sentence: Sentence, found: Hypothesis, first_length: int, target: TextTokenizer
) -> Sentence | None:
    """The sentence with a shorter forced prefix, or None if the whole prefix may stay."""
    assert sentence.beginning is not None
    ids = list(sentence.target_prefix[first_length:])
    ends = [first_length + end for end in ids_before(ids, word_spans(target.decode(ids)), target)]
    as_draft, here = sentence.beginning.token_scores, found.token_scores
    for begin, end in pairwise([first_length, *ends]):
        if sum(here[begin:end]) < sum(as_draft[begin:end]) - _LESS_LIKELY:
            before = replace(found, token_scores=as_draft)
            return begun(
                Drafted(sentence, (0, 0)), before, first_length, begin - first_length, target
            )
    return None


def ids_before(ids: Sequence[int], words: Sequence[Span], target: TextTokenizer) -> list[int]:
    """For each word, the number of ids that are needed to write the text up to the word's end."""
    ends = [end for _, end in target.decoded_spans(list(ids))]
    return [sum(end <= word_end for end in ends) for _, word_end in words]
