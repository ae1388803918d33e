"""Turns token ids into text as they arrive: whole characters only, and no part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

_CONTEXT = 8
"""Number of ids kept for context, because a piece's text depends on whether another precedes it."""
_LONGEST = 64
_REPLACEMENT = "\ufffd"


class Detokenizer(Protocol):
    """The operations that turn ids into text."""

    def decode(self, ids: list[int]) -> str:
        """Text of the given ids."""
        ...

    def is_byte(self, token_id: int) -> bool:
        """Whether the id stands for one byte of a character."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether the id has no text and does not end a character, as with padding."""
        ...


@runtime_checkable
class Revising(Protocol):
    """A vocabulary in which the text of an id may depend on all earlier ids and on the next one."""

    def is_open(self, token_id: int) -> bool:
        """Whether the next id may change the text up to this one."""
        ...


class TextStream:
    """The text after a prompt."""

    def __init__(
        self, tokenizer: Detokenizer, prompt: Sequence[int], stops: Sequence[str] = ()
    ) -> None:
        self._tokenizer, self._stops = tokenizer, stops
        self._revising = tokenizer if isinstance(tokenizer, Revising) else None
        self._window = [i for i in prompt[-_CONTEXT:] if not tokenizer.is_control(i)]
        self._given = len(self._whole())  # characters of the window's text that were delivered
        self._held = ""  # decoded, but possibly the beginning of a stop string
        self.length = 0
        """Characters decoded so far, including held back ones."""
        self.stopped = False
        """Whether a stop string was found; no text follows it."""

    def push(self, token_id: int) -> str:
        """Add a token; returns the text that is now certain."""
        if self._tokenizer.is_control(token_id):
            return ""
        self._window.append(token_id)
        if self._revising is not None and self._revising.is_open(token_id):
            return ""
        text = self._tokenizer.decode(self._window)
        whole = text.rstrip(_REPLACEMENT) if self._tokenizer.is_byte(token_id) else text
        new, self._given = whole[self._given :], max(self._given, len(whole))
        long = len(self._window) > _LONGEST and self._revising is None
        if long and whole == text:  # otherwise within a character
            self._window = self._window[-_CONTEXT:]
            self._given = len(self._whole())
        self.length += len(new)
        return self._release(new)

    @property
    def released(self) -> int:
        """Number of characters delivered so far."""
        return self.length - len(self._held)

    def finish(self) -> str:
        """The held back text, at the end; an incomplete character is left out."""
        rest, self._held = self._held, ""
        return rest

    def _whole(self) -> str:
        """The window's text without a character that may still be incomplete."""
        text = self._tokenizer.decode(self._window)
        if self._window and self._tokenizer.is_byte(self._window[-1]):
            return text.rstrip(_REPLACEMENT)
        return text

    def _release(self, new: str) -> str:
        if not self._stops:
            return new
        text = self._held + new
        found = [place for place in map(text.find, self._stops) if place >= 0]
        if found:
            self.stopped, self._held = True, ""
            self.length -= len(text) - min(found)
            return text[: min(found)]
        hold = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]


def readable(tokenizer: Detokenizer, ids: Sequence[int]) -> str:
    """The text of ids, without an incomplete character at its end."""
    stream = TextStream(tokenizer, ())
    return "".join(map(stream.push, ids))


def _overlap(text: str, stop: str) -> int:
    """Number of characters at the end of the text that may begin the stop string."""
    for count in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[len(text) - count :]):
            return count
    return 0
