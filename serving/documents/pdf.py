"""The text of PDF files, which have no paragraphs. The output is Word or plain text, without
layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from statistics import quantiles
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile

from pypdf import PdfReader

from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile, check_lengths
from serving.errors import DocumentError
from serving.text.splitting.wrapping import joined

MAX_PAGES = 5_000
NO_LAYOUT = (
    "Only the text of a PDF is translated: its layout, pictures and tables are not kept, and where "
    "its paragraphs begin is guessed."
)
_ENDED = re.compile(r"""[.!?:;…]["'”’»“)\]]*\Z""")
_ITEM = re.compile(r"[•◦▪‣·–—*-]\s|\(?\d{1,3}[.)]\s|\(?[a-z]\)\s")
_SHORT = 0.75
"""Largest length of the last line of a paragraph, as a share of a full line."""
_OFFICE = "http://schemas.openxmlformats.org"
_DOCX = {
    "[Content_Types].xml": (
        f'<Types xmlns="{_OFFICE}/package/2006/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-'
        'officedocument.wordprocessingml.document.main+xml"/></Types>'
    ),
    "_rels/.rels": (
        f'<Relationships xmlns="{_OFFICE}/package/2006/relationships"><Relationship Id="rId1" '
        f'Type="{_OFFICE}/officeDocument/2006/relationships/officeDocument" '
        'Target="word/document.xml"/></Relationships>'
    ),
}
_PAGE_BREAK = '<w:r><w:br w:type="page"/></w:r>'
_NOT_OF_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_pdf(content: bytes) -> FileInUnits:
    """Read the paragraphs of each page; they are written as `.docx` or `.txt`. Raises DocumentError
    for a file that is broken, locked, or contains only pictures."""
    pages = [list(paragraphs(text)) for text in _texts(content)]
    every = [paragraph for page in pages for paragraph in page]
    if not any(map(_has_words, every)):
        raise DocumentError(
            "the file has no text, only pictures of text, if any; run text recognition (OCR) on "
            "it first"
        )
    units = [Unit(paragraph) for paragraph in every if _has_words(paragraph)]
    check_lengths(units)

    def as_docx(translations: Sequence[Translated]) -> WrittenFile:
        return WrittenFile(_docx(_translated(pages, translations)))

    def as_txt(translations: Sequence[Translated]) -> WrittenFile:
        written = _translated(pages, translations)
        shown = ["".join(f"{paragraph}\n\n" for paragraph in page) for page in written]
        return WrittenFile(("\f".join(shown).rstrip("\n\f") + "\n").encode())

    writers: dict[str, Callable[[Sequence[Translated]], WrittenFile]] = {
        ".docx": as_docx,
        ".txt": as_txt,
    }
    return FileInUnits(units, as_docx, warnings=(NO_LAYOUT,), write_as=writers)


def _texts(content: bytes) -> Iterator[str]:
    """The text of each page."""
    try:
        reader = PdfReader(BytesIO(content))
        locked = reader.is_encrypted and not reader.decrypt("")
        count = 0 if locked else len(reader.pages)
    except Exception as error:  # pypdf's own errors, and others that damaged files cause
        raise DocumentError(f"the file is a broken PDF: {error}") from error
    if locked:
        raise DocumentError("the file is locked with a password; remove it and try again")
    if count > MAX_PAGES:
        raise DocumentError(f"a PDF must have at most {MAX_PAGES} pages, got {count}; divide it")
    for number in range(count):
        try:
            yield reader.pages[number].extract_text()
        except Exception as error:
            raise DocumentError(f"page {number + 1} of the PDF is broken: {error}") from error


def paragraphs(page: str) -> Iterator[str]:
    """Join a page's lines to paragraphs. A paragraph ends at a blank line, before a list item, and
    after a short line that ends a sentence or is followed by a capital."""
    lines = [line.strip() for line in page.splitlines()] or [""]
    lengths = [len(line) for line in lines if line]
    full = quantiles(lengths, n=10)[-1] if len(lengths) > 1 else 0
    paragraph = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if not line:
            continue
        paragraph = joined(paragraph, line) if paragraph else line
        short = len(line) < _SHORT * full
        begins = not following or following[:1].isupper() or not following[:1].isalpha()
        ended = _ENDED.search(line) is not None or (begins and len(line) < full / 2)
        if not following or _ITEM.match(following) or (short and ended and begins):
            yield paragraph
            paragraph = ""
    if paragraph:
        yield paragraph


def _has_words(text: str) -> bool:
    return any(map(str.isalpha, text))


def _translated(pages: Sequence[Sequence[str]], given: Sequence[Translated]) -> list[list[str]]:
    rest = iter(given)
    return [[next(rest).text if _has_words(text) else text for text in page] for page in pages]


def _docx(pages: Sequence[Sequence[str]]) -> bytes:
    """A Word file with these paragraphs, and a page break before each page but the first."""
    body = []
    for number, page in enumerate(pages):
        for index, text in enumerate(page or [""]):
            page_break = _PAGE_BREAK if number and not index else ""
            shown = escape(_NOT_OF_XML.sub("", text))
            run = f'<w:r><w:t xml:space="preserve">{shown}</w:t></w:r>'
            body.append(f"<w:p>{page_break}{run}</w:p>")
    document = (
        f'<w:document xmlns:w="{_OFFICE}/wordprocessingml/2006/main"><w:body>{"".join(body)}'
        "<w:sectPr/></w:body></w:document>"
    )
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, xml in {**_DOCX, "word/document.xml": document}.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>\n{xml}')
    return out.getvalue()
