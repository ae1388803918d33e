"""Characters that no model can read."""

from __future__ import annotations

import re

from serving.errors import InvalidTextError

_UNREADABLE = re.compile("[\x00\ud800-\udfff]")
_COMMENT_END = "-->"
_TAG = re.compile("<[!?/]?[A-Za-z][^<>]*>")
_TAG_OR_COMMENT = re.compile(f"<!--.*?{_COMMENT_END}|{_TAG.pattern}", re.DOTALL)


def counted_characters(text: str, format: str) -> int:
    """Number of characters of a text that count for a client: all except the tags and comments of
    HTML and XML, which DeepL does not count either."""
    if format not in ("html", "xml"):
        return len(text)
    # No comment is searched after the last end: each one would be read to the end of the text.
    end = text.rfind(_COMMENT_END)
    end = 0 if end < 0 else end + len(_COMMENT_END)
    found = _TAG_OR_COMMENT.findall(text, 0, end) + _TAG.findall(text, end)
    return len(text) - sum(map(len, found))


def check_text(text: str, parameter: str = "text") -> None:
    """Raise InvalidTextError for NUL or a lone surrogate, naming its position, and for a value that
    is not text; `parameter` is the parameter that it came in."""
    if not isinstance(text, str):
        raise InvalidTextError(
            f"text must be a string, got {type(text).__name__}", parameter=parameter
        )
    match = _UNREADABLE.search(text)
    if match:
        raise InvalidTextError(
            f"text must be Unicode without NUL or lone surrogates, got U+{ord(match[0]):04X} at "
            f"character {match.start()}; remove it",
            parameter=parameter,
        )
