"""What goes over the wire between MTranServer and its clients, and between it and the plug-ins that
it serves: Immersive Translate (`/imme`), KISS Translator (`/kiss`) and Hcfy (`/hcfy`). Fields that
are not listed are ignored."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from serving.server.http.wire import Flag, LenientRequest, Wire

Several = Annotated[list[str], Field(min_length=1)]


class MTranPair(LenientRequest):
    """The languages of a request."""

    source: str = Field(alias="from")
    """Language code, or `auto`."""
    target: str = Field(alias="to")
    """Language code."""


class MTranRequest(MTranPair):
    """One text to translate."""

    text: str
    html: Flag = False
    """Whether it is HTML, whose tags are kept."""


class MTranBatchRequest(MTranPair):
    """Texts to translate."""

    texts: Several
    html: Flag = False
    """Whether they are HTML, whose tags are kept."""


class MTranResult(Wire):
    """The answer to an MTranRequest."""

    result: str


class MTranResults(Wire):
    """The answer to an MTranBatchRequest."""

    results: list[str]
    """One for each text, in order."""


class MTranDetectRequest(LenientRequest):
    """A text whose language is asked for."""

    text: str


class MTranDetected(Wire):
    """The language that a text was found to be in."""

    language: str
    """Language code; `en` for a text without letters."""


class MTranLanguages(Wire):
    """The languages that are read or written."""

    languages: list[str]


class MTranVersion(Wire):
    """The version of this server."""

    version: str


class ImmeRequest(LenientRequest):
    """Texts to translate, as Immersive Translate sends them."""

    source_lang: str
    """Language code, or `auto`."""
    target_lang: str
    """Language code."""
    text_list: Several


class ImmeTranslation(Wire):
    """The translation of one text."""

    detected_source_lang: str
    """As the request gave it, or detected."""
    text: str


class ImmeTranslations(Wire):
    """The answer to an ImmeRequest."""

    translations: list[ImmeTranslation]
    """One for each text, in order."""


class KissRequest(MTranPair):
    """A text, or texts, to translate, as KISS Translator sends them."""

    text: str | None = None
    """One text, where there is no list."""
    texts: Several | None = None


class KissTranslation(Wire):
    """The translation of one text."""

    text: str
    src: str
    """Language code as the request gave it, or detected."""


class KissAnswer(Wire):
    """The answer to a KissRequest: a translation, or a list of them."""

    text: str | None = None
    src: str | None = None
    translations: list[KissTranslation] | None = None
    """Where the request had a list, one for each text, in order."""


class HcfyRequest(LenientRequest):
    """A text to translate, as Hcfy sends it."""

    text: str
    destination: Several
    """Languages, in Chinese or as codes: the first, or the second where the text is in the first
    already."""
    source: str | None = None
    """Language, likewise; detected where it is left out."""


class HcfyAnswer(Wire):
    """The answer to an HcfyRequest; its languages are in Chinese where Hcfy has a word for them."""

    model_config = ConfigDict(serialize_by_alias=True)

    text: str
    """As the request gave it."""
    source: str = Field(serialization_alias="from")
    target: str = Field(serialization_alias="to")
    result: list[str]
    """The translation of each line of the text."""
