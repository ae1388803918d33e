"""Text in several styles, with objects in it, as a unit whose tags are placed by word links.

Callers number the styles, objects and wraps; this module does not interpret the numbers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.documents.unit import Unit


@dataclass(frozen=True)
class Words:
    """Text in one style."""

    text: str
    style: int = 0


@dataclass(frozen=True)
class Thing:
    """An object that is kept: a picture, a note's mark, or with `divides` a line break or tab."""

    number: int
    divides: bool = False
    word: str = ""
    """The text by which the model reads the object, if it stands for a word of the sentence."""


@dataclass(frozen=True)
class Wrap:
    """Markup around other inlines: a link, or an insertion."""

    number: int
    inside: tuple[Inline, ...]


Inline = Words | Thing | Wrap

_TOKEN = re.compile(
    r'<g id="(?P<kind>[sw])(?P<number>\d+)">|(?P<close></g>)'
    r'|<(?:x|br) id="t(?P<thing>\d+)"/?>|(?P<line><br id="n">)'
    r'|<code id="t(?P<word>\d+)">[^<]*</code>'
)


@dataclass(frozen=True)
class Line:
    """The inlines of a paragraph: the part to translate, and the objects before and after it."""

    before: tuple[Inline, ...]
    inside: tuple[Inline, ...]
    behind: tuple[Inline, ...]

    @property
    def has_words(self) -> bool:
        """Whether it contains a letter."""
        return any(any(map(str.isalpha, words.text)) for words in _words(self.inside))

    @property
    def unit(self) -> Unit:
        """The text to translate; plain if it has a single style."""
        if len(self.inside) == 1 and isinstance(self.inside[0], Words):
            return Unit(self.inside[0].text)
        return Unit(_encoded(self.inside, _base(self)), "html")

    def translated(self, text: str) -> list[Inline]:
        """The inlines of the whole paragraph with the unit's translation; each object and each wrap
        appears once."""
        if self.unit.format == "text":
            inside: list[Inline] = [Words(text, _base(self))]
        else:
            inside = _decoded(text, _base(self))
        return [*self.before, *inside, *self.behind]


def line_of(inlines: Sequence[Inline]) -> Line:
    """The inlines of a paragraph; neighbours of the same style are merged."""
    joined = list(_joined(inlines))
    begin, end = 0, len(joined)
    while begin < end and _is_outside(joined[begin]):
        begin += 1
    while end > begin and _is_outside(joined[end - 1]):
        end -= 1
    return Line(tuple(joined[:begin]), tuple(joined[begin:end]), tuple(joined[end:]))


def _is_outside(inline: Inline) -> bool:
    if isinstance(inline, Thing):
        return not inline.word
    return isinstance(inline, Words) and not inline.text.strip()


def _joined(inlines: Sequence[Inline]) -> Iterator[Inline]:
    waiting: Words | None = None
    for inline in inlines:
        if isinstance(inline, Wrap):
            inline = Wrap(inline.number, tuple(_joined(inline.inside)))
        if isinstance(inline, Words):
            if waiting and waiting.style == inline.style:
                waiting = Words(waiting.text + inline.text, inline.style)
                continue
            if not inline.text:
                continue
        if waiting:
            yield waiting
        waiting = inline if isinstance(inline, Words) else None
        if waiting is None:
            yield inline
    if waiting:
        yield waiting


def _words(inlines: Sequence[Inline]) -> Iterator[Words]:
    for inline in inlines:
        if isinstance(inline, Words):
            yield inline
        elif isinstance(inline, Wrap):
            yield from _words(inline.inside)


def _base(line: Line) -> int:
    """The most frequent style, by number of characters on a tie: it needs no tags."""
    counts: dict[int, tuple[int, int]] = {}
    for words in _words(line.inside):
        count, length = counts.get(words.style, (0, 0))
        counts[words.style] = (count + 1, length + len(words.text))
    return max(counts, key=lambda style: counts[style], default=0)


def _encoded(inlines: Sequence[Inline], base: int) -> str:
    written = []
    for inline in inlines:
        match inline:
            case Words(text, style):
                shown = html.escape(text, quote=False).replace("\n", '<br id="n">')
                written.append(shown if style == base else f'<g id="s{style}">{shown}</g>')
            case Thing(number, word=word) if word:
                shown = html.escape(word, quote=False)
                written.append(f'<code id="t{number}">{shown}</code>')
            case Thing(number, divides):
                written.append(f'<br id="t{number}">' if divides else f'<x id="t{number}"/>')
            case Wrap(number, inside):
                written.append(f'<g id="w{number}">{_encoded(inside, base)}</g>')
    return "".join(written)


def _decoded(text: str, base: int) -> list[Inline]:
    top: list[Inline] = []
    opened: list[tuple[str, int, list[Inline]]] = [("", 0, top)]
    style = base
    done = 0
    for match in _TOKEN.finditer(text):
        _add_words(opened, text[done : match.start()], style)
        done = match.end()
        if match["kind"]:
            opened.append((match["kind"], int(match["number"]), []))
        elif match["close"] and len(opened) > 1:
            kind, number, inside = opened.pop()
            opened[-1][2].extend(inside if kind == "s" else [Wrap(number, tuple(inside))])
        elif match["line"]:
            opened[-1][2].append(Words("\n", style))
        elif match["thing"]:
            opened[-1][2].append(Thing(int(match["thing"])))
        elif match["word"]:
            opened[-1][2].append(Thing(int(match["word"]), word="x"))
        style = next((number for kind, number, _ in reversed(opened) if kind == "s"), base)
    _add_words(opened, text[done:], style)
    return list(_joined(top))


def _add_words(opened: Sequence[tuple[str, int, list[Inline]]], text: str, style: int) -> None:
    if text:
        opened[-1][2].append(Words(html.unescape(text), style))
