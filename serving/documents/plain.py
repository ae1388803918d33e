"""Plain text, Markdown and HTML, read by `serving.text`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
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
from serving.text.splitting.wrapping import soft_breaks

_END = re.compile(r"\r\n|[\r\n]")
_LONGEST = 20_000
"""Characters after which a paragraph that was wrapped is cut at the end of a line."""
_META = re.compile(r"""<meta\s[^<>]*charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_HTML = Declaration((*XML.patterns, _META), references=True)
_ROOT = re.compile(r"<html\b[^>]*(?=>)", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*)(?:"[^"]*"|'[^']*'|[^\s>"']+)""", re.IGNORECASE)
_DIRECTION = re.compile(r"""\sdir\s*=\s*["']?(?:ltr|rtl|auto)["']?""", re.IGNORECASE)
_LINE = re.compile(r"[^\r\n]+|[\r\n]+")
_BREAK = re.compile(r"(?<![ \t])[ \t]*+(?P<end>\r?\n|\r)(?P<indent>[ \t]*(?:>[ \t]*)*)")


def read_text(content: bytes) -> FileInUnits:
    """Read a plain text: each line is a unit, or each paragraph that was wrapped at a width. Its
    translation is wrapped at the width of the widest one. Line ends stay as they are."""
    source = decoded(content)
    paragraphs = list(_paragraphs(source.text))
    parts = [written for written, _ in paragraphs]
    places = [place for place, part in enumerate(parts) if any(map(str.isalpha, part))]
    units = [Unit(paragraphs[place][1]) for place in places]
    check_lengths(units)
    wrapped = [parts[place] for place in places if _BREAK.search(parts[place])]
    width = max((len(line) for part in wrapped for line in part.splitlines()), default=0)

    def with_lines(translations: Sequence[Translated]) -> list[str]:
        written = list(parts)
        for place, unit, translation in zip(places, units, translations, strict=True):
            if translation.text != unit.text:
                written[place] = _wrapped(translation.text, parts[place], width)
        return written

    def write(translations: Sequence[Translated]) -> WrittenFile:
        return source.encoded("".join(with_lines(translations)))

    def write_bilingual(translations: Sequence[Translated]) -> WrittenFile:
        found = _END.search(source.text)
        end = found[0] if found else "\n"
        both, written = list(parts), with_lines(translations)
        for place in places:
            both[place] += end + written[place]
        return source.encoded("".join(both))

    return FileInUnits(units, write, write_bilingual)


def _paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """The lines and line ends of a text, as they are written and as they are read. A paragraph that
    was wrapped is one line."""
    breaks = soft_breaks(text)
    written = read = ""
    begins = [0, *(each.end for each in breaks)]
    for begin, following in zip_longest(begins, breaks):
        end = following.begin if following else len(text)
        for number, part in enumerate(_LINE.findall(text, begin, end)):
            if number:
                yield written, read
                written = read = ""
            written, read = written + part, read + part
        if following and following.read and len(read) > _LONGEST:
            yield written, read
            yield text[end : following.end], text[end : following.end]
            written = read = ""
        elif following:
            written += text[end : following.end]
            read += following.read
    if written:
        yield written, read


def _wrapped(translation: str, source: str, width: int) -> str:
    """A translation in lines with the ends and the indentation of its source, if that has any."""
    found = _BREAK.search(source)
    if found is None:
        return translation
    lines = textwrap.wrap(
        translation,
        width,
        subsequent_indent=found["indent"],
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return found["end"].join(lines)


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
