"""Turns paragraphs of Word and PowerPoint, and sheets of Excel, to run the other way.

A text that runs from right to left stands at the right; in a sheet the first column does.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

from lxml import etree

from serving.documents.office.runs import words_of
from serving.documents.raw.xml import SPACE, local
from serving.documents.texts.direction import RIGHT

_BEHIND_BIDI = frozenset(
    """
    adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents suppressOverlap jc
    textDirection textAlignment textboxTightWrap outlineLvl divId cnfStyle rPr sectPr pPrChange
    """.split()  # noqa: SIM905
)
_BEHIND_RTL = frozenset("cs em lang eastAsianLayout specVanish oMath rPrChange".split())  # noqa: SIM905
_OTHER_SCRIPT = (("b", "bCs"), ("i", "iCs"), ("sz", "szCs"))
"""Pairs of properties: for letters that run from the left, and the same for letters from the
right."""
_FROM_LEFT = re.compile(rf"([^\W\d_{RIGHT}]+(?:[^\n{RIGHT}]*[^\W\d_{RIGHT}])?)")
_VIEW = re.compile(rb"<(?:\w+:)?sheetView\b[^>]*")
_SHEET_DIRECTION = re.compile(rb"""\s+rightToLeft\s*=\s*(?:"[^"]*"|'[^']*')""")
_LEVEL = re.compile(rb"<(?:\w+:)?(?:lvl\dpPr|defPPr)\b[^>]*")
_RTL = re.compile(rb"""\s+rtl\s*=\s*(?:"[^"]*"|'[^']*')""")
_SIDE = re.compile(rb"""(\salgn\s*=\s*["'])([lr])(["'])""")
_OTHER_SIDE = {b"l": b"r", b"r": b"l"}
_SIDES = {"l": "r", "r": "l"}


def turn_word(paragraph: etree._Element, namespace: str, *, right: bool) -> None:
    """Make a paragraph of Word run from the right, or from the left, with the runs in it. Runs of
    text boxes in it belong to other paragraphs."""
    properties = paragraph.find(f"{namespace}pPr")
    if properties is None:
        properties = etree.Element(f"{namespace}pPr")
        paragraph.insert(0, properties)
    _set(properties, namespace, "bidi", right, _BEHIND_BIDI)
    for run in list(_runs(paragraph)):
        _turn_run(run, namespace, right=right)


def turn_drawing(paragraph: etree._Element, namespace: str, *, right: bool) -> None:
    """Make a paragraph of PowerPoint, or of a drawing, run from the right, or from the left. If it
    is aligned to one side, it moves to the other; alignment from its layout stays."""
    properties = paragraph.find(f"{namespace}pPr")
    if properties is None:
        properties = etree.Element(f"{namespace}pPr")
        paragraph.insert(0, properties)
    properties.set("rtl", "1" if right else "0")
    side = properties.get("algn")
    if side in _SIDES:
        properties.set("algn", _SIDES[side])


def turned_sheet(content: bytes, right: bool) -> bytes:
    """A sheet of Excel with its first column at the right, or at the left."""

    def turned(view: re.Match[bytes]) -> bytes:
        return _with(_SHEET_DIRECTION.sub(b"", view[0]), b' rightToLeft="1"' if right else b"")

    return _VIEW.sub(turned, content)


def turned_styles(content: bytes, right: bool) -> bytes:
    """A master, a layout or the defaults of PowerPoint with levels of text that run from the right,
    or from the left, and are aligned to the side where they begin."""

    def turned(level: re.Match[bytes]) -> bytes:
        found = _RTL.sub(b"", level[0])
        found = _SIDE.sub(lambda side: side[1] + _OTHER_SIDE[side[2]] + side[3], found)
        return _with(found, b' rtl="1"' if right else b' rtl="0"')

    return _LEVEL.sub(turned, content)


def _with(tag: bytes, attribute: bytes) -> bytes:
    """A start tag, without its end, with one more attribute."""
    end = b"/" if tag.endswith(b"/") else b""
    return tag.removesuffix(b"/") + attribute + end


def _runs(element: etree._Element) -> Iterator[etree._Element]:
    """Yield the runs with words, except those of paragraphs within this one."""
    for child in element:
        name = local(child)
        if name == "r" and any(local(part) == "t" for part in child):
            yield child
        elif name not in ("p", "r"):
            yield from _runs(child)


def _turn_run(run: etree._Element, namespace: str, *, right: bool) -> None:
    """Divide a run that is turned: words from the left become runs of their own, because Word would
    otherwise write them from the right as well."""
    words = [child for child in run if local(child) == "t"]
    alone = all(local(child) in ("rPr", "t") for child in run)
    if not right or len(words) != 1 or not alone:
        _turn_letters(run, namespace, right=right)
        return
    parent = run.getparent()
    assert parent is not None
    place = parent.index(run)
    for number, part in enumerate(_FROM_LEFT.split(words_of(words[0], namespace))):
        if part:
            piece = copy.deepcopy(run)
            own = next(child for child in piece if local(child) == "t")
            own.text = part
            if "drawingml" not in namespace:
                own.set(SPACE, "preserve")
            if number % 2 == 0:
                _turn_letters(piece, namespace, right=True)
            parent.insert(place, piece)
            place += 1
    parent.remove(run)


def _turn_letters(run: etree._Element, namespace: str, *, right: bool) -> None:
    properties = run.find(f"{namespace}rPr")
    if properties is None:
        properties = etree.Element(f"{namespace}rPr")
        run.insert(0, properties)
    for left_name, right_name in _OTHER_SCRIPT:
        left, other = (properties.find(namespace + name) for name in (left_name, right_name))
        if right and left is not None and other is None:
            left.addnext(_renamed(left, namespace + right_name))
        elif not right and other is not None and left is None:
            other.addprevious(_renamed(other, namespace + left_name))
    _set(properties, namespace, "rtl", right, _BEHIND_RTL)


def _renamed(element: etree._Element, tag: str) -> etree._Element:
    return etree.Element(tag, element.attrib)


def _set(
    properties: etree._Element, namespace: str, name: str, on: bool, behind: frozenset[str]
) -> None:
    """Turn a property on or off explicitly, because a style may say otherwise; it is put at its
    proper place."""
    for child in properties.findall(namespace + name):
        properties.remove(child)
    made = etree.Element(namespace + name)
    if not on:
        made.set(f"{namespace}val", "0")
    place = next(
        (n for n, child in enumerate(properties) if local(child) in behind), len(properties)
    )
    properties.insert(place, made)
