"""Texts at known places of a file, which is rewritten with other texts in these places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.documents.raw.encoding import Decoded
from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile, check_lengths


@dataclass(frozen=True)
class Slot:
    """A place for a translation."""

    begin: int
    end: int
    """The span that is replaced, in characters."""
    unit: Unit
    written: Callable[[str], str]
    """Formats a translation for this place."""
    replaces_source: bool = True
    """Whether the span holds the source rather than an empty target."""


def file_with_slots(source: Decoded, slots: Sequence[Slot]) -> FileInUnits:
    """A file with the given slots, in order; slots without letters stay unchanged."""
    filled = [slot for slot in slots if any(map(str.isalpha, slot.unit.text))]
    units = [slot.unit for slot in filled]
    check_lengths(units)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        written, done = [], 0
        for slot, translation in zip(filled, translations, strict=True):
            if slot.replaces_source and translation.text == slot.unit.text:
                continue  # as the source has it, in whatever form
            written += [source.text[done : slot.begin], slot.written(translation.text)]
            done = slot.end
        return source.encoded("".join([*written, source.text[done:]]))

    return FileInUnits(units, write)
