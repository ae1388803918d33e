"""Decoding options and the one place where a finished hypothesis gets its score.

The names are CTranslate2's, and so are the rules, so that outputs can be compared.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from serving.errors import InvalidOptionError

MAX_STEPS = 256
_FLAGS = ("eos_in_length", "loop_guard", "verify", "return_alternatives", "shortlist")
LENGTH_PENALTY_FORMS = ("power", "gnmt")
RANGES: dict[str, tuple[float, float]] = {
    "beam_size": (1, 64),
    "num_hypotheses": (1, 256),
    "length_penalty": (-10, 10),
    "coverage_penalty": (0, 10),
    "repetition_penalty": (0.01, 100),
    "no_repeat_ngram_size": (0, 64),
    "min_length": (0, 4096),
    "max_length": (1, 4096),
    "patience": (0.01, 16),
}
"""Lowest and highest value of each numeric option."""


class Group(NamedTuple):
    """Properties that all sentences of one batch have in common."""

    beam_size: int
    shortlisted: bool


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options for decoding one sentence; beam_size 1 is greedy search."""

    # The OpenAPI document takes its descriptions from the docstrings below.
    __pydantic_config__ = {"use_attribute_docstrings": True, "extra": "forbid"}  # noqa: RUF012

    beam_size: int = 5
    """Number of hypotheses kept at each step, 1 to 64."""
    num_hypotheses: int = 1
    """Number of hypotheses to return, at most beam_size * patience."""
    length_penalty: float = 1.0
    """Exponent a of the length normalisation; 0 turns it off."""
    length_penalty_form: str = "power"
    """`power`: cumulative / length^a; `gnmt`: cumulative / ((5 + length) / 6)^a (Wu et al. 2016)"""
    eos_in_length: bool = True
    """Count eos in the length if it was reached, as CTranslate2 and the papers do."""
    coverage_penalty: float = 0.0
    """Weight b of b * sum_j log(min(sum_t attention[t, j], 1)) (Wu et al. 2016, equation 14)."""
    repetition_penalty: float = 1.0
    """Values above 1 make tokens that were already used less likely."""
    no_repeat_ngram_size: int = 0
    """Size of the n-grams that must not occur twice; 0 turns it off."""
    min_length: int = 0
    """Number of tokens to generate before eos is allowed."""
    max_length: int | None = None
    """Largest number of generated tokens, eos included; the default is min(256, 2 * source pieces +
    10)."""
    patience: float = 1.0
    """Multiple of beam_size at which a sentence stops: it stops at round(beam_size * patience)
    finished hypotheses."""
    loop_guard: bool = True
    """Decode again without repeated trigrams if the output ends in a loop."""
    verify: bool = True
    """Compare numbers, letters, codes and shape of each translation with its source, and repair
    differences."""
    return_alternatives: bool = False
    """Return the num_hypotheses likeliest different tokens after the target prefix, each continued
    by a search of its own."""
    shortlist: bool = False
    """Choose only from likely translations of the source's pieces, if the model has a shortlist."""

    def __post_init__(self) -> None:
        for name in _FLAGS:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidOptionError(
                    f"{name} must be true or false, got {value!r}", parameter=name
                )
        for name, (low, high) in RANGES.items():
            if name != "max_length" or self.max_length is not None:
                self._check_number(name, low, high)
        if self.max_length is not None and self.min_length >= self.max_length:
            raise InvalidOptionError(
                f"min_length must be below max_length = {self.max_length}, got {self.min_length}",
                parameter="min_length",
            )
        if self.length_penalty_form not in LENGTH_PENALTY_FORMS:
            raise InvalidOptionError(
                f"length_penalty_form must be one of {LENGTH_PENALTY_FORMS}, "
                f"got {self.length_penalty_form!r}",
                parameter="length_penalty_form",
            )
        if self.return_alternatives:
            self._check_alternatives()
        elif self.num_hypotheses > self.max_finished:
            raise InvalidOptionError(
                "num_hypotheses must be <= round(beam_size * patience) = "
                f"{self.max_finished}, got {self.num_hypotheses}; raise beam_size",
                parameter="num_hypotheses",
            )

    def _check_alternatives(self) -> None:
        most = int(RANGES["beam_size"][1]) - 1  # one more beam searches, as one may find the end
        if self.num_hypotheses > most:
            raise InvalidOptionError(
                f"num_hypotheses must be at most {most} with return_alternatives, got "
                f"{self.num_hypotheses}",
                parameter="num_hypotheses",
            )
        if self.max_length == 1:
            raise InvalidOptionError(
                "max_length must be at least 2 with return_alternatives, got 1",
                parameter="max_length",
            )

    def _check_number(self, name: str, low: float, high: float) -> None:
        value: Any = getattr(self, name)
        integral = isinstance(getattr(SearchOptions, name, 0), int) or name == "max_length"
        kind = int if integral else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            what = "an integer" if integral else "a number"
            raise InvalidOptionError(
                f"{name} must be {what} in [{low}, {high}], got {value!r}", parameter=name
            )

    @cached_property
    def max_finished(self) -> int:
        """Number of finished hypotheses at which a sentence stops."""
        # CTranslate2 rounds halves away from zero.
        return max(1, math.floor(self.beam_size * self.patience + 0.5))

    @cached_property
    def total_beams(self) -> int:
        """Number of beams of all the searches for one sentence."""
        return self.beam_size * (self.num_hypotheses if self.return_alternatives else 1)

    @cached_property
    def constrains_always(self) -> bool:
        """Whether every step needs the whole distribution."""
        return self.repetition_penalty != 1.0 or self.no_repeat_ngram_size > 0

    @cached_property
    def constrains(self) -> bool:
        """Whether some step needs the whole distribution."""
        return self.constrains_always or self.min_length > 0

    @cached_property
    def stops_at_best(self) -> bool:
        """Whether a sentence stops as soon as its best beam is finished, and not before.

        Without penalties no other hypothesis can beat it.
        """
        return self.length_penalty == 0 and self.coverage_penalty == 0

    def max_steps(self, source_length: int) -> int:
        """The most tokens that may be generated, eos included, for a source of this many ids with
        eos."""
        return self.max_length or min(MAX_STEPS, 2 * source_length + 10)

    def score(self, cumulative: float, length: int, *, ended: bool, coverage: float = 0.0) -> float:
        """The score by which finished hypotheses are ranked.

        `length` counts generated tokens without prefix and eos, `ended` is whether eos was
        reached; `coverage` is the sum of Wu et al. 2016, equation 14, without its weight.
        """
        length = max(1, length + (self.eos_in_length and ended))
        if self.length_penalty_form == "gnmt":
            divisor = math.pow((5.0 + length) / 6.0, self.length_penalty)
        else:
            divisor = math.pow(length, self.length_penalty)
        return cumulative / divisor + self.coverage_penalty * coverage


def parse_options(values: dict[str, Any]) -> SearchOptions:
    """Options from plain data.

    Raises InvalidOptionError for an unknown name (with the nearest one) or a value out of range.
    """
    check_names(values, SearchOptions)
    return SearchOptions(**values)


def check_names(values: Iterable[str], options: type[Any]) -> None:
    """Raise InvalidOptionError for a name that is not a field of a dataclass of options."""
    known = [field.name for field in dataclasses.fields(options)]
    for name in values:
        if name not in known:
            near = [whole for whole in known if whole.endswith(f"_{name}")]
            near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {sorted(known)}"
            raise InvalidOptionError(f"unknown option {name!r}{hint}", parameter=name)
