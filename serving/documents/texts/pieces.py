"""Divides long texts into pieces, each of which is read as within the whole. A server translates
them one after another, and continues after those that are done."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from serving.documents.unit import FileInUnits, Format, Link, Translated, Unit, WrittenFile
from serving.errors import InvalidTextError
from serving.text.document import Document
from serving.text.formats.markup import html_tokens

_LENGTH = 1000
"""Number of characters after which the next piece begins, at the next possible place."""

_Write = Callable[[Sequence[Translated]], WrittenFile]


def in_pieces(file: FileInUnits, language: str, longest: int) -> FileInUnits:
    """The file with units of at most `longest` characters. Longer units are cut between sentences
    of the `language`, longer sentences near their middle, and markup nowhere; a unit without such a
    place stays as it is. The writers put the translations together again."""
    cut = {
        unit: _cut(unit, language, longest)
        for unit in dict.fromkeys(file.units)
        if len(unit.text) > longest
    }
    if not cut:
        return file
    units: list[Unit] = []
    for unit in file.units:
        units += _only_units(cut[unit]) if unit in cut else [unit]

    def together(write: _Write) -> _Write:
        return lambda given: write(_joined(file.units, cut, iter(given)))

    return dataclasses.replace(
        file,
        units=units,
        write=together(file.write),
        write_bilingual=together(file.write_bilingual) if file.write_bilingual else None,
        write_as={suffix: together(write) for suffix, write in file.write_as.items()},
    )


def _cut(unit: Unit, language: str, longest: int) -> list[str | Unit]:
    """Yield the pieces of a unit, and the parts without words between them."""
    blocks: list[str | Unit] = [unit]
    if unit.format == "html":
        blocks = html_units(unit.text)
    elif unit.format == "markdown":
        blocks = markdown_units(unit.text)
    pieces: list[str | Unit] = []
    for block in blocks:
        if isinstance(block, str):
            pieces.append(block)
            continue
        texts = [block.text]
        if len(block.text) > longest:
            texts = _between_sentences(block, language, longest)
        pieces += [dataclasses.replace(unit, text=t) if _has_words(t) else t for t in texts]
    return pieces


def _between_sentences(unit: Unit, language: str, longest: int) -> list[str]:
    document = Document(unit.text, unit.format)
    document.divide(language, lambda sentence: len(sentence) <= longest // 2)
    texts, begin, last = list[str](), 0, 0
    for place in [*document.cuts(), len(unit.text)]:
        if place - begin > longest and last > begin:
            texts.append(unit.text[begin:last])
            begin = last
        last = place
    texts.append(unit.text[begin:])
    try:
        for text in texts:
            Document(text, unit.format)
    except InvalidTextError:  # XML with an element around several sentences
        return [unit.text]
    return texts


def _joined(
    units: Sequence[Unit], cut: Mapping[Unit, Sequence[str | Unit]], given: Iterator[Translated]
) -> list[Translated]:
    """The translation of each unit, joined from those of its pieces."""
    joined = []
    for unit in units:
        texts, links = list[str](), list[Link]()
        done = at = 0
        for piece in cut.get(unit, [unit]):
            own = Translated(piece) if isinstance(piece, str) else next(given)
            texts.append(own.text)
            links += [_moved(link, done, at) for link in own.links]
            done += len(piece if isinstance(piece, str) else piece.text)
            at += len(own.text)
        joined.append(Translated("".join(texts), links))
    return joined


def _moved(link: Link, source: int, target: int) -> Link:
    return dataclasses.replace(
        link,
        source=(link.source[0] + source, link.source[1] + source),
        target=(link.target[0] + target, link.target[1] + target),
    )


def _only_units(parts: Sequence[str | Unit]) -> list[Unit]:
    return [part for part in parts if isinstance(part, Unit)]


def _has_words(text: str) -> bool:
    return any(map(str.isalpha, text))


def html_units(source: str) -> list[str | Unit]:
    """HTML cut at the beginning or end of elements that divide text: units, and between them parts
    without words, such as scripts."""
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
            words = words or _has_words(source[slice(*token.span)])
    return _in_runs(source, [*spans, (begin, len(source), words)], "html")


def markdown_units(source: str) -> list[str | Unit]:
    """Markdown cut between its blocks: units, and the parts between them."""
    from serving.text.formats.markdown import block_starts  # its parser takes a while to import

    starts = [0, *block_starts(source), len(source)]
    spans = [
        (begin, end, _has_words(source[begin:end])) for begin, end in itertools.pairwise(starts)
    ]
    return _in_runs(source, spans, "markdown")


def _in_runs(
    source: str, spans: Iterable[tuple[int, int, bool]], format: Format
) -> list[str | Unit]:
    """Join successive spans to units of about _LENGTH characters; long spans without words are not
    units."""
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
