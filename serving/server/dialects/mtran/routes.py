"""The API of MTranServer and those of the browser plug-ins that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import API_VERSION, QUICK, WORK, Dialect, DialectRoute
from serving.server.dialects.mtran.answers import (
    hcfy_answer,
    hcfy_code,
    imme_answer,
    kiss_answer,
)
from serving.server.dialects.mtran.wire import (
    HcfyAnswer,
    HcfyRequest,
    ImmeRequest,
    ImmeTranslations,
    KissAnswer,
    KissRequest,
    MTranBatchRequest,
    MTranDetected,
    MTranDetectRequest,
    MTranLanguages,
    MTranRequest,
    MTranResult,
    MTranResults,
    MTranVersion,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import LenientRequest, json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.admission import check_texts
from serving.server.work.backend import Backend
from serving.server.work.detection import likely_languages
from serving.server.work.translating.job import JobResult, TranslationJob
from serving.server.work.translating.jobs import Jobs

RequestT = TypeVar("RequestT", bound=LenientRequest)

_PAIR = {"source": "from", "target": "to"}
_IMME = {"source": "source_lang", "target": "target_lang"}
_HCFY = {"source": "source", "target": "destination"}
"""Parameters that have another name in the bodies."""
_UNKNOWN = ("en", 0.0)
"""MTranServer's answer for a text without a language, such as a number."""


class _MTranEndpoints:
    """Endpoints of MTranServer's clients."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate a text."""
        body = await self._read(request, context, MTranRequest)
        job = TranslationJob(
            texts=[body.text],
            source=body.source,
            target=body.target,
            format="html" if body.html else "text",
        )
        result = await self._translated(job, request, context, _PAIR)
        return json_response(MTranResult(result=result.translations[0].text))

    async def batch(self, request: Request, context: RequestContext) -> Response:
        """Translate several texts."""
        body = await self._read(request, context, MTranBatchRequest)
        job = TranslationJob(
            texts=body.texts,
            source=body.source,
            target=body.target,
            format="html" if body.html else "text",
        )
        result = await self._translated(job, request, context, _PAIR, "texts")
        return json_response(MTranResults(results=[text.text for text in result.translations]))

    async def imme(self, request: Request, context: RequestContext) -> Response:
        """Translate texts for Immersive Translate."""
        body = await self._read(request, context, ImmeRequest)
        job = TranslationJob(texts=body.text_list, source=body.source_lang, target=body.target_lang)
        result = await self._translated(job, request, context, _IMME, "text_list")
        return json_response(imme_answer(body, result))

    async def kiss(self, request: Request, context: RequestContext) -> Response:
        """Translate a text or several for KISS Translator."""
        body = await self._read(request, context, KissRequest)
        texts = body.texts or ([] if body.text is None else [body.text])
        if not texts:
            raise RequestError("Invalid request: missing text parameter", parameter="text")
        job = TranslationJob(texts=texts, source=body.source, target=body.target)
        place = None if body.texts is None else "texts"
        result = await self._translated(job, request, context, _PAIR, place)
        return json_response(kiss_answer(body, result), exclude_none=True)

    async def hcfy(self, request: Request, context: RequestContext) -> Response:
        """Translate a text for Hcfy, line by line."""
        body = await self._read(request, context, HcfyRequest)
        check_texts([body.text], self._backend.settings)
        found = [] if body.source else await self._likely(body.text)
        source = hcfy_code(body.source or (found or [(AUTO, 0.0)])[0][0])
        named = body.destination[0]
        same, target = self._backend.registry.codes(source, hcfy_code(named))
        if same == target and len(body.destination) > 1:
            named = body.destination[1]
            target = hcfy_code(named)
        # A source that may be any language counts if a model reads it.
        readable = body.source or source in self._backend.registry.source_languages
        # As one text whose lines stay lines: it may have more lines than a request has texts.
        job = TranslationJob(texts=[body.text], source=source if readable else AUTO, target=target)
        result = await self._translated(job, request, context, _HCFY)
        return json_response(hcfy_answer(body, named, result))

    async def detect(self, request: Request, context: RequestContext) -> Response:
        """Detect the language of a text."""
        body = await self._read(request, context, MTranDetectRequest)
        check_texts([body.text], self._backend.settings)
        language, _ = (await self._likely(body.text) or [_UNKNOWN])[0]
        return json_response(MTranDetected(language=language))

    async def languages(self, request: Request, context: RequestContext) -> Response:
        """List the supported languages."""
        await self._admit(request, context)
        registry = self._backend.registry
        codes = sorted({*registry.source_languages, *registry.target_languages})
        return json_response(MTranLanguages(languages=codes))

    async def version(self, _: Request, __: RequestContext) -> Response:
        """Return the version of this server."""
        return json_response(MTranVersion(version=API_VERSION))

    async def _likely(self, text: str) -> list[tuple[str, float]]:
        return await run_in_threadpool(likely_languages, text, self._backend.registry)

    async def _admit(self, request: Request, context: RequestContext) -> None:
        """Admit a request. If the usual headers carry no key, the key in the query or in
        MTranServer's own header counts."""
        query = request.query_params
        key = query.get("token") or query.get("api_token") or request.headers.get("x-api-token")
        await self._backend.gatekeeper.admit(context, key or None)

    async def _read(
        self, request: Request, context: RequestContext, schema: type[RequestT]
    ) -> RequestT:
        await self._admit(request, context)
        return await read_json(request, schema, self._backend.settings.max_body_bytes)

    async def _translated(
        self,
        job: TranslationJob,
        request: Request,
        context: RequestContext,
        names: Mapping[str, str],
        place: str | None = None,
    ) -> JobResult:
        """Translate a job. Errors use the field names of the body; if the texts are a list, `place`
        names the text at fault."""
        try:
            return await self._jobs.translate(job, context, request.receive)
        except RequestError as error:
            if place is not None:
                error = error.within(place).renamed({"text": place})
            raise error.naming(names) from error


_KEY = KeyRule.HEAD_OR_QUERY
_QUERY: dict[str, tuple[str, ...]] = {"token": ()}

MTRAN = Dialect(
    endpoints=_MTranEndpoints,
    routes=(
        DialectRoute(
            "/mtran/translate",
            _MTranEndpoints.translate,
            "mtran_translate",
            "Translate a text, as MTranServer does; `/translate` does the same with such a body",
            MTranResult,
            methods=("POST",),
            request=MTranRequest,
            query=_QUERY,
            errors=WORK,
            key=_KEY,
            shares={"/translate": frozenset({"from", "to", "text"})},
        ),
        DialectRoute(
            "/translate/batch",
            _MTranEndpoints.batch,
            "mtran_batch",
            "Translate several texts, as MTranServer does",
            MTranResults,
            methods=("POST",),
            request=MTranBatchRequest,
            query=_QUERY,
            errors=WORK,
            key=_KEY,
        ),
        DialectRoute(
            "/imme",
            _MTranEndpoints.imme,
            "imme",
            "Translate texts for Immersive Translate",
            ImmeTranslations,
            methods=("POST",),
            request=ImmeRequest,
            query=_QUERY,
            errors=WORK,
            key=_KEY,
        ),
        DialectRoute(
            "/kiss",
            _MTranEndpoints.kiss,
            "kiss",
            "Translate a text or several for KISS Translator",
            KissAnswer,
            methods=("POST",),
            request=KissRequest,
            query=_QUERY,
            errors=WORK,
            key=_KEY,
        ),
        DialectRoute(
            "/hcfy",
            _MTranEndpoints.hcfy,
            "hcfy",
            "Translate a text for Hcfy, line by line",
            HcfyAnswer,
            methods=("POST",),
            request=HcfyRequest,
            query=_QUERY,
            errors=WORK,
            key=_KEY,
        ),
        DialectRoute(
            "/mtran/detect",
            _MTranEndpoints.detect,
            "mtran_detect",
            "The language of a text; `/detect` does the same with such a body",
            MTranDetected,
            methods=("POST",),
            request=MTranDetectRequest,
            query=_QUERY,
            errors=QUICK,
            key=_KEY,
            shares={"/detect": frozenset({"text"})},
        ),
        DialectRoute(
            "/mtran/languages",
            _MTranEndpoints.languages,
            "mtran_languages",
            "Languages read or written, as MTranServer lists them",
            MTranLanguages,
            query=_QUERY,
            errors=(401, 429, 503),
            key=_KEY,
        ),
        DialectRoute(
            "/version",
            _MTranEndpoints.version,
            "version",
            "The version of this server",
            MTranVersion,
            key=KeyRule.NONE,
        ),
    ),
)
"""MTranServer's API. Its errors have the native shape."""
