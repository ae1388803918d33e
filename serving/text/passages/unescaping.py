"""Resolves character references of HTML and removes escapes before quotation marks. Each character
keeps the source span that it was written as."""

from __future__ import annotations

import re
from html import unescape

from serving.text.alignment import Span

_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);?")
_SPACES = dict.fromkeys(map(ord, "\t\n\f\r"), " ")
_QUOTE = re.compile(r"(?<!\\)\\['\"]")
_QUOTED_BRACE = re.compile(r"(?<!')'\{")
"""Pattern that shows that single apostrophes are quotation marks of the message itself."""
_QUOTE_OF_MESSAGE = re.compile(rf"{_QUOTE.pattern}|(?<=[^\W\d_])''(?=[^\W\d_])")


def unescaped(raw: str, origins: list[Span]) -> tuple[str, list[Span]]:
    """The visible text: references resolved, line breaks as spaces."""
    if "&" not in raw:
        return raw.translate(_SPACES), origins
    text: list[str] = []
    places: list[Span] = []
    done = 0
    for match in _REFERENCE.finditer(raw):
        begin, end = match.span()
        text.append(raw[done:begin])
        places.extend(origins[done:begin])
        characters = unescape(match[0])
        text.append(characters)
        if len(characters) == end - begin:  # not a reference
            places.extend(origins[begin:end])
        else:
            places.extend([(origins[begin][0], origins[end - 1][1])] * len(characters))
        done = end
    text.append(raw[done:])
    places.extend(origins[done:])
    return "".join(text).translate(_SPACES), places


def unquoted(
    text: str, origins: list[Span], *, in_message: bool
) -> tuple[str, list[Span], dict[str, str]]:
    """The text without the escapes before its quotation marks, the source spans of its characters,
    and the written form of each mark. In an ICU message an apostrophe is doubled."""
    in_message = in_message and _QUOTED_BRACE.search(text) is None
    pattern = _QUOTE_OF_MESSAGE if in_message else _QUOTE
    quotes: dict[str, str] = {}
    done, seen, places = 0, "", list[Span]()
    for match in pattern.finditer(text):
        begin, last = match.start(), match.end() - 1
        quotes[text[last]] = match[0]
        seen += text[done:begin] + text[last]
        places += [*origins[done:begin], (origins[begin][0], origins[last][1])]
        done = match.end()
    return seen + text[done:], places + origins[done:], quotes
