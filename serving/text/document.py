"""A text as sentences for a model, and their translations as a text again."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal

from serving.text.alignment import Link, Span
from serving.text.markup import html_tokens
from serving.text.passage import Passage
from serving.text.placement import Placed, Translated, masked_things, place
from serving.text.reading import plain_tokens, read_parts
from serving.text.rendering import Rendered, escaped, render
from serving.text.sentences import divided, has_words, sentence_spans, stripped

Format = Literal["text", "html"]


class Document:
    """A text that is read."""

    def __init__(self, source: str, format: Format, ignored: Collection[str] = ()) -> None:
        """The contents of `ignored` HTML elements, named in small letters, stay as they are."""
        self._html = html = format == "html"
        tokens = list(html_tokens(source, ignored) if html else plain_tokens(source))
        self._parts = list(read_parts(source, tokens, html=html))
        self.sentences: list[str] = []
        """What a model is to translate; punctuation alone stays as it is."""

    def divide(self, language: str, fits: Callable[[str], bool], *, split: bool = True) -> None:
        """Find the sentences; `fits` says which the model can read in one go.

        Without `split` a text, or a block of HTML, is one sentence, however long.
        """
        for passage in self._passages:
            text = passage.text
            spans: Iterable[Span] = [stripped(text, (0, len(text)))]
            if split:
                found = sentence_spans(text, language)
                spans = itertools.chain.from_iterable(divided(text, s, fits) for s in found)
            words = _without_masks(passage)
            passage.sentences = [span for span in spans if has_words(words[slice(*span)])]
            self.sentences += [text[slice(*span)] for span in passage.sentences]

    @property
    def _passages(self) -> Iterator[Passage]:
        return (part for part in self._parts if isinstance(part, Passage))

    @property
    def visible(self) -> str:
        """What a reader sees, with words in place of things that are kept."""
        return "\n".join(passage.text for passage in self._passages)

    @property
    def needs_links(self) -> bool:
        """Whether there is markup whose place follows from word alignments."""
        return any(passage.inlines for passage in self._passages)

    @property
    def untranslated(self) -> str:
        """A text without sentences, as it is."""
        return self.render([]).text

    def gaps(self) -> list[str]:
        """What is written before, between and behind the translations of the sentences, where no
        markup goes into these."""
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

    def escape(self, translation: str) -> str:
        """A sentence's translation as it is written, where no markup goes into it."""
        return escaped(translation) if self._html else translation

    def render(self, translations: Sequence[Translated]) -> Translated:
        """The translation of the text; its links are between the texts as they are written."""
        rest = iter(translations)
        written: list[str] = []
        links: list[Link] = []
        length = 0
        for part in self._parts:
            if isinstance(part, str):
                written.append(part)
                length += len(part)
                continue
            placed = place(part, [next(rest) for _ in part.sentences])
            rendered = render(part, placed)
            links += _links(part, placed, rendered, length)
            written.append(rendered.text)
            length += rendered.length
        return Translated("".join(written), links)


def _links(passage: Passage, placed: Placed, rendered: Rendered, offset: int) -> Iterator[Link]:
    """The links of a passage, where `offset` characters of the translation stand before it."""
    for piece in placed.pieces:
        for link in piece.translated.links if piece.translated else ():
            begin, end = (piece.target[0] + place for place in link.target)
            source = (piece.source[0] + link.source[0], piece.source[0] + link.source[1])
            target = (offset + rendered.starts[begin], offset + rendered.ends[end - 1])
            yield dataclasses.replace(link, source=passage.origin(source), target=target)


def _without_masks(passage: Passage) -> str:
    text = passage.text
    for inline in masked_things(passage.inlines):
        text = text[: inline.begin] + " " * (inline.end - inline.begin) + text[inline.end :]
    return text
