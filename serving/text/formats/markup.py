"""Tokenizes HTML: boundaries, inline markup, and content that is not translated.

Tags are never repaired or rewritten, so a browser reads broken markup in a translation as it does
in the original.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from serving.text.formats.tags import HtmlPiece, html_pieces
from serving.text.passages.tokens import Token, with_numbered_tags

_BLOCKS = frozenset(
    """
    address article aside audio blockquote body br canvas caption center col colgroup dd details
    dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6
    head header hgroup hr html iframe legend li main menu nav noscript object ol optgroup option
    p picture search section select summary table tbody td tfoot th thead title tr ul video
    """.split()  # noqa: SIM905
)
"""Elements that separate text; all other elements, known or not, are inline."""
_VOID = frozenset(
    """
    area base basefont bgsound br col embed hr img input link meta param source track wbr
    """.split()  # noqa: SIM905
)
_UNSEEN = frozenset(("script", "style", "template"))
_VERBATIM_BLOCKS = frozenset(
    ("pre", "textarea", "listing", "xmp", "plaintext", "iframe", "noembed", "noframes")
)
_VERBATIM = frozenset(("code", "kbd", "samp", "var", "svg", "math", "tt"))
_GUIDES = frozenset(("rt", "rp"))
"""Elements with the pronunciation of words, which stands above them and is not part of the
sentence."""
_NOTE = re.compile(r"[\[(]?(?:\d{1,3}|[*†‡§]{1,3})[\])]?")
_NUMBERED_CLOSE = re.compile(r"</\d{1,4}\s?>")


def html_tokens(source: str, ignored: Collection[str] = ()) -> Iterator[Token]:
    """Tokens of an HTML text, a document or a fragment. Elements with `ignored` names, in small
    letters, are not translated."""
    pieces = list(html_pieces(source))
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        if is_verbatim(piece, ignored):
            last = end_of_element(pieces, index)
            span = (piece.span[0], pieces[last].span[1])
            yield Token(_verbatim_kind(pieces[index : last + 1]), span)
            index = last
        elif piece.kind == "start" and _is_beside_words(source, pieces, index):
            index += 2
            yield Token("script", (piece.span[0], pieces[index].span[1]))
        else:
            yield from piece_tokens(source, piece)
        index += 1


def _is_beside_words(source: str, pieces: Sequence[HtmlPiece], index: int) -> bool:
    """Whether an element that begins is not part of the sentence: it is a guide to pronunciation,
    or a link that marks a note and stands right after a word."""
    name, inside = pieces[index].name, pieces[index + 1 : index + 3]
    if [(p.kind, p.name) for p in inside] != [("data", ""), ("end", name)]:
        return False
    if name in _GUIDES:
        return True
    before = pieces[index - 1] if index else None
    return (
        name == "a"
        and before is not None
        and before.kind in ("data", "end")
        and before.name not in _BLOCKS
        and not source[before.span[1] - 1].isspace()
        and _NOTE.fullmatch(source, *inside[0].span) is not None
    )


def piece_tokens(source: str, piece: HtmlPiece) -> Iterator[Token]:
    """Tokens of a piece whose content, if any, is translated."""
    if piece.kind == "data" or _NUMBERED_CLOSE.fullmatch(source, *piece.span):
        yield from with_numbered_tags(source, piece.span)
    elif piece.name in _BLOCKS:
        yield Token("boundary", piece.span)
    elif piece.kind in ("empty", "other") or piece.name in _VOID:
        yield Token("thing", piece.span)
    else:
        yield Token("open" if piece.kind == "start" else "close", piece.span, piece.name)


def _verbatim_kind(element: Sequence[HtmlPiece]) -> Literal["thing", "kept", "boundary"]:
    """Kind of an untranslated element: a boundary if it, or an element within it, separates
    text."""
    name = element[0].name
    if name in _UNSEEN:
        return "thing"
    closed = len(element) > 1 and element[-1].name == name
    divides = any(p.name in _BLOCKS or p.name in _VERBATIM_BLOCKS for p in element)
    return "kept" if closed and not divides else "boundary"


def end_of_element(pieces: Sequence[HtmlPiece], start: int) -> int:
    """Index of the piece that ends an element; that of the last piece if none does."""
    name, depth = pieces[start].name, 0
    for index in range(start, len(pieces)):
        if pieces[index].name == name:
            depth += {"start": 1, "end": -1}.get(pieces[index].kind, 0)
            if depth == 0:
                return index
    return len(pieces) - 1


def is_verbatim(piece: HtmlPiece, ignored: Collection[str]) -> bool:
    """Whether the content of an opened element is not translated."""
    if piece.kind != "start" or piece.name in _VOID:
        return False
    return piece.name in _VERBATIM_BLOCKS | _VERBATIM or piece.name in ignored or stays(piece)


def stays(piece: HtmlPiece) -> bool:
    """Whether a tag says that its element, with all attributes, is not to be translated."""
    return (
        piece.name in _UNSEEN
        or piece.attribute("translate").lower() == "no"
        or "notranslate" in piece.attribute("class").split()
    )
