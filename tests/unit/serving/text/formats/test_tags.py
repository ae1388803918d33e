"""Where tags, comments and text begin and end, beside the standard library's parser."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.formats.tags import HtmlPiece, html_pieces


def pieces(source: str) -> list[tuple[str, str]]:
    return [(piece.kind, source[slice(*piece.span)]) for piece in html_pieces(source)]


def test_all_kinds() -> None:
    source = "<!DOCTYPE html><p class=a>x<br/>&amp;</P ><!-- <b> --><?php ?>y"
    assert pieces(source) == [
        ("other", "<!DOCTYPE html>"),
        ("start", "<p class=a>"),
        ("data", "x"),
        ("empty", "<br/>"),
        ("data", "&amp;"),
        ("end", "</P >"),
        ("other", "<!-- <b> -->"),
        ("other", "<?php ?>"),
        ("data", "y"),
    ]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("a < b <3 &lt;", [("data", "a < b <3 &lt;")]),
        ("<a b=\">\" c='>'>", [("start", "<a b=\">\" c='>'>")]),
        ("<a b=x/>", [("start", "<a b=x/>")]),
        ("<a b=x />", [("empty", "<a b=x />")]),
        ("<a =x>", [("start", "<a =x>")]),
        ("x<a href='", [("data", "x"), ("other", "<a href='")]),
        ("<!--><b>", [("other", "<!-->"), ("start", "<b>")]),
        ("<!-- a --!>b", [("other", "<!-- a --!>"), ("data", "b")]),
        ("<!-- a", [("other", "<!-- a")]),
        ("</ b>c", [("other", "</ b>"), ("data", "c")]),
        (
            "<script>if (a<b) '</b>'</SCRIPT >x",
            [
                ("start", "<script>"),
                ("data", "if (a<b) '</b>'"),
                ("end", "</SCRIPT >"),
                ("data", "x"),
            ],
        ),
        ("<style>a", [("start", "<style>"), ("data", "a")]),
    ],
)
def test_the_standards_corners(source: str, wanted: list[tuple[str, str]]) -> None:
    assert pieces(source) == wanted


def test_attributes() -> None:
    (piece,) = html_pieces("<p a=1 TRANSLATE='no' class=\"x &lt; y\" b c=d>")
    values = [piece.attribute(name) for name in ("a", "translate", "class", "b", "c", "d")]
    assert values == ["1", "no", "x < y", "", "d", ""]


@given(st.text(alphabet=st.sampled_from("<>/!-?=\"' ab&;")))
def test_nothing_is_lost(source: str) -> None:
    found = list(html_pieces(source))
    assert "".join(source[slice(*piece.span)] for piece in found) == source


class Reference(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(("start", tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("end", tag, {}))


NAMES = st.sampled_from(["b", "p", "x-y", "H1"])
VALUES = st.sampled_from(['"a b"', "'>'", "x", '"&amp;"', '""'])
TAGS = st.builds(
    lambda name, attributes: f"<{name}{''.join(f' {k}={v}' for k, v in attributes.items())}>",
    NAMES,
    st.dictionaries(st.sampled_from(["class", "ID", "data-x"]), VALUES, max_size=3),
)
PARTS = st.one_of(
    TAGS, st.builds("</{}>".format, NAMES), st.sampled_from(["text", " ", "<!-- <b> -->", "&lt;"])
)


@given(st.lists(PARTS).map("".join))
def test_whole_markup_is_read_as_the_standard_library_reads_it(source: str) -> None:
    reference = Reference()
    reference.feed(source)
    reference.close()
    found = [
        (piece.kind, piece.name, _attributes(piece, reference.found))
        for piece in html_pieces(source)
        if piece.kind in ("start", "end")
    ]
    assert found == [
        (kind, name, {key: value or "" for key, value in attributes.items()})
        for kind, name, attributes in reference.found
    ]


def _attributes(
    piece: HtmlPiece, reference: list[tuple[str, str, dict[str, str | None]]]
) -> object:
    names = {name for _, _, attributes in reference for name in attributes}
    written = piece.attributes.lower()
    return {name: piece.attribute(name) for name in names if f"{name}=" in written}
