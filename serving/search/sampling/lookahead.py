"""Guesses at the next tokens of a text, which a language model checks together in one step.

Texts repeat themselves: names, quotations, code. The guess is what followed the last few tokens
when they occurred before (prompt lookup decoding; Saxena 2023). A step computes the distribution
after each guessed token exactly as steps of one token would. A wrong guess therefore costs time and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

GUESSED = 4
"""Number of tokens per guess. In a measurement, a step with this many more took 1.6 times as
long."""
_GRAM = 3
"""Number of tokens that must have occurred together before."""
_LONGEST_PAUSE = 64


class Lookahead:
    """The guesses for one text.

    After a guess whose first token was wrong, there is no guess for a few steps, and for twice as
    many each time, until one is right. A text that only seems to repeat itself loses little.
    """

    def __init__(self) -> None:
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """For each n-gram, the position of the token that followed its last occurrence."""
        self._pause, self._wait = 1, 0

    def guess(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """The `GUESSED` tokens that may follow the prompt and the generated text; empty if nothing
        similar occurred. The text must begin with that of the last call."""
        new = len(self._text) - len(prompt)
        self._read(tokens[new:] if new >= 0 else [*prompt[len(self._text) :], *tokens])
        if self._wait:
            self._wait -= 1
            return []
        place = self._after.get(tuple(self._text[-_GRAM:]))
        if place is None:
            return []
        period = len(self._text) - place  # the end of the text may repeat its beginning
        return [self._text[place + n % period] for n in range(GUESSED)]

    def note(self, right: int) -> None:
        """Record how many tokens of the last guess were right."""
        if right:
            self._pause = 1
        else:
            self._wait = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if len(self._text) >= _GRAM:
                self._after[tuple(self._text[-_GRAM:])] = len(self._text)
            self._text.append(token)
