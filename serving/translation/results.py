"""What becomes of a sentence or a text: its translations with their scores, or other sentences that
are to be decoded in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.search.sentence import Sentence
from serving.text.alignment import Link


@dataclass(frozen=True)
class TextHypothesis:
    """One translation of a text."""

    text: str
    score: float
    """Length-normalised log-probability, see `SearchOptions.score`."""
    cumulative: float
    """Log-probability of the generated tokens, eos included."""
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    """Natural log-probability of each token, and of eos where it was reached."""
    finished: bool
    """False where max_length ended it."""
    probability: float | None = None
    """That it is good, as the bundle's calibration has it (`Manifest.calibration`); None where the
    bundle has none."""
    alignment: tuple[Link, ...] | None = None
    """Word links, where they were asked for; they lie in the text that was given, and in `text`."""


@dataclass(frozen=True)
class Translation:
    """What one text became; `hypotheses` is empty for a blank text."""

    text: str
    hypotheses: tuple[TextHypothesis, ...] = ()
    warnings: tuple[str, ...] = ()
    """`repetition`: the output looped and was decoded again; `max_length`: it did not end;
    `constraints`: a hypothesis lacks a required term."""


@dataclass(frozen=True)
class Done:
    """The search is done with a sentence, and it is translated."""

    translation: Translation


@dataclass(frozen=True)
class Again:
    """A sentence is to be decoded in another way: the loop guard found a loop."""

    sentence: Sentence


@dataclass(frozen=True)
class Split:
    """Others are to be decoded in the place of a sentence: their translations, `gathered`, are its
    own."""

    sentences: tuple[Sentence, ...]


SentenceOutcome = Done | Again | Split
"""What has become of a sentence that the search is done with."""


@dataclass(frozen=True)
class Score:
    """Log-probability of a given translation."""

    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    """Natural log-probability of each token and of eos."""

    @property
    def cumulative(self) -> float:
        """Sum over the tokens and eos."""
        return sum(self.token_scores)


def gathered(parts: Sequence[Translation]) -> Translation:
    """One translation with the hypotheses of several."""
    warnings = dict.fromkeys(warning for part in parts for warning in part.warnings)
    hypotheses = tuple(hypothesis for part in parts for hypothesis in part.hypotheses)
    return Translation(parts[0].text, hypotheses, tuple(warnings))
