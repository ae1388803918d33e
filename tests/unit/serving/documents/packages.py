"""Office files made by hand, with what the usual libraries do not write."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    """A zip file with these parts."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx(body: str, more: Mapping[str, str | bytes] | None = None, overrides: str = "") -> bytes:
    """A file of Word with this in its body, and further parts."""
    types = (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{_MAIN}"/>{overrides}</Types>'
    )
    relations = (
        f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="r1" Type="http://schemas.openxml'
        'formats.org/officeDocument/2006/relationships/officeDocument" '
        'Target="word/document.xml"/><Relationship Id="r2" Type="http://schemas.openxmlformats.org'
        '/package/2006/relationships/digital-signature/origin" '
        'Target="_xmlsignatures/origin.sigs"/></Relationships>'
    )
    document = (
        f'<w:document xmlns:w="{WORD}" xmlns:r="urn:r" xmlns:m="urn:m" xmlns:wps="urn:wps">'
        f"<w:body>{body}</w:body></w:document>"
    )
    return zipped(
        {
            "[Content_Types].xml": types,
            "_rels/.rels": relations,
            "word/document.xml": document,
            **(more or {}),
        }
    )


def odt(body: str, kind: str = "text", more: Mapping[str, str | bytes] | None = None) -> bytes:
    """A file of OpenDocument with this in its body."""
    content = (
        f'<office:document-content xmlns:office="{OFFICE}" '
        'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
        'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
        'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
        "</office:document-content>"
    )
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": content,
            **(more or {}),
        }
    )
