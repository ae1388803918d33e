"""Tables drawn with `+`, `-` and `|`. Their cells are texts, and the lines are fitted to the
words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from serving.documents.typeset.prose import Prose, ProsePlace, width, with_places

_RULE = re.compile(r"\+(?:[-=]+\+)+")


@dataclass(frozen=True)
class _Cell:
    text: str
    """The text's lines without their common indentation."""
    indent: int
    places: Sequence[ProsePlace]

    def lines(self, texts: Iterator[str]) -> list[str]:
        """The indented lines with translations."""
        found = with_places(self.text, self.places, texts).split("\n")
        return [" " * self.indent + line if line else "" for line in found]


@dataclass(frozen=True)
class DrawnTable:
    """A table whose rows all have the same columns."""

    widths: Sequence[int]
    """Width of each column, in characters between the lines."""
    rows: Sequence[Sequence[_Cell]]
    rules: Sequence[str]
    """The character of the line above each row, and of the line below the last."""
    line_break: str
    """Line break of the file, with the indentation of the next line."""

    def proses(self) -> Iterator[Prose]:
        """Yield the paragraphs of the cells, row by row."""
        for row in self.rows:
            for cell in row:
                for place in cell.places:
                    yield from place.prose.proses()

    def written(self, texts: Iterator[str]) -> str:
        """The table with translations. Its columns are as wide as they need to be, and no narrower
        than before."""
        rows = [[cell.lines(texts) for cell in row] for row in self.rows]
        widths = [
            max(least, *(width(line) + 1 for row in rows for line in row[column]))
            for column, least in enumerate(self.widths)
        ]
        lines = [_rule(self.rules[0], widths)]
        for row, rule in zip(rows, self.rules[1:], strict=True):
            for cells in itertools.zip_longest(*row, fillvalue=""):
                shown = [
                    cell + " " * (wide - width(cell))
                    for cell, wide in zip(cells, widths, strict=True)
                ]
                lines.append("|" + "|".join(shown) + "|")
            lines.append(_rule(rule, widths))
        return self.line_break.join(lines)


def drawn_table(
    lines: Sequence[str], line_break: str, read: Callable[[str, int], Sequence[ProsePlace]]
) -> DrawnTable | None:
    """The table on these lines, without their indentation and ends. None if a cell covers several
    columns or rows, or if it is not a table. `read` returns the places of a cell's text, whose
    paragraphs on several lines must not be wider than the given width."""
    first = lines[0]
    columns = [place for place, sign in enumerate(first) if sign == "+"]
    spans = list(itertools.pairwise(columns))
    if len(lines) < 3 or not _RULE.fullmatch(first) or not _RULE.fullmatch(lines[-1]):
        return None
    rows: list[list[_Cell]] = []
    rules = [first[1]]
    row: list[str] = []
    for line in lines[1:]:
        is_rule = _RULE.fullmatch(line) is not None
        sign = "+" if is_rule else "|"
        if len(line) != len(first) or width(line) != len(line):
            return None
        if any(line[place] != sign for place in columns) or (is_rule and not row):
            return None
        if not is_rule:
            row.append(line)
            continue
        if [place for place, sign in enumerate(line) if sign == "+"] != columns:
            return None
        rows.append([_cell([own[b + 1 : e] for own in row], e - b - 1, read) for b, e in spans])
        rules.append(line[1])
        row = []
    return DrawnTable([e - b - 1 for b, e in spans], rows, rules, line_break)


def _cell(
    lines: Sequence[str], wide: int, read: Callable[[str, int], Sequence[ProsePlace]]
) -> _Cell:
    shown = [line.rstrip() for line in lines]
    indent = min((len(line) - len(line.lstrip(" ")) for line in shown if line), default=0)
    text = "\n".join(line[indent:] for line in shown)
    return _Cell(text, indent, read(text, wide - indent - 1))


def _rule(sign: str, widths: Sequence[int]) -> str:
    return "+" + "+".join(sign * wide for wide in widths) + "+"
