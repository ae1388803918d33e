"""LibreTranslate's routes other than `/translate` and `/languages`, which the native dialect also
has."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.server.access.gate import KeyRule, admit_by_body
from serving.server.api.dialect import QUICK, Dialect, DialectRoute
from serving.server.dialects.libretranslate.wire import (
    DetectRequest,
    FrontendLanguages,
    FrontendSettings,
    Health,
    NamedLanguage,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields
from serving.server.http.form import clean_lines
from serving.server.http.wire import JSON, DetectedLanguage, detected_language, json_response
from serving.server.models.catalogue import AUTO
from serving.server.work.admission import check_texts
from serving.server.work.backend import Backend
from serving.server.work.detection import likely_languages
from serving.text.languages import language_name

_TYPING_PAUSE_MS = 500

_LEAST_CONFIDENCE = 0.05
"""Least confidence at which a language is reported."""
_UNKNOWN = ("en", 0.0)
"""LibreTranslate's answer for a text without a language, such as a number."""


class _LibreTranslateEndpoints:
    """Endpoints of LibreTranslate's own routes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def detect(self, request: Request, context: RequestContext) -> Response:
        """Detect the possible languages of a text, most probable first."""
        limit = self._backend.settings.max_body_bytes
        body = await read_fields(request, DetectRequest, limit, clean_lines)
        await admit_by_body(self._backend.gatekeeper, context, body.api_key)
        texts = [body.q] if isinstance(body.q, str) else body.q
        check_texts(texts, self._backend.settings, "q")
        registry = self._backend.registry
        found = await run_in_threadpool(likely_languages, "\n".join(texts), registry)
        # Clients take the first entry without checking that there is one.
        first, *others = found or [_UNKNOWN]
        worth_telling = [pair for pair in others if pair[1] >= _LEAST_CONFIDENCE]
        return json_response([detected_language(*pair) for pair in (first, *worth_telling)])

    async def frontend_settings(self, _: Request, __: RequestContext) -> Response:
        """Return the settings for a web page: limits, keys and languages."""
        models, needed = self._backend.registry.translators, self._backend.gatekeeper.required
        targets = [model.manifest.languages.target[0] for model in models] or [_UNKNOWN[0]]
        settings = FrontendSettings(
            charLimit=self._backend.settings.max_text_chars,
            frontendTimeout=_TYPING_PAUSE_MS,
            apiKeys=needed,
            keyRequired=needed,
            suggestions=self._backend.store is not None,
            filesTranslation=True,
            supportedFilesFormat=await run_in_threadpool(_suffixes),
            language=FrontendLanguages(
                source=NamedLanguage(code=AUTO, name="Auto Detect"),
                target=NamedLanguage(code=targets[0], name=language_name(targets[0])),
            ),
        )
        return json_response(settings)

    async def health(self, _: Request, __: RequestContext) -> Response:
        """Report whether the server is ready, as `/readyz` does."""
        self._backend.registry.check_ready()
        return json_response(Health(status="ok"))

    async def spec(self, _: Request, __: RequestContext) -> Response:
        """Return the OpenAPI document, at LibreTranslate's path."""
        return Response(self._backend.document(), media_type=JSON)


def _suffixes() -> list[str]:
    # Imported here, because a server without documents does not need it.
    from serving.documents.recognition import FORMATS, suffixes

    # /translate_file has no field for the columns of tables either.
    taken = [format for format in FORMATS if not format.in_columns]
    return [suffix for suffix in suffixes(taken) if suffix.startswith(".")]


LIBRETRANSLATE = Dialect(
    endpoints=_LibreTranslateEndpoints,
    routes=(
        DialectRoute(
            "/detect",
            _LibreTranslateEndpoints.detect,
            "detect",
            "Languages that a text may be in",
            list[DetectedLanguage],
            methods=("POST",),
            request=DetectRequest,
            form=("q", "api_key"),
            errors=(*QUICK, 403),
            key=KeyRule.HEAD_OR_BODY,
        ),
        DialectRoute(
            "/frontend/settings",
            _LibreTranslateEndpoints.frontend_settings,
            "frontend_settings",
            "The settings for a web page",
            FrontendSettings,
            errors=(503,),
            key=KeyRule.NONE,
        ),
        DialectRoute(
            "/health",
            _LibreTranslateEndpoints.health,
            "health",
            "Whether the server can translate",
            Health,
            errors=(503,),
            key=KeyRule.NONE,
        ),
        DialectRoute(
            "/spec",
            _LibreTranslateEndpoints.spec,
            "spec",
            "This document",
            dict,
            key=KeyRule.NONE,
        ),
    ),
)
"""LibreTranslate's API, without the routes that it shares with the native one."""
