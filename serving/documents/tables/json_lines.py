"""JSON Lines: the strings of the chosen keys, each at its place in the file."""

from __future__ import annotations

import functools
import json
import re

from serving.documents.localisation.trees import json_strings
from serving.documents.raw.encoding import decoded
from serving.documents.tables.columns import unknown_columns
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, ReadingWishes, Unit
from serving.errors import DocumentError

_LINE = re.compile(r"[^\n]*(?:\n|\Z)")
_LOOKED_AT = 1000
"""Number of lines whose keys an error lists if no key is chosen."""


def read_json_lines(content: bytes, wishes: ReadingWishes) -> FileInUnits:
    """Read the strings of the chosen keys. Keys of nested objects are joined by dots
    (`message.text`), and a key with a list stands for every string in it. Lines without the key
    stay as they are.

    Raises DocumentError for a line that is not JSON, and InvalidOptionError if no key is chosen, or
    one that has no string in the whole file.
    """
    source = decoded(content)
    write = functools.partial(
        json.dumps, ensure_ascii=source.text.isascii() and "\\u" in source.text
    )
    slots, known = list[Slot](), dict[str, None]()
    for number, line in enumerate(_LINE.finditer(source.text), 1):
        if known and not wishes.columns and number > _LOOKED_AT:
            break
        try:
            for string in json_strings(line[0]):
                key = ".".join(filter(None, string.keys))
                known.setdefault(key)
                if key in wishes.columns:
                    begin, end = line.start() + string.begin, line.start() + string.end
                    slots.append(Slot(begin, end, Unit(string.text), write))
        except DocumentError as error:
            raise DocumentError(f"line {number}: {error}") from error
    missing = not wishes.columns or not known.keys() >= set(wishes.columns)
    if known and missing:
        raise unknown_columns(wishes.columns, [repr(key) for key in known])
    return file_with_slots(source, slots)
