"""Word, PowerPoint and Excel: the parts that contain words, and the elements with words in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from lxml import etree

from serving.documents.office.bilingual import leave_out_repeated, put_source_before
from serving.documents.office.paragraph import (
    MACROS,
    SIGNED,
    Paragraph,
    PartReading,
    office_file,
)
from serving.documents.office.printed import PRINTED, printed_parts
from serving.documents.office.runs import PHONETIC, RunReader
from serving.documents.office.turning import (
    turn_drawing,
    turn_word,
    turned_sheet,
    turned_styles,
)
from serving.documents.raw.archive import Archive
from serving.documents.raw.xml import SPACE, local, parsed, serialised
from serving.documents.texts.direction import turn
from serving.documents.texts.markup import Inline, Thing, Words, Wrap, line_of
from serving.documents.unit import FileInUnits, Translated, WrittenFile

_TYPES = "[Content_Types].xml"
_RELATIONS = "_rels/.rels"
_WORDS = frozenset(
    """
    document footnotes endnotes comments header footer slide notesSlide chart chartex diagramData
    diagramDrawing drawing sharedStrings template worksheet chartsheet threadedcomments
    """.split()  # noqa: SIM905
)
"""The kinds of parts that contain words, as their content types name them."""
_MAIN = re.compile(r"\.([A-Za-z]+)(?:\.main)?\+xml\Z")
_OF_WORD = re.compile(r"wordprocessingml.*\+xml\Z")
"""The types of Word's own parts, but not that of a whole file of Word in a slide."""
_TURNED = (
    (re.compile(r"xl/worksheets/[^/]+\.xml\Z"), turned_sheet),
    (re.compile(r"ppt/(?:slide(?:Master|Layout)s/[^/]+|presentation)\.xml\Z"), turned_styles),
)
"""Parts that are turned if most of the text is, with the function that turns each."""
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
"""A character as Excel writes it where XML has no room for it; `_x005F_` stands for `_`."""
_SIGNATURE = re.compile(r"\A_xmlsignatures/|\A/?_xmlsignatures\b")
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_STRICT = {
    "{http://purl.oclc.org/ooxml/wordprocessingml/main}": _WORD,
    "{http://purl.oclc.org/ooxml/drawingml/main}": _DRAWING,
    "{http://purl.oclc.org/ooxml/spreadsheetml/main}": _SHEET,
}


def read_ooxml(content: bytes, target: str = "") -> FileInUnits:
    """Read the paragraphs, cells, notes, comments and printed headers of a file of Word, PowerPoint
    or Excel. With a `target` language, paragraphs and sheets that would run the wrong way are
    turned."""
    archive = Archive(content)
    types = _content_types(archive)
    names = _parts_with_words(types)
    kept = _names_of_columns(archive, types)

    def paragraphs(root: etree._Element) -> Iterator[Paragraph]:
        return _paragraphs(root, kept, target)

    file = office_file(archive, names, PartReading(_take, paragraphs))
    signed = [name for name in archive.names if _SIGNATURE.match(name)]
    right = turn("\n".join(unit.text for unit in file.units), target)

    def write(translations: Sequence[Translated], *, bilingual: bool = False) -> WrittenFile:
        others: dict[str, Iterable[bytes]] = {**file.written(translations, bilingual=bilingual)}
        for name in archive.names:
            turned = next((turned for parts, turned in _TURNED if parts.match(name)), None)
            if turned and right is not None:
                part = b"".join(others.get(name) or [archive.read(name)])
                others[name] = [turned(part, right)]
        return WrittenFile(archive.written(others | _unsigned(archive, signed), signed))

    warnings = []
    if signed:
        warnings.append(SIGNED)
    if any(name.endswith("vbaProject.bin") for name in archive.names):
        warnings.append(MACROS)
    # Slides and cells have no room for both.
    of_word = any(_OF_WORD.search(content_type) for content_type in types.values())
    both = functools.partial(write, bilingual=True) if of_word else None
    return FileInUnits(file.units, write, both, tuple(warnings))


def _content_types(archive: Archive) -> dict[str, str]:
    """The content type of each part, by the part's name: its own or that of its extension. Names
    and extensions are compared without case."""
    own, of_extensions = dict[str, str](), dict[str, str]()
    for element in parsed(archive.read(_TYPES), _TYPES).getroot():
        content_type = element.get("ContentType", "")
        if local(element) == "Override":
            own[element.get("PartName", "").removeprefix("/").lower()] = content_type
        elif local(element) == "Default":
            of_extensions[element.get("Extension", "").lower()] = content_type
    found = {}
    for name in archive.names:
        lower = name.lower()
        content_type = own.get(lower) or of_extensions.get(lower.rpartition(".")[2], "")
        if content_type and name != _TYPES:  # which is no part itself
            found[name] = content_type
    return found


def _parts_with_words(types: Mapping[str, str]) -> list[str]:
    names = []
    for name, content_type in types.items():
        found = _MAIN.search(content_type)
        word = "ms-word" in content_type and "main" in content_type  # with macros
        if (found and found[1] in _WORDS) or word or "ms-powerpoint.comments" in content_type:
            names.append(name)
    return names


def _names_of_columns(archive: Archive, types: Mapping[str, str]) -> frozenset[str]:
    """The headers of Excel's tables, by which formulas refer to columns."""
    found: set[str] = set()
    for name, content_type in types.items():
        if content_type.endswith("spreadsheetml.table+xml"):
            root = parsed(archive.read(name), name).getroot()
            found |= {
                _unescaped(element.get("name", ""))
                for element in root.iter()
                if local(element) == "tableColumn"
            }
    return frozenset(found)


def _unescaped(text: str) -> str:
    """A text of Excel as its cell shows it, with one kind of line break."""
    shown = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)
    return shown.replace("\r\n", "\n").replace("\r", "\n")


def _unsigned(archive: Archive, signed: Sequence[str]) -> dict[str, Iterator[bytes]]:
    """The parts that name the signatures, with the signatures removed."""
    if not signed:
        return {}
    written = {}
    for name in (_TYPES, _RELATIONS):
        tree = parsed(archive.read(name), name)
        for element in list(tree.getroot()):
            path = element.get("PartName") or element.get("Target") or ""
            if _SIGNATURE.match(path.removeprefix("/")):
                tree.getroot().remove(element)
        written[name] = iter([serialised(tree)])
    return written


def _kind(tag: str) -> Literal["runs", "item", "text", "printed"] | None:
    """The way in which the words of an element are read; None for an element without words."""
    namespace, end, name = tag.rpartition("}")
    usual = _STRICT.get(namespace + end, namespace + end)
    if name == "p" and usual in (_WORD, _DRAWING):
        return "runs"
    if usual == _SHEET and name in ("si", "is", "text"):
        return "item"
    if usual == _SHEET and name in PRINTED:
        return "printed"
    if name == "text" and ("threadedcomments" in namespace or "presentationml" in namespace):
        return "text"
    return None


def _take(tag: str, attributes: Mapping[str, str]) -> Literal["take", "enter"]:
    return "take" if _kind(tag) else "enter"


def _paragraphs(root: etree._Element, kept: Collection[str], target: str) -> Iterator[Paragraph]:
    for element in root.iter():
        kind = _kind(element.tag) if isinstance(element.tag, str) else None
        if kind is None:
            continue
        if kind == "printed":
            yield from (part for part in printed_parts(element) if part.line.has_words)
            continue
        namespace = element.tag[: -len(local(element))]
        plain = element if kind == "text" else element.find(f"{namespace}t")
        if kind == "runs":
            plain = None
        found = _of_runs(element, namespace, target) if plain is None else _of_text(plain)
        if found.line.has_words and _unescaped(_plain(found.line.inside)) not in kept:
            yield found


def _of_runs(element: etree._Element, namespace: str, target: str) -> Paragraph:
    reader = RunReader(namespace)
    line = line_of(reader.read(element))

    def fill(inlines: Sequence[Inline]) -> None:
        reader.fill(element, inlines)
        right = turn(_plain(line.inside), target)
        if right is None:
            return
        if _STRICT.get(namespace, namespace) == _WORD:
            turn_word(element, namespace, right=right)
        elif _STRICT.get(namespace, namespace) == _DRAWING:
            turn_drawing(element, namespace, right=right)

    def follow(inlines: Sequence[Inline]) -> None:
        put_source_before(element)
        fill(inlines)
        leave_out_repeated(element, namespace)

    of_word = _STRICT.get(namespace, namespace) == _WORD
    return Paragraph(line, fill, follow if of_word else None)


def _of_text(element: etree._Element) -> Paragraph:
    def fill(inlines: Sequence[Inline]) -> None:
        text = _plain(inlines)
        element.text = text
        for guide in [other for other in element.itersiblings() if local(other) in PHONETIC]:
            guide.getparent().remove(guide)
        if text != text.strip() or "\n" in text:
            element.set(SPACE, "preserve")

    # Excel writes a carriage return before a line feed this way, and does not need it.
    return Paragraph(line_of([Words((element.text or "").replace("_x000D_\n", "\n"))]), fill)


def _plain(inlines: Sequence[Inline]) -> str:
    """The text of inlines, without markup."""
    written = []
    for inline in inlines:
        match inline:
            case Words(text, _):
                written.append(text)
            case Wrap(_, inside):
                written.append(_plain(inside))
            case Thing():
                pass
    return "".join(written)
