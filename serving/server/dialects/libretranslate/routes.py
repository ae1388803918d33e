"""LibreTranslate's routes besides `/translate` and `/languages`, which it shares with the native
dialect."""

from __future__ import annotations

import re
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serving.errors import UnauthorizedError
from serving.server.admission import check_texts
from serving.server.body import read_fields
from serving.server.dialects.libretranslate.wire import (
    DetectRequest,
    FrontendLanguages,
    FrontendSettings,
    Health,
    NamedLanguage,
)
from serving.server.dialects.native.wire import DetectedLanguage
from serving.server.gate import check_key
from serving.server.keys import Keys
from serving.server.openapi import document
from serving.server.registry import AUTO, Registry
from serving.server.settings import Settings
from serving.server.wire import JSON, json_response
from serving.text.detection import detect
from serving.text.languages import language_name

_TYPING_PAUSE_MS = 500

_LEAST_CONFIDENCE = 0.05
"""Of a language that is worth telling."""
_UNKNOWN = ("en", 0.0)
"""What LibreTranslate says of a text that has no language, such as a number."""

_LINE_END = re.compile(r"\r\n?")


class LibreTranslateDialect:
    """Handlers of LibreTranslate's own routes."""

    def __init__(self, registry: Registry, settings: Settings, keys: Keys) -> None:
        self._registry, self._settings, self._keys = registry, settings, keys

    @property
    def routes(self) -> list[Route]:
        """LibreTranslate's own routes."""
        return [
            Route("/detect", self.detect, methods=["POST"]),
            Route("/frontend/settings", self.frontend_settings),
            Route("/health", self.health),
            Route("/spec", self.spec),
        ]

    async def detect(self, request: Request) -> Response:
        """Which languages a text may be in, the likeliest first."""
        limit = self._settings.max_body_bytes
        body = await read_fields(request, DetectRequest, limit, clean_lines)
        check_body_key(body.api_key)
        texts = [body.q] if isinstance(body.q, str) else body.q
        check_texts(texts, self._settings)
        found = await run_in_threadpool(detect, "\n".join(texts))
        # Clients take the first without asking whether there is one.
        first, *others = found or [_UNKNOWN]
        worth_telling = [pair for pair in others if pair[1] >= _LEAST_CONFIDENCE]
        return json_response([detected_language(*pair) for pair in (first, *worth_telling)])

    async def frontend_settings(self, _: Request) -> Response:
        """What a page in front of the server has to know."""
        targets = [m.manifest.languages.target[0] for m in self._registry.models] or [_UNKNOWN[0]]
        settings = FrontendSettings(
            charLimit=self._settings.max_text_chars,
            frontendTimeout=_TYPING_PAUSE_MS,
            apiKeys=self._keys.required,
            keyRequired=self._keys.required,
            suggestions=False,
            filesTranslation=False,
            supportedFilesFormat=[],
            language=FrontendLanguages(
                source=NamedLanguage(code=AUTO, name="Auto Detect"),
                target=NamedLanguage(code=targets[0], name=language_name(targets[0])),
            ),
        )
        return json_response(settings)

    async def health(self, _: Request) -> Response:
        """Whether requests should be sent here, as at `/readyz`."""
        self._registry.check_ready()
        return json_response(Health(status="ok"))

    async def spec(self, _: Request) -> Response:
        """The OpenAPI document under LibreTranslate's name for it."""
        return Response(document(), media_type=JSON)


def check_body_key(key: str | None) -> None:
    """`check_key`; a wrong key in the body is 403, as LibreTranslate says it, not 401."""
    try:
        check_key(key or None)
    except UnauthorizedError as error:
        if key:
            error.status = HTTPStatus.FORBIDDEN
        raise


def clean_lines(text: str) -> str:
    """Text of a form as LibreTranslate takes it: lines end in \\n, but for the last."""
    return _LINE_END.sub("\n", text).removesuffix("\n")


def detected_language(language: str, confidence: float) -> DetectedLanguage:
    """A language and its confidence of 0 to 1, as LibreTranslate tells it."""
    return DetectedLanguage(language=language, confidence=round(100 * confidence, 1))
