"""Bodies of Google Translate's dialect; fields that are not listed are ignored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import LenientRequest, Wire


class GoogleTranslateRequest(LenientRequest):
    """A request of `/language/translate/v2`: one or several texts to translate into one
    language."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text, or a list of texts; a form or query repeats the field."""
    target: str
    """Language code."""
    source: str | None = None
    """Language code; detected per text if omitted."""
    format: Literal["html", "text"] = "html"
    """Kind of text; the default is HTML."""
    model: str | None = None
    """`nmt` and `base` let the server choose; otherwise the name of a model."""
    cid: str | list[str] = Field([])
    """Refused unless it is empty: there are no custom models."""


class GoogleDetectRequest(LenientRequest):
    """A text or several, whose languages are asked for."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text, or a list of texts; in a form and in the query it is repeated."""


class GoogleLanguagesRequest(Wire):
    """Which languages are asked for."""

    target: str | None = None
    """Where it is given, the answer has the names of the languages, which are English ones."""


class GoogleTranslation(Wire):
    """The translation of one text."""

    translatedText: str
    detectedSourceLanguage: str | None = None
    """Where the request named no source."""
    model: str | None = None
    """Where the request named one."""


class GoogleTranslations(Wire):
    """The translations of all texts."""

    translations: list[GoogleTranslation]
    """One for each text, in order."""


class GoogleTranslateAnswer(Wire):
    """The answer to a GoogleTranslateRequest."""

    data: GoogleTranslations


class GoogleDetection(Wire):
    """The language that a text was found to be in."""

    language: str
    """Language code; `und` for a text without letters."""
    confidence: Annotated[float, Field(ge=0, le=1)]
    isReliable: bool
    """Whether it is likelier than all others together."""


class GoogleDetections(Wire):
    """What was found of all texts."""

    detections: list[list[GoogleDetection]]
    """For each text a list of one."""


class GoogleDetectAnswer(Wire):
    """The answer to a GoogleDetectRequest."""

    data: GoogleDetections


class GoogleLanguage(Wire):
    """A language that is read or written."""

    language: str
    name: str | None = None
    """Where the request named a target."""


class GoogleLanguages(Wire):
    """The languages that are read or written."""

    languages: list[GoogleLanguage]


class GoogleLanguagesAnswer(Wire):
    """The answer to a GoogleLanguagesRequest."""

    data: GoogleLanguages


class GoogleErrorItem(Wire):
    """What is wrong, once more."""

    message: str
    domain: Literal["global"] = "global"
    reason: str
    """What kind of error it is, in Google's older words."""


class GoogleErrorDetail(Wire):
    """What is wrong."""

    code: int
    """The status of the answer."""
    message: str
    """For people."""
    errors: list[GoogleErrorItem]
    """One."""
    status: str
    """What kind of error it is, in Google's words."""


class GoogleError(Wire):
    """Every answer that is not 2xx."""

    error: GoogleErrorDetail
