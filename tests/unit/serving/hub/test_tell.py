"""Sizes as a user reads them."""

from __future__ import annotations

import pytest

from serving.hub.tell import size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_400, "99.4 kB"),
        (99_600, "100 kB"),
        (999_600, "1.0 MB"),
        (298_700_000, "299 MB"),
        (2_400_000_000, "2.4 GB"),
        (5_000_000_000_000, "5000 GB"),
    ],
)
def test_a_size_has_the_unit_that_is_read_best(count: int, text: str) -> None:
    assert size_text(count) == text
