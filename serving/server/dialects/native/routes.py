"""The native dialect: all features and results as JSON. LibreTranslate's fields are a subset."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.docstrings import field_docstrings
from serving.errors import RequestError
from serving.server.access.gate import KeyRule, admit_by_body
from serving.server.api.dialect import WORK, Dialect, DialectRoute
from serving.server.dialects.native.answers import (
    answer_of,
    card_of,
    classified,
    inputs_of,
    job_of,
    server_sent,
    stored_of,
)
from serving.server.dialects.native.wire import (
    BatchLimit,
    ClassifyRequest,
    ClassifyResponse,
    Language,
    LanguageReader,
    Limit,
    Limits,
    Models,
    Status,
    TranslateRequest,
    TranslateResponse,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields, read_json
from serving.server.http.form import clean_lines
from serving.server.http.settings import Settings, variable
from serving.server.http.wire import JSON, STREAM_HEADERS, json_response
from serving.server.models.served import AnyModel
from serving.server.work.backend import Backend
from serving.server.work.encoding import Readings
from serving.server.work.stored.wishes import with_stored
from serving.server.work.translating.jobs import Jobs
from serving.text.languages import language_name

_NAMES = {"text": "q"}
"""Parameters that have another name in the body."""


class _NativeEndpoints:
    """Endpoints for clients and operators."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)
        self._readings = Readings(backend)

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate one or several texts; answers at once or as a stream of events."""
        limit = self._backend.settings.max_body_bytes
        body = await read_fields(request, TranslateRequest, limit, clean_lines)
        await admit_by_body(self._backend.gatekeeper, context, body.api_key)
        try:
            job = job_of(body)
            if body.glossary_id or body.memory_id:
                job = await with_stored(
                    self._backend.store, self._backend.registry, job, stored_of(body), context.key
                )
            if body.stream:
                events = await self._jobs.stream(job, context)
                sent = server_sent(body, events, context)
                return StreamingResponse(
                    sent, media_type="text/event-stream", headers=STREAM_HEADERS
                )
            result = await self._jobs.translate(job, context, request.receive)
        except RequestError as error:
            named = error if isinstance(body.q, str) else error.within("q")
            raise named.renamed(_NAMES) from error
        # Optional fields without a value are left out, as in LibreTranslate.
        return json_response(answer_of(body, result), exclude_none=True)

    async def languages(self, _: Request, __: RequestContext) -> Response:
        """List every language, with the models that read it."""
        models = [model.manifest for model in self._backend.registry.translators]
        codes = {code for m in models for code in (*m.languages.source, *m.languages.target)}
        found = []
        for code in sorted(codes):
            readers = [manifest for manifest in models if code in manifest.languages.source]
            found.append(
                Language(
                    code=code,
                    name=language_name(code),
                    targets=self._backend.registry.targets(code),
                    models=[
                        LanguageReader(
                            name=manifest.name,
                            targets=[
                                target
                                for target in manifest.languages.target
                                if manifest.languages.translates(code, target)
                            ],
                            attribution=manifest.attribution,
                        )
                        for manifest in readers
                    ],
                )
            )
        return json_response(found)

    async def models(self, _: Request, __: RequestContext) -> Response:
        """List all models: translation models, then language models, then encoders."""
        registry = self._backend.registry
        models: list[AnyModel] = [
            *registry.translators,
            *registry.language_models,
            *registry.encoders,
        ]
        return json_response(
            Models(
                models=list(map(card_of, models)),
                imports=self._backend.settings.model_imports,
            )
        )

    async def classify(self, request: Request, context: RequestContext) -> Response:
        """Classify each text; answers with the probability of each class."""
        body = await read_json(request, ClassifyRequest, self._backend.settings.max_body_bytes)
        several = not isinstance(body.q, str)

        def place(index: int, part: int) -> str:
            name = "pair" if part else "q"
            return f"{name}[{index}]" if several else name

        read = await self._readings.read(
            inputs_of(body),
            "classify",
            request,
            context,
            place=place,
            model=body.model,
            truncate=body.truncate,
        )
        return json_response(classified(read))

    async def limits(self, _: Request, __: RequestContext) -> Response:
        """List every numeric setting with its variable, and the batch limits of each loaded
        model."""
        described = field_docstrings(Settings)
        return json_response(
            Limits(
                limits=[
                    Limit(
                        name=name,
                        value=getattr(self._backend.settings, name),
                        variable=variable(name),
                        description=described[name],
                    )
                    for name, field in Settings.model_fields.items()
                    if field.annotation in (int, float, int | None)
                ],
                batches=[
                    BatchLimit(
                        model=model.name,
                        device=model.device.name,
                        max_rows=model.scheduler.limits.max_rows,
                        max_tokens=model.scheduler.limits.max_tokens,
                        max_cache_bytes=model.scheduler.limits.max_cache_bytes,
                    )
                    for model in self._backend.registry.loaded()
                ],
            )
        )

    async def alive(self, _: Request, __: RequestContext) -> Response:
        """Report that the process is alive, whatever the state of its models."""
        return json_response(Status(status="alive"))

    async def ready(self, _: Request, __: RequestContext) -> Response:
        """Report that the server is ready; raises NotReadyError if it is not."""
        self._backend.registry.check_ready()
        return json_response(Status(status="ready"))

    async def metrics(self, _: Request, __: RequestContext) -> Response:
        """Return the metrics of HTTP, of the models and of the process."""
        text = self._backend.metrics.text() + self._backend.registry.metrics.text()
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def openapi(self, _: Request, __: RequestContext) -> Response:
        """Return the OpenAPI document of this server."""
        # The first time takes a second, in which others are served.
        return Response(await asyncio.to_thread(self._backend.document), media_type=JSON)


_FORM = (
    *("q", "source", "target", "format", "alternatives", "model", "glossary_id", "memory_id"),
    *("memory_threshold", "memory_fuzzy", "timeout_s", "api_key"),
)

NATIVE = Dialect(
    endpoints=_NativeEndpoints,
    routes=(
        DialectRoute(
            "/translate",
            _NativeEndpoints.translate,
            "translate",
            "Translate one text or several; requests that arrive together are decoded together",
            TranslateResponse,
            methods=("POST",),
            request=TranslateRequest,
            form=_FORM,
            events="With `stream`: events `partial` (`{index, text}`), at last `done` (a "
            "TranslateResponse) or `error` (an Error)",
            errors=(*WORK, 403, 501),
            key=KeyRule.HEAD_OR_BODY,
            batch=True,
        ),
        DialectRoute(
            "/languages",
            _NativeEndpoints.languages,
            "languages",
            "Languages and the models that read them",
            list[Language],
            errors=(503,),
            key=KeyRule.NONE,
        ),
        DialectRoute(
            "/classify",
            _NativeEndpoints.classify,
            "classify",
            "Classes of texts, with their probabilities",
            ClassifyResponse,
            methods=("POST",),
            request=ClassifyRequest,
            errors=WORK,
        ),
        DialectRoute(
            "/models",
            _NativeEndpoints.models,
            "models",
            "The record of each model, whatever its task",
            Models,
            errors=(503,),
        ),
        DialectRoute(
            "/limits",
            _NativeEndpoints.limits,
            "limits",
            "Every limit of this server",
            Limits,
        ),
        DialectRoute(
            "/livez",
            _NativeEndpoints.alive,
            "alive",
            "Whether the server runs",
            Status,
            key=KeyRule.NONE,
        ),
        DialectRoute(
            "/readyz",
            _NativeEndpoints.ready,
            "ready",
            "Whether the server can translate",
            Status,
            errors=(503,),
            key=KeyRule.NONE,
        ),
        DialectRoute(
            "/metrics",
            _NativeEndpoints.metrics,
            "metrics",
            "Metrics of the server, for Prometheus",
            str,
            key=KeyRule.NONE,
        ),
        DialectRoute(
            "/openapi.json",
            _NativeEndpoints.openapi,
            "openapi",
            "This document",
            dict,
            key=KeyRule.NONE,
        ),
    ),
    reasons={
        404: "There is no model with that name, or no stored glossary or memory with that id",
        501: "A glossary or a memory is named, but the server has no store",
    },
)
"""This project's own API. Probes and scrapers need no key."""
