"""Documents as other programs read them, which had no part in translating them."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from itertools import zip_longest
from typing import Any

import docx
import javaproperties
import lxml.html
import markdown
import nbformat
import openpyxl
import openstep_plist
import polib
import pptx
import pysubs2
import ruamel.yaml
import webvtt
from docutils.core import publish_doctree
from docutils.nodes import Element, Text
from lxml import etree
from pylatexenc.latexwalker import (
    LatexCharsNode,
    LatexCommentNode,
    LatexEnvironmentNode,
    LatexMacroNode,
    LatexMathNode,
    LatexWalker,
)

_BLANK = re.compile(r"\s+")
_TAG = re.compile(r"\{[^}]*\}|<[^>]*>")


@dataclass(frozen=True)
class Content:
    """What a reader finds in a document."""

    kept: list[object] = field(default_factory=list)
    """What a translation leaves as it is: structure, times, names, flags, comments and code."""
    texts: list[str] = field(default_factory=list)
    """What is translated, in order; any white space is a blank, for lines may be broken anew."""
    sources: list[str] = field(default_factory=list)
    """What each text is a translation of: itself, but in catalogues."""

    def keep(self, *parts: object) -> None:
        self.kept.append(parts)

    def text(self, text: str, source: str | None = None) -> None:
        """A text; blank ones without a source are none."""
        text = _BLANK.sub(" ", text).strip()
        if text or source is not None:
            self.texts.append(text)
            self.sources.append(text if source is None else _BLANK.sub(" ", source).strip())


def of_srt(content: bytes) -> Content:
    return _of_pysubs2(content, "srt")


def of_ass(content: bytes) -> Content:
    return _of_pysubs2(content, "ass")


def _of_pysubs2(content: bytes, kind: str) -> Content:
    file = pysubs2.SSAFile.from_string(content.decode("utf-8-sig"), kind, keep_html_tags=True)
    found = Content()
    found.keep(file.info, {name: style.as_dict() for name, style in file.styles.items()})
    for event in file:
        by_itself = event.text if event.is_comment or event.is_drawing else None
        found.keep({**event.as_dict(), "text": by_itself}, Counter(_TAG.findall(event.text)))
        if by_itself is None:
            found.text(re.sub(r"<[^>]*>", "", event.plaintext))
    return found


def of_vtt(content: bytes) -> Content:
    file = webvtt.from_string(content.decode("utf-8-sig"))
    found = _of_captions(file)
    found.keep([style.text for style in file.styles], [str(each) for each in file.regions])
    found.keep(file.header_text, file.metadata, file.header_comments, file.footer_comments)
    return found


def of_sbv(content: bytes) -> Content:
    text = StringIO(content.decode("utf-8-sig"))
    return _of_captions(webvtt.WebVTT.from_buffer(text, format="sbv"))


def _of_captions(file: webvtt.WebVTT) -> Content:
    found = Content()
    for each in file:
        tags = Counter(_TAG.findall(each.raw_text))
        found.keep(each.start, each.end, each.identifier, each.comments, str(each.settings), tags)
        found.text(each.text)
    return found


def of_po(content: bytes) -> Content:
    named = re.search(rb"charset=([\w-]+)", content)
    text = content.decode(named[1].decode() if named and named[1] != b"CHARSET" else "utf-8-sig")
    file = polib.pofile(text)
    found = Content()
    found.keep(file.header, file.metadata, file.metadata_is_fuzzy)
    for entry in file:
        found.keep(
            *(entry.msgid, entry.msgid_plural, entry.msgctxt, entry.flags, entry.occurrences),
            *(entry.comment, entry.tcomment, entry.obsolete, sorted(entry.msgstr_plural)),
            *(entry.previous_msgid, entry.previous_msgid_plural, entry.previous_msgctxt),
        )
        if entry.obsolete:
            found.keep(entry.msgstr, entry.msgstr_plural)
        elif entry.msgid_plural:
            for number, form in sorted(entry.msgstr_plural.items()):
                found.text(form, entry.msgid_plural if number else entry.msgid)
        else:
            found.text(entry.msgstr, entry.msgid)
    return found


_LITERAL = frozenset(
    """
    literal literal_block math math_block raw comment doctest_block title_reference
    substitution_reference field_name option_list
    """.split()  # noqa: SIM905
)
"""Names of fields stay, too."""
_NAMES = frozenset(("names", "dupnames", "ids", "refid", "refname", "backrefs"))
_SHOWN = frozenset(("alt", "name", "title"))


def of_rst(content: bytes) -> Content:
    """docutils compares names without their case, which is all that capitals change of them."""
    settings = {"report_level": 5, "halt_level": 5, "_disable_config": True, "raw_enabled": True}
    found = Content()

    def visit(node: Element | Text, depth: int) -> None:
        if isinstance(node, Text):
            found.text(node.astext())
            return
        found.keep(depth, node.tagname)
        for key, value in sorted(node.attributes.items()):
            if key in ("line", "source"):
                continue
            found.keep(key, str(value).casefold() if key in _NAMES | _SHOWN else str(value))
        if node.tagname == "problematic":  # a role that only Sphinx has
            found.keep(_BLANK.sub(" ", node.astext()).casefold())
        elif node.tagname in _LITERAL:
            found.keep(_BLANK.sub(" ", node.astext()))
        elif node.tagname != "system_message":
            for child in node.children:
                visit(child, depth + 1)

    visit(publish_doctree(content.decode(), settings_overrides=settings), 0)
    return found


def of_notebook(content: bytes) -> Content:
    """Cells of code are kept with what they have shown; those of Markdown are read as such."""
    book = nbformat.reads(content.decode(), as_version=nbformat.NO_CONVERT)
    found = Content()
    found.keep(book.metadata, book.nbformat, book.nbformat_minor)
    for cell in book.get("cells", ()):
        if cell.cell_type != "markdown":
            found.keep(cell)
            continue
        inside = of_markdown(cell.source.encode())
        found.keep({**cell, "source": inside.kept})
        for text in inside.texts:
            found.text(text)
    return found


def of_markdown(content: bytes) -> Content:
    shown = markdown.markdown(content.decode(), extensions=["tables", "fenced_code", "footnotes"])
    return of_html(f"<div>{shown}</div>".encode())


_CODE = frozenset(("code", "pre", "script", "style", "kbd", "samp", "var"))
_READ = frozenset(("alt", "title", "placeholder", "aria-label", "content", "label", "summary"))


def of_html(content: bytes) -> Content:
    found = Content()

    def visit(element: Any, code: bool) -> None:
        if not isinstance(element.tag, str):
            found.keep("comment", element.text)
        else:
            code = code or element.tag in _CODE or element.get("translate") == "no"
            found.keep(element.tag, [pair for pair in element.items() if pair[0] not in _READ])
            say = found.keep if code else found.text
            say(element.text or "")
            for child in element:
                visit(child, code)
                say(child.tail or "")

    parser = lxml.html.HTMLParser(encoding="utf-8")
    visit(lxml.html.document_fromstring(content or b"<p></p>", parser=parser), False)
    return found


_OF_NAMES = frozenset(("cite", "documentclass", "hypersetup", "label", "ref", "usepackage"))


def of_latex(content: bytes) -> Content:
    """pylatexenc's nodes: formulas and comments are kept whole, and names. An ellipsis may be a
    sign."""
    text = re.sub(r"\\l?dots(?:\{\}|\s+|(?![A-Za-z]))", "…", content.decode())
    found = Content()

    def visit(nodes: Any) -> None:
        for node in nodes or ():
            if node is None:
                found.keep(None)
            elif isinstance(node, LatexCharsNode):
                found.text(node.chars)
            elif isinstance(node, LatexMathNode | LatexCommentNode) or (
                isinstance(node, LatexMacroNode) and node.macroname in _OF_NAMES
            ):
                found.keep(_BLANK.sub(" ", node.latex_verbatim()))
            else:
                names = ("macroname", "environmentname", "specials_chars", "delimiters")
                found.keep(type(node).__name__, *(getattr(node, name, None) for name in names))
                arguments = getattr(node, "nodeargd", None)
                if not isinstance(node, LatexEnvironmentNode):  # which has columns of tables there
                    visit(arguments.argnlist if arguments else None)
                visit(getattr(node, "nodelist", None))

    nodes, _, _ = LatexWalker(text, tolerant_parsing=False).get_latex_nodes()
    visit(nodes)
    return found


def of_properties(content: bytes) -> Content:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    found = Content()
    for each in javaproperties.parse(text):
        if isinstance(each, javaproperties.KeyValue):
            found.keep(each.key)
            found.text(each.value)
        else:
            found.keep(each.source)
    return found


def of_strings(content: bytes) -> Content:
    found = Content()
    for key, value in openstep_plist.loads(content.decode()).items():
        found.keep(key)
        found.text(value)
    return found


def of_yaml(content: bytes) -> Content:
    found = Content()

    def visit(value: object) -> None:
        match value:
            case dict():
                found.keep(list(value))
                for each in value.values():
                    visit(each)
            case list():
                found.keep(len(value))
                for each in value:
                    visit(each)
            case str():
                found.text(value)
            case _:
                found.keep(repr(value))

    reader = ruamel.yaml.YAML(typ="safe", pure=True)
    reader.constructor.add_multi_constructor("!", lambda *_: None)
    for document in reader.load_all(content.decode()):
        visit(document)
    return found


def of_xliff(content: bytes) -> Content:
    """Sources and notes are kept; targets are the texts."""
    found = Content()
    source = ""
    for element in etree.fromstring(content).iter(etree.Element):
        name = etree.QName(element).localname
        found.keep(name, [pair for pair in sorted(element.items()) if pair[0] != "state"])
        if name == "target":
            found.text("".join(element.itertext()), source)
        else:
            found.keep(element.text)
        if name == "source":
            source = "".join(element.itertext())
    return found


def of_docx(content: bytes) -> Content:
    document = docx.Document(BytesIO(content))
    found = Content()

    def visit(holder: Any) -> None:
        for block in holder.iter_inner_content():
            if isinstance(block, docx.table.Table):
                found.keep("table", len(block.rows), len(block.columns), block.style.name)
                for row in block.rows:
                    for cell in row.cells:
                        visit(cell)
            else:
                found.keep(block.style.name, block.alignment)
                found.text(block.text)

    visit(document)
    for section in document.sections:
        found.keep(section.page_width, section.orientation, section.start_type)
        visit(section.header)
        visit(section.footer)
    for comment in document.comments:
        found.keep(comment.author)
        visit(comment)
    return found


def of_pptx(content: bytes) -> Content:
    found = Content()

    def visit(shapes: Any) -> None:
        for shape in shapes:
            found.keep(shape.shape_type, shape.left, shape.top, shape.width, shape.height)
            if shape.has_text_frame:
                for paragraph in shape.text_frame.paragraphs:
                    found.keep(paragraph.level, paragraph.alignment)
                    found.text(paragraph.text)
            if getattr(shape, "has_table", False):
                for cell in shape.table.iter_cells():
                    found.text(cell.text)
            if hasattr(shape, "shapes"):
                visit(shape.shapes)

    for slide in pptx.Presentation(BytesIO(content)).slides:
        found.keep(slide.slide_id, slide.slide_layout.name)
        visit(slide.shapes)
        if slide.has_notes_slide:
            visit(slide.notes_slide.shapes)
    return found


def of_xlsx(content: bytes) -> Content:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # extensions that openpyxl does not know
        book = openpyxl.load_workbook(BytesIO(content))
    found = Content()
    for sheet in book:
        found.keep(sheet.dimensions, [str(each) for each in sheet.merged_cells.ranges])
        for row in sheet.iter_rows():
            for cell in row:
                found.keep(cell.coordinate, cell.data_type, cell.number_format)
                if cell.data_type == "s":
                    found.text(str(cell.value))
                else:
                    found.keep(str(cell.value))
    return found


READERS: dict[str, Callable[[bytes], Content]] = {
    "ass": of_ass,
    "docx": of_docx,
    "html": of_html,
    "ipynb": of_notebook,
    "md": of_markdown,
    "po": of_po,
    "pot": of_po,
    "pptx": of_pptx,
    "properties": of_properties,
    "rst": of_rst,
    "sbv": of_sbv,
    "srt": of_srt,
    "strings": of_strings,
    "tex": of_latex,
    "vtt": of_vtt,
    "xlf": of_xliff,
    "xlsx": of_xlsx,
    "yaml": of_yaml,
    "yml": of_yaml,
}

_ACROSS_CUES = frozenset(("ass", "sbv", "srt", "vtt"))
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_NO_WORD = re.compile(r"\S*[\d/.@_{}%<>:=&()\[\]]\S*")
_SMALL_WORD = re.compile(r"\b[a-zà-öø-ÿ]{2,}\b")


def small_words(text: str) -> int:
    """How many words of a text are in small letters, but for those with the signs of code."""
    return len(_SMALL_WORD.findall(_NO_WORD.sub("", _PLACEHOLDER.sub("", text))))


def differences(before: bytes, after: bytes, ending: str, most: int = 3) -> list[object]:
    """What is wrong with a document in capitals as the translation of another one: pairs of what
    differs, and texts that are not translated.

    A sentence may be divided among its cues at another word. What has `most` words or more in small
    letters is not translated, but for those with the signs of code, addresses and placeholders.
    """
    read = READERS[ending]
    source, result = read(before), read(after)
    expected, found = source.sources, result.texts
    if ending in _ACROSS_CUES:
        expected, found = [" ".join(expected)], [" ".join(found)]
    return [
        *(pair for pair in zip_longest(source.kept, result.kept) if pair[0] != pair[1]),
        *(
            pair
            for pair in zip_longest(expected, found, fillvalue="")
            if pair[0].casefold() != pair[1].casefold()
        ),
        *(text for text in found if small_words(text) >= most),
    ]
