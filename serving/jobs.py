"""Texts to translate, as every dialect asks for them: model choice, limits, decoding, answers.

A dialect reads its own wire format into a `Job`, and renders the `JobResult` in its own shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from serving.admission import check_cost, check_texts, choose_options
from serving.errors import RequestError
from serving.in_flight import completed
from serving.registry import Model, Registry
from serving.settings import Settings, variable
from serving.translator import TextHypothesis
from serving.work import Completed, Request, Timing

_SHORT = 1000
"""Characters that are tokenised on the event loop: within a millisecond. A full body would hold up
other requests, but a change of threads costs more than a short text does."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Texts of one request; a field that is not given is as the server and the model set it."""

    texts: Sequence[str]
    source: str
    """Language code, or `auto`."""
    target: str
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    alternatives: int = 0
    """Further hypotheses of each text, besides the best."""
    target_prefixes: Sequence[str] = ()
    """One for each text, or none at all."""
    timeout_s: float | None = None


@dataclass(frozen=True)
class TextResult:
    """What one text became."""

    text: str
    hypotheses: Sequence[TextHypothesis]
    """Best first; empty for a blank text."""
    warnings: Sequence[str]
    timing: Timing
    model: Model
    source: str
    """Language code, detected where it was left open."""
    confidence: float | None = None
    """Of the detection, 0 to 1; None where nothing was detected."""


@dataclass(frozen=True)
class JobResult:
    """What the texts became, in order; each may have a source language and a model of its own."""

    translations: Sequence[TextResult]


class Jobs:
    """Translates jobs with the models of a registry."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings

    async def translate(self, job: Job, receive: Receive) -> JobResult:
        """Translate; a client that leaves, as `receive` tells, ends it.

        Raises RequestError, whose `index` names the text at fault where one is, and the errors of
        the scheduler.
        """
        model, source = self._registry.choose(job.source, job.target, job.model)
        timeout_s = self._timeout(job)
        requests = self._requests(job, model, timeout_s)
        submit = model.scheduler.submit_all
        if sum(map(len, job.texts)) <= _SHORT:
            tickets = submit(requests)
        else:
            tickets = await run_in_threadpool(submit, requests)
        results = await completed(tickets, receive, timeout_s)
        return JobResult([_text_result(result, model, source) for result in results])

    def _timeout(self, job: Job) -> float:
        settings = self._settings
        timeout_s = job.timeout_s or settings.default_timeout_s
        if timeout_s > settings.max_timeout_s:
            raise RequestError(
                f"timeout_s must be at most {settings.max_timeout_s:g} "
                f"({variable('max_timeout_s')}), got {timeout_s:g}"
            )
        return timeout_s

    def _requests(self, job: Job, model: Model, timeout_s: float) -> list[Request]:
        """One request of the scheduler for each text; raises RequestError."""
        settings, texts = self._settings, job.texts
        options = choose_options(
            job.options, model.defaults, settings, alternatives=job.alternatives
        )
        check_cost(len(texts), options, settings)
        check_texts(texts, settings)
        check_texts(job.target_prefixes, settings)
        prefixes = job.target_prefixes or [""] * len(texts)
        return [
            Request(text=text, options=options, target_prefix=prefix, timeout_s=timeout_s)
            for text, prefix in zip(texts, prefixes, strict=True)
        ]


def _text_result(result: Completed, model: Model, source: str) -> TextResult:
    translation = result.translation
    return TextResult(
        text=translation.text,
        hypotheses=translation.hypotheses,
        warnings=translation.warnings,
        timing=result.timing,
        model=model,
        source=source,
    )
