"""Quality of given translations, as estimated by the model of their languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from starlette.types import Receive

from serving.checking.invariants import Fault, faults
from serving.errors import RequestError
from serving.server.http.access_log import RequestContext
from serving.server.models.catalogue import AUTO
from serving.server.models.served import ServedTranslator
from serving.server.work.admission import check_cost, check_texts
from serving.server.work.backend import Backend
from serving.server.work.pipeline import Caller, Chosen, Pipeline, TimeLimit, apart
from serving.text.splitting.sentences import sentence_spans
from serving.translation.ticket import Completed, Request, TranslationTicket

Segment = tuple[str, str]
"""A text and its translation."""
_SIDES = ("source", "target")
_MOST_FAULTS = 100


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of one translation."""

    probability: float
    """Calibrated probability that the translation is good; for several sentences the mean, weighted
    by their tokens."""
    faults: Sequence[Fault]
    """Certain faults of the translation, at most 100."""


class Evaluations:
    """Scores given translations with the models of a backend."""

    def __init__(self, backend: Backend) -> None:
        self._registry, self._settings = backend.registry, backend.settings
        self._pipeline = Pipeline(backend.settings, backend.gatekeeper)

    async def evaluate(
        self,
        segments: Sequence[Segment],
        languages: tuple[str, str],
        context: RequestContext,
        receive: Receive,
    ) -> list[Evaluation]:
        """Score each translation; `languages` are the codes of sources and targets.

        Raises RequestError, with the index of a segment at fault, also for a blank text and for a
        model without calibration; UnknownLanguageError, and the errors of the scheduler.
        """
        limit = self._pipeline.limit(None, context)
        source, target = self._registry.codes(*languages)
        characters = sum(len(text) for segment in segments for text in segment)

        def choose() -> Chosen[tuple[list[int], list[TranslationTicket]]]:
            self._check(segments, source)
            model = self._registry.choose(source, target)
            if model.manifest.calibration is None:
                raise RequestError(
                    f"the model {model.name!r} must be calibrated to score how good translations "
                    "are; its operator can do that with `python -m macaron export "
                    "calibrate`"
                )
            return Chosen(
                model.name,
                "evaluate",
                len(segments),
                characters,
                lambda: self._submit(model, segments, (source, target), limit),
            )

        caller = Caller(context, characters, receive, self._registry.loads(source, target))
        numbers, tickets = await self._pipeline.begin(caller, choose)
        caller = replace(caller, loads=False)
        scored: list[list[Completed]] = [[] for _ in segments]
        results = await self._pipeline.results(tickets, caller, limit)
        for number, result in zip(numbers, results, strict=True):
            scored[number].append(result)
        wrong = await apart(caller, _faults, segments, (source, target))
        return list(map(Evaluation, map(_mean, scored), wrong))

    def _check(self, segments: Sequence[Segment], source: str) -> None:
        if source == AUTO:
            raise RequestError("the source language must be named", parameter="source")
        for side, name in enumerate(_SIDES):
            texts = [segment[side] for segment in segments]
            check_texts(texts, self._settings, name)
            for index, text in enumerate(texts):
                if not text.strip():
                    error = RequestError(f"{name} must not be blank", parameter=name)
                    error.index = index
                    raise error

    def _submit(
        self,
        model: ServedTranslator,
        segments: Sequence[Segment],
        languages: tuple[str, str],
        limit: TimeLimit,
    ) -> tuple[list[int], list[TranslationTicket]]:
        """Queue the sentences of all segments; returns the segment of each, and its ticket."""
        source, target = languages
        numbers, requests = [], []
        for number, segment in enumerate(segments):
            for text, translation in _sentences(segment, languages):
                numbers.append(number)
                requests.append(
                    Request(
                        text=text,
                        source=source,
                        target=target,
                        target_prefix=translation,
                        given=True,
                        timeout_s=limit.timeout_s,
                    )
                )
        check_cost(len(requests), 1, self._settings)
        try:
            return numbers, model.scheduler.submit_all(requests, limit.max_wait_s, limit.held)
        except RequestError as error:
            if error.index is not None:
                error.index = numbers[error.index]
            raise


def _sentences(segment: Segment, languages: tuple[str, str]) -> list[Segment]:
    """The sentences of both sides, if they are equally many; otherwise the whole segment."""
    sides = [
        [text[begin:end] for begin, end in sentence_spans(text, language)]
        for text, language in zip(segment, languages, strict=True)
    ]
    if len(sides[0]) != len(sides[1]) or len(sides[0]) < 2:
        return [segment]
    return list(zip(*sides, strict=True))


def _faults(segments: Sequence[Segment], languages: tuple[str, str]) -> list[Sequence[Fault]]:
    return [faults(*segment, languages)[:_MOST_FAULTS] for segment in segments]


def _mean(parts: Sequence[Completed]) -> float:
    """Mean probability of sentences, weighted by their tokens; 0 if the model has pieces for none
    of them."""
    weighted = total = 0.0
    for part in parts:
        for hypothesis in part.translation.hypotheses:
            assert hypothesis.probability is not None  # the model is calibrated
            weighted += hypothesis.probability * len(hypothesis.token_scores)
            total += len(hypothesis.token_scores)
    return weighted / total if total else 0.0
