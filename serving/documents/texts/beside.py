"""Writes HTML with each paragraph twice: the source, and after a line break the translation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from serving.text.formats.markup import html_tokens
from serving.text.passages.tokens import Token

_NO_LINES = re.compile(r"<(?:title|option)\b", re.IGNORECASE)
"""Elements that cannot contain a line break."""
_ID = re.compile(r"""\s(?:id|name)\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)


def html_beside(source: str, translation: str) -> str:
    """HTML in which each text between two tags that divide text is followed by its translation.
    Elements around the whole text contain both; pictures and the like stay with the source."""
    written = []
    border = ""
    for (text, end), (other, _) in zip(_stretches(source), _stretches(translation), strict=True):
        if text == other:
            written.append(text)
        else:
            between = " – " if _NO_LINES.match(border) else "<br/>"
            written.append(_both(text, other, between))
        written.append(end)
        border = end
    return "".join(written)


def _stretches(text: str) -> Iterator[tuple[str, str]]:
    """Yield each text between tags that divide text, and the tag after it."""
    begin = 0
    for token in html_tokens(text):
        if token.kind == "boundary":
            yield text[begin : token.span[0]], text[slice(*token.span)]
            begin = token.span[1]
    yield text[begin:], ""


def _both(source: str, translation: str, between: str) -> str:
    inner, other = source.strip(), translation.strip()
    before, _, behind = source.partition(inner)
    tokens, others = list(html_tokens(inner)), list(html_tokens(other))
    around = 0
    while _is_around(tokens, around) and _is_around(others, around):
        around += 1
    begin = tokens[around].span[0]
    end = begin + len(inner[begin : tokens[-1 - around].span[1]].rstrip())
    added = "".join(_repeated(other, others[around : len(others) - around])).strip()
    return "".join([before, inner[:end], between, added, inner[end:], behind])


def _is_around(tokens: Sequence[Token], depth: int) -> bool:
    """Whether the tags at this depth belong to an element around the whole text."""
    last = len(tokens) - 1 - depth
    if last - depth < 2 or (tokens[depth].kind, tokens[last].kind) != ("open", "close"):
        return False
    name = tokens[depth].name
    steps = [
        {"open": 1, "close": -1}.get(token.kind, 0) if token.name == name else 0
        for token in tokens[depth : last + 1]
    ]
    return tokens[last].name == name and 0 not in list(itertools.accumulate(steps))[:-1]


def _repeated(text: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the parts of a translation that are repeated: no pictures, comments or scripts, and
    tags without ids and names."""
    for token in tokens:
        if token.kind == "open":
            yield _ID.sub("", text[slice(*token.span)])
        elif token.kind not in ("thing", "script"):
            yield text[slice(*token.span)]
