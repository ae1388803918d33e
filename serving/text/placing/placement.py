"""Where the markup of a passage goes in its translation.

An element takes the stretch of words that holds most words translating its own, and fewest others.
Elements lie within those that they lay within, and beside each other as before, whatever the links
are.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from serving.text.alignment import Link, Span, word_spans
from serving.text.kept.masks import mask_pattern
from serving.text.passages.passage import CDATA, Inline, Passage, escaped
from serving.text.placing.links import completed_words, linked_words, overlapping, with_signs
from serving.text.symbols import CLOSING_SIGNS


@dataclass(frozen=True, slots=True)
class Translated:
    """A sentence's translation; links are in characters of the sentence and of its translation."""

    text: str
    links: Sequence[Link] = ()


@dataclass(frozen=True)
class Piece:
    """A sentence and its translation, or what stands between two, which stays."""

    source: Span
    target: Span
    translated: Translated | None


@dataclass
class Placed:
    """A translation, and what is done to it."""

    target: str
    pieces: list[Piece]
    marks: list[tuple[int, str]] = field(default_factory=list)
    """Put in before a character; in order."""
    replaced: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By where a part begins: where it ends, and what stands in its place."""
    restored: bool = False
    """Whether a word that stands for a thing was lost or doubled."""
    filled: bool = False
    """Whether an element has the words of the source, for want of others."""


def place(
    passage: Passage, translations: Sequence[Translated], openings: Mapping[int, str] | None = None
) -> Placed:
    """Put the translations of the sentences together, and the markup into them; `openings` are of
    kept things, by where they begin, that are not written as they were."""
    return _Placement(passage, translations, openings or {}).placed


@dataclass(frozen=True)
class _Place:
    """An inline and where it goes: target characters, and target words that are inside."""

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
        self._xml = passage.markup == "xml"
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
        """The source word of each target word."""
        self._found: dict[int, Span] = {}
        """By where a masked thing stands: the part of the target that it replaces."""
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
        """Note the words of a sentence and its translation, and where the masks are."""
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
        """Where the mask of each thing stands in the target; masks that are too many are taken
        out."""
        begin, end = piece.target
        occurrences: dict[str, list[Span]] = {}
        for mask in {self._text[i.begin : i.end] for i in inside}:
            found = re.finditer(mask_pattern(mask), self.placed.target[begin:end], re.IGNORECASE)
            occurrences[mask] = [(begin + match.start(), begin + match.end()) for match in found]
        taken = {
            index for spans in occurrences.values() for span in spans for index in range(*span)
        }
        for inline in inside:
            exact = occurrences[self._text[inline.begin : inline.end]]
            if exact:
                yield exact.pop(0)
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

    def _arranged(self, inlines: Sequence[Inline], words: range) -> list[_Place]:
        """Places beside each other, in order, within some words of the target."""
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
        """The words with the greatest sum, where one of its own counts 1 and another -1."""
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
        """A place with what of the element is before and behind the sentences of its words."""
        if inline.begin < self._piece(self._source_words[own[0]][0]).source[0]:
            begin = self._position(inline.begin)  # it begins between sentences
        if inline.end > self._piece(self._source_words[own[-1]][0]).source[1]:
            end = self._position(inline.end)
        return _Place(inline, begin, end, words)

    def _left_over(self, inline: Inline, own: range, words: range, claimed: bytearray) -> _Place:
        """Of an element whose words have no translation of their own: the word at its place, for
        nobody could follow a link around nothing; none where another element has it."""
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
        """The piece that holds a character of the source."""
        return self.placed.pieces[bisect_right(self._starts, index) - 1]

    def _position(self, index: int) -> int:
        """Where in the target what stood before a character of the source belongs."""
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
        """Put places between two characters of the target; returns where the last one ends."""
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
        """Put a thing that a word stands for between two characters of the target."""
        inline, target = place.inline, self.placed.target
        opening = self._openings.get(inline.begin, inline.opening)
        if self._piece(inline.begin).translated is None:  # it stands where it was
            if inline.begin in self._openings:
                self.placed.replaced[begin] = (begin + inline.end - inline.begin, opening)
        elif self._found.get(inline.begin, (-1, 0))[0] == begin and place.end <= end:
            last = place.end + (inline.figure and _again(opening, target, place.end))
            self.placed.replaced[begin] = (last, opening)
            begin = last
        else:
            if inline.begin in self._found:
                self.placed.replaced[place.begin] = (place.end, "")
            self.placed.marks.append((begin, self._spaced(opening, begin)))
        return begin

    def _has_words(self, inline: Inline, begin: int, end: int) -> bool:
        """Whether an element has as much as it had: something, if that is what it had."""
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
        """A thing without words, with white space around it as it had it."""
        piece, markup = self._piece(min(inline.begin, len(self._text) - 1)), inline.opening
        if piece.translated is None:
            return inline.before + markup + inline.after
        target = self.placed.target
        before, after = target[max(0, index - 1) : index], target[index : index + 1]
        if inline.joined:
            if after == " ":
                self.placed.replaced.setdefault(index, (index + 1, ""))
            return markup
        spaced = inline.before or self._text[max(0, inline.begin - 1) : inline.begin].isspace()
        first = (inline.before or " ") if spaced and before.strip() else ""
        word = bool(after.strip()) and after not in CLOSING_SIGNS
        last = (inline.after or " ") if word and (inline.before or inline.after) else ""
        return first + markup + last

    def _spaced(self, markup: str, index: int) -> str:
        """What is put in, apart from words before and after it."""
        target = self.placed.target
        before = " " if target[max(0, index - 1) : index].isalnum() else ""
        after = " " if target[index : index + 1].isalnum() else ""
        return before + markup + after


def pieces(passage: Passage, translations: Sequence[Translated]) -> Iterator[Piece]:
    """The sentences and what stands between them, with where they are in the target."""
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
    """How many characters from there on say the unit of a figure once more: ` Uhr` behind
    `7:15 Uhr`."""
    unit = re.search(r"\d([^\d\w]*[^\W\d]+)\Z", figure)
    if unit is None:
        return 0
    more = re.compile(rf"{re.escape(unit[1])}(?!\w)").match(target, place)
    return len(more[0]) if more else 0
