"""Long texts with markup in pieces, each of which is read as it is within the whole: a server takes
them one after the other, and goes on behind those that are done."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from serving.documents.unit import Format, Unit
from serving.text.formats.markdown import block_starts
from serving.text.formats.markup import html_tokens

_LENGTH = 1000
"""Characters after which the next piece begins, at the next place where one may."""


def html_units(source: str) -> list[str | Unit]:
    """A text of HTML, cut where an element begins or ends that divides text: units, and between
    them what has no words, such as scripts."""
    spans: list[tuple[int, int, bool]] = []
    begin, words = 0, False
    for token in html_tokens(source):
        if token.kind == "boundary":
            spans.append((begin, token.span[0], words))
            begin, words = token.span[0], False
            if token.span[1] - begin > _LENGTH:
                spans.append((*token.span, False))
                begin = token.span[1]
        elif token.kind == "text":
            words = words or any(map(str.isalpha, source[slice(*token.span)]))
    return _joined(source, [*spans, (begin, len(source), words)], "html")


def markdown_units(source: str) -> list[str | Unit]:
    """A text of Markdown, cut between its blocks."""
    starts = [0, *block_starts(source), len(source)]
    spans = [
        (begin, end, any(map(str.isalpha, source[begin:end])))
        for begin, end in itertools.pairwise(starts)
    ]
    return _joined(source, spans, "markdown")


def _joined(
    source: str, spans: Iterable[tuple[int, int, bool]], format: Format
) -> list[str | Unit]:
    """Spans that follow each other, as units of about _LENGTH characters; long ones without words
    are none."""
    return [
        Unit(source[begin:end], format) if words else source[begin:end]
        for begin, end, words in _runs(spans)
        if begin < end
    ]


def _runs(spans: Iterable[tuple[int, int, bool]]) -> Iterator[tuple[int, int, bool]]:
    begin, end, words = 0, 0, False
    for first, last, has_words in spans:
        apart = not has_words and last - first > _LENGTH
        if end - begin >= _LENGTH or apart:
            yield begin, end, words
            begin, words = first, False
        end, words = last, words or has_words
        if apart:
            yield begin, end, words
            begin = end
    yield begin, end, words
