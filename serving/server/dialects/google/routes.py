"""Google Translate's API (version 2, "Basic"): translation, detection and languages."""

from __future__ import annotations

from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import QUICK, WORK, Dialect, DialectRoute
from serving.server.dialects.google.answers import detection, google_error, translated
from serving.server.dialects.google.wire import (
    GoogleDetectAnswer,
    GoogleDetections,
    GoogleDetectRequest,
    GoogleError,
    GoogleLanguage,
    GoogleLanguages,
    GoogleLanguagesAnswer,
    GoogleLanguagesRequest,
    GoogleTranslateAnswer,
    GoogleTranslateRequest,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields
from serving.server.http.wire import Wire, json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.admission import check_texts
from serving.server.work.backend import Backend
from serving.server.work.detection import likely_languages
from serving.server.work.translating.job import TranslationJob
from serving.server.work.translating.jobs import Jobs
from serving.text.languages import language_name

RequestT = TypeVar("RequestT", bound=Wire)

_NAMES = {"text": "q"}
"""Parameters that have another name in the body."""
_ANY_MODEL = ("nmt", "base")
"""The names of Google's own models."""


class _GoogleEndpoints:
    """Endpoints under /language/translate/v2."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate one or several texts."""
        body = await self._read(request, context, GoogleTranslateRequest)
        if body.cid:
            raise RequestError(
                "'cid' is not supported on this server, which has no custom models; leave it out",
                parameter="cid",
            )
        job = TranslationJob(
            texts=[body.q] if isinstance(body.q, str) else body.q,
            source=body.source or AUTO,
            target=body.target,
            format=body.format,
            model=None if body.model in _ANY_MODEL else body.model or None,
        )
        try:
            result = await self._jobs.translate(job, context, request.receive)
        except RequestError as error:
            raise error.within("q").renamed(_NAMES) from error
        return json_response(translated(body, result), exclude_none=True)

    async def detect(self, request: Request, context: RequestContext) -> Response:
        """Detect the language of each text."""
        body = await self._read(request, context, GoogleDetectRequest)
        texts = [body.q] if isinstance(body.q, str) else body.q
        try:
            check_texts(texts, self._backend.settings, "q")
        except RequestError as error:
            raise error.within("q") from error
        found = [
            await run_in_threadpool(likely_languages, text, self._backend.registry)
            for text in texts
        ]
        detections = GoogleDetections(detections=[[detection(languages)] for languages in found])
        return json_response(GoogleDetectAnswer(data=detections))

    async def languages(self, request: Request, context: RequestContext) -> Response:
        """List the supported languages, with names if a target language is given."""
        body = await self._read(request, context, GoogleLanguagesRequest)
        registry = self._backend.registry
        codes = sorted({*registry.source_languages, *registry.target_languages})
        languages = [
            GoogleLanguage(language=code, name=language_name(code) if body.target else None)
            for code in codes
        ]
        answer = GoogleLanguagesAnswer(data=GoogleLanguages(languages=languages))
        return json_response(answer, exclude_none=True)

    async def _read(
        self, request: Request, context: RequestContext, schema: type[RequestT]
    ) -> RequestT:
        """The body of a request, with what the query adds. If the usual headers carry no key, the
        key in the query or in Google's own header admits it."""
        key = request.query_params.get("key") or request.headers.get("x-goog-api-key")
        await self._backend.gatekeeper.admit(context, key or None)
        limit = self._backend.settings.max_body_bytes
        return await read_fields(request, schema, limit, query_too=True)


_KEY = KeyRule.HEAD_OR_QUERY
_QUERY: dict[str, tuple[str, ...]] = {"key": ()}

GOOGLE = Dialect(
    endpoints=_GoogleEndpoints,
    routes=(
        DialectRoute(
            "/language/translate/v2",
            _GoogleEndpoints.translate,
            "google_translate",
            "Translate one text or several, as Google Translate does",
            GoogleTranslateAnswer,
            methods=("GET", "POST"),
            request=GoogleTranslateRequest,
            form=("q", "target", "source", "format", "model"),
            query=_QUERY,
            errors=WORK,
            key=_KEY,
        ),
        DialectRoute(
            "/language/translate/v2/detect",
            _GoogleEndpoints.detect,
            "google_detect",
            "The language of each text",
            GoogleDetectAnswer,
            methods=("GET", "POST"),
            request=GoogleDetectRequest,
            form=("q",),
            query=_QUERY,
            errors=QUICK,
            key=_KEY,
        ),
        DialectRoute(
            "/language/translate/v2/languages",
            _GoogleEndpoints.languages,
            "google_languages",
            "Languages read or written",
            GoogleLanguagesAnswer,
            methods=("GET", "POST"),
            query={**_QUERY, "target": ()},
            errors=QUICK,
            key=_KEY,
        ),
    ),
    error=GoogleError,
    render_error=google_error,
)
"""Google Translate's API, version 2."""
