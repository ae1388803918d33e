"""Divides parts of office files into blocks, each an element with paragraphs.

Only one block at a time is a tree, so a part of 100,000 paragraphs needs little more memory than
its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from lxml import etree

from serving.documents.raw.xml import declares_entities, not_well_formed, parsed

Role = Literal["take", "skip", "enter", "keep"]
Take = Callable[[str, Mapping[str, str]], Role]
"""Decides what happens to an element, by its tag as lxml writes it and its attributes. `take`: it
is a block; `skip`: it stays with everything in it; `enter`: it may contain blocks; `keep`: it may,
too, but none of its children is one."""

_STEP = 65_536
_DEPTH = 256
_NAMESPACES = 500
_UTF_8 = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:<\?xml[^>]*?encoding\s*=\s*[\"']utf-?8[\"']|(?!<\?xml[^>]*?encoding)<)",
    re.IGNORECASE,
)
_EMPTY = re.compile(rb"<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*/>")
_TAG = b"<x>"


class OfficeBlock(NamedTuple):
    """The position of an element with paragraphs in a part."""

    begin: int
    end: int
    """Position of the end; both positions are in bytes."""
    head: bytes
    """A start tag that declares the namespaces which are in scope there."""

    def tree(self, content: bytes, name: str) -> etree._Element:
        """Parse the element; it is the child of an element that declares the namespaces."""
        return parsed(self.head + content[self.begin : self.end] + b"</x>", name).getroot()


def block_as_bytes(tree: etree._Element) -> bytes:
    """The bytes of an element from `tree`, as they are to stand in the part."""
    written: bytes = etree.tostring(tree, encoding="UTF-8", xml_declaration=False)
    return written[written.index(b">") + 1 : written.rindex(b"<")]


def in_utf_8(content: bytes, name: str) -> bytes:
    """A part in UTF-8, the encoding in which blocks are read; nearly every part is in it
    already."""
    if _UTF_8.match(content.lstrip()):
        return content
    tree = parsed(content, name)
    standalone = tree.docinfo.standalone
    written: bytes = etree.tostring(
        tree, xml_declaration=True, encoding="UTF-8", standalone=standalone
    )
    return written


def blocks_of(content: bytes, name: str, take: Take) -> Iterator[OfficeBlock]:
    """Yield the blocks of a part in UTF-8, in order; none lies within another.

    Raises DocumentError for a part that is not well-formed, declares entities or nests too deep.
    """
    reader = _Reader(content, name, take)
    try:
        for begin in range(0, len(content), _STEP):
            reader.parser.Parse(content[begin : begin + _STEP], False)
            yield from reader.taken()
        reader.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise not_well_formed(name, error) from error
    yield from reader.taken()


@dataclass
class _Reader:
    """Collects blocks from the events of a parser that resolves namespaces."""

    content: bytes
    name: str
    take: Take
    parser: expat.XMLParserType = field(init=False)
    _found: list[OfficeBlock] = field(default_factory=list)
    _scope: list[tuple[str, str]] = field(default_factory=list)
    _head: bytes | None = None
    """The tag for the next block; None if the namespaces have changed since the last one."""
    _depth: int = 0
    _inside: int = 0
    """Depth at which the present block, or skipped element, began; 0 outside of both."""
    _begin: int = -1
    """Position where the present block began; -1 within a skipped element."""
    _kept: set[int] = field(default_factory=set)
    """Depths at which the elements around began whose children are no blocks."""

    def __post_init__(self) -> None:
        # Named, because it does not know all names of this encoding that a declaration may use.
        self.parser = expat.ParserCreate("UTF-8", namespace_separator="}")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._finish
        self.parser.StartNamespaceDeclHandler = self._declare
        self.parser.EndNamespaceDeclHandler = self._forget
        self.parser.EntityDeclHandler = self._refuse

    def taken(self) -> list[OfficeBlock]:
        """The blocks found since the last call."""
        found, self._found = self._found, []
        return found

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            raise not_well_formed(self.name, f"more than {_DEPTH} nested elements")
        if self._inside:
            return
        role = self.take(_as_lxml(tag), {_as_lxml(k): v for k, v in attributes.items()})
        if role == "keep":
            self._kept.add(self._depth)
        elif role == "skip" or (role == "take" and self._depth - 1 not in self._kept):
            self._begin = self.parser.CurrentByteIndex if role == "take" else -1
            if role == "take" and self._head is None:
                self._head = self._declaring()
            self._inside = self._depth

    def _finish(self, tag: str) -> None:
        if self._depth == self._inside:
            self._inside = 0
            if self._begin >= 0:
                self._add(self._begin, self.parser.CurrentByteIndex)
        self._kept.discard(self._depth)
        self._depth -= 1

    def _add(self, begin: int, at: int) -> None:
        # The parser stands before an end tag, but after an element that is a single tag.
        if not _EMPTY.fullmatch(self.content, begin, at):
            end = self.content.index(b">", at) + 1
            self._found.append(OfficeBlock(begin, end, self._head or _TAG))

    def _declare(self, prefix: str | None, address: str | None) -> None:
        if len(self._scope) == _NAMESPACES:
            raise not_well_formed(self.name, f"more than {_NAMESPACES} namespaces at one place")
        self._scope.append((prefix or "", address or ""))
        self._changed()

    def _forget(self, prefix: str | None) -> None:
        last = max(n for n, (known, _) in enumerate(self._scope) if known == (prefix or ""))
        del self._scope[last]
        self._changed()

    def _changed(self) -> None:
        if not self._inside:  # what a block declares is in it
            self._head = None

    def _declaring(self) -> bytes:
        declared = [
            f"xmlns{':' if prefix else ''}{prefix}={quoteattr(address)}"
            for prefix, address in dict(self._scope).items()
        ]
        return f"<x {' '.join(declared)}>".encode() if declared else _TAG

    def _refuse(self, *_: object) -> None:
        raise declares_entities(self.name)


def _as_lxml(tag: str) -> str:
    return "{" + tag if "}" in tag else tag
