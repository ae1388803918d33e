"""The input and output of a search: sentences to decode, and their hypotheses.

Shape letters: T target tokens, S source ids.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.arrays import Floats
from serving.errors import ServingError
from serving.search.beams.constraints import Constraints
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import Group, SearchOptions


@dataclass(frozen=True)
class Original:
    """The text of a sentence, for comparing its translation with it."""

    text: str
    source: str | None
    """The language of the text; None if unknown."""
    target: str | None
    """The language of the translation; None if unknown."""
    noteworthy: bool
    """Whether the text has more than words to preserve, so that other hypotheses may be needed."""
    first: object = None
    """The result of the first search, if this is a second search because of a fault in the
    first."""


class Drafted(NamedTuple):
    """A draft for a sentence: another sentence whose translation is given. The sentence's
    translation may begin like it."""

    sentence: Sentence
    changed: tuple[int, int]
    """The range of the draft's words that the sentence does not have."""


class Beginning(NamedTuple):
    """The beginning of a draft's translation that is forced on a sentence."""

    text: str
    token_scores: tuple[float, ...]
    """Log-probability of each id of the prefix in the draft's translation, including language ids
    before it."""


@dataclass(frozen=True)
class Sentence:
    """One sentence to decode: the ids of its source, including its end, and the options."""

    source: Sequence[int]
    options: SearchOptions = field(default_factory=SearchOptions)
    target_prefix: Sequence[int] = ()
    """Ids with which every hypothesis begins."""
    start: int = BOS_ID
    """The id that the decoder is given before the prefix."""
    before: tuple[int, ...] = ()
    """Ids before the prefix that count as used where repetitions are avoided."""
    ends: tuple[int, ...] = (EOS_ID,)
    """The ids that end a hypothesis. A given output ends with the first of them."""
    text: str | None = None
    """The text of the source, if the hypotheses need their attention to it. The text itself does
    not affect the result."""
    constraints: Constraints | None = None
    counted: int = 0
    """Number of ids at the end of the prefix that count as generated, in scores and lengths."""
    given: bool = False
    """Whether the prefix is a complete output, and only its scores are needed."""
    known: bool = False
    """Whether that output is known to be right, whatever the model's scores are."""
    streamed: bool = False
    """Whether the common beginning of all hypotheses is streamed to the client."""
    guarded: bool = False
    """Whether this is the second attempt at a sentence whose output ended in a loop."""
    original: Original | None = None
    """The text to compare the translation with; None if it is not compared. It does not affect the
    search."""
    first_of: Sentence | None = None
    """The sentence with `return_alternatives` for which this one finds the most probable first
    tokens; None for any other sentence."""
    draft_of: Drafted | None = None
    """The sentence for which this one, whose output is `given`, is a draft; None for any other."""
    beginning: Beginning | None = None
    """The part of the draft that is in the prefix, if the sentence had a draft."""
    if_copied: Sentence | None = None
    """The sentence to decode instead if the translation copies this one, a label: it begins with a
    small letter."""
    lookup: Hashable = None
    """What the bundle's dictionary says about words of the text; None if it says nothing. It does
    not affect the search."""

    @functools.cached_property
    def key(self) -> tuple[object, ...]:
        """Sentences with equal keys have equal results."""
        whole = self.first_of or self
        return (
            tuple(whole.source),
            whole.options,
            tuple(whole.target_prefix),
            whole.before,
            whole.text,
            whole.constraints,
            whole.streamed,
            whole.counted,
            whole.given,
            whole.known,
            whole.original,
            whole.draft_of and (whole.draft_of.sentence.key, whole.draft_of.changed),
            whole.if_copied and whole.if_copied.key,
            whole.lookup,
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
        """Whether the sentence is decoded with a shortlist: the options request it, and neither a
        prefix nor a constraint needs the whole vocabulary."""
        return self.options.shortlist and not (
            self.target_prefix or self.options.constrains or self.constraints or self.first_of
        )


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search: ids without bos and eos, including the forced prefix."""

    tokens: tuple[int, ...]
    score: float
    """The normalised score of `SearchOptions.score`; hypotheses are ranked by it."""
    cumulative: float
    """Sum of the log-probabilities of the generated tokens, including eos. It contains only the
    last `Sentence.counted` tokens of the prefix."""
    token_scores: tuple[float, ...]
    """Log-probability of each prefix token and each generated one, and of eos if it was reached."""
    end: int | None
    """The id that ended the hypothesis; None if it was cut at max_length."""
    attention_TS: Floats | None = field(default=None, compare=False, repr=False)
    """Attention to the source of the query that gave each token, a row for each of `token_scores`.
    None unless the sentence has a `text`."""
    missing: int = 0
    """Number of required terms that the hypothesis does not contain."""

    @property
    def finished(self) -> bool:
        """Whether the hypothesis ended before max_length."""
        return self.end is not None


@dataclass(frozen=True)
class Finished:
    """A sentence that has left the batch, with its hypotheses, best first, or with an error."""

    index: int
    """The number that `BeamSearch.add` gave the sentence."""
    hypotheses: tuple[Hypothesis, ...] = ()
    others: tuple[Hypothesis, ...] = ()
    """The finished hypotheses beyond the requested ones, best first, if the sentence's `original`
    is noteworthy."""
    error: ServingError | None = None
    peak_slots: int = 0
    """The most cache slots that the sentence has held at once."""
