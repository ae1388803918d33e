"""Messages in XML: XLIFF, Android's strings and .NET's resources, each element at its place."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from serving.documents.raw.encoding import XML, Decoded, decoded, escaped
from serving.documents.texts.slots import Slot, file_with_slots
from serving.documents.unit import FileInUnits, Unit
from serving.errors import DocumentError

_TAG_END = re.compile(r"""(?:[^"'>]|"[^"]*"|'[^']*')*>""")
_REFERENCE = re.compile(r"\s*[@?](?:\+?[\w.]+:)?\w+/[\w.]+\s*")
_QUOTED = re.compile(r"\s*\"(?P<inside>(?:[^\"\\<]|\\.)*)\"\s*", re.DOTALL)
_LONE_QUOTE = re.compile(r"(?<!\\)\"")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.DOTALL)
_TAG = re.compile(r"<!\[CDATA\[|<[^<>]*>")
_SEGMENT = re.compile(r"""</?(?:[\w.-]+:)?mrk\b(?:[^"'>]|"[^"]*"|'[^']*')*>""")
_DEEPEST = 256
_LANGUAGES = {"file": ("target-language", "source-language"), "xliff": ("trgLang", "srcLang")}
"""The attributes of XLIFF 1.2 and 2 that name the language of targets and that of sources."""
_UNTRANSLATED = frozenset(("new", "initial", "needs-translation"))


@dataclass
class Element:
    """An element, and its position in the text of the file."""

    name: str
    """The element's name, without a prefix."""
    attributes: dict[str, str]
    begin: int
    inner: int
    """Position where the content begins."""
    inner_end: int = 0
    end: int = 0
    children: list[Element] = field(default_factory=list)

    def child(self, name: str) -> Element | None:
        """The first child of this name."""
        return next((child for child in self.children if child.name == name), None)

    def walk(self) -> Iterator[Element]:
        """Yield the element and all elements in it, in order."""
        yield self
        for child in self.children:
            yield from child.walk()


def read_xliff(content: bytes, target: str = "", retranslate: bool = False) -> FileInUnits:
    """Read the targets of XLIFF 1.2 and 2 that are missing, empty or in a state that asks for
    translation, or all with `retranslate`; states and notes stay. A file that does not name the
    language of its targets gets `target`."""
    source = text_of(content)
    root = _parsed(source.text)
    named = _into_language(source.text, root, target) if root and target else source.text
    if named != source.text:
        source = dataclasses.replace(source, text=named)
        root = _parsed(named)
    slots: list[Slot] = []
    for element in _translatable(root, inherited=True) if root else ():
        if element.name in ("trans-unit", "segment") and _wanted(source.text, element, retranslate):
            slots += _target(source.text, element)
    return file_with_slots(source, slots)


def _into_language(text: str, root: Element, target: str) -> str:
    """The text with an attribute for the language of its targets, where that is missing."""
    parts, done = list[str](), 0
    for element in root.walk():
        attribute, beside = _LANGUAGES.get(element.name, ("", ""))
        if beside in element.attributes and attribute not in element.attributes:
            end = element.begin + len(text[element.begin : element.inner].rstrip("/> \t\r\n"))
            parts += [text[done:end], f" {attribute}={quoteattr(target)}"]
            done = end
    return "".join([*parts, text[done:]])


def _translatable(element: Element, *, inherited: bool) -> Iterator[Element]:
    """Yield elements that are not marked as untranslatable, neither themselves nor through an
    element around them."""
    said = element.attributes.get("translate")
    own = said == "yes" if said in ("yes", "no") else inherited
    if own:
        yield element
    for child in element.children:
        yield from _translatable(child, inherited=own)


def read_android(content: bytes) -> FileInUnits:
    """Read Android's strings, items of arrays and of plurals, except references and those with
    `translatable="false"`."""
    source = text_of(content)
    found = []
    for element in elements_of(source):
        if element.attributes.get("translatable") == "false":
            continue
        if element.name == "string":
            found.append(element)
        elif element.name in ("string-array", "plurals"):
            found += element.children
    ascii = source.text.isascii() and "\\u" in source.text
    slots = [_android_slot(source.text, element, ascii=ascii) for element in found]
    return file_with_slots(source, [slot for slot in slots if slot])


def _android_slot(text: str, element: Element, *, ascii: bool) -> Slot | None:
    """The content of an element, without the quotation marks around it. None if it is only a
    reference to another value. If `ascii`, other characters of the translation are escaped."""
    begin, end = element.inner, element.inner_end
    if _REFERENCE.fullmatch(text, begin, end):
        return None
    quoted = _QUOTED.fullmatch(text, begin, end)
    if quoted:
        begin, end = quoted.span("inside")
    inside = text[begin:end]
    write = functools.partial(_as_android, inside, quoted=quoted is not None, ascii=ascii)
    words = _outside_tags(lambda part: _ESCAPE.sub(_android_sign, part), inside)
    return Slot(begin, end, Unit(words, "xml"), write)


def _android_sign(found: re.Match[str]) -> str:
    """The character that an escape stands for, if that is itself wherever it is written."""
    sign = chr(int(found[1], 16)) if found[1] else ""
    return sign if sign.isalnum() or (sign.isprintable() and not sign.isascii()) else found[0]


def _as_android(source: str, text: str, *, quoted: bool, ascii: bool) -> str:
    """A translation in which characters with a special meaning for Android are escaped."""
    marks = '"' if quoted else "'" if _LONE_QUOTE.search(_TAG.sub("", source)) else "'\""

    def shown(part: str) -> str:
        part = re.sub(rf"(?<!\\)[{marks}]", r"\\\g<0>", part)
        return escaped(part, "ascii") if ascii else part

    written = _outside_tags(shown, text)
    return "\\" + written if written[:1] in ("@", "?") and source[:1] != written[0] else written


def _outside_tags(change: Callable[[str], str], text: str) -> str:
    parts, tags = map(change, _TAG.split(text)), _TAG.findall(text)
    return "".join(itertools.chain(*itertools.zip_longest(parts, tags, fillvalue="")))


def read_resx(content: bytes) -> FileInUnits:
    """Read the values of .NET's resources that are text, line by line."""
    source = text_of(content)
    found = []
    for element in elements_of(source):
        typed = {"type", "mimetype"} & set(element.attributes)
        value = element.child("value")
        named = element.attributes.get("name", "")
        if element.name == "data" and value and not typed and not named.startswith(">>"):
            found.append(value)
    return file_with_slots(source, [slot for value in found for slot in _lines(source.text, value)])


def _lines(text: str, element: Element) -> Iterator[Slot]:
    """The lines of an element's content as separate texts; the whole content if it has more than
    text."""
    if "<" in text[element.inner : element.inner_end]:
        yield inner_slot(text, element)
        return
    for line in re.compile(r"[^\r\n]+").finditer(text, element.inner, element.inner_end):
        yield Slot(*line.span(), Unit(line[0], "xml"), str)


def inner_slot(text: str, element: Element) -> Slot:
    """The content of an element as a place for its own translation."""
    unit = Unit(text[element.inner : element.inner_end], "xml")
    return Slot(element.inner, element.inner_end, unit, str)


def _wanted(text: str, unit: Element, retranslate: bool) -> bool:
    target = unit.child("target")
    if unit.child("source") is None:
        return False
    states = {unit.attributes.get("state"), target and target.attributes.get("state")}
    missing = target is None or not _SEGMENT.sub("", text[target.inner : target.inner_end]).strip()
    return retranslate or missing or not states.isdisjoint(_UNTRANSLATED)


def _target(text: str, element: Element) -> Iterator[Slot]:
    """The place of a target: one slot for each segment of its source."""
    source, target = element.child("source"), element.child("target")
    assert source
    prefix = re.match(r"<([\w.-]+:)?", text[source.begin :])
    name = f"{prefix[1] or ''}target" if prefix else "target"
    if target and target.inner_end < target.end:
        begin, end, before, after = target.inner, target.inner_end, "", ""
    elif target:  # of one tag
        begin, end, after = target.begin, target.end, f"</{name}>"
        before = text[begin : end - 2].rstrip() + ">"
    else:
        between = text[text.rfind(">", 0, source.begin) + 1 : source.begin]
        space = between[len(between.rstrip()) :]
        begin = end = (element.child("seg-source") or source).end
        before, after = f"{space}<{name}>", f"</{name}>"
    whole, segments = _segments(text, element, source)
    done = whole.inner
    for segment in segments:
        before += text[done : segment.inner]
        done = segment.inner_end
        behind = text[done : whole.inner_end] + after if segment is segments[-1] else ""
        unit = Unit(text[segment.inner : done], "xml")
        write = functools.partial(_between, before, behind)
        yield Slot(begin, end, unit, write, replaces_source=False)
        begin, before = end, ""


def _segments(text: str, unit: Element, source: Element) -> tuple[Element, list[Element]]:
    """The element that a target is like, and the elements with words in it, each a text of its
    own: the segments into which the source is divided, or else all of the source."""
    found: list[Element] = []
    divided = unit.child("seg-source")
    for element in divided.walk() if divided else ():
        words = any(map(str.isalpha, text[element.inner : element.inner_end]))
        apart = not found or element.begin >= found[-1].end
        if element.name == "mrk" and element.attributes.get("mtype") == "seg" and words and apart:
            found.append(element)
    return (divided, found) if divided and found else (source, [source])


def _between(before: str, behind: str, text: str) -> str:
    return before + text + behind


def text_of(content: bytes) -> Decoded:
    """The text of a file of XML."""
    return decoded(content, XML)


def elements_of(source: Decoded) -> Iterator[Element]:
    """All elements of a text, in order. Raises DocumentError for text that is not well-formed or
    declares entities."""
    root = _parsed(source.text)
    return root.walk() if root else iter(())


def _parsed(text: str) -> Element | None:
    """The elements of a text. Raises DocumentError for text that is not well-formed or declares
    entities."""
    if not text.strip():
        return None
    places = _Places(text)
    opened: list[Element] = []
    roots: list[Element] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(opened) == _DEEPEST:
            raise DocumentError(f"elements must nest at most {_DEEPEST} deep, got deeper ones")
        begin = places.character(parser.CurrentByteIndex)
        tag = _TAG_END.match(text, begin)
        inner = tag.end() if tag else begin
        element = Element(name.rpartition(":")[2], attributes, begin, inner)
        (opened[-1].children if opened else roots).append(element)
        opened.append(element)

    def end(_name: str) -> None:
        element = opened.pop()
        if text[element.inner - 2 : element.inner] == "/>":
            element.inner_end = element.end = element.inner
            return
        element.inner_end = places.character(parser.CurrentByteIndex)
        element.end = text.index(">", element.inner_end) + 1

    def entity(*_: object) -> None:
        raise DocumentError("the file declares entities, which messages do not need; it is refused")

    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise DocumentError(f"the file is not well-formed XML: {error}") from error
    return roots[0]


class _Places:
    """Converts byte positions in a text's UTF-8 to character positions; they may only increase."""

    def __init__(self, text: str) -> None:
        self._text, self._byte, self._character = text, 0, 0

    def character(self, byte: int) -> int:
        """Number of characters in this many bytes."""
        while self._byte < byte:
            self._byte += len(self._text[self._character].encode())
            self._character += 1
        return self._character
