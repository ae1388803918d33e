"""Builds passages of tokens: the texts that the model reads, with kept objects set aside."""

from __future__ import annotations

import re
from array import array
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from serving.text.alignment import Span
from serving.text.kept.conjunctions import Conjunction, joins_words
from serving.text.kept.counts import reads_as_number
from serving.text.kept.masks import Masks
from serving.text.kept.placeholders import Placeholder, is_plain, placeholders
from serving.text.kept.spelling import Unspelt, with_unspelt
from serving.text.passages.passage import Inline, Markup, Origins, Passage
from serving.text.passages.tokens import Token
from serving.text.passages.unescaping import unescaped, unquoted
from serving.text.symbols import BIDI, BLANKS, CLOSING_SIGNS, INVISIBLE, OPENING_BIDI

_PAIR = ("open", "close")
_LEADING_BLANKS = re.compile(rf"[{BLANKS}]*")
_ENDS_OF_LINES = frozenset("\n\t\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
_LOOKED_AT = 3
"""Number of parts of the text before a symbol that are examined for a word and a blank."""
_MOST_CONTROLS = 32
"""Largest number of nested stretches with a text direction of their own; deeper controls are
dropped."""
_BIDI = re.compile(BIDI)
_UNSEEN = re.compile(f"{BIDI}|{INVISIBLE}")


def read_parts(
    source: str,
    tokens: Sequence[Token],
    markup: Markup,
    masks: Masks | None = None,
    depth: int = 0,
    *,
    unspelt: Unspelt | None = None,
    conjunction: Conjunction | None = None,
) -> list[Passage | str]:
    """The passages and the text between them. `depth` is the number of ICU messages around the
    tokens; `unspelt` finds text that the vocabulary cannot spell; `conjunction` says how `&`
    between words is read, which is left out otherwise."""
    parts: list[Passage | str] = []
    masks = masks or Masks(source)
    reading = partial(
        Builder,
        source,
        masks,
        in_message=depth > 0,
        unspelt=unspelt,
        conjunction=conjunction,
    )
    builder = reading(markup)
    for token in tokens:
        span, kind = token.span, token.kind
        if kind == "boundary":
            parts += [*builder.finished(), source[slice(*span)]]
            builder = reading(token.markup or markup)
        elif kind == "text":
            builder.text(span)
        elif kind == "space":
            builder.space(span)
        elif kind == "hidden":
            builder.hidden(span)
        elif kind == "open":
            builder.open(span, token.markup)
        elif kind == "close":
            builder.close(span)
        elif kind == "thing":
            builder.thing(span)
        elif kind == "script":
            builder.script(span)
        else:
            branches = partial(
                read_parts,
                markup=markup,
                masks=masks,
                depth=depth + 1,
                unspelt=unspelt,
                conjunction=conjunction,
            )
            builder.kept(span, _branches(source, token, branches), figure=token.figure)
    return parts + builder.finished()


def _branches(
    source: str, token: Token, read: Callable[..., list[Passage | str]]
) -> Iterator[Passage | str]:
    """The branches of an ICU message and the text between them. They are read lazily, because their
    masks are assigned after those of the message itself."""
    done = token.span[0]
    for (begin, end), tokens in token.branches:
        yield source[done:begin]
        yield from read(source, tokens)
        done = end
    if token.branches:
        yield source[done : token.span[1]]


@dataclass
class _Group:
    """Consecutive objects without words, with the white space between them."""

    opening: str
    end: int
    """End of the last object, in the source."""
    blanks: tuple[str, list[Span]]
    """White space before the group."""
    symbol: bool
    """Whether a symbol is among them, which divides words."""
    spaced: bool = False
    """Whether white space stands between them."""
    after: str = ""
    origins: list[Span] = field(default_factory=list)


class Builder:
    """Collects the parts of one passage, in order."""

    def __init__(
        self,
        source: str,
        masks: Masks,
        markup: Markup,
        *,
        in_message: bool = False,
        unspelt: Unspelt | None = None,
        conjunction: Conjunction | None = None,
    ) -> None:
        """`in_message`: within an ICU message, where `#` is a number. `unspelt` finds text that the
        vocabulary cannot spell; `conjunction` says how `&` between words is read."""
        self._source, self._masks, self._markup = source, masks, markup
        self._in_message, self._unspelt = in_message, unspelt
        self._conjunction = conjunction
        self._text: list[str] = []
        self._length = 0
        self._origins: list[Span] = []
        self._masked: list[Inline] = []
        self._top = Inline(0, 0, "")
        self._open = [self._top]
        self._outside: list[
            tuple[int, bool, int]
        ] = []  # state before each open element, see `_begin`
        self._span: Span | None = None
        self._after_mask = False
        self._group: _Group | None = None
        self._fresh = True  # no text yet in the passage or the innermost element
        self._outer: list[Markup] = []  # markup around each open element
        self._ended = -1  # end of the last element in the source
        self._beside = False  # an element begins right after another
        self._quotes: dict[str, str] = {}
        self._floor = 0  # white space before this position is outside the current tag

    def text(self, span: Span) -> None:
        """Append source text."""
        begin, end = self._seen(span)
        text, origins = (
            self._source[begin:end],
            list(zip(range(begin, end), range(begin + 1, end + 1), strict=True)),
        )
        if self._markup in ("html", "xml"):
            text, origins = unescaped(text, origins)
        self._read(text, origins)

    def space(self, span: Span) -> None:
        """Append source text that reads as a space, such as a line break with the next line's
        indentation."""
        self._append(" ", [self._seen(span)])

    def hidden(self, span: Span) -> None:
        """Append source text that is not read: the hyphen and the line break that divide a word."""
        self._drop(self._seen(span))

    def open(self, span: Span, markup: Markup | None = None) -> None:
        """Open an element; a reader does not see its tag. `markup` is set if its text is written in
        another format."""
        self._beside = self._ended == span[0]
        self._begin(self._seen(span))
        self._outer.append(self._markup)
        self._markup = markup or self._markup

    def close(self, span: Span) -> None:
        """Close the innermost open element."""
        self._end(self._seen(span))
        self._markup = self._outer.pop()

    def thing(self, span: Span, *, symbol: bool = False) -> None:
        """Append an object without words that stands between words."""
        begin, end = self._seen(span)
        written = self._source[begin:end]
        if symbol and self._markup == "html" and "<" in written and ">" not in written:
            written = written.replace("<", "&lt;")  # at another place it could begin a tag
        if self._group:
            between = self._source[self._group.end : begin]
            self._group.spaced |= between != "" and between.isspace()
            self._group.opening += between + written
            self._group.end, self._group.after, self._group.origins = end, "", []
            self._group.symbol |= symbol
        else:
            self._group = _Group(written, end, self._without_blanks(), symbol)

    def script(self, span: Span) -> None:
        """Append an object without words that belongs to the text before it."""
        begin, end = self._seen(span)
        self._flush("")
        self._open[-1].children.append(Inline(self._length, self._length, self._source[begin:end]))
        self._floor = self._length

    def kept(
        self, span: Span, parts: Iterable[Passage | str] = (), *, figure: bool = False
    ) -> None:
        """Append a kept object, which the model reads as a mask: a number for a figure and where
        a name would take the next word, otherwise a word."""
        begin, end = self._seen(span)
        if figure:
            mask = self._masks.figure(self._source[begin:end])
        else:
            mask = (
                self._masks.count() if reads_as_number(self._source, span) else self._masks.word()
            )
        self._mask(mask, (begin, end)).figure = figure
        self._masked[-1].parts = list(parts)

    def _mask(self, mask: str, span: Span) -> Inline:
        """Append an object that the model reads as `mask`."""
        self._flush("a")
        self._part(span[0])
        inline = Inline(
            self._length, self._length + len(mask), self._source[slice(*span)], masked=True
        )
        self._open[-1].children.append(inline)
        self._masked.append(inline)
        self._push(mask, [span] * len(mask))
        self._after_mask = True
        return inline

    def finished(self) -> list[Passage | str]:
        """The finished passage; its source text if there is nothing to translate; [] if it is
        empty."""
        self._flush("")
        text = "".join(self._text)
        if self._span is None:
            return []
        if not text or text.isspace():
            return [self._source[slice(*self._span)]]
        return [
            Passage(
                self._source,
                text,
                Origins(
                    array("I", [begin for begin, _ in self._origins]),
                    array("I", [end for _, end in self._origins]),
                ),
                self._top.children,
                self._masked,
                self._span,
                self._markup,
                self._quotes,
            )
        ]

    def _seen(self, span: Span) -> Span:
        self._span = (self._span[0], max(self._span[1], span[1])) if self._span else span
        return span

    def _begin(self, span: Span) -> None:
        self._flush("(")
        inline = Inline(self._length, self._length, self._source[slice(*span)])
        self._open[-1].children.append(inline)
        self._open.append(inline)
        self._outside.append((span[0], self._fresh, self._floor))
        self._fresh, self._floor = True, self._length

    def _end(self, span: Span) -> None:
        if self._open[-1].begin < self._length:
            self._flush(")")
        element = self._open.pop()
        begin, fresh, floor = self._outside.pop()
        if element.begin == self._length:  # an element without text becomes an object
            self._open[-1].children.pop()
            self._group, self._fresh, self._floor = None, fresh, floor
            self.thing((begin, span[1]), symbol=True)
            return
        self._ended = span[1]
        element.end, element.closing = self._length, self._source[slice(*span)]
        self._fresh, self._floor = False, self._length

    def _read(self, text: str, origins: list[Span]) -> None:
        if "\\" in text or "''" in text:
            text, origins, quotes = unquoted(text, origins, in_message="{" in self._source)
            self._quotes |= quotes
        unspelt = self._unspelt(text) if self._unspelt else ()
        plain = is_plain(text)
        if plain and not unspelt:
            self._append(text, origins)
            return
        found = [] if plain else list(placeholders(text, escapes=self._markup != "html"))
        if unspelt:
            found = with_unspelt(found, unspelt)
        if self._in_message and "#" in text:
            found = _with_numbers(text, found)
        paired = _paired_controls(text, found) if _BIDI.search(text) else frozenset()
        done = 0
        for placeholder in found:
            first, last = placeholder.span
            self._plain(text, origins, (done, first), paired)
            span = (origins[first][0], origins[last - 1][1])
            if placeholder.kind == "script":
                self.script(span)
            elif placeholder.kind == "symbol":
                self._symbol(span)
            elif placeholder.kind == "open":
                if self._ended == span[0]:
                    self._part(span[0])
                self._begin(span)
            elif placeholder.kind == "close":
                self._end(span)
            else:
                self.kept(span, figure=placeholder.kind == "figure")
            done = last
        self._plain(text, origins, (done, len(text)), paired)

    def _symbol(self, span: Span) -> None:
        """Append a symbol. `&` between words is read as a word if the words for it are known."""
        known, before = self._conjunction, "".join(self._text[-_LOOKED_AT:])
        if known and joins_words(before, self._source, span):
            self._mask(known.word, self._seen(span)).found_as = known.found_as
        else:
            self.thing(span, symbol=True)

    def _plain(self, text: str, origins: list[Span], span: Span, paired: frozenset[int]) -> None:
        """Append text without placeholders and remove invisible characters. `paired` are the
        positions of direction controls that form pairs."""
        done, end = span
        for match in _UNSEEN.finditer(text, done, end):
            at = match.start()
            self._append(text[done:at], origins[done:at])
            done = match.end()
            if at not in paired:
                self._drop(origins[at])
            elif text[at] in OPENING_BIDI:
                self._end(origins[at])
            else:
                self._begin(origins[at])
        self._append(text[done:end], origins[done:end])

    def _drop(self, origin: Span) -> None:
        """Remove a character from the text. It is written again with the character before it, or as
        an object at the beginning and right after a tag."""
        last = self._origins[-1] if self._origins else (-1, -1)
        if self._group is None and last[1] == origin[0]:
            for index in range(self._length - 1, -1, -1):  # all characters of one object
                if self._origins[index] != last:
                    break
                self._origins[index] = (last[0], max(origin[1], last[1]))
        elif self._group:
            self.thing(origin)
        else:
            self.script(origin)

    def _append(self, text: str, origins: list[Span]) -> None:
        if not text:
            return
        if self._group:
            blanks = _LEADING_BLANKS.match(text)
            count = blanks.end() if blanks else 0
            self._group.after += text[:count]
            self._group.origins += origins[:count]
            text, origins = text[count:], origins[count:]
            if not text:
                return
            self._flush(text[0])
        apart = (
            self._beside and text[0].isupper() and bool(self._text) and self._text[-1][-1].islower()
        )
        self._beside = False
        if apart or (self._after_mask and text[0].isalnum()):
            self._part(origins[0][0])
        self._push(text, origins)
        self._after_mask = False

    def _flush(self, following: str) -> None:
        """Put the current group of objects into the text. The text keeps as much of the white space
        around it as it would have without the group. `following` is the next character."""
        group, self._group = self._group, None
        if group is None:
            return
        before, after = group.blanks[0], group.after
        last = self._text[-1][-1] if self._text else ""
        starts = self._fresh or last in _ENDS_OF_LINES
        word = bool(following) and following not in CLOSING_SIGNS
        joined = False
        drop_before = drop_after = False
        if before:
            drop_before = not word if not after else not word and following != "("
            drop_after = bool(after) and not drop_before
        elif after:
            drop_after = starts
        else:
            joined = group.symbol and last.isalnum() and following.isalnum()
            joined |= group.spaced and not starts and (word or following == "(")
        if not drop_before and before:
            self._push(*group.blanks)
        inline = Inline(
            self._length,
            self._length,
            group.opening,
            before=before if drop_before else "",
            after=after if drop_after else "",
            joined=joined,
        )
        self._open[-1].children.append(inline)
        self._floor = self._length
        if not drop_after and after:
            self._push(after, group.origins)
        if joined:
            self._push(" ", [(group.end, group.end)])

    def _without_blanks(self) -> tuple[str, list[Span]]:
        """Remove white space from the end of the text and return it."""
        blanks = ""
        while self._text and self._length > self._floor:
            kept = self._text[-1].rstrip(_BLANK_SIGNS)
            kept_length = max(len(kept), len(self._text[-1]) - (self._length - self._floor))
            cut = self._text[-1][kept_length:]
            if not cut:
                break
            blanks = cut + blanks
            self._length -= len(cut)
            if kept_length:
                self._text[-1] = self._text[-1][:kept_length]
                break
            self._text.pop()
        origins = self._origins[self._length :]
        del self._origins[self._length :]
        return blanks, origins

    def _part(self, place: int) -> None:
        """Insert a space, which is not written, between a mask and a word that touches it."""
        if self._text and self._text[-1][-1].isalnum():
            self._push(" ", [(place, place)])

    def _push(self, text: str, origins: Sequence[Span]) -> None:
        self._text.append(text)
        self._origins.extend(origins)
        self._length += len(text)
        self._fresh = self._fresh and text.isspace()


_BLANK_SIGNS = "".join(filter(re.compile(f"[{BLANKS}]").match, map(chr, range(0x3001))))


def _with_numbers(text: str, found: Sequence[Placeholder]) -> list[Placeholder]:
    """Placeholders within an ICU branch, where every `#` is one."""
    others = [p for p in found if p.kind in _PAIR or "#" not in text[slice(*p.span)]]
    around = {at for p in others if p.kind in _PAIR for at in range(*p.span)}
    numbers = [m.span() for m in re.finditer("#", text) if m.start() not in around]
    return sorted(
        [*others, *(Placeholder(span, "symbol") for span in numbers)], key=lambda p: p.span
    )


def _paired_controls(text: str, kept: Sequence[Placeholder]) -> frozenset[int]:
    """Positions of direction controls that form pairs; no kept object crosses a pair."""
    inside = {at for placeholder in kept for at in range(*placeholder.span)}
    places, stretches = _stretches(kept)
    pairs: set[int] = set()
    stack: list[int] = []
    for match in _BIDI.finditer(text):
        at, openings = match.start(), OPENING_BIDI.get(match[0])
        if at in inside:
            continue
        if openings is None:
            stack.append(at)
        elif stack and text[stack[-1]] in openings:
            opened = stack.pop()
            one = stretches[bisect(places, opened)] == stretches[bisect(places, at)]
            if len(stack) < _MOST_CONTROLS and one:
                pairs |= {opened, at}
    return frozenset(pairs)


def _stretches(found: Sequence[Placeholder]) -> tuple[list[int], list[int]]:
    """Positions of placeholders around words, in order; and, for the text before, between and after
    them, the number of the innermost one that contains it, or -1."""
    places: list[int] = []
    stretches, opened = [-1], [-1]
    for number, placeholder in enumerate(found):
        if placeholder.kind in _PAIR:
            if placeholder.kind == "open":
                opened.append(number)
            else:
                opened.pop()
            places.append(placeholder.span[0])
            stretches.append(opened[-1])
    return places, stretches
