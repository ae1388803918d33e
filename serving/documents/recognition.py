"""Recognises the kind of a file. Its content decides before its name, because names are often
wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

from serving.documents import book, notebook, plain
from serving.documents.localisation import catalogue, elements, lines, memories, trees, xcode
from serving.documents.raw.archive import Archive
from serving.documents.subtitles import cues
from serving.documents.tables import delimited, json_lines
from serving.documents.typeset import asciidoc, latex, restructured
from serving.documents.unit import FileFormat, FileInUnits, ReadingWishes
from serving.errors import DocumentError


def _read_ooxml(content: bytes, target: str = "") -> FileInUnits:
    # Imported here, because other files do not need lxml.
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


_Reader = Callable[[bytes, ReadingWishes], FileInUnits]


def _alone(read: Callable[[bytes], FileInUnits]) -> _Reader:
    """The reader of a format that has no options."""
    return lambda content, _: read(content)


def _into(read: Callable[[bytes, str], FileInUnits]) -> _Reader:
    """The reader of a format that names the target language in the file."""
    return lambda content, wishes: read(content, wishes.target)


def _filled(read: Callable[[bytes, str, bool], FileInUnits]) -> _Reader:
    """The reader of a format that may already contain translations into the target language."""
    return lambda content, wishes: read(content, wishes.target, wishes.retranslate)


def _read_po(content: bytes, wishes: ReadingWishes) -> FileInUnits:
    return catalogue.read_po(content, wishes.retranslate)


TEXT = FileFormat("txt", (".txt", ".text"), _alone(plain.read_text))
MARKDOWN = FileFormat("markdown", (".md", ".markdown"), _alone(plain.read_markdown))
HTML = FileFormat("html", (".html", ".htm", ".xhtml"), _into(plain.read_html))
NOTEBOOK = FileFormat("ipynb", (".ipynb",), _alone(notebook.read_notebook))
SRT = FileFormat("srt", (".srt",), _alone(cues.read_srt))
VTT = FileFormat("vtt", (".vtt",), _alone(cues.read_vtt))
ASS = FileFormat("ass", (".ass", ".ssa"), _alone(cues.read_ass))
SBV = FileFormat("sbv", (".sbv",), _alone(cues.read_sbv))

DOCX = FileFormat("docx", (".docx", ".docm", ".dotx", ".dotm"), _into(_read_ooxml))
PPTX = FileFormat("pptx", (".pptx", ".pptm", ".ppsx", ".potx"), _into(_read_ooxml))
XLSX = FileFormat("xlsx", (".xlsx", ".xlsm", ".xltx"), _into(_read_ooxml))
ODT = FileFormat("odt", (".odt", ".ott"), _into(_read_odf))
ODP = FileFormat("odp", (".odp", ".otp"), _into(_read_odf))
ODS = FileFormat("ods", (".ods", ".ots"), _into(_read_odf))

EPUB = FileFormat("epub", (".epub",), _into(book.read_epub))
PO = FileFormat("po", (".po", ".pot"), _read_po)
XLIFF = FileFormat("xliff", (".xlf", ".xliff"), _filled(elements.read_xliff))
ANDROID = FileFormat("android", ("strings.xml",), _alone(elements.read_android))
RESX = FileFormat("resx", (".resx",), _alone(elements.read_resx))
STRINGS = FileFormat("strings", (".strings",), _alone(lines.read_strings))
PROPERTIES = FileFormat("properties", (".properties",), _alone(lines.read_properties))
JSON = FileFormat("json", (".json",), _alone(trees.read_json))
YAML = FileFormat("yaml", (".yml", ".yaml"), _alone(_read_yaml))
TMX = FileFormat("tmx", (".tmx",), _filled(memories.read_tmx))
STRINGSDICT = FileFormat("stringsdict", (".stringsdict",), _alone(xcode.read_stringsdict))
XCSTRINGS = FileFormat("xcstrings", (".xcstrings",), _filled(xcode.read_xcstrings))
RST = FileFormat("rst", (".rst", ".rest"), _alone(restructured.read_rst))
ASCIIDOC = FileFormat("asciidoc", (".adoc", ".asciidoc", ".asc"), _alone(asciidoc.read_asciidoc))
LATEX = FileFormat("latex", (".tex", ".latex", ".ltx"), _alone(latex.read_latex))
PDF = FileFormat("pdf", (".pdf",), _alone(_read_pdf), written_as=(".docx", ".txt"))
CSV = FileFormat("csv", (".csv",), delimited.read_csv, in_columns=True)
TSV = FileFormat("tsv", (".tsv",), delimited.read_tsv, in_columns=True)
JSONL = FileFormat("jsonl", (".jsonl", ".ndjson"), json_lines.read_json_lines, in_columns=True)
ARB = FileFormat("arb", (".arb",), _alone(trees.read_arb))

FORMATS = (
    *(TEXT, MARKDOWN, HTML, NOTEBOOK),
    *(SRT, VTT, ASS, SBV),
    *(DOCX, PPTX, XLSX, ODT, ODP, ODS, EPUB),
    *(PO, XLIFF, ANDROID, RESX, STRINGS, PROPERTIES, JSON, ARB, YAML),
    *(TMX, STRINGSDICT, XCSTRINGS, PDF, RST, ASCIIDOC, LATEX),
    *(CSV, TSV, JSONL),
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
    """The format of a file. Raises DocumentError if there is none for it."""
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
            if not content and format in (*_OF_ZIP, PDF):
                raise DocumentError(f"{name}: the file is empty (0 bytes); save it again and retry")
            return format
    suffix = PurePath(name).suffix.lower()
    # Tests of DeepL's clients look for the words "file extension".
    got = f"the file extension {suffix}" if suffix else "no file extension"
    raise DocumentError(
        f"{name}: the file must be of a known kind ({', '.join(f.suffixes[0] for f in FORMATS)}), "
        f"got {got}; save it as one of them"
    )


def _of_zip(archive: Archive, name: str) -> FileFormat:
    """The format of a zip file, recognised by its parts."""
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
    """The endings by which a name may be recognised: its suffix, and the whole name, in small
    letters."""
    path = PurePath(name.lower())
    return {path.suffix, path.name}


def suffixes(formats: Sequence[FileFormat]) -> list[str]:
    """The endings of file names in these formats."""
    return [suffix for format in formats for suffix in format.suffixes]
