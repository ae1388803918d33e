"""Entries of a glossary in files."""

from __future__ import annotations

import pytest

from serving.store.records.glossary import entries_of


@pytest.mark.parametrize(
    ("format", "text"), [("tsv", "Haus\thome\r\n\nTür\tdoor"), ("csv", 'Haus,home\r\n\n"Tür",door')]
)
def test_a_mark_of_the_byte_order_is_no_part_of_the_first_term(format: str, text: str) -> None:
    assert list(entries_of(f"\ufeff{text}", format)) == [("Haus", "home"), ("Tür", "door")]
