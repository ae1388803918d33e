"""Edited translations and their word links."""

from __future__ import annotations

from serving.text.alignment import Link
from serving.text.edits import Edit, edited, edited_links


def test_links_move_with_what_is_put_in_before_them() -> None:
    edits = [Edit((1, 3), "12345"), Edit((5, 6), "")]
    links = [Link((0, 1), (0, 1), 1.0), Link((0, 1), (1, 3), 1.0), Link((0, 1), (4, 8), 1.0)]

    assert edited("abbcdefgh", edits) == "a12345cdfgh"
    assert [link.target for link in edited_links(links, edits)] == [(0, 1), (1, 6), (7, 10)]
