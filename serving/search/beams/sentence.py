"""What a search is given and what it gives back: sentences to decode, and their hypotheses.

Shape letters: T target tokens, S source ids.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.arrays import Floats
from serving.errors import ServingError
from serving.search.beams.constraints import Constraints
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import Group, SearchOptions


@dataclass(frozen=True)
class Original:
    """The words of a sentence with which its translation is compared, for whoever does that."""

    text: str
    source: str | None
    """The language of the text; None where it is not known."""
    target: str | None
    """The language of the translation; None where it is not known."""
    noteworthy: bool
    """Whether more than words is to come out right, so that other hypotheses may be asked for."""
    first: object = None
    """What the first search found, where this one is the second because that was wrong."""


class Drafted(NamedTuple):
    """A sentence whose translation may begin as that of a draft does, which is another sentence
    whose translation is given."""

    sentence: Sentence
    changed: tuple[int, int]
    """Which words of the draft's text the sentence does not have, as numbers."""


class Beginning(NamedTuple):
    """What the translation of a sentence is made to begin with, of that of a draft."""

    text: str
    token_scores: tuple[float, ...]
    """Log-probability of each id of the prefix as the draft's translation, the ids of a language
    before it included."""


@dataclass(frozen=True)
class Sentence:
    """One sentence to decode: the ids of its source, its end included, and how to decode it."""

    source: Sequence[int]
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: Sequence[int] = ()
    """Ids with which every hypothesis begins."""
    start: int = BOS_ID
    """The id that the decoder is given before the prefix."""
    ends: tuple[int, ...] = (EOS_ID,)
    """The ids any of which ends a hypothesis; with the first one an output ends that is given."""
    text: str | None = None
    """The text of the source, if the attention of the hypotheses to it is wanted. The text itself
    has no influence on what is found."""
    constraints: Constraints | None = None
    counted: int = 0
    """How many ids at the end of the prefix count as generated, in scores and in lengths."""
    given: bool = False
    """Whether the prefix is a whole output with its end, of which only the scores are wanted."""
    streamed: bool = False
    """Whether what all hypotheses agree on is streamed to the client, step by step."""
    guarded: bool = False
    """Whether this is the second attempt at a sentence whose output ended in a loop."""
    original: Original | None = None
    """What the translation is compared with; None where it is taken as it comes. It has no
    influence on what is found."""
    first_of: Sentence | None = None
    """The sentence with `return_alternatives` for which this one finds the likeliest first tokens;
    None for any other sentence."""
    draft_of: Drafted | None = None
    """The sentence for which this one, whose output is `given`, is a draft; None for any other."""
    beginning: Beginning | None = None
    """Of a sentence that had a draft: what of it is in the prefix."""

    @functools.cached_property
    def key(self) -> tuple[object, ...]:
        """Sentences with equal keys have equal results."""
        whole = self.first_of or self
        return (
            tuple(whole.source),
            whole.options,
            tuple(whole.target_prefix),
            whole.text,
            whole.constraints,
            whole.streamed,
            whole.counted,
            whole.given,
            whole.original,
            whole.draft_of and (whole.draft_of.sentence.key, whole.draft_of.changed),
        )

    @functools.cached_property
    def group(self) -> Group:
        """The batch that the sentence may join: sentences of one group share a batch."""
        return Group(self.options.beam_size, self.shortlisted)

    @functools.cached_property
    def max_steps(self) -> int:
        """The most tokens that may still be generated, eos included."""
        return self.options.max_steps(len(self.source)) - self.counted

    @functools.cached_property
    def shortlisted(self) -> bool:
        """Whether the sentence is decoded with a shortlist: the options ask for it, and neither a
        prefix nor a constraint calls for the whole vocabulary."""
        return self.options.shortlist and not (
            self.target_prefix or self.options.constrains or self.constraints or self.first_of
        )


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search: ids without bos and eos, the forced prefix included."""

    tokens: tuple[int, ...]
    score: float
    """What hypotheses are ranked by: the normalised score of `SearchOptions.score`."""
    cumulative: float
    """Sum of the log-probabilities of the generated tokens, eos included. Of the prefix only the
    last `Sentence.counted` tokens are in it."""
    token_scores: tuple[float, ...]
    """Log-probability of each prefix token and each generated one, and of eos if it was reached."""
    end: int | None
    """The id that ended the hypothesis; None where max_length did."""
    attention_TS: Floats | None = field(default=None, compare=False, repr=False)
    """Attention to the source of the query that gave each token, a row for each of `token_scores`.
    None unless the sentence has a `text`."""
    missing: int = 0
    """How many required terms the hypothesis does not hold."""

    @property
    def finished(self) -> bool:
        """Whether the hypothesis ended by itself rather than at max_length."""
        return self.end is not None


@dataclass(frozen=True)
class Finished:
    """A sentence that has left the batch, with its hypotheses, best first, or with an error."""

    index: int
    """The number that `BeamSearch.add` gave the sentence."""
    hypotheses: tuple[Hypothesis, ...] = ()
    others: tuple[Hypothesis, ...] = ()
    """Those finished hypotheses that were not asked for, best first, of a sentence whose `original`
    is noteworthy."""
    error: ServingError | None = None
    peak_slots: int = 0
    """The most cache slots that the sentence has held at once."""
