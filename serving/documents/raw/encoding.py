"""Decodes bytes to text, and encodes text in the encoding that the bytes had."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from serving.documents.unit import WrittenFile
from serving.errors import DocumentError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Decoded:
    """A text, and the encoding that it was written in."""

    text: str
    encoding: str
    mark: bytes = b""
    """The byte order mark before it."""

    def encoded(self, text: str) -> WrittenFile:
        """The text in the same encoding, or in UTF-8 if that lacks a character."""
        try:
            return WrittenFile(self.mark + text.encode(self.encoding))
        except UnicodeEncodeError:
            return WrittenFile(
                text.encode(),
                (f"The translation has characters that {self.encoding} lacks; it is in UTF-8.",),
            )


def decoded(content: bytes, declared: str | None = None) -> Decoded:
    """Decode bytes by their byte order mark, as UTF-8, by the encoding that they declare, or by the
    one that they look like.

    Raises DocumentError for bytes that are not text.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decoded(content[len(mark) :], encoding, mark)
    try:
        return Decoded(content.decode(), "utf-8")
    except UnicodeDecodeError:
        pass
    if declared:
        try:
            return Decoded(content.decode(declared), declared)
        except (UnicodeDecodeError, LookupError):
            pass  # the declared encoding is often wrong
    return _decoded(content, _likeliest(content), b"")


def _decoded(content: bytes, encoding: str, mark: bytes) -> Decoded:
    try:
        return Decoded(content.decode(encoding), encoding, mark)
    except UnicodeDecodeError as error:
        raise DocumentError(f"the file is not text in {encoding}: {error}") from error


def _likeliest(content: bytes) -> str:
    # Imported here, because texts in UTF-8 do not need it.
    from charset_normalizer import from_bytes

    best = from_bytes(content).best()
    if best is None or (b"\0" in content and not best.encoding.startswith("utf")):
        raise DocumentError("the file is not text in a known encoding; save it as UTF-8")
    return best.encoding
