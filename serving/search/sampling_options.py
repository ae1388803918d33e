"""Options for the continuation of a prompt by a language model; the names are those of
`SearchOptions`."""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from serving.errors import InvalidOptionError
from serving.search.options import SearchOptions, check_names

if TYPE_CHECKING:
    from serving.arrays import Doubles, Ints

RANGES: dict[str, tuple[float, float]] = {
    "max_length": (0, 1_000_000),
    "min_length": (0, 1_000_000),
    "temperature": (0, 100),
    "sampling_top_k": (0, 1_000_000),
    "sampling_top_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "no_repeat_ngram_size": (0, 64),
    "num_hypotheses": (1, 256),
    "best_of": (1, 256),
    "num_logprobs": (0, 64),
    "beam_size": (1, 32),
    "length_penalty": (-10, 10),
    "seed": (-(2**63), 2**63 - 1),
}
"""Lowest and highest value of each numeric option."""
MAX_BIAS = 100.0
LOWEST_TEMPERATURE = 1e-5
"""Lower temperatures take the likeliest token."""
MAX_BIASES = 1024
MAX_STOPS, MAX_STOP_CHARS = 16, 256
_INTEGERS = {name for name in RANGES if name.endswith(("length", "size", "top_k", "probs"))}
_INTEGERS |= {"num_hypotheses", "best_of", "seed"}
_SAMPLING_ONLY = (
    "temperature",
    "sampling_top_k",
    "sampling_top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "best_of",
    "stop",
    "num_logprobs",
)


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options for the continuation of one prompt.

    The distribution is changed in this order: penalties, bias, temperature, top-k, top-p.
    """

    max_length: int = 64
    """Largest number of generated tokens, eos included."""
    min_length: int = 0
    """Number of tokens to generate before eos is allowed."""
    temperature: float = 1.0
    """Divisor of the logits; 0 takes the likeliest token."""
    sampling_top_k: int = 0
    """Sample from the k likeliest tokens only; 0 samples from all."""
    sampling_top_p: float = 1.0
    """Sample from the fewest likeliest tokens whose probabilities add up to at least this (Holtzman
    et al. 2020)."""
    repetition_penalty: float = 1.0
    """Values above 1 make tokens of prompt and output less likely (Keskar et al. 2019)."""
    presence_penalty: float = 0.0
    """Value that is subtracted from the logits of tokens that are in the output."""
    frequency_penalty: float = 0.0
    """Value that is subtracted from a token's logit for each time that the output contains it."""
    no_repeat_ngram_size: int = 0
    """Size of the n-grams that must not occur twice in prompt and output; 0 turns it off."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs of a token id and a value that is added to its logit, or a dictionary of them; -100
    forbids the token."""
    stop: tuple[str, ...] = ()
    """Texts at which the output ends; it does not contain them."""
    seed: int | None = None
    """Seed of the random numbers: the same seed gives the same text in any batch. None draws a new
    seed."""
    num_hypotheses: int = 1
    """Number of outputs to return."""
    best_of: int | None = None
    """Number of outputs to generate; those with the highest mean log-probability are returned."""
    num_logprobs: int = 0
    """Number of likeliest tokens to report beside each generated one."""
    beam_size: int = 1
    """Number of beams; above 1, beam search replaces sampling."""
    length_penalty: float = 1.0
    """Exponent of the length normalisation of beam search; sampling ignores it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        for name, (low, high) in RANGES.items():
            value: Any = getattr(self, name)
            if value is None and name in ("seed", "best_of"):
                continue
            kind = int if name in _INTEGERS else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                what = "an integer" if name in _INTEGERS else "a number"
                raise InvalidOptionError(
                    f"{name} must be {what} in [{low}, {high}], got {value!r}", parameter=name
                )
        self._check_lists()
        if self.min_length > self.max_length:
            raise InvalidOptionError(
                f"min_length must be at most max_length = {self.max_length}, got {self.min_length}",
                parameter="min_length",
            )
        if self.num_choices < self.num_hypotheses:
            raise InvalidOptionError(
                f"best_of must be at least num_hypotheses = {self.num_hypotheses}, "
                f"got {self.best_of}",
                parameter="best_of",
            )
        if self.beam_size > 1:
            self._check_beam()

    def own_seed(self) -> int:
        """The seed, or a new one if it is None."""
        return int.from_bytes(os.urandom(8)) if self.seed is None else self.seed

    def _check_lists(self) -> None:
        if not isinstance(self.stop, tuple):
            raise InvalidOptionError(
                f"stop must be a tuple of at most {MAX_STOPS} strings, got {self.stop!r:.60}",
                parameter="stop",
            )
        if len(self.stop) > MAX_STOPS:
            raise InvalidOptionError(
                f"stop must hold at most {MAX_STOPS} strings, got {len(self.stop)}",
                parameter="stop",
            )
        for text in self.stop:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_CHARS:
                raise InvalidOptionError(
                    f"stop must hold strings of 1 to {MAX_STOP_CHARS} characters, got {text!r:.60}",
                    parameter="stop",
                )
        if len(self.logit_bias) > MAX_BIASES:
            raise InvalidOptionError(
                f"logit_bias must have at most {MAX_BIASES} entries, got {len(self.logit_bias)}",
                parameter="logit_bias",
            )
        for token, bias in self.logit_bias:
            if not -MAX_BIAS <= bias <= MAX_BIAS:
                raise InvalidOptionError(
                    f"logit_bias must be in [-{MAX_BIAS:g}, {MAX_BIAS:g}], got {bias} "
                    f"for token {token}",
                    parameter="logit_bias",
                )

    def _check_beam(self) -> None:
        for field in dataclasses.fields(self):
            if field.name in _SAMPLING_ONLY and getattr(self, field.name) != field.default:
                raise InvalidOptionError(
                    f"{field.name} cannot be combined with beam_size = {self.beam_size}; "
                    "leave it out, or set beam_size = 1",
                    parameter=field.name,
                )
        if self.num_hypotheses > self.beam_size:
            raise InvalidOptionError(
                f"num_hypotheses must be at most beam_size = {self.beam_size}, "
                f"got {self.num_hypotheses}",
                parameter="num_hypotheses",
            )

    @property
    def num_choices(self) -> int:
        """The number of outputs to generate: `best_of`, or the number to return."""
        return self.num_hypotheses if self.best_of is None else self.best_of

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature < LOWEST_TEMPERATURE or self.sampling_top_k == 1

    @property
    def edits_logits(self) -> bool:
        """Whether logits are changed before the temperature, at least in the first steps."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.no_repeat_ngram_size > 0
            or bool(self.logit_bias)
            or self.min_length > 0
        )

    @cached_property
    def bias_arrays(self) -> tuple[Ints, Doubles]:
        """The token ids of `logit_bias`, and the values that are added to their logits."""
        import numpy as np  # imported here, because reading options does not need it

        tokens, biases = zip(*self.logit_bias, strict=True)
        return np.array(tokens, dtype=np.int64), np.array(biases, dtype=np.float64)

    @property
    def search_options(self) -> SearchOptions:
        """The equivalent options for beam search."""
        return SearchOptions(
            beam_size=self.beam_size,
            num_hypotheses=self.num_hypotheses,
            length_penalty=self.length_penalty,
            repetition_penalty=self.repetition_penalty,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            min_length=min(self.min_length, self.max_length - 1),
            max_length=self.max_length,
            loop_guard=False,
        )


def parse_generation_options(values: dict[str, Any]) -> GenerationOptions:
    """Options from plain data; `stop` may be one text or a list.

    Raises InvalidOptionError for an unknown name (with the nearest one) or a value out of range.
    """
    check_names(values, GenerationOptions)
    if "stop" in values:
        values = values | {"stop": _stop_texts(values["stop"])}
    return GenerationOptions(**values)


def over_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Given options and the defaults of those that are not given, as plain data. Beams and options
    of sampling exclude each other: of the two, those that are given stay."""
    own: dict[str, Any] = {
        field.name: field.default
        for field in dataclasses.fields(GenerationOptions)
        if field.name in _SAMPLING_ONLY
    }
    samples = any(given.get(name, value) not in (value, [], {}) for name, value in own.items())
    left_out: Collection[str] = ()
    if given.get("beam_size", 1) != 1:
        left_out = _SAMPLING_ONLY
    elif samples:
        left_out = ("beam_size",)
    return {name: defaults[name] for name in defaults if name not in left_out} | dict(given)


def _stop_texts(given: Any) -> tuple[str, ...]:
    """Texts at which an output ends, from one or several. Raises InvalidOptionError for anything
    else."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list | tuple):
        raise InvalidOptionError(
            f"stop must be a text or a list of texts, got {given!r:.60}", parameter="stop"
        )
    return tuple(given)


def _biases(given: Any) -> tuple[tuple[int, float], ...]:
    """Pairs of token id and bias, from pairs or from a mapping, whose keys may be ids in decimals.

    Raises InvalidOptionError for anything else, and for two biases of one token.
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    found: dict[int, float] = {}
    twice: int | None = None
    try:
        for token, bias in pairs:
            if isinstance(token, bool) or isinstance(bias, bool | str):
                raise TypeError(token)
            number = int(token) if isinstance(token, str) else operator.index(token)
            if isinstance(token, str) and str(number) != token:
                raise ValueError(token)
            twice = number if number in found else twice
            found[number] = float(bias)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidOptionError(
            f"logit_bias must map token ids to numbers, got {given!r:.60}",
            parameter="logit_bias",
        ) from error
    if twice is not None:
        raise InvalidOptionError(
            f"logit_bias must have one number for each token, got two for token {twice}",
            parameter="logit_bias",
        )
    return tuple(found.items())
