"""DeepL's API (version 2, and the languages of version 3): text translation, languages, usage."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, get_args

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError, UnauthorizedError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import QUICK, WORK, Dialect, DialectRoute
from serving.server.dialects.deepl.answers import (
    QUOTA_EXCEEDED,
    REGIONS,
    STATUSES,
    CharacterUsage,
    glossary_ids,
    glossary_languages,
    language_code,
    render_error,
    supported_languages,
    tag_names,
    translation,
    unused,
)
from serving.server.dialects.deepl.wire import (
    DeepLError,
    DeepLLanguage,
    DeepLLanguagesRequest,
    DeepLLanguageSupport,
    DeepLRequest,
    DeepLResourceRequest,
    DeepLStyleRules,
    DeepLTranslateRequest,
    DeepLTranslations,
    DeepLUsage,
    Resource,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields
from serving.server.http.wire import json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.backend import Backend
from serving.server.work.stored.glossaries import glossary_pairs
from serving.server.work.stored.wishes import StoredWishes, with_stored
from serving.server.work.translating.job import TranslationJob
from serving.server.work.translating.jobs import Jobs
from serving.text.characters import counted_characters
from serving.text.languages import language_name

RequestT = TypeVar("RequestT", bound=DeepLRequest)

_REFUSED = ("style_id", "custom_instructions")
_LINE_ENDS = re.compile(r"[\r\n]+")


_NAMES = {
    "source": "source_lang",
    "target": "target_lang",
    "memory_id": "translation_memory_id",
    "memory_threshold": "translation_memory_threshold",
}
"""Parameters that have another name in the body."""


class _DeepLEndpoints:
    """Endpoints under /v2; they count the characters that each key has translated."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)
        self._usage = CharacterUsage(backend.settings.character_limit)

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate one or several texts, which may be in different languages."""
        body = await self._read(request, context, DeepLTranslateRequest)
        texts = [body.text] if isinstance(body.text, str) else body.text
        job = self._job(body, texts)
        job = await self._with_stored(job, body, context)
        characters = [counted_characters(text, job.format) for text in texts]
        with self._spending(context, sum(characters)):
            try:
                result = await self._jobs.translate(job, context, request.receive)
            except RequestError as error:
                raise error.within("text").renamed(_NAMES) from error
        translations = [
            translation(body, text, count)
            for text, count in zip(result.translations, characters, strict=True)
        ]
        answer = DeepLTranslations(
            translations=translations, warnings=unused(body, result.translations)
        )
        return json_response(answer, exclude_none=True)

    async def languages(self, request: Request, context: RequestContext) -> Response:
        """List the source languages, or the target languages if `type` in the query or the body is
        `target`."""
        registry = self._backend.registry
        body = await self._read(request, context, DeepLLanguagesRequest)
        if body.type == "target":
            found = [
                DeepLLanguage(language=code, name=name, supports_formality=False)
                for target in registry.target_languages
                for code, name in REGIONS.get(
                    target, {target.upper(): language_name(target)}
                ).items()
            ]
        else:
            found = [
                DeepLLanguage(language=code.upper(), name=language_name(code))
                for code in registry.source_languages
            ]
        return json_response(found, exclude_none=True)

    async def resource_languages(self, request: Request, _: RequestContext) -> Response:
        """List the languages that a resource supports; an empty list for an unsupported
        resource."""
        limit, registry = self._backend.settings.max_body_bytes, self._backend.registry
        body = await read_fields(request, DeepLResourceRequest, limit)
        if body.resource == "glossary" and self._backend.store is not None:
            return json_response(glossary_languages(glossary_pairs(registry)))
        if body.resource != "translate_text":
            return json_response([])
        return json_response(
            supported_languages(registry.source_languages, registry.target_languages)
        )

    async def write(self, _: Request, __: RequestContext) -> Response:
        """Refuse to rewrite a text; raises RequestError."""
        raise RequestError(
            "texts are not corrected or rewritten on this server, only translated; send them to "
            "/v2/translate"
        )

    async def style_rules(self, request: Request, _: RequestContext) -> Response:
        """List no style rules, since none are stored; raises RequestError for an attempt to create
        one."""
        if request.method == "POST":
            raise RequestError(
                "style rules are not supported on this server; translate without them"
            )
        return json_response(DeepLStyleRules(style_rules=[]))

    async def usage(self, request: Request, context: RequestContext) -> Response:
        """Report the characters that the key has used this month, and its limit. Without a store,
        the characters that this dialect has translated for the key."""
        await self._read(request, context, DeepLRequest)
        own = self._usage.count(context.key), self._usage.limit
        count, limit = await self._backend.gatekeeper.usage(context) or own
        return json_response(DeepLUsage(character_count=count, character_limit=limit))

    def _spending(self, context: RequestContext, characters: int) -> AbstractContextManager[None]:
        """Count characters here if the gatekeeper has no store to count them in."""
        if self._backend.store is not None:
            return nullcontext()
        return self._usage.spending(context.key, characters)

    async def _read(
        self, request: Request, context: RequestContext, schema: type[RequestT]
    ) -> RequestT:
        """The body or query of a request. If the headers carry no key, the key in the body or query
        admits it."""
        body = await read_fields(request, schema, self._backend.settings.max_body_bytes)
        # An earlier form of DeepL's API has the key in the query, whatever the body is.
        key = body.auth_key or request.query_params.get("auth_key")
        try:
            await self._backend.gatekeeper.admit(context, key or None)
        except UnauthorizedError as error:
            error.parameter = "auth_key" if key else None
            raise
        return body

    async def _with_stored(
        self, job: TranslationJob, body: DeepLTranslateRequest, context: RequestContext
    ) -> TranslationJob:
        """The job with the glossaries and the memory of the body; raises RequestError if they do
        not exist or do not fit its languages."""
        wishes = StoredWishes(
            glossaries=glossary_ids(body),
            memory=body.translation_memory_id or "",
            threshold=body.translation_memory_threshold,
        )
        try:
            return await with_stored(
                self._backend.store, self._backend.registry, job, wishes, context.key
            )
        except RequestError as error:
            raise error.renamed(_NAMES) from error

    def _job(self, body: DeepLTranslateRequest, texts: list[str]) -> TranslationJob:
        """The job of a body; raises RequestError for a field that this server does not support."""
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
        source, target = self._languages(body)
        if body.split_sentences == "nonewlines" and body.tag_handling is None:
            texts = [_LINE_ENDS.sub(" ", text) for text in texts]
        return TranslationJob(
            texts=texts,
            source=source,
            target=target,
            format=body.tag_handling or "text",
            ignored=tag_names(body.ignore_tags),
            split_sentences=body.split_sentences != "0",
        )

    def _languages(self, body: DeepLTranslateRequest) -> tuple[str, str]:
        """The model codes of source and target. Raises UnknownLanguageError, in DeepL's words, if
        the source is not read or the target not written, unless both are the same language."""
        registry, source = self._backend.registry, AUTO
        if body.source_lang:
            source, target = registry.codes(body.source_lang, body.target_lang)
            if source == target:
                return source, target
            source = language_code("source_lang", body.source_lang, registry.source_languages)
        return source, language_code("target_lang", body.target_lang, registry.target_languages)


_KEY = KeyRule.HEAD_OR_QUERY
_FORM = (
    *("text", "target_lang", "source_lang", "split_sentences", "formality", "tag_handling"),
    *("ignore_tags", "model_type", "preserve_formatting", "show_billed_characters", "context"),
    *("translation_memory_id", "translation_memory_threshold"),
)
_WORK = tuple(STATUSES.get(status, status) for status in WORK)
_QUICK = tuple(STATUSES.get(status, status) for status in QUICK)

DEEPL = Dialect(
    endpoints=_DeepLEndpoints,
    routes=(
        DialectRoute(
            "/v2/translate",
            _DeepLEndpoints.translate,
            "deepl_translate",
            "Translate one text or several, as DeepL does",
            DeepLTranslations,
            methods=("POST",),
            request=DeepLTranslateRequest,
            form=_FORM,
            errors=(*_WORK, QUOTA_EXCEEDED, 501),
            key=_KEY,
        ),
        DialectRoute(
            "/v2/languages",
            _DeepLEndpoints.languages,
            "deepl_languages",
            "Languages read or written",
            list[DeepLLanguage],
            methods=("GET", "POST"),
            query={"type": ("source", "target")},
            errors=_QUICK,
            key=_KEY,
        ),
        DialectRoute(
            "/v2/usage",
            _DeepLEndpoints.usage,
            "deepl_usage",
            "Characters used so far",
            DeepLUsage,
            methods=("GET", "POST"),
            errors=_QUICK,
            key=_KEY,
        ),
        DialectRoute(
            "/v3/languages",
            _DeepLEndpoints.resource_languages,
            "deepl_resource_languages",
            "Languages and the features that they support",
            list[DeepLLanguageSupport],
            query={"resource": get_args(Resource)},
            errors=(400, 403, 429, 503),
        ),
        DialectRoute(
            "/v3/style_rules",
            _DeepLEndpoints.style_rules,
            "deepl_style_rules",
            "The style rules; the list is always empty",
            DeepLStyleRules,
            methods=("GET", "POST"),
            errors=(400, 403, 429),
        ),
        *(
            DialectRoute(
                f"/v2/write/{verb}",
                _DeepLEndpoints.write,
                f"deepl_{verb}",
                "Refused: texts are only translated here",
                dict,
                methods=("POST",),
                errors=(400, 403, 429),
            )
            for verb in ("rephrase", "correct")
        ),
    ),
    error=DeepLError,
    render_error=render_error,
    reasons={
        403: "An API key is missing or unknown; only if the server has keys",
        QUOTA_EXCEEDED: "The key has used its characters of this month, or without a store, "
        "those since the start of the server",
        501: "A glossary or a memory is named, but the server has no store",
    },
    key_schemes=("deepl-auth-key",),
)
"""DeepL's API, version 2."""
