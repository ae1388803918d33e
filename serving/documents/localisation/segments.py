"""Reads translation memories in TMX as pairs of sentences, one unit at a time, because files may be
large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from serving.documents.localisation.languages import is_same
from serving.documents.raw.xml import local
from serving.errors import DocumentError, InvalidOptionError
from serving.text.memory.segments import DEFAULT_THRESHOLD, MemoryUse, Segment

_LANGUAGE = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")
_CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))
"""Elements that contain formatting codes of other programs."""
_MOST_LANGUAGES = 100
_MOST_ELEMENTS = 10_000
"""Largest number of elements in one unit, which is held in memory as a whole."""
_PART = 1000
"""Number of pairs in one part of a written file."""


class TmxLanguages(NamedTuple):
    """The languages of a file."""

    source: str
    """The source language that the header names; if it names none, the language of the first
    text."""
    others: tuple[str, ...]
    """The languages of the other texts, in order of appearance."""


def tmx_languages(file: IO[bytes]) -> TmxLanguages:
    """The languages of a whole file. Reading all of it shows that it is well-formed; raises
    DocumentError as `tmx_pairs` does."""
    source, found = "", dict[str, None]()
    for element in _elements(file):
        if local(element) == "header":
            source = element.get("srclang", "")
            continue
        for language in _texts(element):
            if not any(is_same(language, each) for each in found):
                found[language] = None
        if len(found) > _MOST_LANGUAGES:
            raise DocumentError(f"a memory must have at most {_MOST_LANGUAGES} languages, got more")
    if source in ("", "*all*"):
        source = next(iter(found), "")
    return TmxLanguages(source, tuple(each for each in found if not is_same(each, source)))


def tmx_pairs(file: IO[bytes], source: str, target: str) -> Iterator[tuple[str, str] | None]:
    """Yield the texts of each unit in the two languages, or None for a unit that lacks one of them.
    A text in another region of a language is used if there is none in the region given. The
    formatting codes of other programs are left out.

    Raises DocumentError for a file that is not well-formed or not TMX, or that declares entities;
    none is expanded, and nothing is fetched.
    """
    for element in _elements(file):
        if local(element) == "tu":
            texts = _texts(element)
            pair = _in(texts, source), _in(texts, target)
            yield pair if all(pair) else None


def memory_of_file(
    path: Path, source: str, target: str, threshold: float = DEFAULT_THRESHOLD
) -> MemoryUse:
    """Read a memory for these languages from a file; the threshold is in percent. Raises
    InvalidOptionError if the file has no such pairs."""
    # Imported here, because translating a memory's file looks nothing up.
    from serving.text.memory.lookup import memory_of

    try:
        with path.open("rb") as file:
            segments = [Segment(*pair) for pair in tmx_pairs(file, source, target) if pair]
    except (OSError, DocumentError) as error:
        raise InvalidOptionError(f"memory {path}: {error}", parameter="memory") from error
    if not segments:
        raise InvalidOptionError(
            f"memory {path} has no sentences from {source} to {target}; name another file",
            parameter="memory",
        )
    return memory_of(segments, (source, target), threshold)


def written_tmx(pairs: Iterable[tuple[str, str]], source: str, target: str) -> Iterator[bytes]:
    """Yield a TMX 1.4 file of these pairs, in parts."""
    languages = quoteattr(source), quoteattr(target)
    yield (
        '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header '
        'creationtool="Macaron" creationtoolversion="1" segtype="sentence" o-tmf="Macaron" '
        f'adminlang="en" srclang={languages[0]} datatype="plaintext"/>\n<body>\n'
    ).encode()
    lines: list[str] = []
    for number, pair in enumerate(pairs, 1):
        variants = "".join(
            f"<tuv xml:lang={language}><seg>{escape(text)}</seg></tuv>"
            for language, text in zip(languages, pair, strict=True)
        )
        lines.append(f"<tu>{variants}</tu>\n")
        if number % _PART == 0:
            yield "".join(lines).encode()
            lines.clear()
    yield "".join([*lines, "</body>\n</tmx>\n"]).encode()


def _elements(file: IO[bytes]) -> Iterator[etree._Element]:
    """Yield the header and the units. Each is deleted when the next one is requested."""
    file.seek(0)
    events = etree.iterparse(
        file,
        events=("start", "end"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    held = 0
    checked = False
    try:
        for event, element in events:
            if not checked:
                _check(element.getroottree())
                checked = True
            if event == "start":
                held += 1
                if held > _MOST_ELEMENTS:
                    raise DocumentError(
                        f"a unit of a memory must have at most {_MOST_ELEMENTS} elements, got more"
                    )
            elif local(element) in ("header", "tu"):
                yield element
                held = 0
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DocumentError(f"the memory is not well-formed XML: {error}") from error


def _check(tree: etree._ElementTree) -> None:
    if local(tree.getroot()) != "tmx":
        raise DocumentError(f"the memory must be TMX, got XML of {local(tree.getroot())[:50]!r}")
    declared = tree.docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise DocumentError("the memory declares entities, which TMX does not need; it is refused")


def _texts(unit: etree._Element) -> dict[str, str]:
    """The first text of a unit in each language, by language."""
    found: dict[str, str] = {}
    for variant in unit:
        segment = next((child for child in variant if local(child) == "seg"), None)
        if local(variant) == "tuv" and segment is not None:
            code = next((variant.get(name) for name in _LANGUAGE if variant.get(name)), "")
            found.setdefault(code, " ".join(_text(segment).split()))
    return found


def _in(texts: Mapping[str, str], language: str) -> str:
    """The text in a language, preferably in exactly this region; empty if there is none."""
    wanted = language.lower().replace("_", "-")
    own = [text for code, text in texts.items() if code.lower().replace("_", "-") == wanted]
    alike = [text for code, text in texts.items() if is_same(code, language)]
    return next(iter(own + alike), "")


def _text(element: etree._Element) -> str:
    parts = [element.text or ""]
    for child in element:
        if local(child) and local(child) not in _CODES:
            parts.append(_text(child))
        parts.append(child.tail or "")
    return "".join(parts)
