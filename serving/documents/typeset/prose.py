"""Paragraphs among the markup of a typesetting language, and a file with others in their places."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from serving.documents.raw.encoding import Decoded
from serving.documents.texts.markup import Inline, Line, Thing, Words, Wrap, line_of
from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile, check_lengths


@dataclass(frozen=True)
class ProsePiece:
    """A part of a paragraph as it is written."""

    text: str
    is_markup: bool = False


@dataclass(frozen=True)
class Syntax:
    """Rules for writing words and markup next to each other."""

    escaped: Callable[[str], str]
    """Escapes characters of words that would be read as markup."""
    between: Callable[[ProsePiece, ProsePiece], str]
    """Returns the text that must stand between two pieces, one of which is markup."""


@dataclass
class Signs:
    """The markup of a paragraph, by the numbers of its things and wraps."""

    things: list[tuple[str, ProseBlock | None, str]] = field(default_factory=list)
    """For each thing: the markup before the text of a note, that text, and the markup after it."""
    wraps: list[tuple[str, str]] = field(default_factory=list)

    def thing(self, source: str, *, word: str = "", divides: bool = False) -> Thing:
        """Add markup that stays as it is. With a `word` the model reads it as that word."""
        return self.note(source, None, "", word=word, divides=divides)

    def note(
        self,
        before: str,
        text: ProseBlock | None,
        behind: str,
        *,
        word: str = "",
        divides: bool = False,
    ) -> Thing:
        """Add markup that contains a text of its own."""
        self.things.append((before, text, behind))
        return Thing(len(self.things) - 1, divides, word)

    def wrap(self, before: str, inside: Sequence[Inline], behind: str) -> Wrap:
        """Add markup around words of the paragraph."""
        self.wraps.append((before, behind))
        return Wrap(len(self.wraps) - 1, tuple(inside))


@dataclass(frozen=True)
class Prose:
    """The words of a paragraph, with its markup."""

    line: Line
    signs: Signs
    syntax: Syntax

    def proses(self) -> Iterator[Prose]:
        """Yield the paragraph, if it has words, and the notes in it."""
        if self.line.has_words:
            yield self
        for _, note, _ in self.signs.things:
            if note:
                yield from note.proses()

    def written(self, texts: Iterator[str]) -> str:
        """The paragraph with translations, given in the order of `proses`."""
        has_words = self.line.has_words
        text = next(texts) if has_words else ""
        notes = [
            before + (note.written(texts) if note else "") + behind
            for before, note, behind in self.signs.things
        ]
        inlines = (
            self.line.translated(text)
            if has_words
            else [*self.line.before, *self.line.inside, *self.line.behind]
        )
        return self._joined(inlines, notes)

    def _joined(self, inlines: Sequence[Inline], notes: Sequence[str]) -> str:
        written = ""
        last = ProsePiece("")
        for inline in inlines:
            piece = self._piece(inline, notes)
            if not piece.text:
                continue
            if last.text and (last.is_markup or piece.is_markup):
                written += self.syntax.between(last, piece)
            written += piece.text
            last = piece
        return written

    def _piece(self, inline: Inline, notes: Sequence[str]) -> ProsePiece:
        match inline:
            case Words(text, _):
                return ProsePiece(self.syntax.escaped(text))
            case Thing(number):
                return ProsePiece(_together(notes[number]), is_markup=True)
            case Wrap(number, inside):
                before, behind = self.signs.wraps[number]
                shown = self._joined(inside, notes)
                return ProsePiece(before + shown + behind if shown else "", is_markup=True)


def prose_of(inlines: Sequence[Inline], signs: Signs, syntax: Syntax) -> Prose:
    """A paragraph of these inlines."""
    return Prose(line_of(inlines), signs, syntax)


class ProseBlock(Protocol):
    """One paragraph, or several that are written together, such as those of a table."""

    def proses(self) -> Iterator[Prose]:
        """The paragraphs with words, in order."""
        ...

    def written(self, texts: Iterator[str]) -> str:
        """The paragraphs with translations, given in the order of `proses`."""
        ...


@dataclass(frozen=True)
class ProsePlace:
    """The place of a paragraph in a file."""

    begin: int
    end: int
    prose: ProseBlock
    laid_out: Callable[[str], str] = str
    """Formats a translation for this place."""


def lines_of(text: str) -> tuple[list[str], list[int]]:
    """The lines of a text with their ends, and the start of each, followed by the end of the
    last."""
    lines = text.splitlines(keepends=True)
    return lines, list(itertools.accumulate(map(len, lines), initial=0))


def file_with_prose(
    source: Decoded, places: Sequence[ProsePlace], warnings: Sequence[str] = ()
) -> FileInUnits:
    """A file whose paragraphs are translated, in order; the text between them stays."""
    units: list[Unit] = [prose.line.unit for place in places for prose in place.prose.proses()]
    check_lengths(units)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        texts = iter([translation.text for translation in translations])
        return source.encoded(with_places(source.text, places, texts))

    return FileInUnits(units, write, warnings=tuple(warnings))


def with_places(text: str, places: Sequence[ProsePlace], texts: Iterator[str]) -> str:
    """A text with translations in its places, in the order of their `proses`. A place whose words
    do not change is written as it was."""
    written, done = [], 0
    for place in places:
        own = [(prose.line.unit.text, next(texts)) for prose in place.prose.proses()]
        if all(before == after for before, after in own):
            continue
        block = place.prose.written(iter([after for _, after in own]))
        written += [text[done : place.begin], _apart(place.laid_out(block))]
        done = place.end
    return "".join([*written, text[done:]])


_BLANK, _BREAK = "\ue0f0", "\ue0f1"
"""Placeholders for blanks and line breaks in markup, while a paragraph is divided into lines."""


def _together(markup: str) -> str:
    return markup.replace(" ", _BLANK).replace("\n", _BREAK)


def _apart(text: str) -> str:
    return text.replace(_BLANK, " ").replace(_BREAK, "\n")


def width(text: str) -> int:
    """Number of columns that a text occupies."""
    return sum(
        0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )


def filled(text: str, source: str, indent: str, least: int = 60) -> str:
    """The text divided into lines as long as those of the source, but at least `least`, if the
    source has several; the first line has already begun."""
    lines = source.splitlines()
    if len(lines) < 2:
        return text
    longest = max(least, *(width(line.strip()) for line in lines))
    written: list[str] = []
    for word in text.split(" "):
        # A character that is not a letter could be a sign at the beginning of a line.
        if written and (not word[:1].isalpha() or width(f"{written[-1]} {word}") <= longest):
            written[-1] += " " + word
        else:
            written.append(word)
    end = "\r\n" if "\r\n" in source else "\n"
    return f"{end}{indent}".join(written)
