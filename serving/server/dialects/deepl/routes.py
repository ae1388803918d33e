"""DeepL's API (version 2): text translation, languages and usage."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError, ServingError, UnauthorizedError, UnknownLanguageError
from serving.server.api.dialect import Dialect, DialectRoute
from serving.server.dialects.deepl.description import describe
from serving.server.dialects.deepl.wire import (
    DEEPL_STATUSES,
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
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields
from serving.server.http.gate import KeyRule
from serving.server.http.usage import CharacterUsage
from serving.server.http.wire import json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.backend import Backend
from serving.server.work.jobs import Jobs
from serving.server.work.translation_job import TextResult, TranslationJob
from serving.text.languages import language_name

RequestT = TypeVar("RequestT", bound=DeepLRequest)

_REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Targets that DeepL's clients name with a region only."""
_REFUSED = ("glossary_id", "style_id", "translation_memory_id", "custom_instructions")
_LINE_ENDS = re.compile(r"[\r\n]+")


_NAMES = {"source": "source_lang", "target": "target_lang"}
"""Parameters that have another name in the body."""


class _DeepLEndpoints:
    """Answers the requests under /v2, and counts the characters that each key has translated."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)
        self._usage = CharacterUsage(backend.settings.deepl_character_limit)

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate one text or several, each of which may be in another language."""
        body = await self._read(request, context, DeepLTranslateRequest)
        texts = [body.text] if isinstance(body.text, str) else body.text
        job = self._job(body, texts)
        characters = [len(text) for text in texts]
        with self._usage.spending(context.key, sum(characters)):
            try:
                result = await self._jobs.translate(job, context, request.receive)
            except RequestError as error:
                raise error.within("text").renamed(_NAMES) from error
        translations = [
            _translation(body, text, count)
            for text, count in zip(result.translations, characters, strict=True)
        ]
        return json_response(DeepLTranslations(translations=translations), exclude_none=True)

    async def languages(self, request: Request, context: RequestContext) -> Response:
        """List the languages that are read, or those that are written where `type` in the query or
        the body says `target`."""
        registry = self._backend.registry
        body = await self._read(request, context, DeepLLanguagesRequest)
        if body.type == "target":
            found = [
                DeepLLanguage(language=code, name=name, supports_formality=False)
                for target in registry.target_languages
                for code, name in _REGIONS.get(
                    target, {target.upper(): language_name(target)}
                ).items()
            ]
        else:
            found = [
                DeepLLanguage(language=code.upper(), name=language_name(code))
                for code in registry.source_languages
            ]
        return json_response(found, exclude_none=True)

    async def usage(self, request: Request, context: RequestContext) -> Response:
        """Tell how many characters this dialect has translated for the key of the request, and how
        many it may."""
        await self._read(request, context, DeepLRequest)
        count = self._usage.count(context.key)
        return json_response(DeepLUsage(character_count=count, character_limit=self._usage.limit))

    async def glossary_pairs(self, _: Request, __: RequestContext) -> Response:
        """Tell that there are no language pairs for glossaries, since none are stored here."""
        return json_response(DeepLGlossaryPairs(supported_languages=[]))

    async def _read(
        self, request: Request, context: RequestContext, schema: type[RequestT]
    ) -> RequestT:
        """The body, or the query, of a request that is let in by the key in it, if none stands in
        its head."""
        body = await read_fields(request, schema, self._backend.settings.max_body_bytes)
        # An earlier form of DeepL's API has the key in the query, whatever the body is.
        key = body.auth_key or request.query_params.get("auth_key")
        try:
            self._backend.gatekeeper.admit(context, key or None)
        except UnauthorizedError as error:
            error.parameter = "auth_key" if key else None
            raise
        return body

    def _job(self, body: DeepLTranslateRequest, texts: list[str]) -> TranslationJob:
        """The job that a body asks for; raises RequestError for a field that this server does not
        support."""
        for name in _REFUSED:
            if getattr(body, name):
                raise RequestError(
                    f"'{name}' is not supported on this server; leave it out", parameter=name
                )
        if body.formality in ("more", "less"):
            raise RequestError(
                f"'formality' is not supported for given 'target_lang', got {body.formality!r}; "
                f"leave it out or send 'prefer_{body.formality}'",
                parameter="formality",
            )
        registry, source = self._backend.registry, AUTO
        if body.source_lang:
            source = _language("source_lang", body.source_lang, registry.source_languages)
        if body.split_sentences == "nonewlines" and body.tag_handling is None:
            texts = [_LINE_ENDS.sub(" ", text) for text in texts]
        return TranslationJob(
            texts=texts,
            source=source,
            target=_language("target_lang", body.target_lang, registry.target_languages),
            format=body.tag_handling or "text",
            ignored=_tags(body.ignore_tags),
            split_sentences=body.split_sentences != "0",
        )


def _render_error(error: ServingError) -> Response:
    """The answer to a refused request in DeepL's shape, with the status that DeepL has for it."""
    status = DEEPL_STATUSES.get(error.status, error.status)
    return json_response(DeepLError(message=error.full_message, code=error.code), status=status)


def _language(parameter: str, given: str, known: Iterable[str]) -> str:
    """Our code of a language that `parameter` gives; one with a region counts without it where it
    is not known with it. Raises UnknownLanguageError, which names what there is."""
    codes = {code.lower(): code for code in known}
    for code in (given.lower(), given.lower().partition("-")[0]):
        if code in codes:
            return codes[code]
    raise UnknownLanguageError(
        f"Value for '{parameter}' not supported: must be one of {sorted(map(str.upper, codes))}, "
        f"got {given!r}",
        parameter=parameter,
    )


def _tags(given: str | list[str] | None) -> frozenset[str]:
    """The names of elements, in small letters, that a list or a text with commas gives."""
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


def _routes(backend: Backend) -> list[DialectRoute]:
    endpoints, either, key = _DeepLEndpoints(backend), ("GET", "POST"), KeyRule.HEAD_OR_BODY
    return [
        DialectRoute("/v2/translate", endpoints.translate, ("POST",), key),
        DialectRoute("/v2/languages", endpoints.languages, either, key),
        DialectRoute("/v2/usage", endpoints.usage, either, key),
        DialectRoute("/v2/glossary-language-pairs", endpoints.glossary_pairs),
    ]


DEEPL = Dialect(
    routes=_routes, describe=describe, error_paths=("/v2/",), render_error=_render_error
)
"""DeepL's API, version 2."""
