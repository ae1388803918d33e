"""Reads the bodies of the native routes and builds their answers: jobs, translations, streams,
model cards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Literal, cast

from pydantic import BaseModel

from serving.encoding.reader import probabilities, ranked
from serving.errors import RequestError, ServingError
from serving.runtime.session import DeviceUse
from serving.search.options import parse_options
from serving.server.dialects.native.wire import (
    Classification,
    ClassifyRequest,
    ClassifyResponse,
    Detected,
    HypothesisBody,
    ModelCard,
    PartialBody,
    RepairBody,
    SentenceOriginBody,
    TimingBody,
    TranslatedText,
    TranslateRequest,
    TranslateResponse,
    WarningCode,
    WordLink,
)
from serving.server.http.access_log import RequestContext
from serving.server.http.wire import Error, detected_language
from serving.server.models.served import (
    AnyModel,
    LoadedModel,
    ServedEncoder,
    ServedLanguageModel,
    ServedTranslator,
)
from serving.server.work.encoding import Given, Read
from serving.server.work.stored.wishes import StoredWishes
from serving.server.work.translating.job import (
    JobResult,
    SentenceOrigin,
    TextPartial,
    TextResult,
    TranslationJob,
)
from serving.text.alignment import Link
from serving.text.terms import NO_TERMS, Terms


def job_of(body: TranslateRequest) -> TranslationJob:
    """The job of a body; raises RequestError if the number of prefixes differs from that of the
    texts."""
    texts, prefixes = _texts(body), body.target_prefix
    if isinstance(prefixes, str):
        prefixes = [prefixes] * len(texts)
    elif isinstance(body.q, str):
        raise RequestError(
            "target_prefix must be a string if q is one, got a list", parameter="target_prefix"
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


def stored_of(body: TranslateRequest) -> StoredWishes:
    """The glossary and the memory that a body names."""
    return StoredWishes(
        glossaries=[body.glossary_id] if body.glossary_id else [],
        memory=body.memory_id or "",
        threshold=body.memory_threshold,
        as_prefix=body.memory_fuzzy == "prefix",
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


def answer_of(body: TranslateRequest, result: JobResult) -> TranslateResponse:
    """The answer with all translations. For a single text its fields are not lists."""
    translations = [_translated(body, text) for text in result.translations]
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
    """The common value, or None if the values differ."""
    return values[0] if len(set(values)) == 1 else None


def _translated(body: TranslateRequest, result: TextResult) -> TranslatedText:
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
        quality=result.hypotheses[0].probability if result.hypotheses else None,
        repaired=[RepairBody(kind=r.kind, what=r.what, by=r.by) for r in result.repaired],
        origins=[_origin(each) for each in result.origins] if body.memory_id else None,
        timing=TimingBody(
            queue_ms=round(timing.queue_s * 1000, 3),
            encode_ms=round(timing.encode_s * 1000, 3),
            decode_ms=round(timing.decode_s * 1000, 3),
            batch_size=timing.batch_size,
        ),
        model=result.model.name,
        source=body.source if confidence is None else result.source,
        detected=None
        if confidence is None
        else Detected(language=result.source, confidence=round(confidence, 4)),
    )


def _origin(found: SentenceOrigin) -> SentenceOriginBody:
    if found.recalled is None:
        return SentenceOriginBody(sentence=found.sentence, origin="model")
    origin: Literal["memory", "prefix", "model"] = "prefix" if found.beginning else "model"
    return SentenceOriginBody(
        sentence=found.sentence,
        origin="memory" if found.beginning is None else origin,
        score=round(found.recalled.score, 1),
        segment=found.recalled.source,
        prefix=found.beginning or None,
    )


def _links(links: Sequence[Link]) -> list[WordLink]:
    return [
        WordLink(source=link.source, target=link.target, probability=round(link.probability, 4))
        for link in links
    ]


async def server_sent(
    body: TranslateRequest,
    events: AsyncGenerator[TextPartial | JobResult],
    context: RequestContext,
) -> AsyncIterator[bytes]:
    """The events as bytes of a server-sent stream. An error becomes the last event and is recorded
    in the context. If the client disconnects, decoding stops."""
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                if isinstance(event, TextPartial):
                    yield _event("partial", PartialBody(index=event.index, text=event.text))
                else:
                    yield _event("done", answer_of(body, event))
    except ServingError as error:
        context.error = error.code
        yield _event("error", Error(error=str(error), code=error.code, hint=error.hint))


def _event(name: str, data: BaseModel) -> bytes:
    text = data.model_dump_json(exclude_none=True)
    return f"event: {name}\ndata: {text}\n\n".encode()


def card_of(model: AnyModel) -> ModelCard:
    """The record of a model, loaded or not."""
    manifest = model.manifest
    if isinstance(model, LoadedModel):
        device = model.device
    else:
        device = DeviceUse(manifest.target, "the bundle was exported for it; not loaded yet")
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
        demonstration=manifest.demonstration,
    )


def _defaults(model: AnyModel) -> dict[str, Any]:
    """The default options of a model; empty for an encoder."""
    if isinstance(model, ServedEncoder):
        return {}
    if isinstance(model, ServedLanguageModel):
        return dataclasses.asdict(model.prompts.default_options)
    if isinstance(model, ServedTranslator):
        return dataclasses.asdict(model.defaults)
    return dataclasses.asdict(parse_options(model.manifest.search))


def inputs_of(body: ClassifyRequest) -> list[Given]:
    """The texts or pairs; raises RequestError if the number of second texts differs."""
    firsts = [body.q] if isinstance(body.q, str) else body.q
    if body.pair is None:
        return list(firsts)
    seconds = [body.pair] if isinstance(body.pair, str) else body.pair
    if len(seconds) != len(firsts):
        raise RequestError(
            f"pair must have as many texts as q, {len(firsts)}, got {len(seconds)}",
            parameter="pair",
        )
    return list(zip(firsts, seconds, strict=True))


def classified(read: Read) -> ClassifyResponse:
    """The classes of each text, with their probabilities."""
    labels = read.model.inputs.reading.labels
    found = []
    for row_C in probabilities(read.found_BW):
        # Pydantic converts all classes in one call, because one call for each takes longer.
        scores = [{"label": a, "probability": p} for a, p in ranked(labels, row_C)]
        found.append(Classification.model_validate({**scores[0], "labels": scores}))
    return ClassifyResponse(classifications=found, model=read.model.name)
