"""DeepL's quality evaluations of given translations: the calibrated probability of the model, and
certain differences from the source.

The path and the answer are DeepL's. The evaluation is complete in the answer. With a store, it can
be fetched again.
"""

from __future__ import annotations

import logging
from typing import Annotated, Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.checking.invariants import Fault, FaultKind
from serving.errors import RequestError, StoreUnavailableError, UnknownEvaluationError
from serving.server.api.dialect import WORK, Dialect, DialectRoute
from serving.server.dialects.deepl.answers import STATUSES, language_code, render_error
from serving.server.dialects.deepl.wire import DeepLError
from serving.server.http.access_log import RequestContext
from serving.server.http.body import read_json
from serving.server.http.wire import Wire, json_response
from serving.server.work.backend import Backend
from serving.server.work.evaluation import Evaluation, Evaluations
from serving.text.alignment import Span

logger = logging.getLogger(__name__)

_NAMES = {"source": "source_lang", "target": "target_lang"}
"""Parameters that have another name in the body."""
_SUB_TYPES: dict[FaultKind, str] = {
    "figures": "Mistranslation",
    "letters": "Mistranslation",
    "names": "Mistranslation",
    "codes": "Markup",
    "shape": "Length",
}


class DeepLGivenTranslation(Wire):
    """A text and its translation."""

    source: str
    target: str


class DeepLEvaluationRequest(Wire):
    """Translations to evaluate, all of one language pair."""

    source_lang: str
    target_lang: str
    segments: Annotated[list[DeepLGivenTranslation], Field(min_length=1)]
    glossary_id: str | None = None
    """Refused: terms are not evaluated."""


class DeepLSpan(Wire):
    """A part of a text, by character offsets."""

    start: int
    end: int


class DeepLTranslationFault(Wire):
    """A certain difference from the source."""

    type: Literal["Accuracy"] = "Accuracy"
    sub_type: str
    """`Omission`, `Addition`, `Mistranslation`, `Markup` (codes and placeholders), `Length`."""
    severity: Literal["Major"] = "Major"
    explanation: str
    source_spans: list[DeepLSpan]
    target_spans: list[DeepLSpan]


class DeepLEvaluatedSegment(Wire):
    """The evaluation of one translation."""

    segment_index: int
    segment_score: Annotated[float, Field(ge=0, le=100)]
    """Probability in percent that the translation is good, by the model's calibration."""
    source: str
    target: str
    errors: list[DeepLTranslationFault]


class DeepLEvaluation(Wire):
    """A complete evaluation."""

    job_id: str | None = None
    """The id for fetching the evaluation again within a day; omitted if the server has no store or
    the store does not answer."""
    status: Literal["done"] = "done"
    segments: list[DeepLEvaluatedSegment]


class _EvaluationEndpoints:
    """Endpoints for evaluations."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._evaluations = backend, Evaluations(backend)

    async def evaluate(self, request: Request, context: RequestContext) -> Response:
        """Evaluate translations, and store the answer if there is a store. If the store does not
        answer, the answer is still returned, without `job_id`."""
        backend = self._backend
        body = await read_json(request, DeepLEvaluationRequest, backend.settings.max_body_bytes)
        if body.glossary_id:
            raise RequestError(
                "'glossary_id' is not supported in evaluations on this server; leave it out",
                parameter="glossary_id",
            )
        registry = backend.registry
        languages = (
            language_code("source_lang", body.source_lang, registry.source_languages),
            language_code("target_lang", body.target_lang, registry.target_languages),
        )
        segments = [(segment.source, segment.target) for segment in body.segments]
        try:
            found = await self._evaluations.evaluate(segments, languages, context, request.receive)
        except RequestError as error:
            raise error.within("segments").renamed(_NAMES) from error
        pairs = zip(segments, found, strict=True)
        evaluated = [
            _segment(number, segment, of_it) for number, (segment, of_it) in enumerate(pairs)
        ]
        answer = DeepLEvaluation(segments=evaluated)
        if backend.store is not None:
            kept, text = backend.store.evaluations, answer.model_dump_json()
            try:
                id = await run_in_threadpool(kept.keep, context.key, text)
                answer = DeepLEvaluation(job_id=id, segments=evaluated)
            except StoreUnavailableError as error:
                logger.warning("an evaluation is answered, but not stored: %s", error)
        return json_response(answer, exclude_none=True)

    async def get(self, request: Request, context: RequestContext) -> Response:
        """Return an earlier evaluation."""
        kept, id = self._backend.needed_store("evaluations").evaluations, request.path_params["id"]
        text = await run_in_threadpool(kept.get, context.key, id)
        if text is None:
            raise UnknownEvaluationError("there is no such evaluation, or it has expired")
        found = DeepLEvaluation.model_validate_json(text).model_copy(update={"job_id": id})
        return json_response(found)


def _segment(number: int, segment: tuple[str, str], found: Evaluation) -> DeepLEvaluatedSegment:
    return DeepLEvaluatedSegment(
        segment_index=number,
        segment_score=round(100 * found.probability, 1),
        source=segment[0],
        target=segment[1],
        errors=list(map(_fault, found.faults)),
    )


def _fault(fault: Fault) -> DeepLTranslationFault:
    if fault.source and not fault.target:
        sub_type, said = "Omission", f"{fault.what!r} of the source is missing"
    elif fault.target and not fault.source:
        sub_type, said = "Addition", f"{fault.what!r} has nothing in the source"
    else:
        sub_type, said = _SUB_TYPES[fault.kind], f"{fault.what!r} differs from the source"
    return DeepLTranslationFault(
        sub_type=sub_type,
        explanation=f"{fault.kind}: {said}",
        source_spans=_spans(fault.source),
        target_spans=_spans(fault.target),
    )


def _spans(span: Span | None) -> list[DeepLSpan]:
    return [] if span is None else [DeepLSpan(start=span[0], end=span[1])]


DEEPL_EVALUATIONS = Dialect(
    endpoints=_EvaluationEndpoints,
    routes=(
        DialectRoute(
            "/v1/quality-evaluations",
            _EvaluationEndpoints.evaluate,
            "deepl_evaluate",
            "The quality of given translations, in DeepL's form",
            DeepLEvaluation,
            methods=("POST",),
            request=DeepLEvaluationRequest,
            errors=tuple(STATUSES.get(status, status) for status in WORK),
            among_others=True,
        ),
        DialectRoute(
            "/v1/quality-evaluations/{id}",
            _EvaluationEndpoints.get,
            "deepl_evaluation",
            "An earlier evaluation",
            DeepLEvaluation,
            errors=(403, 404, 429, 501, 503),
            among_others=True,
        ),
    ),
    error=DeepLError,
    render_error=render_error,
    reasons={
        403: "An API key is missing or unknown; only if the server has keys",
        404: "There is no such evaluation, or it has expired",
        501: "The server has no store",
    },
    key_schemes=("deepl-auth-key",),
)
"""The part of DeepL's API that evaluates translations."""
