"""Catalogues of gettext: PO files and their templates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from serving.documents.raw.encoding import Declaration, decoded
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Unit

_CHARSET = re.compile(
    r'^[ \t]*(?:msgstr[ \t]+)?"(?:[^"\n]*\\n)?Content-Type:[^"\\\n]*charset=([^\s"\\;]+)',
    re.MULTILINE | re.IGNORECASE,
)
_PO = Declaration((_CHARSET,))
_STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_FIELD = re.compile(
    r"^[ \t]*(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d+)\])?)[ \t]+"
    rf"({_STRING}(?:[ \t\r]*\n[ \t]*{_STRING})*)",
    re.MULTILINE,
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_SIGNS = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def read_po(content: bytes, retranslate: bool = False) -> FileInUnits:
    """Read the messages without a translation, or all with `retranslate`. Of plural forms the first
    is a translation of the singular, all others of the plural. Comments, contexts and flags
    (`fuzzy`, too) stay."""
    source = decoded(content, _PO)
    end = "\r\n" if "\r\n" in source.text else "\n"
    written = functools.partial(_written, end=end)
    return file_with_slots(source, list(_slots(source.text, written, retranslate=retranslate)))


def _slots(text: str, written: Callable[[str], str], *, retranslate: bool) -> Iterator[Slot]:
    singular = plural = ""
    for match in _FIELD.finditer(text):
        value = _value(match[3])
        if match[1] == "msgid":
            singular, plural = value, ""
        elif match[1] == "msgid_plural":
            plural = value
        elif match[1].startswith("msgstr") and singular and (retranslate or not value):
            of_plural = plural and match[2] not in (None, "0")
            unit = Unit(plural if of_plural else singular)
            yield Slot(*match.span(3), unit, written, replaces_source=False)


def _value(strings: str) -> str:
    inside = "".join(string[1:-1] for string in re.findall(_STRING, strings))
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), inside)


def _written(text: str, end: str) -> str:
    """A text as quoted strings, one for each of its lines; several are preceded by an empty string.
    `end` is the line end of the file."""
    lines = [f'"{line.translate(_SIGNS)}"' for line in text.splitlines(keepends=True)]
    return lines[0] if len(lines) == 1 else end.join(['""', *lines])
