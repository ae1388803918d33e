"""Bodies of LibreTranslate's dialect, without those of `/translate` and `/languages`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import LenientRequest, Wire


class DetectRequest(LenientRequest):
    """A text, or several texts in the same language, whose language is to be detected."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text in one language."""
    api_key: str = ""
    """API key, if the server requires one."""


class SuggestRequest(LenientRequest):
    """A better translation of a text."""

    q: str
    """The text."""
    s: str
    """The suggested translation."""
    source: str
    """Language code of the text, or `auto` to detect it."""
    target: str
    """Language code of the translation."""
    api_key: str = ""
    """API key, if the server requires one."""


class Suggested(Wire):
    """Confirms that the suggestion was stored."""

    success: Literal[True] = True


class SuggestedLanguages(Wire):
    """Selects suggestions by their languages."""

    source: str
    target: str


class NamedLanguage(Wire):
    """A language with its English name."""

    code: str
    name: str


class FrontendLanguages(Wire):
    """The languages that a page selects at the start."""

    source: NamedLanguage
    target: NamedLanguage


class FrontendSettings(Wire):
    """The settings that a web page needs."""

    charLimit: int
    """Largest number of characters of a text."""
    frontendTimeout: int
    """Milliseconds without typing before a page should translate."""
    apiKeys: bool
    keyRequired: bool
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    language: FrontendLanguages


class Health(Wire):
    """The state of the server."""

    status: Literal["ok"]


class TranslatedFile(Wire):
    """The URL of a translated file."""

    translatedFileUrl: str
