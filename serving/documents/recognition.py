"""Which kind a file is: its content says more than its name, which people get wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from serving.documents import book, notebook, plain
from serving.documents.localisation import catalogue, elements, lines, memories, trees, xcode
from serving.documents.raw.archive import Archive
from serving.documents.subtitles import cues
from serving.documents.typeset import asciidoc, latex, restructured
from serving.documents.unit import FileFormat, FileInUnits
from serving.errors import DocumentError


def _read_ooxml(content: bytes, target: str = "") -> FileInUnits:
    # Here, for other files need no lxml.
    from serving.documents.office.ooxml import read_ooxml

    return read_ooxml(content, target)


def _read_odf(content: bytes, target: str = "") -> FileInUnits:
    from serving.documents.office.odf import read_odf

    return read_odf(content, target)


def _read_yaml(content: bytes) -> FileInUnits:
    from serving.documents.localisation.yaml_messages import read_yaml

    return read_yaml(content)


def _read_pdf(content: bytes) -> FileInUnits:
    from serving.documents.pdf import read_pdf

    return read_pdf(content)


TEXT = FileFormat("txt", (".txt", ".text"), plain.read_text)
MARKDOWN = FileFormat("markdown", (".md", ".markdown"), plain.read_markdown)
HTML = FileFormat("html", (".html", ".htm", ".xhtml"), plain.read_html, read_into=plain.read_html)
NOTEBOOK = FileFormat("ipynb", (".ipynb",), notebook.read_notebook)
SRT = FileFormat("srt", (".srt",), cues.read_srt)
VTT = FileFormat("vtt", (".vtt",), cues.read_vtt)
ASS = FileFormat("ass", (".ass", ".ssa"), cues.read_ass)
SBV = FileFormat("sbv", (".sbv",), cues.read_sbv)

DOCX = FileFormat("docx", (".docx", ".docm", ".dotx", ".dotm"), _read_ooxml, read_into=_read_ooxml)
PPTX = FileFormat("pptx", (".pptx", ".pptm", ".ppsx", ".potx"), _read_ooxml, read_into=_read_ooxml)
XLSX = FileFormat("xlsx", (".xlsx", ".xlsm", ".xltx"), _read_ooxml, read_into=_read_ooxml)
ODT = FileFormat("odt", (".odt", ".ott"), _read_odf, read_into=_read_odf)
ODP = FileFormat("odp", (".odp", ".otp"), _read_odf, read_into=_read_odf)
ODS = FileFormat("ods", (".ods", ".ots"), _read_odf, read_into=_read_odf)

EPUB = FileFormat("epub", (".epub",), book.read_epub, read_into=book.read_epub)
PO = FileFormat("po", (".po", ".pot"), catalogue.read_po)
XLIFF = FileFormat("xliff", (".xlf", ".xliff"), elements.read_xliff, read_into=elements.read_xliff)
ANDROID = FileFormat("android", ("strings.xml",), elements.read_android)
RESX = FileFormat("resx", (".resx",), elements.read_resx)
STRINGS = FileFormat("strings", (".strings",), lines.read_strings)
PROPERTIES = FileFormat("properties", (".properties",), lines.read_properties)
JSON = FileFormat("json", (".json",), trees.read_json)
YAML = FileFormat("yaml", (".yml", ".yaml"), _read_yaml)
TMX = FileFormat("tmx", (".tmx",), memories.read_tmx, read_into=memories.read_tmx)
STRINGSDICT = FileFormat("stringsdict", (".stringsdict",), xcode.read_stringsdict)
XCSTRINGS = FileFormat(
    "xcstrings", (".xcstrings",), xcode.read_xcstrings, read_into=xcode.read_xcstrings
)
RST = FileFormat("rst", (".rst", ".rest"), restructured.read_rst)
ASCIIDOC = FileFormat("asciidoc", (".adoc", ".asciidoc", ".asc"), asciidoc.read_asciidoc)
LATEX = FileFormat("latex", (".tex", ".latex", ".ltx"), latex.read_latex)
PDF = FileFormat("pdf", (".pdf",), _read_pdf, written_as=(".docx", ".txt"))
ARB = FileFormat("arb", (".arb",), trees.read_arb)

FORMATS = (
    *(TEXT, MARKDOWN, HTML, NOTEBOOK),
    *(SRT, VTT, ASS, SBV),
    *(DOCX, PPTX, XLSX, ODT, ODP, ODS, EPUB),
    *(PO, XLIFF, ANDROID, RESX, STRINGS, PROPERTIES, JSON, ARB, YAML),
    *(TMX, STRINGSDICT, XCSTRINGS, PDF, RST, ASCIIDOC, LATEX),
)
_OF_ZIP = (DOCX, PPTX, XLSX, ODT, ODP, ODS, EPUB)
_ZIP, _EMPTY_ZIP, _COMPOUND = b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MAIN = re.compile(rb"(word|presentation|powerpoint|spreadsheet|excel)\w*\.[\w.]*main\+xml")
_BY_MAIN = {
    b"word": DOCX,
    b"presentation": PPTX,
    b"powerpoint": PPTX,
    b"spreadsheet": XLSX,
    b"excel": XLSX,
}
_BY_MEDIA_TYPE = {b"text": ODT, b"presentation": ODP, b"spreadsheet": ODS}
_PROLOG = r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*"
_BY_CONTENT = (
    (VTT, re.compile(r"\s*WEBVTT(?:\s|$)")),
    (ASS, re.compile(r"\s*\[Script Info\]", re.IGNORECASE)),
    (SRT, re.compile(r"\s*\d+\s*\n\s*\d+:\d\d:\d\d[,.]\d+\s*-->")),
    (SBV, re.compile(r"\s*\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}\s*\n")),
    (XLIFF, re.compile(rf"{_PROLOG}<(?:\w+:)?xliff[\s>]", re.DOTALL)),
    (ANDROID, re.compile(rf"{_PROLOG}<resources[\s>]", re.DOTALL)),
    (HTML, re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!doctype html|<html[\s>])", re.IGNORECASE)),
)


def recognised(content: bytes, name: str) -> FileFormat:
    """The format of a file; raises DocumentError where there is none."""
    if content.startswith((_ZIP, _EMPTY_ZIP)):
        return _of_zip(Archive(content), name)
    if content.startswith(_COMPOUND):
        raise DocumentError(
            f"{name}: the file is locked with a password; remove it and try again"
            if "EncryptedPackage".encode("utf-16-le") in content
            else f"{name}: files of Office before 2007 are not read; save it in its newer format"
        )
    if content[:1024].lstrip().startswith(b"%PDF-"):
        return PDF
    start = content[:4096].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    for format, pattern in _BY_CONTENT:
        if pattern.match(start):
            return format
    for format in FORMATS:
        if not endings_of(name).isdisjoint(format.suffixes):
            return format
    suffix = PurePath(name).suffix.lower()
    # Tests of DeepL's clients look for the words "file extension".
    got = f"the file extension {suffix}" if suffix else "no file extension"
    raise DocumentError(
        f"{name}: the file must be of a known kind ({', '.join(suffixes(FORMATS))}), got {got}; "
        "save it as one of them"
    )


def _of_zip(archive: Archive, name: str) -> FileFormat:
    """The format of a zip file, by the parts that it has."""
    names = frozenset(archive.names)
    if "[Content_Types].xml" in names:
        main = _MAIN.search(archive.read("[Content_Types].xml"))
        if main:
            return _BY_MAIN[main[1]]
    if "mimetype" in names:
        kind = archive.read("mimetype").strip()
        if kind == b"application/epub+zip":
            return EPUB
        for ending, format in _BY_MEDIA_TYPE.items():
            if kind.startswith(b"application/vnd.oasis.opendocument." + ending):
                return format
    raise DocumentError(
        f"{name}: a zip file must be a document ({', '.join(suffixes(_OF_ZIP))}); unpack it, and "
        "translate the files in it"
    )


def endings_of(name: str) -> set[str]:
    """What a name may be known by: its suffix, and the whole of it, in small letters."""
    path = PurePath(name.lower())
    return {path.suffix, path.name}


def suffixes(formats: Sequence[FileFormat]) -> list[str]:
    """How the names of such files end."""
    return [suffix for format in formats for suffix in format.suffixes]
