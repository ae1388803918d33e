"""DeepL's API (version 2): text translation, languages and usage."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serving.errors import RequestError, ServingError, UnknownLanguageError
from serving.server.body import read_fields
from serving.server.dialects.deepl.wire import (
    DeepLError,
    DeepLGlossaryPairs,
    DeepLLanguage,
    DeepLLanguagesRequest,
    DeepLRequest,
    DeepLTranslateRequest,
    DeepLTranslation,
    DeepLTranslations,
    DeepLUsage,
)
from serving.server.gate import check_key
from serving.server.jobs import Job, Jobs, TextResult
from serving.server.record import CURRENT
from serving.server.registry import AUTO, Registry
from serving.server.settings import Settings
from serving.server.usage import CharacterUsage
from serving.server.wire import json_response
from serving.text.languages import language_name

RequestT = TypeVar("RequestT", bound=DeepLRequest)

_REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Targets that DeepL's clients name with a region only."""
_REFUSED = ("glossary_id", "style_id", "translation_memory_id", "custom_instructions")
_LINE_ENDS = re.compile(r"[\r\n]+")


class DeepLDialect:
    """Handlers of the routes under /v2."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings
        self._jobs = Jobs(registry, settings)
        self._usage = CharacterUsage(settings.deepl_character_limit)

    @property
    def routes(self) -> list[Route]:
        """The routes; errors of their paths have DeepL's shape."""
        return [
            Route("/v2/translate", self.translate, methods=["POST"]),
            Route("/v2/languages", self.languages, methods=["GET", "POST"]),
            Route("/v2/usage", self.usage, methods=["GET", "POST"]),
            Route("/v2/glossary-language-pairs", self.glossary_pairs),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or several."""
        body = await self._read(request, DeepLTranslateRequest)
        texts = [body.text] if isinstance(body.text, str) else body.text
        job = self._job(body, texts)
        characters = [len(text) for text in texts]
        with self._usage.spending(_key_name(), sum(characters)):
            try:
                result = await self._jobs.translate(job, request.receive)
            except RequestError as error:
                raise error.within("text") from error
        translations = [
            _translation(body, text, count)
            for text, count in zip(result.translations, characters, strict=True)
        ]
        return json_response(DeepLTranslations(translations=translations), exclude_none=True)

    async def languages(self, request: Request) -> Response:
        """Languages that are read, or written, where `type` says `target` in query or body."""
        body = await self._read(request, DeepLLanguagesRequest)
        if body.type == "target":
            found = [
                DeepLLanguage(language=code, name=name, supports_formality=False)
                for target in self._registry.target_languages
                for code, name in _REGIONS.get(
                    target, {target.upper(): language_name(target)}
                ).items()
            ]
        else:
            found = [
                DeepLLanguage(language=code.upper(), name=language_name(code))
                for code in self._registry.source_languages
            ]
        return json_response(found, exclude_none=True)

    async def usage(self, request: Request) -> Response:
        """Characters translated in this dialect for the key of the request, and their limit."""
        await self._read(request, DeepLRequest)
        count = self._usage.count(_key_name())
        return json_response(DeepLUsage(character_count=count, character_limit=self._usage.limit))

    async def glossary_pairs(self, _: Request) -> Response:
        """None: glossaries are not stored here."""
        return json_response(DeepLGlossaryPairs(supported_languages=[]))

    async def _read(self, request: Request, schema: type[RequestT]) -> RequestT:
        """The body, or the query, once the key is known."""
        body = await read_fields(request, schema, self._settings.max_body_bytes)
        check_key(body.auth_key or None)
        return body

    def _job(self, body: DeepLTranslateRequest, texts: list[str]) -> Job:
        """What a body asks for; raises RequestError for what is not to be had here."""
        for name in _REFUSED:
            if getattr(body, name):
                raise RequestError(f"'{name}' is not supported on this server; leave it out")
        if body.formality in ("more", "less"):
            raise RequestError(
                f"'formality' is not supported for given 'target_lang', got {body.formality!r}; "
                f"leave it out or send 'prefer_{body.formality}'"
            )
        source = AUTO
        if body.source_lang:
            source = _language("source_lang", body.source_lang, self._registry.source_languages)
        if body.split_sentences == "nonewlines" and body.tag_handling is None:
            texts = [_LINE_ENDS.sub(" ", text) for text in texts]
        return Job(
            texts=texts,
            source=source,
            target=_language("target_lang", body.target_lang, self._registry.target_languages),
            format=body.tag_handling or "text",
            ignored=_tags(body.ignore_tags),
            split_sentences=body.split_sentences != "0",
        )


def deepl_error(error: ServingError) -> DeepLError:
    """An error in DeepL's shape."""
    return DeepLError(message=str(error), code=error.code)


def _key_name() -> str:
    """Short name of the key of the request; empty where no keys are asked for."""
    record = CURRENT.get()
    return record.client if record else ""


def _language(parameter: str, given: str, known: Iterable[str]) -> str:
    """Our code of a language; one with a region counts without it where it is not known with it."""
    codes = {code.lower(): code for code in known}
    for code in (given.lower(), given.lower().partition("-")[0]):
        if code in codes:
            return codes[code]
    raise UnknownLanguageError(
        f"Value for '{parameter}' not supported: must be one of {sorted(map(str.upper, codes))}, "
        f"got {given!r}"
    )


def _tags(given: str | list[str] | None) -> frozenset[str]:
    """Names of elements, in small letters."""
    parts = [given] if isinstance(given, str) else given or []
    return frozenset(name.strip().lower() for part in parts for name in part.split(","))


def _translation(
    body: DeepLTranslateRequest, result: TextResult, characters: int
) -> DeepLTranslation:
    model_type = body.model_type
    if model_type == "prefer_quality_optimized":
        model_type = "quality_optimized"
    return DeepLTranslation(
        detected_source_language=result.source.upper(),
        text=result.text,
        billed_characters=characters,
        model_type_used=model_type,
    )
