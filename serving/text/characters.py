"""Characters that no model can read."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from serving.errors import InvalidTextError

T = TypeVar("T")

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


def listed(texts: str | Iterable[T], parameter: str = "texts") -> list[str] | list[T]:
    """Several inputs as a list, and one text as a list of itself. Raises InvalidTextError for what
    is neither."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InvalidTextError(
            f"{parameter} must be a text or a list of texts, got {type(texts).__name__}",
            parameter=parameter,
        )
    return list(texts)


def token_ids(given: object, parameter: str) -> list[int]:
    """A sequence of token ids as a list. Raises InvalidTextError for anything else; which numbers
    there are is not checked."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        with suppress(TypeError):
            return [operator.index(token) for token in given]
    raise InvalidTextError(
        f"{parameter} must be a text or a list of token ids, got {given!r:.60}",
        parameter=parameter,
    )


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
