"""Translation memories in TMX as documents: their units get variants in the target language."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serving.documents.localisation.elements import Element, elements_of, text_of
from serving.documents.localisation.languages import is_same, language_to_fill
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Unit

_LANGUAGE = ("xml:lang", "lang")


def read_tmx(content: bytes, target: str = "", retranslate: bool = False) -> FileInUnits:
    """Read the units whose variant in the language `target` is missing or empty, or all with
    `retranslate`; they are translated from the language that the header names, or else from the
    file's first. Without `target`, the target is the only other language of the file. Raises
    DocumentError if there is none, or several."""
    source = text_of(content)
    elements = list(elements_of(source))
    header = next((e.attributes.get("srclang", "") for e in elements if e.name == "header"), "")
    units = [element for element in elements if element.name == "tu"]
    languages = [_language(variant) for unit in units for variant in _variants(unit)]
    main = next(iter(languages), "") if header in ("", "*all*") else header
    if not units:
        return file_with_slots(source, [])
    into = language_to_fill(languages, main, target)
    slots = [
        slot
        for unit in units
        for slot in _slot(source.text, unit, main, into, retranslate=retranslate)
    ]
    return file_with_slots(source, slots)


def _variants(unit: Element) -> list[Element]:
    return [child for child in unit.children if child.name == "tuv" and child.child("seg")]


def _language(variant: Element) -> str:
    return next((variant.attributes[k] for k in _LANGUAGE if k in variant.attributes), "")


def _slot(text: str, unit: Element, main: str, into: str, *, retranslate: bool) -> Iterator[Slot]:
    variants = _variants(unit)
    source = next((v for v in variants if is_same(_language(v), main)), None)
    if source is None or not (words := source.child("seg")):
        return
    own = Unit(text[words.inner : words.inner_end], "xml")
    filled = next((v for v in variants if is_same(_language(v), into)), None)
    if filled is None:
        space = re.search(r"\s*\Z", text[: source.begin])
        before = f'{space[0] if space else ""}<tuv xml:lang="{into}"><seg>'

        def behind(translation: str) -> str:
            return f"{before}{translation}</seg></tuv>"

        yield Slot(source.end, source.end, own, behind, replaces_source=False)
        return
    place = filled.child("seg")
    if place and (retranslate or not text[place.inner : place.inner_end].strip()):

        def inside(translation: str) -> str:
            return f"<seg>{translation}</seg>"

        yield Slot(place.begin, place.end, own, inside, replaces_source=False)
