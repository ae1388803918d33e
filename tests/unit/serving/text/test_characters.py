"""Characters that count, and those that cannot be read."""

from __future__ import annotations

import time

import pytest

from serving.text.characters import counted_characters


@pytest.mark.parametrize(
    ("text", "format", "count"),
    [
        ("Guten Morgen!", "text", 13),
        ("1 < 2 <b>", "text", 9),
        ("1 < 2 <b>", "markdown", 9),
        ('<h1 style="color:red;">Guten Morgen!</h1>', "html", 13),
        ("Guten <b>Morgen!</b><br/>", "xml", 13),
        ("<!-- a <b> note -->Guten <x:y>Morgen!</x:y>", "xml", 13),
        ('<?xml version="1.0"?><a>1 &lt; 2</a>', "xml", 8),
        ("1 < 2 and 3 > 2", "html", 15),
        ("", "html", 0),
        ("<!-- a --> <b>b</b> <!-- c", "html", 9),
        ("a <!--> b", "html", 9),
        ("<b <!-- a -->c>", "html", 5),
    ],
)
def test_tags_do_not_count(text: str, format: str, count: int) -> None:
    assert counted_characters(text, format) == count


@pytest.mark.parametrize("text", ["<!--", "<!-->", "<!---->", "<!--<a -->", "<a", "<a>", "<!a"])
def test_long_texts_are_counted_in_time(text: str) -> None:
    began = time.process_time()
    counted_characters(text * (10**6 // len(text)), "html")
    assert time.process_time() - began < 5  # for comments without an end it was an hour
