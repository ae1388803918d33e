"""A text as sentences for a model, and their translations as a text again.

document = Document(text, "markdown")
document.divide("de", fits)
rendered = document.render([translate(sentence) for sentence in document.sentences])
"""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from html import unescape
from typing import Literal, NamedTuple

from serving.errors import InvalidOptionError
from serving.text.alignment import Link, Span
from serving.text.edits import Edit, edited, edited_links, moved_span, undone
from serving.text.formats.markup import html_tokens
from serving.text.formats.xml import xml_tokens
from serving.text.kept.conjunctions import SIGN, conjunction
from serving.text.kept.figures import in_convention
from serving.text.kept.masks import mask_pattern
from serving.text.kept.placeholders import LONGEST_WORD, is_plain
from serving.text.kept.spelling import Spells, unspelt
from serving.text.languages import base_language
from serving.text.passages.building import read_parts
from serving.text.passages.passage import Inline, Markup, Origins, Passage, escaped
from serving.text.passages.tokens import (
    Token,
    joined_tokens,
    plain_tokens,
    with_breaks,
    with_neighbours_apart,
)
from serving.text.placing.capitals import goes_on_small
from serving.text.placing.casing import CasedSentence, Scores, cased_sentence
from serving.text.placing.lines import has_lines, in_lines
from serving.text.placing.marks import are_alike, certain, mark_edits
from serving.text.placing.placement import (
    Placed,
    Rendered,
    Translated,
    as_it_was,
    links_of,
    pieces,
    place,
    render,
)
from serving.text.placing.quotations import has_quotation, lost_quotation_edits
from serving.text.placing.reading import reading_edits, spelt_as_read
from serving.text.splitting.sentences import (
    divided,
    has_words,
    in_clauses,
    sentence_spans,
    stripped,
)
from serving.text.splitting.steps import endings
from serving.text.splitting.wrapping import SoftBreak, soft_breaks

Format = Literal["text", "html", "markdown", "xml"]


class Kept(NamedTuple):
    """A kept object of a sentence."""

    given: Span
    """Where it stands in the sentence as it was given."""
    mask: Span
    """Where its mask stands in the sentence."""
    written: str
    """What a translation has in its place: its mask, or `and` for `&`."""


class Document:
    """A parsed text."""

    def __init__(self, source: str, format: Format, ignored: Collection[str] = ()) -> None:
        """The contents of `ignored` elements of HTML or XML, named in small letters, stay
        unchanged. Raises InvalidTextError for XML that is not well-formed, and InvalidOptionError
        for an unknown format."""
        if format not in _MARKUPS:
            raise InvalidOptionError(
                f"format must be one of {', '.join(_MARKUPS)}, got {format!r}", parameter="format"
            )
        self._escaped: Markup = _MARKUPS[format]
        self._source = source
        self._breaks = soft_breaks(source) if format == "text" and "\n" in source else []
        """The line breaks at which paragraphs were wrapped."""
        self._tokens = functools.cache(
            functools.partial(_tokens, source, format, ignored, self._breaks)
        )
        self._quotes = _QUOTE.search(source) is not None
        """Whether there may be quotation marks."""
        self._parts: list[Passage | str]
        if format == "text" and _PLAIN.fullmatch(source) and is_plain(source):
            # As `read_parts` reads it: each character stands for itself.
            end = len(source)
            origins = Origins(array("I", range(end)), array("I", range(1, end + 1)))
            self._parts = [Passage(source, source, origins, [], [], (0, end))]
        else:
            self._parts = read_parts(source, self._tokens(), self._escaped)
        self._languages = ("", "")
        self.sentences: list[str] = []
        """The sentences to translate; text without letters stays unchanged."""
        self._cased: dict[int, CasedSentence] = {}
        """How sentences with unusual capitals are read, and their translations written."""
        self._places: list[tuple[Passage, Span]] = []
        """The position of each sentence."""
        self._readings: dict[int, list[Edit]] = {}
        """The edits with which sentences are read."""
        self._continuing: set[int] = set()
        """The sentences that are a clause in which another one goes on."""
        self._taken: set[int] = set()
        """The sentences that have an existing translation."""
        self.warnings: list[str] = []
        """Warnings. `long_word`: a word longer than the model reads was kept. After rendering also
        `placeholder`: the model lost or doubled one, which was put at its likeliest place; and
        `untranslated`: an XML element got the words of the source, because the translation has too
        few."""

    def divide(
        self,
        language: str,
        fits: Callable[[str], bool],
        *,
        split: bool = True,
        target: str = "",
        spells: Spells | None = None,
        usual: Callable[[str], bool] | None = None,
        score: Scores | None = None,
        greeting: Callable[[str], int] | None = None,
    ) -> None:
        """Split the text into sentences. `fits` says whether the model can read a text in one go;
        `spells` whether its vocabulary can write it without single bytes: other words are kept;
        `usual` whether it translates so long a text whole: others are split into clauses; `score`
        how likely a word is in its vocabulary, which tells words in capitals from acronyms;
        `greeting` where a sentence's greeting ends, which is translated apart.
        If `split` is false, a text, or a block of markup, is one sentence of any length. Figures
        are written in the format of the `target` language.
        """
        self._languages = (language, target)
        self._set_apart(spells)
        for passage in self._passages:
            text = passage.text
            kept = [(thing.begin, thing.end) for thing in passage.masked]
            words = _without(text, kept)
            for thing in passage.masked:
                if _is_long_word(thing.opening) and not fits(thing.opening):
                    self._warn("long_word")
            inner: set[int] = set()
            if split:
                symbols = passage.symbols() if passage.inlines else ()
                ends = list(endings(text, symbols, language)) if symbols else []
                parts = [
                    [*in_clauses(text, part, usual, greeting)]
                    for sentence in sentence_spans(text, language, kept, ends)
                    for part in divided(text, sentence, fits)
                ]
                inner = {begin for clauses in parts for begin, _ in clauses[1:]}
                spans = [clause for clauses in parts for clause in clauses]
            else:
                whole = stripped(text, (0, len(text)))
                spans = list(divided(text, whole, fits, between_words=False))
            for begin, end in spans:
                if not has_words(words[begin:end]):
                    continue
                sentence = text[begin:end]
                if " " not in sentence and not fits(sentence) and (split or len(spans) > 1):
                    self._warn("long_word")
                    continue
                if words[begin:end].isupper() or _CASED.search(sentence):
                    inside = [(b - begin, e - begin) for b, e in kept if begin <= b < end]
                    read = cased_sentence(sentence, words[begin:end], language, inside, score)
                    self._cased[len(self.sentences)] = read
                    sentence = read.text
                passage.sentences.append((begin, end))
                if begin in inner:
                    self._continuing.add(len(self.sentences))
                self._add(sentence, fits)
                self._places.append((passage, (begin, end)))

    def _set_apart(self, spells: Spells | None) -> None:
        """Keep the words that the vocabulary cannot spell, and read `&` as these languages do."""
        language, target = self._languages
        others = [passage.text for passage in self._passages if not passage.text.isascii()]
        find = None
        if spells and others:
            spells = spelt_as_read(spells, language, target)
            if any(unspelt(text, spells) for text in others):
                find = functools.partial(unspelt, spells=spells)
        joins = conjunction(language, target) if SIGN.search(self._source) else None
        if find or joins:
            self._parts = read_parts(
                self._source, self._tokens(), self._escaped, unspelt=find, conjunction=joins
            )

    def _add(self, sentence: str, fits: Callable[[str], bool]) -> None:
        """Add a sentence as models read it best, or as it is written if it would be too long."""
        if "innen" in sentence or not _PLAIN.fullmatch(sentence):
            reading = reading_edits(sentence, *self._languages)
            if reading and fits(edited(sentence, reading)):
                self._readings[len(self.sentences)] = reading
                sentence = edited(sentence, reading)
        self.sentences.append(sentence)

    @property
    def _passages(self) -> Iterator[Passage]:
        return _passages(self._parts)

    def cuts(self) -> Iterator[int]:
        """Yield the positions where the text may be cut between sentences. They are outside of
        elements, so that each part is read as it is within the whole."""
        for part in self._parts:
            if isinstance(part, Passage):
                yield from part.cuts()

    @property
    def visible(self) -> str:
        """The visible text, with masks in place of kept objects."""
        return "\n".join(passage.text for passage in self._passages)

    @property
    def has_markup(self) -> bool:
        """Whether markup has to be placed within the translations."""
        return any(passage.inlines for passage in self._passages)

    @property
    def needs_links(self) -> bool:
        """Whether markup or lost quotation marks have to be placed, or words in capitals found, by
        word links."""
        return (
            self.has_markup
            or any(read.emphasised for read in self._cased.values())
            or (
                self._quotes
                and are_alike(*self._languages)
                and any(map(has_quotation, self.sentences))
            )
        )

    def as_in_text(self, number: int, words: str) -> str:
        """Text of a sentence, or of its translation, with the kept objects in place of their
        masks."""
        passage, (begin, end) = self._places[number]
        things = {
            passage.text[thing.begin : thing.end]: thing.opening
            for thing in passage.masked
            if begin <= thing.begin < end and not thing.found_as
        }
        if not things:
            return words
        pattern = "|".join(f"({mask_pattern(mask)})" for mask in things)
        openings = list(things.values())
        return re.sub(pattern, lambda found: openings[(found.lastindex or 1) - 1], words)

    def as_given(self, number: int) -> str:
        """A sentence as the reader sees it, with its kept objects."""
        passage, (begin, end) = self._places[number]
        parts = []
        for thing in self._things(number):
            parts += [passage.text[begin : thing.begin], thing.opening]
            begin = thing.end
        return "".join([*parts, passage.text[begin:end]])

    def with_kept(self, number: int) -> tuple[str, list[Kept]]:
        """A sentence as it is written, in ordinary case but for words in capitals within it, with
        its kept objects in place of their masks, and these objects in order. Those that are read as
        they are given are none."""
        passage, (first, last) = self._places[number]
        sentence, parts, kept = self.sentences[number], list[str](), list[Kept]()
        if number in self._readings:
            sentence = edited(sentence, undone(passage.text[first:last], self._readings[number]))
        if number in self._cased and self._cased[number].emphasised:
            sentence = passage.text[first:last]
        done = length = 0
        for thing in self._things(number):
            begin, end = thing.begin - first, thing.end - first
            if passage.text[thing.begin : thing.end] == thing.opening:
                continue
            parts += [sentence[done:begin], thing.opening]
            length += begin - done
            given = (length, length + len(thing.opening))
            written = min(thing.found_as, default=passage.text[thing.begin : thing.end])
            kept.append(Kept(given, (begin, end), written))
            done, length = end, given[1]
        return "".join([*parts, sentence[done:]]), kept

    def as_read(self, number: int, span: Span) -> Span:
        """Where a part of a sentence as it is written is in the sentence as it is read."""
        return moved_span(span, self._readings.get(number, ()))

    def take(self, number: int, translation: str) -> str | None:
        """Accept an existing translation of `as_given`; returns it with masks in place of the kept
        objects, as a model would write it. Returns None, and accepts nothing, if it does not
        contain each object as often as the sentence. Figures and `&` stay as written in it."""
        passage, span = self._places[number]
        masks: dict[str, list[str]] = {}
        for thing in self._things(number):
            if not (thing.figure or thing.found_as):
                masks.setdefault(thing.opening, []).append(passage.text[thing.begin : thing.end])
        edits: list[tuple[Span, str]] = []
        for opening, words in masks.items():
            found = _places_of(opening, translation)
            if len(found) != len(words):
                return None
            edits += zip(found, words, strict=True)
        for (begin, end), word in sorted(edits, reverse=True):
            translation = translation[:begin] + word + translation[end:]
        every = [word for words in masks.values() for word in words]
        for word in every:
            if len(re.findall(mask_pattern(word), translation)) != every.count(word):
                return None  # the translation contains its own figures
        if number in self._cased:
            self._cased[number] = self._cased[number]._replace(label=False)
        _drop_figures(passage.inlines, span)
        _drop_figures(passage.masked, span)
        self._taken.add(number)
        return translation

    def _things(self, number: int) -> list[Inline]:
        """The masked objects of a sentence, in order."""
        passage, (begin, end) = self._places[number]
        return [thing for thing in passage.masked if begin <= thing.begin < end]

    @property
    def untranslated(self) -> str:
        """A text without sentences, unchanged."""
        return self.render([]).text

    def gaps(self) -> list[str]:
        """The text before, between and after the translated sentences, if no markup goes into
        these."""
        gaps = [""]
        for part in self._parts:
            if isinstance(part, str):
                gaps[-1] += part
                continue
            for piece in place(part, [Translated("")] * len(part.sentences)).pieces:
                if piece.translated is None:
                    gaps[-1] += "".join(map(part.written, range(*piece.source)))
                else:
                    gaps.append("")
        return gaps

    def written(self, number: int, translation: Translated, *, ended: bool) -> str:
        """A sentence's translation as written, if no markup goes into it. For a partial
        translation, the certain beginning: while it equals the source, the source's spelling may
        still be used; of a reading that is written with the whole, nothing is certain."""
        sentence, read, text = self.sentences[number], self._cased.get(number), translation.text
        passage, span = self._places[number]
        if read and (read.emphasised or read.label) and not ended:
            return ""
        if number in self._continuing and text.isalpha() and not ended:
            return ""  # the whole first word decides on its capital
        if self._breaks and not ended and has_lines(passage, span, self._breaks):
            return ""  # the length decides on its lines
        if self._quotes and not ended and self._has_own_marks(number) and has_quotation(sentence):
            return ""  # the marks may be lost
        if text == sentence if ended else sentence.startswith(text):
            source = "".join(map(passage.written, range(*span)))
            if (
                ended
                or number in self._readings
                or source != escaped(passage.text[slice(*span)], passage.markup, passage.quotes)
            ):
                return source if ended else ""
        if not ended:
            translation = Translated(certain(text) if self._has_own_marks(number) else text)
        translation = self._finished(number, translation, ended=ended)
        if self._breaks:
            translation = in_lines(translation, passage, span, self._breaks)
        return escaped(translation.text, self._escaped, passage.quotes)

    def _has_own_marks(self, number: int) -> bool:
        """Whether a sentence's translation gets the marks of the sentence. An existing one keeps
        its own."""
        return number not in self._taken and are_alike(*self._languages)

    def _finished(self, number: int, given: Translated, *, ended: bool = True) -> Translated:
        """A translation with the marks of its sentence, linked to the sentence as it stands in the
        passage, and with its capitals."""
        passage, span = self._places[number]
        sentence, target = passage.text[slice(*span)], self._languages[1]
        edits, reading = list[Edit](), list[Edit]()
        if number in self._readings:
            reading = undone(sentence, self._readings[number])
            links = [replace(each, source=moved_span(each.source, reading)) for each in given.links]
            given = Translated(given.text, links)
        if given.text == self.sentences[number]:
            edits = reading
        elif not _are_plain(sentence, given.text) and self._has_own_marks(number):
            edits = mark_edits(sentence, given.text, target, ended=ended)
        if edits:
            given = Translated(edited(given.text, edits), edited_links(given.links, edits))
        if self._quotes and ended and self._has_own_marks(number):
            edits = lost_quotation_edits(sentence, given.text, given.links, base_language(target))
            given = Translated(edited(given.text, edits), edited_links(given.links, edits))
        if number in self._continuing and goes_on_small(sentence, given.text, target):
            given = Translated(given.text[:1].lower() + given.text[1:], given.links)
        return self._cased[number].written(given) if number in self._cased else given

    def render(self, translations: Sequence[Translated]) -> Translated:
        """The translation of the text; its links are between the texts as written."""
        return self._render(self._parts, iter(enumerate(translations)))

    def _render(
        self, parts: Sequence[Passage | str], rest: Iterator[tuple[int, Translated]]
    ) -> Translated:
        written: list[str] = []
        links: list[Link] = []
        length = 0
        for part in parts:
            if isinstance(part, str):
                written.append(part)
                length += len(part)
                continue
            placed, rendered = self._render_passage(part, rest)
            links += links_of(part, placed, rendered, length)
            written.append(rendered.text)
            length += rendered.length
        return Translated("".join(written), links)

    def _render_passage(
        self, passage: Passage, rest: Iterator[tuple[int, Translated]]
    ) -> tuple[Placed, Rendered]:
        """Render a passage; if its translation equals its text, the source is used."""
        translations = [next(rest) for _ in passage.sentences]
        same = all(given.text == self.sentences[number] for number, given in translations)
        openings: dict[int, str] = {}
        for thing in passage.masked:
            in_sentence = any(b <= thing.begin < e for b, e in passage.sentences)
            if thing.figure and (in_sentence or has_words(thing.opening)):
                figure = unescape(thing.opening) if self._escaped != "text" else thing.opening
                written = in_convention(figure, *self._languages)
                if written.endswith(".") and passage.text.startswith(".", thing.end):
                    written = written[:-1]
                if written != figure:
                    openings[thing.begin] = escaped(written, passage.markup)
            if thing.parts:
                opening = self._render(thing.parts, rest).text
                if opening != thing.opening:
                    openings[thing.begin] = opening
        given = [self._finished(number, text) for number, text in translations]
        if same and not openings:
            return Placed(passage.text, list(pieces(passage, given))), as_it_was(passage)
        if self._breaks:
            spans = passage.sentences
            given = [
                in_lines(text, passage, span, self._breaks)
                for text, span in zip(given, spans, strict=True)
            ]
        placed = place(passage, given, openings)
        if placed.restored:
            self._warn("placeholder")
        if placed.filled:
            self._warn("untranslated")
        return placed, render(passage, placed)

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)


_CASED = re.compile("[A-ZÀ-ÖØ-Þ]{2}|^[^.!?…]*$")
"""Pattern of sentences that may have words in capitals, or be labels or titles."""
_QUOTE = re.compile('["„“”«»]|&(?:#|[a-z]*quot?|[lr]aquo)')
"""Pattern of a text that may have quotation marks."""
_PLAIN = re.compile(r"[^\W\d_]+(?:(?:'|,? )[^\W\d_]+)*[.!?]?")
"""Pattern of sentences of words, commas and a mark at the end: nothing in them is misread, but for
pairs such as `Bürgerinnen und Bürger`."""
_MARKUPS: dict[Format, Markup] = {"text": "text", "html": "html", "markdown": "text", "xml": "xml"}


def _are_plain(sentence: str, translation: str) -> bool:
    """Whether both are plain, and either both or none have a mark at the end: then the translation
    has the marks that it should have."""
    ends = [text[-1:] in (".", "!", "?") for text in (sentence, translation)]
    plain = _PLAIN.fullmatch(sentence) and _PLAIN.fullmatch(translation)
    return plain is not None and ends[0] == ends[1]


def _tokens(
    source: str, format: Format, ignored: Collection[str], breaks: Sequence[SoftBreak]
) -> Sequence[Token]:
    if format == "html":
        tokens = list(html_tokens(source, ignored))
        return joined_tokens(source, with_neighbours_apart(tokens))
    if format == "xml":
        return joined_tokens(source, with_neighbours_apart(xml_tokens(source, ignored)))
    if format == "text":
        tokens = joined_tokens(source, list(plain_tokens(source)))
        return list(with_breaks(tokens, breaks)) if breaks else tokens
    from serving.text.formats.markdown import markdown_tokens  # its parser takes a while to import

    return joined_tokens(source, markdown_tokens(source))


def _passages(parts: Sequence[Passage | str]) -> Iterator[Passage]:
    """Each passage, followed by those within its kept objects."""
    for part in parts:
        if isinstance(part, Passage):
            yield part
            for thing in part.masked:
                yield from _passages(thing.parts)


def _drop_figures(inlines: list[Inline], span: Span) -> None:
    """Drop the recorded figures of a sentence, and `&`: its translation has its own."""
    inlines[:] = [
        each
        for each in inlines
        if not ((each.figure or each.found_as) and span[0] <= each.begin < span[1])
    ]
    for each in inlines:
        _drop_figures(each.children, span)


def _places_of(thing: str, text: str) -> list[Span]:
    """The span of an object in the whole text."""
    before = r"(?<![\w.,])" if thing[:1].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if thing[-1:].isalnum() else ""
    return [match.span() for match in re.finditer(before + re.escape(thing) + after, text)]


def _is_long_word(text: str) -> bool:
    return len(text) >= LONGEST_WORD and "://" not in text and not any(map(str.isspace, text))


def _without(text: str, spans: Sequence[Span]) -> str:
    """The text with spaces in place of the given spans."""
    for begin, end in spans:
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text
