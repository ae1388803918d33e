"""The native dialect: all that the engine knows, as JSON. LibreTranslate's fields are a subset."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import cast

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from serving.errors import RequestError, ServingError
from serving.server.body import read_fields
from serving.server.dialects.libretranslate.routes import (
    check_body_key,
    clean_lines,
    detected_language,
)
from serving.server.dialects.native.wire import (
    Detected,
    Error,
    Hypothesis,
    Language,
    LanguageModel,
    Limit,
    Limits,
    ModelCard,
    Models,
    Partial,
    Status,
    Timing,
    TranslatedText,
    TranslateRequest,
    TranslateResponse,
    WarningCode,
    WordLink,
)
from serving.server.jobs import Job, JobResult, Jobs, TextPartial, TextResult
from serving.server.openapi import document
from serving.server.registry import Model, Registry
from serving.server.settings import Settings, variable
from serving.server.wire import JSON, STREAM_HEADERS, json_response
from serving.text.alignment import Link
from serving.text.languages import language_name
from serving.text.terms import Terms


class NativeDialect:
    """Handlers of the native routes."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings
        self._jobs = Jobs(registry, settings)

    @property
    def routes(self) -> list[Route]:
        """The native routes."""
        return [
            Route("/translate", self.translate, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/models", self.models),
            Route("/limits", self.limits),
            Route("/livez", self.alive),
            Route("/readyz", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or several."""
        limit = self._settings.max_body_bytes
        body = await read_fields(request, TranslateRequest, limit, clean_lines)
        check_body_key(body.api_key)
        try:
            if body.stream:
                events = _server_sent(body, await self._jobs.stream(_job(body)))
                return StreamingResponse(
                    events, media_type="text/event-stream", headers=STREAM_HEADERS
                )
            result = await self._jobs.translate(_job(body), request.receive)
        except RequestError as error:
            raise (error if isinstance(body.q, str) else error.within("q")) from error
        # An optional field that is not there is left out, as LibreTranslate does.
        return json_response(_answer(body, result), exclude_none=True)

    async def languages(self, _: Request) -> Response:
        """Every language, with the models that read it."""
        models = [model.manifest for model in self._registry.models]
        codes = {code for m in models for code in (*m.languages.source, *m.languages.target)}
        found = []
        for code in sorted(codes):
            readers = [manifest for manifest in models if code in manifest.languages.source]
            found.append(
                Language(
                    code=code,
                    name=language_name(code),
                    targets=sorted({target for m in readers for target in m.languages.target}),
                    models=[
                        LanguageModel(
                            name=manifest.name,
                            targets=list(manifest.languages.target),
                            attribution=manifest.attribution,
                        )
                        for manifest in readers
                    ],
                )
            )
        return json_response(found)

    async def models(self, _: Request) -> Response:
        """What is known of each model."""
        return json_response(Models(models=[_card(model) for model in self._registry.models]))

    async def limits(self, _: Request) -> Response:
        """Every limit of this server."""
        return json_response(
            Limits(
                limits=[
                    Limit(
                        name=name,
                        value=getattr(self._settings, name),
                        variable=variable(name),
                        description=field.description or "",
                    )
                    for name, field in Settings.model_fields.items()
                    if field.annotation in (int, float)
                ]
            )
        )

    async def alive(self, _: Request) -> Response:
        """Whether the process answers."""
        return json_response(Status(status="alive"))

    async def ready(self, _: Request) -> Response:
        """Whether requests should be sent here."""
        self._registry.check_ready()
        return json_response(Status(status="ready"))

    async def metrics(self, _: Request) -> Response:
        """What the server measures of itself."""
        return Response(self._registry.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document of these routes."""
        return Response(document(), media_type=JSON)


def _job(body: TranslateRequest) -> Job:
    """What a body asks for; raises RequestError where its prefixes do not fit its texts."""
    texts, prefixes = _texts(body), body.target_prefix
    if isinstance(prefixes, str):
        prefixes = [prefixes] * len(texts)
    elif isinstance(body.q, str):
        raise RequestError("target_prefix must be a string where q is one, got a list")
    elif len(prefixes) != len(texts):
        raise RequestError(
            "target_prefix must be a string, or a list with one for each of the "
            f"{len(texts)} texts of q, got {len(prefixes)}"
        )
    return Job(
        texts=texts,
        source=body.source,
        target=body.target,
        model=body.model,
        format=body.format,
        split_sentences=body.split_sentences,
        options=body.options,
        alternatives=body.alternatives,
        target_prefixes=prefixes,
        alignments=body.alignments,
        terms=Terms(
            tuple(body.required),
            tuple(body.forbidden),
            tuple((entry.source, entry.target) for entry in body.glossary),
        ),
        timeout_s=body.timeout_s,
    )


def _texts(body: TranslateRequest) -> list[str]:
    return [body.q] if isinstance(body.q, str) else body.q


def _answer(body: TranslateRequest, result: JobResult) -> TranslateResponse:
    translations = [_translated(text) for text in result.translations]
    texts = [translation.text for translation in translations]
    others = [
        [h.text for h in t.hypotheses[1 : body.alternatives + 1] if h.text != t.text]
        for t in translations
    ]
    found = [
        detected_language(t.detected.language, t.detected.confidence)
        for t in translations
        if t.detected
    ]
    single = isinstance(body.q, str)
    alternatives = others[0] if single else others
    return TranslateResponse(
        translatedText=texts[0] if single else texts,
        alternatives=alternatives if body.alternatives else None,
        detectedLanguage=(found[0] if single else found) if found else None,
        translations=translations,
        model=_common([translation.model for translation in translations]),
        source=_common([translation.source for translation in translations]),
        target=body.target,
    )


def _common(values: Sequence[str]) -> str | None:
    """The value that all have, if there is one."""
    return values[0] if len(set(values)) == 1 else None


def _translated(result: TextResult) -> TranslatedText:
    timing, confidence = result.timing, result.confidence
    return TranslatedText(
        text=result.text,
        hypotheses=[
            Hypothesis(
                text=hypothesis.text,
                score=hypothesis.score,
                cumulative=hypothesis.cumulative,
                tokens=list(hypothesis.tokens),
                token_scores=list(hypothesis.token_scores),
                finished=hypothesis.finished,
                probability=hypothesis.probability,
                alignment=None if hypothesis.alignment is None else _links(hypothesis.alignment),
            )
            for hypothesis in result.hypotheses
        ],
        warnings=cast(list[WarningCode], list(result.warnings)),
        timing=Timing(
            queue_ms=round(timing.queue_s * 1000, 3),
            encode_ms=round(timing.encode_s * 1000, 3),
            decode_ms=round(timing.decode_s * 1000, 3),
            batch_size=timing.batch_size,
        ),
        model=result.model.name,
        source=result.source,
        detected=None
        if confidence is None
        else Detected(language=result.source, confidence=round(confidence, 4)),
    )


def _links(links: Sequence[Link]) -> list[WordLink]:
    return [
        WordLink(source=link.source, target=link.target, probability=round(link.probability, 4))
        for link in links
    ]


async def _server_sent(
    body: TranslateRequest, events: AsyncGenerator[TextPartial | JobResult]
) -> AsyncIterator[bytes]:
    """The events as they go over the wire. When the client leaves, nothing is decoded further."""
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                if isinstance(event, TextPartial):
                    yield _event("partial", Partial(index=event.index, text=event.text))
                else:
                    yield _event("done", _answer(body, event))
    except ServingError as error:
        yield _event("error", Error(error=str(error), code=error.code))


def _event(name: str, data: BaseModel) -> bytes:
    text = data.model_dump_json(exclude_none=True)
    return f"event: {name}\ndata: {text}\n\n".encode()


def _card(model: Model) -> ModelCard:
    manifest = model.manifest
    return ModelCard(
        name=manifest.name,
        source=list(manifest.languages.source),
        target=list(manifest.languages.target),
        family=manifest.family,
        block=manifest.block,
        precision=manifest.precision,
        num_parameters=manifest.sizes.num_parameters,
        max_source=manifest.sizes.max_source,
        priority=manifest.priority,
        defaults=dataclasses.asdict(model.defaults),
        quality=list(manifest.quality),
        calibration=manifest.calibration,
        attribution=manifest.attribution,
    )
