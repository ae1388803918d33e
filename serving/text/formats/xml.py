"""Tokenizes XML with expat. No element is known by its name, and XML that is not well-formed is
refused.

A text may be a document or the content of an element. Entities that a document declares stay
references; they are never expanded.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.parsers import expat

from serving.errors import InvalidTextError
from serving.text.alignment import Span
from serving.text.characters import check_text
from serving.text.passages.passage import CDATA
from serving.text.passages.tokens import Token, paired, plain_tokens, with_numbered_tags

_PROLOG = re.compile(
    # A comment ends at its first end: otherwise there would be 2^n ways through n of them.
    r"\ufeff?(?:\s*<!--(?:(?!-->).)*-->)*\s*<(?:\?xml[\s?]|!DOCTYPE\s)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(
    r"""\s(?:(?:[\w.-]+:)?translate\s*=\s*["']no["']|mtype\s*=\s*["']protected["'])"""
)
"""Pattern of the attributes that mark an element as untranslatable; `mtype` comes from XLIFF
1.2."""
_CODES = frozenset(("bpt", "ept", "it", "ph"))
_CODE = re.compile(r"[{}%\\<&\[\]$#]|\A[^A-Za-z]*\Z")
"""Patterns that show that an element's text is code."""
_NUMBER = re.compile(r"""\s(?:i|rid|id)\s*=\s*["']([^"']*)["']""")
_IN_LINE = frozenset(
    """
    a abbr b bdi bdo big bpt bx cite code del dfn em ept ex font g i ins it kbd label link mark
    mrk ph q ref s samp small span strike strong sub sup tt u ut var x xref
    """.split()  # noqa: SIM905
)
"""Names of elements that are inline even without text beside them."""

_Kind = Literal["start", "end", "text", "reference", "cdata", "other"]


@dataclass
class _Event:
    kind: _Kind
    span: Span
    name: str = ""
    single: bool = False
    """Whether it is an empty-element tag."""


def xml_tokens(source: str, ignored: Collection[str] = ()) -> list[Token]:
    """Tokens of an XML text. Elements with `ignored` names, in small letters, are not translated,
    nor are those with `translate="no"`.

    An element whose own text is blank, such as a list, contains blocks, and its tags separate
    passages. Raises InvalidTextError, with line and column, for XML that is not well-formed.
    """
    events = _events(source)
    ends = _ends(events)
    blocks = _blocks(source, events, ends)
    in_line = _in_line(source, events, blocks)
    codes = _codes(source, events, ends)
    tokens: list[Token] = []
    index = 0
    while index < len(events):
        event = events[index]
        begin = event.span[0]
        if event.kind == "start" and index in codes:
            last = ends[index]
            span = (begin, events[last].span[1])
            tokens.append(Token(codes[index][0], span, codes[index][1]))
            index = last
        elif event.kind == "start" and _is_kept(source, event, ignored):
            last = ends[index]
            span = (begin, events[last].span[1])
            tokens.append(Token("boundary" if index in blocks else "kept", span))
            index = last
        elif event.kind == "start" and ends[index] == index:
            tokens.append(Token("boundary" if index in blocks else "thing", event.span))
        elif event.kind in ("start", "end"):
            kind: Literal["open", "close"] = "open" if event.kind == "start" else "close"
            tokens.append(Token("boundary" if index in blocks else kind, event.span, event.name))
        elif event.kind == "text":
            tokens += with_numbered_tags(source, event.span)
        elif event.kind == "cdata":
            tokens += _cdata(source, event.span, in_line=index in in_line)
        elif event.kind == "reference":
            tokens.append(Token("kept", event.span))
        else:
            tokens.append(Token("thing", event.span))
        index += 1
    return tokens


def _codes(
    source: str, events: Sequence[_Event], ends: dict[int, int]
) -> dict[int, tuple[Literal["open", "close", "thing", "kept"], str]]:
    """Elements of XLIFF and TMX that contain the codes of another format, with their kinds;
    matching `bpt` and `ept` stand around words."""
    found: dict[int, tuple[Literal["open", "close", "thing", "kept"], str]] = {}
    opened: dict[str, int] = {}
    done = -1
    for index, event in enumerate(events):
        if event.kind != "start" or event.name not in _CODES or index <= done:
            continue
        done = ends[index]
        code = source[event.span[1] : events[done].span[0]] if done > index else ""
        found[index] = ("thing", "")
        number = _NUMBER.search(source, *event.span)
        name = f"bpt {number[1]}" if number else "bpt"
        if event.name == "bpt":
            opened[name] = index
        elif event.name == "ept" and name in opened:
            found[opened.pop(name)] = ("open", name)
            found[index] = ("close", name)
        elif event.name in ("ph", "it") and not code:
            del found[index]  # an ordinary element
        elif event.name in ("ph", "it") and "&lt;" not in code:
            found[index] = ("kept", "")
            if not _CODE.search(code):
                del found[index]
    return found


def _in_line(source: str, events: Sequence[_Event], blocks: Collection[int]) -> set[int]:
    """Inline sections: text, or an inline element, stands beside them."""
    found: set[int] = set()
    numbers = range(len(events))
    for side, nearest in ((numbers, "end"), (reversed(numbers), "start")):
        beside = False
        for index in side:
            event = events[index]
            if event.kind == "cdata" and beside:
                found.add(index)
            if event.kind in ("start", "end"):
                beside = event.kind == nearest and index not in blocks
            elif event.kind == "other":
                beside = False
            elif not _is_blank(source, event):
                beside = True
    return found


def _is_blank(source: str, event: _Event) -> bool:
    """Whether text or a section is blank."""
    text = source[slice(*event.span)]
    if event.kind == "cdata":
        text = text.removeprefix(CDATA).removesuffix("]]>")
    return not text or text.isspace()


def _cdata(source: str, span: Span, *, in_line: bool) -> Iterator[Token]:
    """A CDATA section, in which no character is XML markup; it often contains HTML."""
    begin, end = span[0] + len(CDATA), span[1] - len("]]>")
    tokens = list(plain_tokens(source, (begin, end)))
    whole = len(paired(tokens)) == sum(token.kind in ("open", "close") for token in tokens)
    if in_line and whole:
        yield Token("open", (span[0], begin), CDATA, markup="cdata")
        yield from tokens
        yield Token("close", (end, span[1]), CDATA)
        return
    yield Token("boundary", (span[0], begin), markup="cdata")
    yield from (dataclasses.replace(token, markup="cdata") for token in tokens)
    yield Token("boundary", (end, span[1]))


def _is_kept(source: str, event: _Event, ignored: Collection[str]) -> bool:
    if event.name.lower() in ignored:
        return True
    return _ATTRIBUTE.search(source, *event.span) is not None


def _ends(events: Sequence[_Event]) -> dict[int, int]:
    """The event that ends each element, by its start event; the same event for an empty-element
    tag."""
    ends: dict[int, int] = {}
    stack: list[int] = []
    for index, event in enumerate(events):
        if event.kind == "start":
            ends[index] = index
            if not event.single:
                stack.append(index)
        elif event.kind == "end":
            ends[stack.pop()] = index
    return ends


def _blocks(source: str, events: Sequence[_Event], ends: dict[int, int]) -> set[int]:
    """Tags of elements that separate text: neither text nor inline elements stand beside them."""
    children: list[list[int]] = [[]]
    mixed = [False]
    found: set[int] = set()

    def end_of_parent() -> None:
        inside, has_text = children.pop(), mixed.pop()
        in_line = all(events[child].name.lower() in _IN_LINE for child in inside)
        if not has_text and not (in_line and len(inside) > 1):
            found.update(inside, (ends[child] for child in inside))

    for index, event in enumerate(events):
        if event.kind == "start":
            children[-1].append(index)
            if ends[index] != index:
                children.append([])
                mixed.append(False)
        elif event.kind == "end":
            end_of_parent()
        elif event.kind in ("text", "reference", "cdata"):
            mixed[-1] |= not _is_blank(source, event)
    end_of_parent()
    return found


def _events(source: str) -> list[_Event]:
    """All events of a text, in order."""
    check_text(source)
    reader = _Reader(whole=_PROLOG.match(source) is not None)
    events = reader.read(source)
    if events and events[0].span[0]:  # there is a byte order mark
        events.insert(0, _Event("other", (0, events[0].span[0])))
    return events


class _Reader:
    """Runs expat and records byte positions."""

    def __init__(self, *, whole: bool) -> None:
        """Parse a text. One that is not a complete document is read as the content of an
        element."""
        self._before, self._after = (b"", b"") if whole else (b"<_>", b"</_>")
        self._marks: list[tuple[int, _Kind, str]] = []
        self._silent = False  # within a section or a declaration, which becomes one event
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = lambda name, _: self._note("start", name)
        parser.EndElementHandler = lambda name: self._note("end", name)
        parser.CharacterDataHandler = lambda _: self._note("text")
        parser.CommentHandler = lambda _: self._note("other")
        parser.ProcessingInstructionHandler = lambda *_: self._note("other")
        parser.XmlDeclHandler = lambda *_: self._note("other")
        parser.StartCdataSectionHandler = lambda: self._begin("cdata")
        parser.EndCdataSectionHandler = self._end
        parser.StartDoctypeDeclHandler = lambda *_: self._begin("other")
        parser.EndDoctypeDeclHandler = self._end
        parser.EntityDeclHandler = _check_entity
        # With this one, and not `DefaultHandlerExpand`, references in text are not expanded.
        parser.DefaultHandler = lambda data: self._note(
            "reference" if data.startswith("&") else "other"
        )

    def read(self, source: str) -> list[_Event]:
        """The events of a text; raises InvalidTextError if it is not well-formed."""
        data = source.encode()
        try:
            self._parser.Parse(self._before + data + self._after, True)
        except expat.ExpatError as error:
            column = error.offset + 1 - (len(self._before) if error.lineno == 1 else 0)
            raise InvalidTextError(
                f"text must be well-formed XML, got {expat.ErrorString(error.code)} in line "
                f"{error.lineno}, column {max(1, column)}; correct it, or send it as another format"
            ) from error
        marks = self._marks[1:-1] if self._before else self._marks
        places = _characters(data, [at - len(self._before) for at, _, _ in marks])
        events: list[_Event] = []
        for (_, kind, name), begin, end in zip(marks, places, places[1:], strict=False):
            if begin == end:
                events[-1].single = True  # end of `<name/>`
            elif events and events[-1].kind == kind == "text":
                events[-1].span = (events[-1].span[0], end)
            else:
                events.append(_Event(kind, (begin, end), name))
        return events

    def _note(self, kind: _Kind, name: str = "") -> None:
        if not self._silent:
            self._marks.append((self._parser.CurrentByteIndex, kind, name))

    def _begin(self, kind: _Kind) -> None:
        self._note(kind)
        self._silent = True

    def _end(self) -> None:
        self._silent = False


def _check_entity(name: str, _: bool, value: str | None, *_rest: str | None) -> None:
    """Limit entity expansion in attributes."""
    if value is not None and "&" in value:
        raise InvalidTextError(
            f"an entity of XML must not hold others, got {name!r}; write it out, or leave it out"
        )


def _characters(data: bytes, places: Sequence[int]) -> list[int]:
    """Convert ascending byte positions into character positions; the end is included."""
    found, done, count = [], 0, 0
    for place in (*places, len(data)):
        count += len(data[done:place].decode())
        done = place
        found.append(count)
    return found
