"""Outputs as text, made token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.tokenizer import TextTokenizer
from serving.search.sampling.batch import Generated
from serving.search.sampling_options import GenerationOptions
from serving.text.stream import TextStream

Prompt = str | Sequence[int]
"""Text, which stands at the beginning of a document, or token ids, which are taken as they are."""


@dataclass(frozen=True)
class TokenScore:
    """One token with its natural log-probability."""

    token_id: int
    token: str
    """Its written form, different for each id."""
    offset: int
    """Where its text begins, in characters."""
    log_prob: float | None
    """None for the first of a prompt that is given as ids."""
    top: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens in its place, best first."""


@dataclass(frozen=True)
class Generation:
    """One of the outputs of a prompt, as text and as the tokens it is made of."""

    text: str
    tokens: tuple[TokenScore, ...]
    """The end of a text included where it was reached, those of a stop string not; offsets count
    from the output's beginning."""
    finish_reason: str
    """`stop`: the end of a text or a stop string; `length`: max_length."""
    cumulative: float = 0.0
    """Log-probability of all tokens that were generated."""
    num_generated: int = 0
    """These tokens."""

    @property
    def mean_log_prob(self) -> float:
        """Log-probability a token, by which `best_of` ranks."""
        return self.cumulative / max(1, self.num_generated)


class ChoiceBuilder:
    """Makes text of the tokens of one output as they come.

    A token is held back as long as its text is: nothing of a stop string shows.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        ends: Sequence[int],
        prompt: Sequence[int],
        options: GenerationOptions,
    ) -> None:
        """`ends` are the ids any of which ends a text; none of them is part of it."""
        self._tokenizer, self._ends, self._options = tokenizer, ends, options
        self._stream = TextStream(tokenizer, prompt, options.stop)
        self._tokens: list[TokenScore] = []
        self._held: list[TokenScore] = []
        self._text = ""
        self._cumulative, self._count = 0.0, 0
        self.finish_reason = "" if options.max_length else "length"
        """Empty while it goes on."""

    def push(self, event: Generated) -> tuple[str, tuple[TokenScore, ...]]:
        """Add a token; returns the text and the tokens that are now certain."""
        stream, token = self._stream, event.token
        offset = stream.length
        ends = token in self._ends
        new = "" if ends else stream.push(token)
        top = tuple((self._written(id_), score) for id_, score in event.top)
        self._held.append(TokenScore(token, self._written(token), offset, event.log_prob, top))
        self._cumulative += event.log_prob
        self._count += 1
        if ends or stream.stopped:
            self.finish_reason = "stop"
        elif self._count == self._options.max_length:
            self.finish_reason = "length"
        if stream.stopped:
            self._held = [score for score in self._held if score.offset < stream.length]
        elif self.finish_reason:
            new += stream.finish()
        certain = [
            score for score in self._held if self.finish_reason or score.offset < stream.released
        ]
        self._held = self._held[len(certain) :]
        self._tokens += certain
        self._text += new
        return new, tuple(certain)

    def finished(self) -> Generation:
        """The output, at its end."""
        return Generation(
            self._text, tuple(self._tokens), self.finish_reason, self._cumulative, self._count
        )

    def _written(self, token_id: int) -> str:
        return written_form(self._tokenizer, token_id)


def best_choices(choices: list[Generation], options: GenerationOptions) -> list[Generation]:
    """Those to return: all in order, or with `best_of` the likeliest a token, best first."""
    if options.best_of is not None:
        choices = sorted(choices, key=lambda choice: -choice.mean_log_prob)
    return choices[: options.num_hypotheses]


def written_form(tokenizer: TextTokenizer, token_id: int) -> str:
    """A token as programs see it: its text with its leading space, different for each id."""
    return tokenizer.pieces([token_id])[0].replace("\u2581", " ")


def text_offsets(tokenizer: TextTokenizer, ends: Sequence[int], ids: Sequence[int]) -> list[int]:
    """Where the text of each id begins in the text of all; the `ends` of texts have none."""
    stream, offsets = TextStream(tokenizer, ()), []
    for token in ids:
        offsets.append(stream.length)
        if token not in ends:
            stream.push(token)
    return offsets
