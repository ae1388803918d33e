"""Decodes bytes to text, and encodes text in the encoding that the bytes had."""

from __future__ import annotations

import codecs
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.documents.unit import WrittenFile
from serving.errors import DocumentError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


_HEAD = 100_000
"""Number of characters in which a file names its encoding."""
_ASCII = string.printable
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_CDATA = re.compile(r"(<!\[CDATA\[.*?(?:\]\]>|\Z))", re.DOTALL)


@dataclass(frozen=True)
class Declaration:
    """How the files of a kind name their own encoding."""

    patterns: tuple[re.Pattern[str], ...] = ()
    """One pattern for each place, whose first group is the name."""
    utf_8: str = "UTF-8"
    """The name of UTF-8."""
    own_names: Mapping[str, str] = field(default_factory=dict)
    """Names that Python does not have, and its own names for them."""
    references: bool = False
    """Whether a letter that the encoding lacks can be written as a numeric reference."""

    def encoding_of(self, content: bytes) -> str | None:
        """The encoding that a file names, in Python's words."""
        head = content[:_HEAD].decode("latin-1")
        found = next(filter(None, (pattern.search(head) for pattern in self.patterns)), None)
        return self._known(found[1]) if found else None

    def of_utf_8(self, text: str) -> str:
        """A text that names UTF-8 wherever it named another encoding."""
        for pattern in self.patterns:
            found = pattern.search(text, 0, _HEAD)
            if found and self._known(found[1]) != "utf-8":
                text = text[: found.start(1)] + self.utf_8 + text[found.end(1) :]
        return text

    def _known(self, name: str) -> str | None:
        """The encoding of this name; None if no declaration in ASCII could be read in it."""
        try:
            encoding = codecs.lookup(self.own_names.get(name.lower(), name)).name
            return encoding if _ASCII.encode(encoding) == _ASCII.encode() else None
        except (LookupError, UnicodeError):
            return None


XML = Declaration(
    (re.compile(r"""\A\s*<\?xml[^>]*\sencoding\s*=\s*["']([\w.-]+)["']"""),), references=True
)
_NONE = Declaration()


@dataclass(frozen=True)
class Decoded:
    """A text, and the encoding that it was written in."""

    text: str
    encoding: str
    mark: bytes = b""
    """The byte order mark before it."""
    declaration: Declaration = _NONE

    def encoded(self, text: str) -> WrittenFile:
        """The text in the same encoding, or in UTF-8 if that lacks a character. A text in UTF-8
        does not name another encoding, unless it is the source."""
        warnings: tuple[str, ...] = ()
        if self.encoding != "utf-8":
            try:
                content = _bytes_of(text, self.encoding, references=self.declaration.references)
                return WrittenFile(self.mark + content)
            except UnicodeError:
                lacking = f"The translation has characters that {self.encoding} lacks"
                warnings = (f"{lacking}; it is in UTF-8.",)
        if text != self.text and not text.isascii():
            text = self.declaration.of_utf_8(text)
        return WrittenFile(self.mark + text.encode(), warnings)


def decoded(
    content: bytes, declaration: Declaration = _NONE, *, otherwise: str | None = None
) -> Decoded:
    """Decode bytes by their byte order mark, as UTF-8, by the encoding that they declare, by the
    usual one (`otherwise`), or by the one that they look like. ASCII counts as what it declares,
    because its translation may have other letters.

    Raises DocumentError for bytes that are not text.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decoded(content[len(mark) :], encoding, mark, declaration)
    declared = declaration.encoding_of(content)
    for each in (declared if content.isascii() else None, "utf-8", declared, otherwise):
        if each:
            try:
                return Decoded(content.decode(each), each, declaration=declaration)
            except UnicodeError:
                pass  # the declared encoding is often wrong
    return _decoded(content, _likeliest(content), b"", declaration)


def escaped(text: str, encoding: str) -> str:
    """The text with `\\uXXXX` for each character that an encoding lacks."""

    def written(found: re.Match[str]) -> str:
        try:
            found[0].encode(encoding)
        except UnicodeEncodeError:
            units = found[0].encode("utf-16-be", "surrogatepass").hex()
            return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        return found[0]

    return _BEYOND_ASCII.sub(written, text)


def _bytes_of(text: str, encoding: str, *, references: bool) -> bytes:
    """A text in an encoding. Raises UnicodeError for a character that it lacks, which with
    `references` only those in CDATA do, where none are read."""
    if not references:
        return text.encode(encoding)
    return b"".join(
        part.encode(encoding, "strict" if part.startswith("<![CDATA[") else "xmlcharrefreplace")
        for part in _CDATA.split(text)
    )


def _decoded(content: bytes, encoding: str, mark: bytes, declaration: Declaration) -> Decoded:
    try:
        return Decoded(content.decode(encoding), encoding, mark, declaration)
    except UnicodeDecodeError as error:
        raise DocumentError(f"the file is not text in {encoding}: {error}") from error


def _likeliest(content: bytes) -> str:
    # Imported here, because texts in UTF-8 do not need it.
    from charset_normalizer import from_bytes

    best = from_bytes(content).best()
    if best is None or (b"\0" in content and not best.encoding.startswith("utf")):
        raise DocumentError("the file is not text in a known encoding; save it as UTF-8")
    return best.encoding
