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
    """One or several texts whose languages are to be detected."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text, or a list of texts; a form or query repeats the field."""


class GoogleLanguagesRequest(Wire):
    """Selects the form of the list of languages."""

    target: str | None = None
    """If given, the answer includes the languages' names. They are in English, whatever the
    value."""


class GoogleTranslation(Wire):
    """The translation of one text."""

    translatedText: str
    detectedSourceLanguage: str | None = None
    """Present if the request had no `source`."""
    model: str | None = None
    """Present if the request named a model."""


class GoogleTranslations(Wire):
    """The translations of all texts."""

    translations: list[GoogleTranslation]
    """The translations, one per text, in order."""


class GoogleTranslateAnswer(Wire):
    """The answer to a GoogleTranslateRequest."""

    data: GoogleTranslations


class GoogleDetection(Wire):
    """The detected language of a text."""

    language: str
    """Language code; `und` for a text without letters."""
    confidence: Annotated[float, Field(ge=0, le=1)]
    isReliable: bool
    """Whether the language is more probable than all others together."""


class GoogleDetections(Wire):
    """The detected languages of all texts."""

    detections: list[list[GoogleDetection]]
    """One list per text, with one language in each."""


class GoogleDetectAnswer(Wire):
    """The answer to a GoogleDetectRequest."""

    data: GoogleDetections


class GoogleLanguage(Wire):
    """A source or target language."""

    language: str
    name: str | None = None
    """Present if the request had a `target`."""


class GoogleLanguages(Wire):
    """All source and target languages."""

    languages: list[GoogleLanguage]


class GoogleLanguagesAnswer(Wire):
    """The answer to a GoogleLanguagesRequest."""

    data: GoogleLanguages


class GoogleErrorItem(Wire):
    """An error in the list `errors`."""

    message: str
    domain: Literal["global"] = "global"
    reason: str
    """The kind of error, in the codes of Google's older APIs."""


class GoogleErrorDetail(Wire):
    """The description of an error."""

    code: int
    """The HTTP status of the answer."""
    message: str
    """A description for people."""
    errors: list[GoogleErrorItem]
    """A list of one error."""
    status: str
    """The kind of error, in Google's codes."""


class GoogleError(Wire):
    """The body of every answer that is not 2xx."""

    error: GoogleErrorDetail
