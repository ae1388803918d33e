"""Counting the characters that each key has had translated since the server was started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from serving.errors import QuotaExceededError
from serving.server.http.settings import variable


class CharacterUsage:
    """Counts characters by key, up to a limit; all who have none share the empty key."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: Counter[str] = Counter()

    def count(self, key: str) -> int:
        """The characters of that key so far, those that are being translated included."""
        return self._counts[key]

    @contextmanager
    def spending(self, key: str, characters: int) -> Iterator[None]:
        """Count characters, unless what is done inside fails.

        Raises QuotaExceededError where they are more than is left.
        """
        before = self._counts[key]
        if before + characters > self.limit:
            raise QuotaExceededError(
                f"at most {self.limit} characters ({variable('deepl_character_limit')}) are "
                f"translated until the server is started anew, got {before} so far and "
                f"{characters} more"
            )
        self._counts[key] += characters
        try:
            yield
        except BaseException:
            self._counts[key] -= characters
            raise
