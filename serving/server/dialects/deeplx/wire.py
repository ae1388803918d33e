"""Bodies of DeepLX's dialect; unknown fields are ignored."""

from __future__ import annotations

from typing import Literal

from serving.server.http.wire import LenientRequest, Wire


class DeepLXRequest(LenientRequest):
    """A text to translate."""

    text: str
    target_lang: str
    """Language code in upper or lower case."""
    source_lang: str = ""
    """Language code. If it is `auto` or empty, the language is detected."""
    tag_handling: Literal["", "html", "xml"] = ""
    """The kind of markup whose tags are kept."""


class DeepLXTranslation(Wire):
    """The answer to a DeepLXRequest."""

    code: Literal[200] = 200
    id: int
    """A number that identifies this answer."""
    data: str
    """The best translation."""
    alternatives: list[str]
    """Other translations that the search found. With the settings of most models there are none."""
    source_lang: str
    """Language code in upper case, detected or from the request."""
    target_lang: str
    """Language code, as in the request."""
    method: Literal["Free"] = "Free"


class DeepLXError(Wire):
    """The body of every answer that is not 2xx."""

    code: int
    """The HTTP status of the answer."""
    message: str
    """A description for people."""
