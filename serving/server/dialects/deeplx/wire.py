"""What goes over the wire in DeepLX's dialect; fields that are not listed are ignored."""

from __future__ import annotations

from typing import Literal

from serving.server.http.wire import LenientRequest, Wire


class DeepLXRequest(LenientRequest):
    """One text to translate."""

    text: str
    target_lang: str
    """Language code, in capitals or not."""
    source_lang: str = ""
    """Language code; `auto`, or nothing at all: detected."""
    tag_handling: Literal["", "html", "xml"] = ""
    """Keep the tags of this kind of markup."""


class DeepLXTranslation(Wire):
    """The answer to a DeepLXRequest."""

    code: Literal[200] = 200
    id: int
    """A number for this answer."""
    data: str
    """The best translation."""
    alternatives: list[str]
    """Others that the model's own search has found; most models are set to find one."""
    source_lang: str
    """Language code in capitals, detected or as the request gave it."""
    target_lang: str
    """As the request gave it."""
    method: Literal["Free"] = "Free"


class DeepLXError(Wire):
    """Every answer that is not 2xx."""

    code: int
    """The status of the answer."""
    message: str
    """What is wrong, for people."""
