"""A picture of a table that `python -m bench engine` has written: `python -m bench picture`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from training.runs.checkpoint import write_atomically

SYSTEMS = (
    "this engine, int8",
    "CTranslate2, int8",
    "PyTorch compiled, fp32",
    "PyTorch eager, fp32",
)
"""The systems that are drawn, from top to bottom."""
_BATCHES = (1, 32)
_OURS, _OTHERS, _INK = "#5e35b1", "#b0bec5", "#263238"
_ROW, _LEFT, _WIDEST, _WIDTH = 26, 190, 420, 720


@dataclass(frozen=True)
class SpeedRow:
    """The time of one system at one batch size."""

    batch: int
    system: str
    ms: float
    """Median milliseconds per sentence."""
    times: float
    """The speed divided by that of CTranslate2 in int8, as in the table."""


def draw_speed(document: Path, command: str, picture: Path) -> None:
    """Write an SVG of the sentences per second in the table of `command`.

    Raises BenchError if the document has no such table, or the table lacks a system.
    """
    write_atomically(picture, speed_svg(document.read_text(encoding="utf-8"), command).encode())


def speed_svg(text: str, command: str) -> str:
    """The SVG, from a document's text. `command` is the beginning of verb and options in the
    table's `<!-- run: -->` line."""
    block = re.search(
        rf"<!-- run: python -m \w+ {re.escape(command)}.*?<!-- end -->", text, re.DOTALL
    )
    if block is None:
        raise BenchError(f"no table of {command!r} in the document")
    rows = {(row.batch, row.system): row for row in map(_row, block[0].splitlines()) if row}
    parts: list[str] = []
    y = 30
    for batch in _BATCHES:
        parts.append(_text(16, y, f"batch of {batch}: sentences a second", weight="bold"))
        chosen = [rows.get((batch, system)) for system in SYSTEMS]
        found = [row for row in chosen if row is not None]
        if len(found) < len(SYSTEMS):
            raise BenchError(f"the table of {command!r} lacks one of {', '.join(SYSTEMS)}")
        fastest = max(1000 / row.ms for row in found)
        for row in found:
            y += _ROW
            parts += _bar(row, y, fastest)
        y += _ROW + 18
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y - 18}" '
            f'width="{_WIDTH}" height="{y - 18}" font-family="sans-serif" font-size="13">',
            f'<rect width="{_WIDTH}" height="{y - 18}" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _bar(row: SpeedRow, y: int, fastest: float) -> list[str]:
    rate = 1000 / row.ms
    width = round(rate / fastest * _WIDEST, 1)
    colour = _OURS if row.system == SYSTEMS[0] else _OTHERS
    times = f" ({row.times:.2f} times CTranslate2)" if row.system == SYSTEMS[0] else ""
    inside = width > _WIDEST * 0.7
    label = f"{rate:.1f}{times}"
    return [
        _text(_LEFT - 8, y, row.system, anchor="end"),
        f'<rect x="{_LEFT}" y="{y - 14}" width="{width}" height="18" rx="2" fill="{colour}"/>',
        _text(_LEFT + 8, y, label, colour="#ffffff")
        if inside and row.system == SYSTEMS[0]
        else _text(round(_LEFT + width + 6, 1), y, label),
    ]


def _text(
    x: float,
    y: int,
    text: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = _INK,
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">'
        f"{text}</text>"
    )


def _row(line: str) -> SpeedRow | None:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) < 9 or not cells[0].isdigit():
        return None
    return SpeedRow(int(cells[0]), cells[2], float(cells[4].split()[0]), float(cells[8]))
