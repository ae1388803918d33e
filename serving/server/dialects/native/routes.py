"""The native dialect: all that the engine knows, as JSON. LibreTranslate's fields are a subset."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, cast

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from serving.errors import RequestError, ServingError
from serving.runtime.session import DeviceUse
from serving.search.options import parse_options
from serving.server.api.dialect import Dialect, DialectRoute
from serving.server.dialects.libretranslate.routes import clean_lines, detected_language
from serving.server.dialects.native.classification import ClassifyEndpoint
from serving.server.dialects.native.description import describe
from serving.server.dialects.native.operations import operation_routes
from serving.server.dialects.native.wire import (
    Detected,
    HypothesisBody,
    Language,
    LanguageReader,
    ModelCard,
    Models,
    PartialBody,
    RepairBody,
    TimingBody,
    TranslatedText,
    TranslateRequest,
    TranslateResponse,
    WarningCode,
    WordLink,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_fields
from serving.server.http.gate import KeyRule, admit_by_body
from serving.server.http.wire import STREAM_HEADERS, Error, json_response
from serving.server.models.served import (
    AnyModel,
    LoadedModel,
    ServedEncoder,
    ServedLanguageModel,
    ServedModel,
)
from serving.server.work.backend import Backend
from serving.server.work.jobs import Jobs
from serving.server.work.translation_job import JobResult, TextPartial, TextResult, TranslationJob
from serving.text.alignment import Link
from serving.text.languages import language_name
from serving.text.terms import NO_TERMS, Terms

_NAMES = {"text": "q"}
"""Parameters that have another name in the body."""


class _NativeEndpoints:
    """Answers the requests of clients that translate."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = Jobs(backend.registry, backend.settings, backend.gatekeeper)

    async def translate(self, request: Request, context: RequestContext) -> Response:
        """Translate one text or several, and answer at once or as a stream of events."""
        limit = self._backend.settings.max_body_bytes
        body = await read_fields(request, TranslateRequest, limit, clean_lines)
        admit_by_body(self._backend.gatekeeper, context, body.api_key)
        try:
            if body.stream:
                events = _server_sent(body, await self._jobs.stream(_job(body), context))
                return StreamingResponse(
                    events, media_type="text/event-stream", headers=STREAM_HEADERS
                )
            result = await self._jobs.translate(_job(body), context, request.receive)
        except RequestError as error:
            named = error if isinstance(body.q, str) else error.within("q")
            raise named.renamed(_NAMES) from error
        # An optional field that is not there is left out, as LibreTranslate does.
        return json_response(_answer(body, result), exclude_none=True)

    async def languages(self, _: Request, __: RequestContext) -> Response:
        """List every language, with the models that read it."""
        models = [model.manifest for model in self._backend.registry.models]
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
        """List what is known of each model: of those that translate, then of language models, then
        of encoders."""
        registry = self._backend.registry
        models: list[AnyModel] = [*registry.models, *registry.language_models, *registry.encoders]
        return json_response(Models(models=list(map(_card, models))))


def _job(body: TranslateRequest) -> TranslationJob:
    """The job that a body asks for; raises RequestError where its prefixes do not fit its texts."""
    texts, prefixes = _texts(body), body.target_prefix
    if isinstance(prefixes, str):
        prefixes = [prefixes] * len(texts)
    elif isinstance(body.q, str):
        raise RequestError(
            "target_prefix must be a string where q is one, got a list", parameter="target_prefix"
        )
    elif len(prefixes) != len(texts):
        raise RequestError(
            "target_prefix must be a string, or a list with one for each of the "
            f"{len(texts)} texts of q, got {len(prefixes)}",
            parameter="target_prefix",
        )
    return TranslationJob(
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
        terms=_terms(body),
        timeout_s=body.timeout_s,
    )


def _terms(body: TranslateRequest) -> Terms:
    if not (body.required or body.forbidden or body.glossary):
        return NO_TERMS
    return Terms(
        tuple(body.required),
        tuple(body.forbidden),
        tuple((entry.source, entry.target) for entry in body.glossary),
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
    """The value that all of these have, or None where they differ."""
    return values[0] if len(set(values)) == 1 else None


def _translated(result: TextResult) -> TranslatedText:
    timing, confidence = result.timing, result.confidence
    return TranslatedText(
        text=result.text,
        hypotheses=[
            HypothesisBody(
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
        repaired=[RepairBody(kind=r.kind, what=r.what, by=r.by) for r in result.repaired],
        timing=TimingBody(
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
    """The events as bytes of a server-sent stream; an error becomes the last event. When the client
    leaves, nothing is decoded further."""
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                if isinstance(event, TextPartial):
                    yield _event("partial", PartialBody(index=event.index, text=event.text))
                else:
                    yield _event("done", _answer(body, event))
    except ServingError as error:
        yield _event("error", Error(error=str(error), code=error.code, hint=error.hint))


def _event(name: str, data: BaseModel) -> bytes:
    text = data.model_dump_json(exclude_none=True)
    return f"event: {name}\ndata: {text}\n\n".encode()


def _card(model: AnyModel) -> ModelCard:
    manifest = model.manifest
    if isinstance(model, LoadedModel):
        device = model.device
    else:
        device = DeviceUse(manifest.target, "the bundle is for it; not loaded yet")
    return ModelCard(
        name=manifest.name,
        task=manifest.task,
        source=list(manifest.languages.source),
        target=list(manifest.languages.target),
        pairs=list(manifest.languages.trained),
        family=manifest.family,
        block=manifest.block,
        precision=manifest.precision,
        loaded=isinstance(model, LoadedModel),
        device=device.name,
        device_reason=device.reason,
        num_parameters=manifest.sizes.num_parameters,
        max_source=manifest.sizes.max_source,
        priority=manifest.priority,
        defaults=_defaults(model),
        quality=list(manifest.quality),
        calibration=manifest.calibration,
        attribution=manifest.attribution,
    )


def _defaults(model: AnyModel) -> dict[str, Any]:
    """The options of a model where a request names none; an encoder has none."""
    if isinstance(model, ServedEncoder):
        return {}
    if isinstance(model, ServedLanguageModel):
        return dataclasses.asdict(model.generator.default_options)
    if isinstance(model, ServedModel):
        return dataclasses.asdict(model.defaults)
    return dataclasses.asdict(parse_options(model.manifest.search))


def _routes(backend: Backend) -> list[DialectRoute]:
    endpoints = _NativeEndpoints(backend)
    return [
        DialectRoute("/translate", endpoints.translate, ("POST",), KeyRule.HEAD_OR_BODY),
        DialectRoute("/languages", endpoints.languages, key=KeyRule.NONE),
        DialectRoute("/models", endpoints.models),
        DialectRoute("/classify", ClassifyEndpoint(backend).classify, ("POST",)),
        *operation_routes(backend),
    ]


NATIVE = Dialect(routes=_routes, describe=describe)
"""This project's own API."""
