"""The native dialect: all that the engine knows, as JSON. LibreTranslate's fields are a subset."""

from __future__ import annotations

import dataclasses
from typing import Literal, cast

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serving import scheduler
from serving.admission import check_cost, check_texts, choose_options
from serving.body import JSON, read_json
from serving.errors import NotReadyError, RequestError
from serving.in_flight import completed
from serving.languages import language_name
from serving.openapi import document
from serving.registry import Model, Registry
from serving.schemas import (
    Hypothesis,
    Language,
    LanguageModel,
    Limit,
    Limits,
    ModelCard,
    Models,
    Status,
    Timing,
    TranslatedText,
    TranslateRequest,
    TranslateResponse,
)
from serving.settings import Settings, variable


class NativeDialect:
    """Handlers of the native routes."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings

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
            Route("/openapi.json", self.openapi),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or several."""
        settings = self._settings
        body = await read_json(request, TranslateRequest, settings.max_body_bytes)
        model, source = self._registry.choose(body.source, body.target, body.model)
        timeout_s = body.timeout_s or settings.default_timeout_s
        if timeout_s > settings.max_timeout_s:
            raise RequestError(
                f"timeout_s must be at most {settings.max_timeout_s:g} "
                f"({variable('max_timeout_s')}), got {timeout_s:g}"
            )
        requests = self._requests(body, model, timeout_s)
        try:
            # Tokenising a full body takes long enough to hold up other requests.
            tickets = await run_in_threadpool(model.scheduler.submit_all, requests)
        except RequestError as error:
            raise _naming_text(error, body) from error
        results = await completed(tickets, request.receive, timeout_s)
        return _json(_answer(body, results, model, source))

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
        items = ",".join(language.model_dump_json() for language in found)
        return Response(f"[{items}]", media_type=JSON)

    async def models(self, _: Request) -> Response:
        """What is known of each model."""
        return _json(Models(models=[_card(model) for model in self._registry.models]))

    async def limits(self, _: Request) -> Response:
        """Every limit of this server."""
        return _json(
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
        return _json(Status(status="alive"))

    async def ready(self, _: Request) -> Response:
        """Whether requests should be sent here."""
        if not self._registry.ready:
            raise NotReadyError("starting or shutting down; try again later")
        return _json(Status(status="ready"))

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document of these routes."""
        return Response(document(), media_type=JSON)

    def _requests(
        self, body: TranslateRequest, model: Model, timeout_s: float
    ) -> list[scheduler.Request]:
        """One request of the scheduler for each text; raises RequestError."""
        settings, texts = self._settings, _texts(body)
        prefixes = body.target_prefix
        if isinstance(prefixes, str):
            prefixes = [prefixes] * len(texts)
        elif isinstance(body.q, str):
            raise RequestError("target_prefix must be a string where q is one, got a list")
        elif len(prefixes) != len(texts):
            raise RequestError(
                "target_prefix must be a string, or a list with one for each of the "
                f"{len(texts)} texts of q, got {len(prefixes)}"
            )
        options = choose_options(
            body.options, model.defaults, settings, alternatives=body.alternatives
        )
        check_cost(len(texts), options, settings)
        try:
            check_texts(texts, settings)
            check_texts(prefixes, settings)
        except RequestError as error:
            raise _naming_text(error, body) from error
        return [
            scheduler.Request(text=text, options=options, target_prefix=prefix, timeout_s=timeout_s)
            for text, prefix in zip(texts, prefixes, strict=True)
        ]


def _texts(body: TranslateRequest) -> list[str]:
    return [body.q] if isinstance(body.q, str) else body.q


def _naming_text(error: RequestError, body: TranslateRequest) -> RequestError:
    """The same error with the place of the text, where there are several."""
    if error.index is None or isinstance(body.q, str):
        return error
    return type(error)(f"q[{error.index}]: {error}")


def _answer(
    body: TranslateRequest, results: list[scheduler.Completed], model: Model, source: str
) -> TranslateResponse:
    translations = [_translated(result) for result in results]
    texts = [translation.text for translation in translations]
    others = [
        [h.text for h in t.hypotheses[1 : body.alternatives + 1] if h.text != t.text]
        for t in translations
    ]
    single = isinstance(body.q, str)
    alternatives = others[0] if single else others
    return TranslateResponse(
        translatedText=texts[0] if single else texts,
        alternatives=alternatives if body.alternatives else None,
        translations=translations,
        model=model.name,
        source=source,
        target=body.target,
    )


def _translated(result: scheduler.Completed) -> TranslatedText:
    translation, timing = result.translation, result.timing
    return TranslatedText(
        text=translation.text,
        hypotheses=[
            Hypothesis(
                text=hypothesis.text,
                score=hypothesis.score,
                cumulative=hypothesis.cumulative,
                tokens=list(hypothesis.tokens),
                token_scores=list(hypothesis.token_scores),
                finished=hypothesis.finished,
            )
            for hypothesis in translation.hypotheses
        ],
        warnings=cast(list[Literal["repetition", "max_length"]], list(translation.warnings)),
        timing=Timing(
            queue_ms=round(timing.queue_s * 1000, 3),
            decode_ms=round(timing.decode_s * 1000, 3),
            batch_size=timing.batch_size,
        ),
    )


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
        attribution=manifest.attribution,
    )


def _json(answer: BaseModel) -> Response:
    # An optional field that is not there is left out, as LibreTranslate does.
    without_none = isinstance(answer, TranslateResponse)
    return Response(answer.model_dump_json(exclude_none=without_none), media_type=JSON)
