"""DeepLX's API, which reading plug-ins use: one text per request."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from serving.errors import RequestError
from serving.server.access.gate import KeyRule
from serving.server.api.dialect import WORK, Dialect, DialectRoute
from serving.server.dialects.deeplx.answers import deeplx_error, deeplx_translation
from serving.server.dialects.deeplx.wire import DeepLXError, DeepLXRequest, DeepLXTranslation
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.backend import Backend
from serving.server.work.translating.job import TranslationJob
from serving.server.work.translating.jobs import Jobs

_NAMES = {"source": "source_lang", "target": "target_lang"}
"""Parameters that have another name in the body."""


class _DeepLXEndpoints:
    """Endpoint of DeepLX."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate a text. The query may carry the key as `token`."""
        token = request.query_params.get("token")
        await self._backend.gatekeeper.admit(context, token or None)
        body = await read_json(request, DeepLXRequest, self._backend.settings.max_body_bytes)
        job = TranslationJob(
            texts=[body.text],
            source=body.source_lang or AUTO,
            target=body.target_lang,
            format=body.tag_handling or "text",
        )
        try:
            result = await self._jobs.translate(job, context, request.receive)
        except RequestError as error:
            raise error.naming(_NAMES) from error
        return json_response(deeplx_translation(body, result.translations[0]))


DEEPLX = Dialect(
    endpoints=_DeepLXEndpoints,
    routes=(
        DialectRoute(
            "/v1/translate",
            _DeepLXEndpoints.translate,
            "deeplx_translate",
            "Translate a text, as DeepLX does; `/translate` does the same with such a body",
            DeepLXTranslation,
            methods=("POST",),
            request=DeepLXRequest,
            query={"token": ()},
            errors=WORK,
            key=KeyRule.HEAD_OR_QUERY,
            among_others=True,
            shares={"/translate": frozenset({"text", "target_lang"})},
        ),
    ),
    error=DeepLXError,
    render_error=deeplx_error,
    key_schemes=("deepl-auth-key",),
)
"""DeepLX's API."""
