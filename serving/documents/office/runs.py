"""Paragraphs made of runs of text, each with its properties: those of Word, PowerPoint and
Excel."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lxml import etree

from serving.documents.raw.xml import SPACE, local
from serving.documents.texts.markup import Inline, Thing, Words, Wrap

_CHARACTERS = {"noBreakHyphen": "\u2011", "softHyphen": ""}
_BREAKS = frozenset(("br", "cr", "tab", "ptab"))
PHONETIC = ("rPh", "phoneticPr")
_DROPPED = frozenset(("proofErr", "lastRenderedPageBreak", *PHONETIC))
"""Elements that describe the old words: spelling, pages and pronunciation."""
_PROPERTIES = frozenset(("pPr", "smartTagPr", "customXmlPr"))
_LAST = frozenset(("endParaRPr",))
_WRAPS = frozenset(("hyperlink", "ins", "moveTo", "smartTag", "customXml", "dir", "bdo"))
_OF_LANGUAGE = frozenset(("lang", "noProof", "altLang", "dirty", "err"))
"""Properties of runs that name their language, or turn its spell check off."""


@dataclass
class RunReader:
    """Reads a paragraph's element into inlines, and rebuilds it from others."""

    namespace: str
    """Namespace of runs and their text, between braces."""
    _keys: dict[bytes, int] = field(default_factory=dict)
    _properties: list[etree._Element | None] = field(default_factory=list)
    _things: list[Callable[[etree._Element], None]] = field(default_factory=list)
    """Functions that add each kept object to a given element."""
    _wraps: list[_Shell] = field(default_factory=list)

    def read(self, parent: etree._Element) -> list[Inline]:
        """The inlines of an element."""
        return self._read(list(parent))

    def fill(self, parent: etree._Element, inlines: Sequence[Inline]) -> None:
        """Replace the element's content with these inlines; its properties stay."""
        last = [child for child in parent if local(child) in _LAST]
        for child in list(parent):
            if local(child) not in _PROPERTIES:
                parent.remove(child)
        self._append(parent, inlines)
        parent.extend(last)

    def _read(self, children: Sequence[etree._Element]) -> list[Inline]:
        found: list[Inline] = []
        index = 0
        while index < len(children):
            child = children[index]
            name = local(child)
            field_end = _field_end(children, index) if name == "r" else None
            if field_end is not None:
                found.append(self._field(children[index : field_end + 1]))
                index = field_end
            elif name == "r" and _field_mark(child) is None:
                found += self._run(child)
            elif name in _PROPERTIES | _LAST | _DROPPED:
                pass
            elif name in _WRAPS or (name == "fldSimple" and _is_link(_instruction(child))):
                found.append(self._wrap(_Shell(shell=child, container=child)))
            elif name == "sdt" and _content(child) is not None:
                found.append(self._wrap(_Shell(shell=child, container=_content(child))))
            else:
                found.append(self._thing([child], divides=name == "br"))
            index += 1
        return found

    def _run(self, run: etree._Element) -> list[Inline]:
        properties = run.find(f"{self.namespace}rPr")
        style = self._style(properties)
        found: list[Inline] = []
        for child in run:
            name = local(child)
            if child is properties or name in _DROPPED:
                continue
            if name == "t":
                found.append(Words(words_of(child, self.namespace), style))
            elif name in _CHARACTERS:
                found.append(Words(_CHARACTERS[name], style))
            elif name == "ruby":  # guides above the words belong to the old words
                base = [part for part in child if local(part) == "rubyBase"]
                found += [inline for part in base for inline in self._read(list(part))]
            else:
                alone = etree.Element(run.tag, run.attrib, nsmap=run.nsmap)
                if properties is not None:
                    alone.append(copy.deepcopy(properties))
                self._things.append(functools.partial(_append_alone, alone, child))
                found.append(Thing(len(self._things) - 1, divides=name in _BREAKS))
        return found

    def _style(self, properties: etree._Element | None) -> int:
        """The number of a style. Styles that differ only in language have the same number."""
        shown = None
        if properties is not None:
            shown = copy.deepcopy(properties)
            shown.tail = None
            for name in _OF_LANGUAGE & set(shown.attrib):
                del shown.attrib[name]
            for child in [child for child in shown if local(child) in _OF_LANGUAGE]:
                shown.remove(child)
            if not len(shown) and not shown.attrib:
                shown = None
        key = b"" if shown is None else etree.tostring(shown, method="c14n")
        if key not in self._keys:
            self._keys[key] = len(self._properties)
            self._properties.append(shown)
        return self._keys[key]

    def _thing(self, elements: Sequence[etree._Element], *, divides: bool = False) -> Thing:
        self._things.append(functools.partial(_extend, elements))
        return Thing(len(self._things) - 1, divides)

    def _wrap(self, shell: _Shell) -> Wrap:
        self._wraps.append(shell)
        number = len(self._wraps) - 1
        inside = shell.inside if shell.container is None else list(shell.container)
        return Wrap(number, tuple(self._read(inside)))

    def _field(self, elements: Sequence[etree._Element]) -> Inline:
        """Read a field. The words of a link are translated; other fields are kept as they are."""
        cut = _end_of_code(elements)
        code = "".join(
            node.text or ""
            for element in elements[:cut]
            for node in element.iter()
            if _is_code(node)
        )
        if cut is not None and _is_link(code):
            return self._wrap(
                _Shell(
                    before=list(elements[:cut]),
                    inside=list(elements[cut:-1]),
                    behind=list(elements[-1:]),
                )
            )
        return self._thing(elements)

    def _append(self, parent: etree._Element, inlines: Sequence[Inline]) -> None:
        for inline in inlines:
            match inline:
                case Words(text, style):
                    parent.append(self._new_run(text, style, parent))
                case Thing(number):
                    self._things[number](parent)
                case Wrap(number, inside):
                    shell = self._wraps[number]
                    parent.extend(shell.before)
                    if shell.shell is None or shell.container is None:
                        self._append(parent, inside)
                    else:
                        self.fill(shell.container, inside)
                        parent.append(shell.shell)
                    parent.extend(shell.behind)

    def _new_run(self, text: str, style: int, parent: etree._Element) -> etree._Element:
        run = etree.SubElement(parent, f"{self.namespace}r")
        properties = self._properties[style]
        if properties is not None:
            run.append(copy.deepcopy(properties))
        words = etree.SubElement(run, f"{self.namespace}t")
        words.text = text
        if "drawingml" not in self.namespace:
            words.set(SPACE, "preserve")
        return run


@dataclass
class _Shell:
    """Elements around inlines: either one element with a container, or other elements on both
    sides."""

    shell: etree._Element | None = None
    container: etree._Element | None = None
    before: list[etree._Element] = field(default_factory=list)
    inside: list[etree._Element] = field(default_factory=list)
    behind: list[etree._Element] = field(default_factory=list)


def words_of(element: etree._Element, namespace: str) -> str:
    """The words of a text element, as the program of its namespace reads them."""
    text = element.text or ""
    if "drawingml" in namespace or element.get(SPACE) == "preserve":
        return text
    return text.strip(" \t\r\n")


def _append_alone(run: etree._Element, child: etree._Element, parent: etree._Element) -> None:
    run.append(child)
    parent.append(run)


def _extend(elements: Sequence[etree._Element], parent: etree._Element) -> None:
    parent.extend(elements)


def _content(sdt: etree._Element) -> etree._Element | None:
    """The content of a content control that contains runs."""
    for child in sdt:
        if local(child) == "sdtContent" and all(local(inner) != "p" for inner in child):
            return child
    return None


def _is_code(node: etree._Element) -> bool:
    return local(node) == "instrText"


def _is_link(code: str) -> bool:
    return code.strip().upper().startswith("HYPERLINK")


def _instruction(field: etree._Element) -> str:
    return next((v for k, v in field.attrib.items() if k.endswith("}instr")), "")


def _end_of_code(elements: Sequence[etree._Element]) -> int | None:
    """Index after which a field's displayed content begins; None if it displays nothing. Fields may
    be nested."""
    depth = 0
    for place, element in enumerate(elements):
        mark = _field_mark(element) if local(element) == "r" else None
        depth += (mark == "begin") - (mark == "end")
        if mark == "separate" and depth == 1:
            return place + 1
    return None


def _field_mark(run: etree._Element) -> str | None:
    """The effect of a run on a field: `begin`, `separate`, `end` or `code`; None if it has none."""
    for child in run:
        if local(child) == "fldChar":
            return next((v for k, v in child.attrib.items() if k.endswith("fldCharType")), None)
        if _is_code(child):
            return "code"
    return None


def _field_end(children: Sequence[etree._Element], index: int) -> int | None:
    """Index of the end of a field that begins here; None if it does not begin here or does not end
    among these."""
    if _field_mark(children[index]) != "begin":
        return None
    depth = 0
    for place in range(index, len(children)):
        mark = _field_mark(children[place]) if local(children[place]) == "r" else None
        depth += (mark == "begin") - (mark == "end")
        if depth == 0:
            return place
    return None
