"""Places the markup of a passage in its translation, and writes the two as text.

An element takes the stretch of target words that contains most translations of its own words and
fewest other words. Nesting and order of elements stay the same, whatever the word links are.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from serving.text.alignment import Link, Span, word_spans
from serving.text.kept.masks import compound_pattern, mask_pattern, word_pattern
from serving.text.passages.passage import CDATA, Inline, Passage, escaped
from serving.text.placing.links import completed_words, linked_words, overlapping, with_signs
from serving.text.symbols import CLOSING_SIGNS

_END_OF_CDATA = "]]>"
_TAG_NAME = re.compile(r"[A-Za-z/!?]")
"""What makes a tag of a `<` before it, in HTML."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A sentence's translation; its links are in characters of the sentence and of the
    translation."""

    text: str
    links: Sequence[Link] = ()


@dataclass(frozen=True)
class Piece:
    """A sentence and its translation, or unchanged text between two sentences."""

    source: Span
    target: Span
    translated: Translated | None


@dataclass
class Placed:
    """A translation, and the changes that put the markup into it."""

    target: str
    pieces: list[Piece]
    marks: list[tuple[int, str]] = field(default_factory=list)
    """Text to insert before a character; in order."""
    replaced: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Replaced spans, by begin: the end and the new text."""
    restored: bool = False
    """Whether a mask was lost or occurred twice, so that its object was put back at a likely
    place."""
    filled: bool = False
    """Whether an element got the words of the source, because no target words were left for it."""


def place(
    passage: Passage, translations: Sequence[Translated], openings: Mapping[int, str] | None = None
) -> Placed:
    """Join the translations of the sentences and place the markup. `openings` are the changed forms
    of kept objects, by their begin in the passage."""
    return _Placement(passage, translations, openings or {}).placed


@dataclass(frozen=True)
class _Place:
    """An inline with its place: target characters, and the target words within it."""

    inline: Inline
    begin: int
    end: int
    words: range


class _Placement:
    def __init__(
        self,
        passage: Passage,
        translations: Sequence[Translated],
        openings: Mapping[int, str],
    ) -> None:
        self._text, self._openings = passage.text, openings
        self._html, self._xml = passage.markup == "html", passage.markup == "xml"
        found = list(pieces(passage, translations))
        target = "".join(
            passage.text[slice(*piece.source)]
            if piece.translated is None
            else piece.translated.text
            for piece in found
        )
        self.placed = Placed(target, found)
        self._starts = [piece.source[0] for piece in found]
        self._source_words: list[Span] = []
        self._target_words: list[Span] = []
        self._sources: list[int] = []
        """Index of the source word of each target word."""
        self._found: dict[int, Span] = {}
        """Span of each mask in the target, by the begin of its object in the passage."""
        self._joined: dict[int, str] = {}
        """What follows an object to which a word is joined, by the begin of its mask."""
        if passage.inlines:
            for piece in found:
                if piece.translated is not None:
                    self._read(piece, piece.translated, passage.masked)
            self._targets: dict[int, list[int]] = {}
            for number, source in enumerate(self._sources):
                self._targets.setdefault(source, []).append(number)
            everything = range(len(self._target_words))
            self._put(self._arranged(passage.inlines, everything), 0, len(target))

    def _read(self, piece: Piece, translated: Translated, masked: Sequence[Inline]) -> None:
        """Record the words and links of a sentence and its translation, and find its masks."""
        source_words = _moved(word_spans(self._text[slice(*piece.source)]), piece.source[0])
        target_words = _moved(word_spans(translated.text), piece.target[0])
        linked = linked_words(
            translated.links,
            _moved(source_words, -piece.source[0]),
            _moved(target_words, -piece.target[0]),
        )
        if linked:
            sources = [self._text[slice(*word)] for word in source_words]
            targets = [self.placed.target[slice(*word)] for word in target_words]
            linked = with_signs(linked, sources, targets)
        inside = [i for i in masked if piece.source[0] <= i.begin < piece.source[1]]
        for inline, found in zip(
            inside, self._masks(piece, inside, source_words, target_words, linked), strict=True
        ):
            if found is not None:
                self._found[inline.begin] = found
                source = overlapping(source_words, (inline.begin, inline.end))
                linked.update(dict.fromkeys(overlapping(target_words, found), source[0]))
        completed = completed_words(linked, len(source_words), len(target_words))
        self._sources += [len(self._source_words) + source for source in completed]
        self._source_words += source_words
        self._target_words += target_words

    def _masks(
        self,
        piece: Piece,
        inside: Sequence[Inline],
        source_words: Sequence[Span],
        target_words: Sequence[Span],
        linked: dict[int, int],
    ) -> Iterator[Span | None]:
        """Yield the target span of each object's mask, or None. Superfluous masks are removed."""
        begin, end = piece.target
        occurrences: dict[str, list[Span]] = {}
        for mask in {self._text[i.begin : i.end] for i in inside if not i.found_as}:
            for pattern in filter(None, (mask_pattern(mask), word_pattern(mask))):
                found = re.finditer(pattern, self.placed.target[begin:end], re.IGNORECASE)
                occurrences[mask] = _moved([match.span() for match in found], begin)
                if occurrences[mask]:
                    break
        taken = {
            index for spans in occurrences.values() for span in spans for index in range(*span)
        }
        for inline in inside:
            if inline.found_as:
                yield self._conjunction(inline, source_words, target_words, linked)
                continue
            exact = occurrences[self._text[inline.begin : inline.end]]
            if exact:
                yield exact.pop(0)
                continue
            compound = self._compound(inline, piece.target)
            if compound is not None and taken.isdisjoint(range(*compound)):
                taken.update(range(*compound))
                yield compound
                continue
            self.placed.restored = True
            source = overlapping(source_words, (inline.begin, inline.end))[0]
            words = (target_words[number] for number, word in linked.items() if word == source)
            target = self.placed.target
            free = [w for w in words if target[w[0]].isalnum() and taken.isdisjoint(range(*w))]
            taken.update(range(*free[0]) if free else ())
            yield free[0] if free else None
        for rest in occurrences.values():
            for first, last in rest:
                self.placed.restored = True
                first -= self.placed.target[begin:first].endswith(" ")
                self.placed.replaced[first] = (last, "")

    def _compound(self, inline: Inline, target: Span) -> Span | None:
        """The target span of an object's mask before a word that is joined to it; that word gets a
        hyphen before it."""
        mask = self._text[inline.begin : inline.end]
        pattern = re.compile(compound_pattern(mask), re.IGNORECASE)
        found = pattern.search(self.placed.target, *target) if mask.isalpha() else None
        if found is None:
            return None
        self._joined[found.start()] = f"-{found['joined'].upper()}"
        return found.span()

    def _conjunction(
        self,
        inline: Inline,
        source_words: Sequence[Span],
        target_words: Sequence[Span],
        linked: Mapping[int, int],
    ) -> Span | None:
        """The target span of the word that stands for `&`: the one that is linked to it, or the one
        with the same number if there are as many; None if the translation has none."""
        own = overlapping(source_words, (inline.begin, inline.end))[0]
        mask = self._text[inline.begin : inline.end]
        asked = [n for n, word in enumerate(source_words) if self._text[slice(*word)] == mask]
        found = [
            n
            for n, word in enumerate(target_words)
            if self.placed.target[slice(*word)].lower() in inline.found_as
        ]
        number = next((n for n in found if linked.get(n) == own), None)
        if number is None and len(found) == len(asked):
            number = found[asked.index(own)]
        return None if number is None else target_words[number]

    def _arranged(self, inlines: Sequence[Inline], words: range) -> list[_Place]:
        """The places of sibling elements, in order, within a range of target words."""
        if not inlines:
            return []
        claimed = bytearray(len(self._target_words))
        places: list[_Place] = []
        late: list[tuple[Inline, range]] = []
        owned = [
            (inline, overlapping(self._source_words, (inline.begin, inline.end)))
            for inline in inlines
        ]
        for inline, own in sorted(owned, key=lambda pair: len(pair[1])):
            if inline.masked or inline.begin == inline.end or not own:
                places.append(self._point(inline, words))
                continue
            stretch = self._stretch(own, words, claimed)
            if stretch:
                places.append(self._element(inline, own, stretch, claimed))
            else:
                late.append((inline, own))
        places += [self._left_over(inline, own, words, claimed) for inline, own in late]
        return sorted(places, key=lambda place: (place.begin, place.end, place.inline.begin))

    def _stretch(self, own: range, words: range, claimed: bytearray) -> range | None:
        """The range with the highest score: +1 for each word that translates an own word, -1 for
        others."""
        translating = [n for word in own for n in self._targets.get(word, ()) if n in words]
        if not translating:
            return None
        best, total, start = 0, 0, words.start
        found = None
        for number in range(min(translating), max(translating) + 1):
            if total <= 0:
                total, start = 0, number
            if claimed[number]:
                total = 0
                continue
            total += 1 if self._sources[number] in own else -1
            if total > best:
                best, found = total, range(start, number + 1)
        return found

    def _element(self, inline: Inline, own: range, stretch: range, claimed: bytearray) -> _Place:
        for number in stretch:
            claimed[number] = 1
        begin, end = self._target_words[stretch[0]][0], self._target_words[stretch[-1]][1]
        return self._bounded(inline, own, begin, end, stretch)

    def _bounded(self, inline: Inline, own: range, begin: int, end: int, words: range) -> _Place:
        """The place of an element, extended to its text before and after the sentences of its
        words."""
        if inline.begin < self._piece(self._source_words[own[0]][0]).source[0]:
            begin = self._position(inline.begin)  # the element begins between sentences
        if inline.end > self._piece(self._source_words[own[-1]][0]).source[1]:
            end = self._position(inline.end)
        return _Place(inline, begin, end, words)

    def _left_over(self, inline: Inline, own: range, words: range, claimed: bytearray) -> _Place:
        """The place of an element whose words have no translation: the word at its position, since
        an empty link could not be clicked; an empty place if that word belongs to another
        element."""
        position = self._position(inline.begin)
        number = bisect_left(self._target_words, position, key=lambda word: word[0])
        if number in words and not claimed[number]:
            claimed[number] = 1
            found = range(number, number + 1)
            return self._bounded(inline, own, *self._target_words[number], found)
        end = max(position, self._piece(self._source_words[own[0]][0]).target[0])
        if inline.begin >= self._piece(self._source_words[own[0]][0]).source[0]:
            end = position
        return self._bounded(inline, own, position, end, range(0))

    def _point(self, inline: Inline, words: range) -> _Place:
        if inline.masked and inline.begin in self._found:
            begin, end = self._found[inline.begin]
            return _Place(inline, begin, end, range(0))
        begin = self._position(inline.begin)
        end = self._position(inline.end)
        return _Place(inline, begin, max(begin, end), range(0))

    def _piece(self, index: int) -> Piece:
        """The piece that contains a character of the source."""
        return self.placed.pieces[bisect_right(self._starts, index) - 1]

    def _position(self, index: int) -> int:
        """The target position that corresponds to a position in the source."""
        piece = self._piece(min(index, len(self._text) - 1))
        begin, end = piece.source
        if piece.translated is None:
            return piece.target[0] + index - begin
        if index == begin:
            return piece.target[0]
        if index == end:
            return piece.target[1]
        number = bisect_left(self._source_words, index, key=lambda word: word[0])
        words = overlapping(self._source_words, piece.source)
        before = next(
            (t for n in range(number - 1, words.start - 1, -1) if (t := self._targets.get(n))), None
        )
        after = self._targets.get(number)
        if self._text[index - 1].isspace() and after:
            return self._target_words[after[0]][0]
        if before:
            return self._target_words[before[-1]][1]
        if after:
            return self._target_words[after[0]][0]
        words = overlapping(self._target_words, piece.target)
        share = words.start + len(words) * (index - begin) // (end - begin)
        return self._target_words[share][0] if words else piece.target[1]

    def _put(
        self, places: Sequence[_Place], begin: int, end: int, *, in_cdata: bool = False
    ) -> int:
        """Put elements between two target positions; returns the end of the last one."""
        marks = self.placed.marks
        for place in places:
            inline, begin = place.inline, min(max(place.begin, begin), end)
            if inline.masked:
                begin = self._put_kept(place, begin, end)
            elif inline.empty:
                marks.append((begin, self._apart(inline, begin)))
            else:
                within_cdata = inline.opening == CDATA or in_cdata
                marks.append((begin, inline.opening))
                first, inner = begin, min(max(place.end, begin), end)
                children = self._arranged(inline.children, place.words)
                begin = self._put(children, begin, inner, in_cdata=within_cdata)
                begin = max(begin, inner)
                if self._xml and not self._has_words(inline, first, begin):
                    self.placed.filled = True
                    words = self._text[inline.begin : inline.end].strip()
                    if not within_cdata:
                        words = escaped(words, "xml")
                    marks.append((begin, self._spaced(words, begin)))
                marks.append((begin, inline.closing))
        return begin

    def _put_kept(self, place: _Place, begin: int, end: int) -> int:
        """Put a masked object between two target positions."""
        inline, target = place.inline, self.placed.target
        opening = self._openings.get(inline.begin, inline.opening)
        if self._piece(inline.begin).translated is None:  # it is between sentences and stays
            if inline.begin in self._openings:
                self.placed.replaced[begin] = (begin + inline.end - inline.begin, opening)
        elif self._found.get(inline.begin, (-1, 0))[0] == begin and place.end <= end:
            last = place.end + (inline.figure and _again(opening, target, place.end))
            self.placed.replaced[begin] = (last, opening + self._joined.get(begin, ""))
            begin = last
        else:
            if inline.begin in self._found:
                joined = self._joined.get(place.begin, "").removeprefix("-")
                self.placed.replaced[place.begin] = (place.end, joined)
            self.placed.marks.append((begin, self._spaced(opening, begin)))
        return begin

    def _has_words(self, inline: Inline, begin: int, end: int) -> bool:
        """False if an element that had words has none in the target."""
        if any(child.masked or self._has_text(child) for child in inline.children):
            return True
        if not self._has_text(inline):
            return True
        hidden = [(start, last) for start, (last, _) in self.placed.replaced.items()]
        away = {n for span in (*hidden, *self._found.values()) for n in range(*span)}
        target = self.placed.target
        return any(n not in away and not target[n].isspace() for n in range(begin, end))

    def _has_text(self, inline: Inline) -> bool:
        return bool(self._text[inline.begin : inline.end].strip())

    def _apart(self, inline: Inline, index: int) -> str:
        """The text of an object without words, with its original white space around it."""
        piece, markup = self._piece(min(inline.begin, len(self._text) - 1)), inline.opening
        if piece.translated is None:
            return inline.before + markup + inline.after
        target = self.placed.target
        before, after = target[max(0, index - 1) : index], target[index : index + 1]
        closes_up = inline.joined and after == " "
        if self._html and markup.endswith("<") and _TAG_NAME.match(target, index + closes_up):
            markup = markup[:-1] + escaped("<", "html")  # or it would begin a tag
        if closes_up:
            self.placed.replaced.setdefault(index, (index + 1, ""))
        if inline.joined:
            return markup
        spaced = inline.before or self._text[max(0, inline.begin - 1) : inline.begin].isspace()
        first = (inline.before or " ") if spaced and before.strip() else ""
        word = bool(after.strip()) and after not in CLOSING_SIGNS
        last = (inline.after or " ") if word and (inline.before or inline.after) else ""
        return first + markup + last

    def _spaced(self, markup: str, index: int) -> str:
        """Inserted text, separated by spaces from words that touch it."""
        target = self.placed.target
        before = " " if target[max(0, index - 1) : index].isalnum() else ""
        after = " " if target[index : index + 1].isalnum() else ""
        return before + markup + after


def pieces(passage: Passage, translations: Sequence[Translated]) -> Iterator[Piece]:
    """The sentences and the text between them, with their spans in the target."""
    done = at = 0
    for sentence, translated in zip(passage.sentences, translations, strict=True):
        if done < sentence[0]:
            yield Piece((done, sentence[0]), (at, at + sentence[0] - done), None)
            at += sentence[0] - done
        yield Piece(sentence, (at, at + len(translated.text)), translated)
        done, at = sentence[1], at + len(translated.text)
    if done < len(passage.text):
        yield Piece((done, len(passage.text)), (at, at + len(passage.text) - done), None)


def _moved(spans: Sequence[Span], by: int) -> list[Span]:
    return [(begin + by, end + by) for begin, end in spans]


def _again(figure: str, target: str, place: int) -> int:
    """Number of characters at `place` that repeat the unit of a figure: ` Uhr` after `7:15 Uhr`."""
    unit = re.search(r"\d([^\d\w]*[^\W\d]+)\Z", figure)
    if unit is None:
        return 0
    more = re.compile(rf"{re.escape(unit[1])}(?!\w)").match(target, place)
    return len(more[0]) if more else 0


@dataclass
class Rendered:
    """A written translation."""

    parts: list[str]
    starts: list[int]
    ends: list[int]
    """Begin and end of each target character in the output."""
    length: int = 0
    text: str = ""
    """The whole output, once it is complete."""

    def ends_with(self, text: str) -> bool:
        """Whether the output ends with this text."""
        return "".join(self.parts[-len(text) :]).endswith(text)

    def write(self, text: str) -> None:
        """Append text to the output."""
        self.parts.append(text)
        self.length += len(text)


def as_it_was(passage: Passage) -> Rendered:
    """The passage as in the source, if its translation is the same."""
    begin, end = passage.span
    starts, ends = zip(*passage.origins, strict=True)
    return Rendered(
        [passage.source[begin:end]],
        [start - begin for start in starts],
        [last - begin for last in ends],
        end - begin,
        passage.source[begin:end],
    )


def render(passage: Passage, placed: Placed) -> Rendered:
    """Write a translation with its markup."""
    length = len(placed.target)
    rendered = Rendered([], [0] * length, [0] * length)
    marks = deque(placed.marks)
    skipped = 0  # end of the last replaced span
    markup = passage.markup
    for piece in placed.pieces:
        begin, end = piece.target
        stays = piece.translated is None or (
            not passage.inlines and piece.translated.text == passage.text[slice(*piece.source)]
        )
        for index in range(begin, end):
            while marks and marks[0][0] <= index:
                mark = marks.popleft()[1]
                rendered.write(mark)
                if mark == CDATA:
                    markup = "cdata"
                elif mark == _END_OF_CDATA:
                    markup = passage.markup
            if index < skipped:
                rendered.starts[index] = rendered.starts[index - 1]
                rendered.ends[index] = rendered.ends[index - 1]
                continue
            rendered.starts[index] = rendered.length
            if index in placed.replaced:
                skipped, text = placed.replaced[index]
            elif stays:
                text = passage.written(piece.source[0] + index - begin)
            else:
                text = placed.target[index]
                if markup != "text" or passage.quotes:
                    text = escaped(text, markup, passage.quotes)
            if markup == "cdata" and text == ">" and rendered.ends_with("]]"):
                text = f"{_END_OF_CDATA}{CDATA}>"
            rendered.write(text)
            rendered.ends[index] = rendered.length
    for _, mark in marks:
        rendered.write(mark)
    rendered.text = "".join(rendered.parts)
    return rendered


def links_of(passage: Passage, placed: Placed, rendered: Rendered, offset: int) -> Iterator[Link]:
    """The word links of a passage; `offset` characters of the output precede it."""
    for piece in placed.pieces:
        for link in piece.translated.links if piece.translated else ():
            begin, end = (piece.target[0] + place for place in link.target)
            source = (piece.source[0] + link.source[0], piece.source[0] + link.source[1])
            target = (offset + rendered.starts[begin], offset + rendered.ends[end - 1])
            yield replace(link, source=passage.origin(source), target=target)
