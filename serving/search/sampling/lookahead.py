"""Guesses at the next tokens of a text, which one step of a language model checks together.

Texts repeat themselves: names, quotations, code. What followed the last few tokens when they stood
together before is the guess (prompt lookup decoding; Saxena 2023). A step computes the distribution
after each guessed token as it would have done one by one, so that a wrong guess costs time and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

GUESSED = 4
"""Tokens that are guessed at once. A step with so many more took 1.6 times as long."""
_GRAM = 3
"""Tokens that must have stood together before."""
_LONGEST_PAUSE = 64


class Lookahead:
    """The guesses for one text.

    After a guess that was wrong from its first token on there is none for a few steps, for twice as
    many each time, until one is right: a text that only seems to repeat itself loses little.
    """

    def __init__(self) -> None:
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """Where in the text the token stands that followed some last time."""
        self._pause, self._wait = 1, 0

    def guess(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """The `GUESSED` tokens that may follow the prompt and what was generated after it; none
        where nothing is like it. The text must begin with that of the last call."""
        new = len(self._text) - len(prompt)
        self._read(tokens[new:] if new >= 0 else [*prompt[len(self._text) :], *tokens])
        if self._wait:
            self._wait -= 1
            return []
        place = self._after.get(tuple(self._text[-_GRAM:]))
        if place is None:
            return []
        period = len(self._text) - place  # what ends the text may go on as it has begun
        return [self._text[place + n % period] for n in range(GUESSED)]

    def note(self, right: int) -> None:
        """Learn how many tokens of the last guess were right."""
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
