"""The interface by which a scheduler reports its activity, for metrics."""

from __future__ import annotations

from collections.abc import Sequence


class Observer:
    """Called by decoding threads, a few times for each text and never at each step. This class
    ignores all calls; `serving.server.http.metrics` has a subclass that counts."""

    def joined(self, waits_s: Sequence[float], lengths: Sequence[int]) -> None:
        """Works have joined a batch: the seconds that each has waited, and the lengths, in source
        or prompt tokens, of all rows that are now in it."""

    def first_token(self, seconds: float) -> None:
        """Seconds from submission to the first token of a language model's output."""

    def decoded(self, tokens: int) -> None:
        """An output is complete; for a translation, the best hypothesis counts."""

    def repaired(self, kind: str, by: str) -> None:
        """A translation had a fault of this kind. `by` says how it was repaired (`Repair.by`);
        `none` means that it was not."""

    def lost(self) -> None:
        """An engine has failed, or its process has ended; it is restarted."""

    def coalesced(self) -> None:
        """A text equals one in flight and waits for the same result."""

    def looked_up(self, *, found: bool) -> None:
        """A text was looked up in the cache of answers."""
