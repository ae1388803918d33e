"""What must come out of a translation as it went in: variables of messages, links, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from serving.text.alignment import Span

TagKind = Literal["open", "close", "thing"]

_PATTERN = re.compile(
    r"""
    (?:https?|ftp)://[^\s<>"]+ | \bwww\.[^\s<>"]+            # links
    | (?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+             # e-mail addresses
    | \{\{[^{}\n]{0,100}\}\} | \{%[^{}\n]{0,100}%\}          # Jinja, Handlebars
    | \$\{[^{}\n]{0,100}\}                                   # shells, JavaScript
    | \{[\w.$\[\]-]*(?:[:!][^{}\s]{0,20})?\}                 # Python, ICU
    | (?<![\w%])%(?:\(\w+\)|\d+\$)?[-+\#0]*\d*(?:\.\d+)?     # printf
      (?:hh|h|ll|l|z|j)?[sdifuxXeEgGcp@](?!\w)
    """,
    re.VERBOSE,
)
_NUMBERED_TAG = re.compile(r"<(/?)(\d{1,4})\s?(/?)>")
_TRAILING = re.compile(r"[.,;:!?'\"»”’)\]]+$")


def placeholder_spans(text: str) -> Iterator[Span]:
    """Each placeholder, with what it makes one word with, such as `{n}px` or `{a}{b}`; punctuation
    after a link belongs to the sentence."""
    begin = end = 0
    for match in _PATTERN.finditer(text):
        first, last = match.span()
        if match[0].startswith(("http", "ftp", "www")):
            last -= _closing_punctuation(match[0])
        while first > end and _is_word(text[first - 1]):
            first -= 1
        if first > end or begin == end:
            if begin < end:
                yield begin, end
            begin = first
        end = last
        while end < len(text) and _is_word(text[end]):
            end += 1
    if begin < end:
        yield begin, end


def numbered_tags(text: str) -> Iterator[tuple[Span, str, TagKind]]:
    """Each `<0>`, `</0>` or `<0/>` of a plain text: its span, its number and its kind, which is
    `thing` where it stands alone."""
    for match in _NUMBERED_TAG.finditer(text):
        kind: TagKind = "close" if match[1] else "thing" if match[3] else "open"
        yield match.span(), match[2], kind


def _closing_punctuation(link: str) -> int:
    """Signs at the end that are no part of a link; a bracket that it opens itself is one."""
    match = _TRAILING.search(link)
    if match is None:
        return 0
    tail = match[0]
    if tail[0] == ")" and "(" in link:
        tail = tail[1:]
    return len(tail)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
