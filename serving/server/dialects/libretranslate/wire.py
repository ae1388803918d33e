"""What goes over the wire in LibreTranslate's dialect besides `/translate` and `/languages`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import LenientRequest, Wire


class DetectRequest(LenientRequest):
    """A text, or several that are taken as one."""

    q: str | Annotated[list[str], Field(min_length=1)]
    """Text in one language."""
    api_key: str = ""
    """Key of the caller, where the server asks for keys."""


class SuggestRequest(LenientRequest):
    """A better translation of a text."""

    q: str
    """The text."""
    s: str
    """What it should be translated as."""
    source: str
    """Language code of the text."""
    target: str
    """Language code of the translation."""
    api_key: str = ""
    """Key of the caller, where the server asks for keys."""


class Suggested(Wire):
    """That a suggestion is kept."""

    success: Literal[True] = True


class SuggestedLanguages(Wire):
    """Which suggestions are asked for."""

    source: str
    target: str


class NamedLanguage(Wire):
    """A language with its English name, as a list to choose from shows it."""

    code: str
    name: str


class FrontendLanguages(Wire):
    """What a page chooses at first."""

    source: NamedLanguage
    target: NamedLanguage


class FrontendSettings(Wire):
    """What a page in front of the server has to know."""

    charLimit: int
    """Characters of a text."""
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
    """Where a translated file can be fetched."""

    translatedFileUrl: str
