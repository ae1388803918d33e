"""Messages in YAML, as in Rails: scalars at their places, each in its own style."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Literal

import yaml

from serving.documents.raw.encoding import decoded
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Unit
from serving.errors import DocumentError

_Within = Literal["flow", "block"]
_PLACES: dict[_Within, tuple[str, ...]] = {"flow": ("[X]",), "block": ("- X", "key: X")}
_BEFORE = re.compile(r"(?:[&!]\S*\s+)*")
"""Pattern of an anchor and a tag before a value."""
_TEXT = "tag:yaml.org,2002:str"


def read_yaml(content: bytes) -> FileInUnits:
    """Read every value that is text; keys, comments, anchors and layout stay. Raises DocumentError
    for text that is not YAML."""
    source = decoded(content)
    try:
        nodes = list(yaml.compose_all(source.text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DocumentError(f"the file is not YAML: {error}") from error
    seen: set[int] = set()
    slots = [slot for node in nodes for slot in _slots(node, source.text, seen, "block")]
    return file_with_slots(source, slots)


def _slots(node: yaml.Node, text: str, seen: set[int], within: _Within) -> Iterator[Slot]:
    """Yield the texts in a node, each once however many aliases it has."""
    if id(node) in seen:
        return
    seen.add(id(node))
    match node:
        case yaml.ScalarNode(tag=tag) if tag == _TEXT:
            end = node.end_mark.index
            before = _BEFORE.match(text, node.start_mark.index, end)
            begin = before.end() if before else node.start_mark.index
            write = functools.partial(_written, node.style, text[begin:end], within)
            yield Slot(begin, end, Unit(node.value), write)
        case yaml.CollectionNode():
            children = node.value
            if isinstance(node, yaml.MappingNode):
                children = [value for _, value in node.value]
            for child in children:
                yield from _slots(child, text, seen, "flow" if node.flow_style else within)


def _written(style: str | None, before: str, within: _Within, text: str) -> str:
    """A scalar in the style of the previous one, or between quotes if that style cannot express
    it."""
    if style in ("|", ">"):
        written = _block(style, before.replace("\r\n", "\n"), text)
        return written.replace("\n", "\r\n") if "\r\n" in before else written
    if style == "'" and "\n" not in text:
        return "'" + text.replace("'", "''") + "'"
    if style is None and all(_is_itself(text, place) for place in _PLACES[within]):
        return text
    return json.dumps(text, ensure_ascii=False)


def _is_itself(text: str, place: str) -> bool:
    """Whether a text without quotes is read as itself at such a place."""
    try:
        found = yaml.safe_load(place.replace("X", text))
    except (yaml.YAMLError, ValueError):
        return False
    return "\n" not in text and bool(found == yaml.safe_load(place.replace("X", json.dumps(text))))


def _block(style: str, before: str, text: str) -> str:
    header, _, body = before.partition("\n")
    found = re.search(r"^( +)\S", body, re.MULTILINE)
    ends = re.search(r"\n*\Z", before)
    indent, end = found[1] if found else "  ", ends[0] if ends else ""
    between = "\n" if style == "|" else "\n\n"
    lines = [indent + line if line else "" for line in text.rstrip("\n").split("\n")]
    written = f"{header}\n{between.join(lines)}"
    try:
        read = yaml.safe_load(f"key: {written}\n")["key"]
    except yaml.YAMLError:
        read = None
    if read is None or read.rstrip("\n") != text.rstrip("\n"):
        written = json.dumps(text, ensure_ascii=False)
    return written + end
