"""The beginning of a translation, from that of a sentence that is like it.

The draft's translation is read by the model first, as a translation of the draft: its attention
tells which words of it come from words that the sentence has as well. Then the sentence is decoded
with those before the first other one as a prefix. What the model finds far less likely there than
in the draft, such as an article of another gender, translates other words: it is cut off, and the
sentence decoded once more.
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
"""The share of a word's attention that goes to words which the sentence does not have, from which
on it comes from these (docs/background/decisions.md)."""
_LESS_LIKELY = 1.0
"""How much lower a word's log-probability may be in the sentence than in the draft; likewise."""


def first_changed(weights_IJ: Doubles, changed: Span) -> int:
    """How many words of a draft's translation stand before the first that comes from words which
    the sentence does not have, given the share of each one's attention that each word of the draft
    gets. 0 where none comes from those: then nobody knows where the beginning ends."""
    shares_I = weights_IJ[:, slice(*changed)].sum(axis=1)
    found = (shares_I >= _CHANGED).nonzero()[0]
    return int(found[0]) if len(found) else 0


def begun(
    drafted: Drafted, hypothesis: Hypothesis, first_length: int, count: int, target: TextTokenizer
) -> Sentence:
    """The sentence, to be decoded from the first `count` ids of the draft's translation on, before
    which `first_length` ids of the language stand."""
    end = first_length + count
    prefix = hypothesis.tokens[:end]
    if not count:
        return replace(drafted.sentence, target_prefix=prefix, beginning=None)
    beginning = Beginning(target.decode(list(prefix[first_length:])), hypothesis.token_scores[:end])
    return replace(drafted.sentence, target_prefix=prefix, beginning=beginning)


def shortened(
    sentence: Sentence, found: Hypothesis, first_length: int, target: TextTokenizer
) -> Sentence | None:
    """The sentence, to be decoded from a shorter beginning on; None where all of it may stay."""
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
    """For each word of the text of these ids, how many of them it takes to write up to its end."""
    ends = [end for _, end in target.decoded_spans(list(ids))]
    return [sum(end <= word_end for end in ends) for _, word_end in words]
