"""Puts a paragraph of Word into a document twice: the source, and after it the translation.

Objects that may occur only once in a document stay with the source: pictures, notes, comments,
bookmarks, numbers of lists. What belongs to the end of both, such as a section break, goes to the
second.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from lxml import etree

from serving.documents.raw.xml import local

_ONCE = frozenset(
    """
    drawing pict object AlternateContent footnoteReference endnoteReference footnoteRef endnoteRef
    annotationRef commentReference commentRangeStart commentRangeEnd bookmarkStart bookmarkEnd del
    moveFrom moveFromRangeStart moveFromRangeEnd moveToRangeStart moveToRangeEnd permStart permEnd
    pageBreakBefore
    """.split()  # noqa: SIM905
)
_BEFORE_NUMBERS = ("pStyle", "keepNext", "keepLines", "pageBreakBefore", "framePr", "widowControl")
"""Properties of a paragraph that must stand before those of its list."""


def put_source_before(paragraph: etree._Element) -> None:
    """Put a copy of a paragraph before it, which is the source from now on."""
    source = copy.deepcopy(paragraph)
    source.tail = None
    for name in list(source.attrib):
        if str(name).endswith(("}paraId", "}textId")):  # comments refer to their paragraph by it
            del source.attrib[name]
    for properties in _properties(source):
        for child in [child for child in properties if local(child) == "sectPr"]:
            properties.remove(child)
    paragraph.addprevious(source)


def leave_out_repeated(paragraph: etree._Element, namespace: str) -> None:
    """Remove from a translation what the source before it already contains."""
    names = _ONCE
    marks = [
        value
        for node in paragraph.iter(f"{namespace}fldChar")
        for key, value in node.attrib.items()
        if str(key).endswith("}fldCharType")
    ]
    if marks.count("begin") != marks.count("end"):  # a field that spans several paragraphs
        names = names | {"fldChar", "instrText"}
    has_words = False
    for element in list(paragraph.iterdescendants()):
        has_words = has_words or local(element) == "t"
        if _is_break_of_page(element) and has_words:
            element.attrib.clear()  # it divides words, as a line break does
        elif local(element) in names or _is_break_of_page(element):
            parent = element.getparent()
            if parent is not None:
                parent.remove(element)
    for properties in _properties(paragraph):
        _without_number(properties, namespace)


def _properties(paragraph: etree._Element) -> Iterator[etree._Element]:
    return (child for child in list(paragraph) if local(child) == "pPr")


def _is_break_of_page(element: etree._Element) -> bool:
    kind = next((v for k, v in element.attrib.items() if str(k).endswith("}type")), "")
    return local(element) == "br" and kind in ("page", "column")


def _without_number(properties: etree._Element, namespace: str) -> None:
    """Take a paragraph out of its list, whatever its style says, so that no number is skipped."""
    names = [local(child) for child in properties]
    if not {"numPr", "pStyle"} & set(names):
        return
    for child in [child for child in properties if local(child) == "numPr"]:
        properties.remove(child)
    place = sum(1 for child in properties if local(child) in _BEFORE_NUMBERS)
    numbers = etree.Element(f"{namespace}numPr")
    etree.SubElement(numbers, f"{namespace}numId").set(f"{namespace}val", "0")
    properties.insert(place, numbers)
