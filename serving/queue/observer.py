"""What a scheduler reports of its work while it goes on; it knows nothing of who listens."""

from __future__ import annotations

from collections.abc import Sequence


class Observer:
    """Called by the threads that decode, a few times for each text and never for each step. This
    one takes no notice; `serving.server.http.metrics` has one that counts."""

    def joined(self, waits_s: Sequence[float], lengths: Sequence[int]) -> None:
        """Others have joined a batch: how long each had waited, and the lengths in tokens of the
        sources or prompts of all rows that are now in it."""

    def first_token(self, seconds: float) -> None:
        """The first token of a language model's output, counted from its submission."""

    def decoded(self, tokens: int) -> None:
        """An output is complete; of a translation the best hypothesis counts."""

    def repaired(self, kind: str, by: str) -> None:
        """A translation had a fault of that kind, which was put right in that way (`Repair.by`) or,
        by `none`, was not."""

    def lost(self) -> None:
        """An engine has failed, or its process has ended, and is started again."""

    def coalesced(self) -> None:
        """A text was in flight already and waits for the same result."""

    def looked_up(self, *, found: bool) -> None:
        """A text was looked for in the cache of answers."""
