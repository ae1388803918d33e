"""Notebooks of Jupyter: the cells in Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from serving.documents.raw.encoding import decoded
from serving.documents.texts.asides import aside_units, markdown_asides, with_asides
from serving.documents.unit import FileInUnits, Translated, Unit, WrittenFile, check_lengths
from serving.errors import DocumentError

_NEW_LAYOUT = "The file has an unusual layout; its JSON was formatted again."


def read_notebook(content: bytes) -> FileInUnits:
    """Read a notebook: each cell in Markdown is a unit, and so is each alternative text of a
    picture. Code, outputs and metadata stay. Raises DocumentError for a file that is not a
    notebook."""
    source = decoded(content)
    if not source.text.strip():
        return FileInUnits([], lambda _: WrittenFile(content))
    tree = _tree(source.text)
    crlf = "\r\n" in source.text
    indent, ascii = _layout(source.text.replace("\r\n", "\n"), tree)
    cells = [Unit(_text(cell), "markdown") for cell in _cells(tree)]
    asides = aside_units([cell.text for cell in cells], markdown_asides)
    units = [*cells, *asides]
    check_lengths(units)

    def write(translations: Sequence[Translated]) -> WrittenFile:
        other = _tree(source.text)
        texts = [translation.text for translation in translations]
        own = dict(zip(asides, texts[len(cells) :], strict=True))
        for cell, words in zip(_cells(other), texts[: len(cells)], strict=True):
            text = with_asides(words, markdown_asides, own)
            in_lines = isinstance(cell["source"], list)
            cell["source"] = text.splitlines(keepends=True) if in_lines else text
        if indent is None:
            return WrittenFile(
                source.encoded(_dumped(other, 1, ascii=False)).content, (_NEW_LAYOUT,)
            )
        end = source.text[len(source.text.rstrip()) :]
        shown = _dumped(other, indent, ascii=ascii)
        return source.encoded((shown.replace("\n", "\r\n") if crlf else shown) + end)

    return FileInUnits(units, write)


def _tree(text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the file is not JSON: {error}") from error
    if not isinstance(tree, dict) or not isinstance(tree.get("cells"), list):
        raise DocumentError("the file is not a notebook: it has no cells")
    return tree


def _cells(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells in Markdown that have words."""
    return [
        cell
        for cell in tree["cells"]
        if isinstance(cell, dict)
        and cell.get("cell_type") == "markdown"
        and any(map(str.isalpha, _text(cell)))
    ]


def _text(cell: dict[str, Any]) -> str:
    """The text of a cell, which may be stored as a list of lines; empty if it is neither text nor a
    list."""
    lines = cell.get("source")
    if not isinstance(lines, str | list) or not all(isinstance(line, str) for line in lines):
        return ""
    return "".join(lines)


def _layout(text: str, tree: dict[str, Any]) -> tuple[int | None, bool]:
    """The number of blanks by which the file is indented, or None if it has another layout, and
    whether non-ASCII letters are escaped."""
    for indent in (1, 2, 4):
        for ascii in (False, True):
            if _dumped(tree, indent, ascii=ascii) == text.rstrip():
                return indent, ascii
    return None, False


def _dumped(tree: dict[str, Any], indent: int, *, ascii: bool) -> str:
    return json.dumps(tree, indent=indent, ensure_ascii=ascii)
