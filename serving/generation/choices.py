"""Turns the tokens of outputs into text, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.bundle.tokenizer import TextTokenizer
from serving.search.sampling.batch import Generated
from serving.search.sampling_options import GenerationOptions
from serving.text.stream import TextStream

Prompt = str | Sequence[int]
"""A prompt: text, which stands at the beginning of a document, or token ids, which are used as they
are."""


@dataclass(frozen=True)
class TokenScore:
    """A token with its natural log-probability."""

    token_id: int
    token: str
    """The token's written form, different for each id."""
    offset: int
    """Position where the token's text begins, in characters."""
    log_prob: float | None
    """Log-probability; None for the first token of a prompt that is given as ids."""
    top: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens at the same position with their log-probabilities, best first."""


@dataclass(frozen=True)
class Generation:
    """An output of a prompt, as text and as the tokens that make it up."""

    text: str
    tokens: tuple[TokenScore, ...]
    """The tokens, including the end of a text if it was reached, but not those of a stop string.
    Offsets count from the beginning of the output."""
    finish_reason: str
    """`stop`: the end of a text or a stop string; `length`: max_length."""
    cumulative: float = 0.0
    """Sum of the log-probabilities of all generated tokens."""
    num_generated: int = 0
    """Number of generated tokens."""

    @property
    def mean_log_prob(self) -> float:
        """Mean log-probability per token, by which `best_of` ranks outputs."""
        return self.cumulative / max(1, self.num_generated)


class ChoiceBuilder:
    """Turns the tokens of one output into text as they arrive.

    A token is held back as long as its text is, so that no part of a stop string appears.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        ends: Sequence[int],
        prompt: Sequence[int],
        options: GenerationOptions,
    ) -> None:
        """Start an output after `prompt`. `ends` are the ids that end a text; they are not part of
        it."""
        self._tokenizer, self._ends, self._options = tokenizer, ends, options
        self._stream = TextStream(tokenizer, prompt, options.stop)
        self._tokens: list[TokenScore] = []
        self._held: list[TokenScore] = []
        self._text = ""
        self._cumulative, self._count = 0.0, 0
        self.finish_reason = "" if options.max_length else "length"
        """The reason why the output ended; empty while it continues."""

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
        """The output, after its end."""
        return Generation(
            self._text, tuple(self._tokens), self.finish_reason, self._cumulative, self._count
        )

    def _written(self, token_id: int) -> str:
        return written_form(self._tokenizer, token_id)


def best_choices(choices: list[Generation], options: GenerationOptions) -> list[Generation]:
    """The outputs to return: all in order, or with `best_of` those with the highest log-probability
    per token, best first."""
    if options.best_of is not None:
        choices = sorted(choices, key=lambda choice: -choice.mean_log_prob)
    return choices[: options.num_hypotheses]


def written_form(tokenizer: TextTokenizer, token_id: int) -> str:
    """A token as clients see it: its text with its leading space, different for each id."""
    return tokenizer.pieces([token_id])[0].replace("\u2581", " ")


def text_offsets(tokenizer: TextTokenizer, ends: Sequence[int], ids: Sequence[int]) -> list[int]:
    """Position in the whole text where the text of each id begins; ids in `ends` have no text."""
    stream, offsets = TextStream(tokenizer, ()), []
    for token in ids:
        offsets.append(stream.length)
        if token not in ends:
            stream.push(token)
    return offsets
