"""Messages as keys and values on lines: Java's properties, and Apple's strings."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from serving.documents.raw.encoding import decoded, escaped
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Unit

_PROPERTY = re.compile(
    r"^[ \t\f]*(?![#!\s])(?:[^\\\s=:]|\\.)+(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)"
    r"((?:[^\\\r\n]|\\(?:\r\n|[^\r\n]|[\r\n]))+)",
    re.MULTILINE,
)
_PROPERTY_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(\r\n|[\r\n])[ \t\f]*|(.))")
_ARGUMENT = re.compile(r"\{\d")
_LONE = re.compile(r"(?<!')'(?!')")
_LONE_IN_WORD = re.compile(r"(?<=[^\W\d_])'(?=[^\W\d_])")
_STRINGS = re.compile(
    r"/\*.*?\*/|//[^\n]*"
    r'|(?:"(?:[^"\\]|\\.)*"|[\w.]+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*;',
    re.DOTALL,
)
_STRINGS_ESCAPE = re.compile(r"\\(?:U([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(content: bytes) -> FileInUnits:
    """Read the values of Java's properties. Letters that the file's encoding lacks are
    escaped; if the file is ASCII, so is its translation."""
    source = decoded(content, otherwise="latin-1")  # which Java used before UTF-8
    encoding = "ascii" if source.text.isascii() else source.encoding
    slots = []
    for match in _PROPERTY.finditer(source.text):
        value = _PROPERTY_ESCAPE.sub(_property_sign, match[1])
        write = functools.partial(_as_property, value, encoding=encoding)
        slots.append(Slot(*match.span(1), Unit(value), write))
    return file_with_slots(source, slots)


def _property_sign(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return "" if found[2] else _SIGNS.get(found[3], found[3])


def _as_property(source: str, text: str, *, encoding: str) -> str:
    # Before an argument Java takes an apostrophe for the beginning of a quotation. A file with
    # single ones within words is not read that way.
    if _ARGUMENT.search(source) and not _LONE_IN_WORD.search(source):
        lone = _LONE if _LONE.search(source) is None else _LONE_IN_WORD
        text = lone.sub("''", text)
    written = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    written = written.replace("\r", "\\r").replace("\f", "\\f")
    if written.startswith(" "):
        written = "\\" + written
    return escaped(written, encoding)


def read_strings(content: bytes) -> FileInUnits:
    """Read the values of Apple's strings."""
    source = decoded(content)
    return file_with_slots(source, list(_strings(source.text)))


def _strings(text: str) -> Iterator[Slot]:
    for match in _STRINGS.finditer(text):
        if match[1] is not None:
            value = _STRINGS_ESCAPE.sub(_strings_sign, match[1])
            yield Slot(*match.span(1), Unit(value), _as_string)


def _strings_sign(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _SIGNS.get(found[2], found[2])


def _as_string(text: str) -> str:
    written = text.replace("\\", "\\\\").replace('"', '\\"')
    return written.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
