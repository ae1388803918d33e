"""Bodies of MTranServer's dialect, and of the plug-ins that it supports: Immersive Translate
(`/imme`), KISS Translator (`/kiss`) and Hcfy (`/hcfy`). Unknown fields are ignored."""

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
    """A text to translate."""

    text: str
    html: Flag = False
    """Whether the text is HTML. Tags are kept."""


class MTranBatchRequest(MTranPair):
    """Texts to translate."""

    texts: Several
    html: Flag = False
    """Whether the texts are HTML. Tags are kept."""


class MTranResult(Wire):
    """The answer to an MTranRequest."""

    result: str


class MTranResults(Wire):
    """The answer to an MTranBatchRequest."""

    results: list[str]
    """The translations, one per text, in order."""


class MTranDetectRequest(LenientRequest):
    """A text whose language is to be detected."""

    text: str


class MTranDetected(Wire):
    """The detected language of a text."""

    language: str
    """Language code; `en` for a text without letters."""


class MTranLanguages(Wire):
    """All source and target languages."""

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
    """Language code, detected or from the request."""
    text: str


class ImmeTranslations(Wire):
    """The answer to an ImmeRequest."""

    translations: list[ImmeTranslation]
    """The translations, one per text, in order."""


class KissRequest(MTranPair):
    """One or several texts to translate, as KISS Translator sends them."""

    text: str | None = None
    """One text; omitted if there is a list."""
    texts: Several | None = None


class KissTranslation(Wire):
    """The translation of one text."""

    text: str
    src: str
    """Language code, detected or from the request."""


class KissAnswer(Wire):
    """The answer to a KissRequest: a translation, or a list of them."""

    text: str | None = None
    src: str | None = None
    translations: list[KissTranslation] | None = None
    """The translations, one per text, in order, if the request had a list."""


class HcfyRequest(LenientRequest):
    """A text to translate, as Hcfy sends it."""

    text: str
    destination: Several
    """Target languages, as Chinese names or as codes. The second is used if the text is already in
    the first."""
    source: str | None = None
    """Source language, as a Chinese name or a code; detected if omitted."""


class HcfyAnswer(Wire):
    """The answer to an HcfyRequest. Languages have the Chinese names that Hcfy uses, or codes."""

    model_config = ConfigDict(serialize_by_alias=True)

    text: str
    """The text of the request."""
    source: str = Field(serialization_alias="from")
    target: str = Field(serialization_alias="to")
    result: list[str]
    """The translation of each line of the text."""
