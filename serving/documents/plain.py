"""Plain text, Markdown and HTML, read by `serving.text`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

from serving.documents.raw.encoding import XML, Declaration, decoded
from serving.documents.texts.asides import (
    Find,
    aside_units,
    html_asides,
    markdown_asides,
    with_asides,
)
from serving.documents.texts.beside import html_beside
from serving.documents.texts.direction import is_right_to_left
from serving.documents.texts.pieces import html_units, markdown_units
from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile, check_lengths

_META = re.compile(r"""<meta\s[^<>]*charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_HTML = Declaration((*XML.patterns, _META), references=True)
_ROOT = re.compile(r"<html\b[^>]*(?=>)", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*)(?:"[^"]*"|'[^']*'|[^\s>"']+)""", re.IGNORECASE)
_DIRECTION = re.compile(r"""\sdir\s*=\s*["']?(?:ltr|rtl|auto)["']?""", re.IGNORECASE)
_LINE = re.compile(r"[^\r\n]+|[\r\n]+")


def read_text(content: bytes) -> FileInUnits:
    """Read a plain text: each line is a unit; line ends stay as they are."""
    source = decoded(content)
    parts = _LINE.findall(source.text)
    places = [place for place, part in enumerate(parts) if any(map(str.isalpha, part))]
    units = [Unit(parts[place]) for place in places]
    check_lengths(units)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        written = list(parts)
        for place, translation in zip(places, translations, strict=True):
            written[place] = translation.text
        return source.encoded("".join(written))

    def write_bilingual(translations: Sequence[Translated]) -> WrittenFile:
        end = next((part for part in parts if part[0] in "\r\n"), "\n")
        end = "\r\n" if end.startswith("\r\n") else end[0]
        both = list(parts)
        for place, translation in zip(places, translations, strict=True):
            both[place] += end + translation.text
        return source.encoded("".join(both))

    return FileInUnits(units, write, write_bilingual)


def read_markdown(content: bytes) -> FileInUnits:
    """Read the blocks of a Markdown file, several in one unit, and the alternative texts of its
    pictures."""
    source = decoded(content)
    parts = markdown_units(source.text)
    asides = aside_units([source.text], markdown_asides)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        return source.encoded(_filled(parts, asides, markdown_asides, translations))

    return FileInUnits(_units(parts, asides), write)


def read_html(content: bytes, target: str = "") -> FileInUnits:
    """Read the blocks of a page, several in one unit, and the attributes that a reader sees or
    hears. If the page names its language, the translation names `target`, and it runs in that
    language's direction."""
    source = decoded(content, _HTML)
    page = _in_language(source.text, target) if target else source.text
    parts = html_units(page)
    asides = aside_units([page], html_asides)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        return source.encoded(_filled(parts, asides, html_asides, translations))

    def write_bilingual(translations: Sequence[Translated]) -> WrittenFile:
        both = list(translations)
        for place, unit in enumerate(part for part in parts if isinstance(part, Unit)):
            both[place] = Translated(html_beside(unit.text, translations[place].text))
        return write(both)

    return FileInUnits(_units(parts, asides), write, write_bilingual)


def _in_language(text: str, target: str) -> str:
    root = _ROOT.search(text)
    if root is None:
        return text
    tag = _LANGUAGE.sub(lambda found: f"{found[1]}{quoteattr(target)}", root[0])
    right = is_right_to_left(target)
    if _DIRECTION.search(tag):
        tag = _DIRECTION.sub(f' dir="{"rtl" if right else "ltr"}"', tag)
    elif right:
        tag = f'{tag} dir="rtl"'
    return text[: root.start()] + tag + text[root.end() :]


def _units(parts: Sequence[str | Unit], asides: Sequence[Unit]) -> list[Unit]:
    """The units among the parts, followed by the texts in markup. Raises TooLongError."""
    units = [*(part for part in parts if isinstance(part, Unit)), *asides]
    check_lengths(units)
    return units


def _filled(
    parts: Sequence[str | Unit],
    asides: Sequence[Unit],
    find: Find,
    translations: Sequence[Translated],
) -> str:
    """A page with the translations of its parts, and after that of the texts in its markup."""
    given = iter(translations)
    text = "".join(part if isinstance(part, str) else next(given).text for part in parts)
    own = {unit: translation.text for unit, translation in zip(asides, given, strict=True)}
    return with_asides(text, find, own)
