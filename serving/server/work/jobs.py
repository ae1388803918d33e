"""Texts to translate, as every dialect asks for them: model choice, limits, decoding, answers.

A dialect reads its own wire format into a `TranslationJob`, and renders the `JobResult` in its own
shape.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from serving.errors import RequestError
from serving.search.options import SearchOptions
from serving.server.http.access_log import RequestContext
from serving.server.http.gate import Gatekeeper
from serving.server.http.settings import Settings, variable
from serving.server.models.catalogue import AUTO, Catalogue
from serving.server.models.served import ServedModel
from serving.server.work.admission import (
    check_cost,
    check_tags,
    check_terms,
    check_texts,
    choose_options,
)
from serving.server.work.in_flight import completed, followed
from serving.server.work.pivot import Part, check_pivot, first_leg, joined_legs, parted, second_leg
from serving.server.work.translation_job import JobResult, TextPartial, TextResult, TranslationJob
from serving.text.characters import check_text
from serving.text.detection import detect_among
from serving.text.document import Document
from serving.text.growing import GrowingTexts
from serving.translation.results import (
    check_single,
    join_timings,
    join_translations,
)
from serving.translation.ticket import Completed, Request, TranslationTicket

P = ParamSpec("P")
R = TypeVar("R")

_ZERO_SHOT = "zero_shot"
"""The warning of a translation between languages on whose pair its model was not trained."""

_SHORT = 1000
"""Characters that are read on the event loop: within a millisecond. A full body would hold up other
requests, but a change of threads costs more than a short text does."""


class Jobs:
    """Translates jobs with the models of a catalogue, once the gatekeeper has counted them."""

    def __init__(self, catalogue: Catalogue, settings: Settings, gatekeeper: Gatekeeper) -> None:
        self._catalogue, self._settings, self._gatekeeper = catalogue, settings, gatekeeper

    async def translate(
        self, job: TranslationJob, context: RequestContext, receive: Receive
    ) -> JobResult:
        """Translate the texts of a job, unless the client leaves before that, as `receive` tells.

        Raises RequestError, whose `index` names the text at fault where one is, and the errors of
        the scheduler.
        """
        timeout_s = self._timeout(job)
        end = time.monotonic() + timeout_s
        parts = await self._parts(job)
        if not parts:
            return await self._routed(job, context, receive, timeout_s)
        found: dict[int, TextResult] = {}
        for part in parts:
            with part.naming():
                result = await self._routed(part.job, context, receive, _left(end))
            found |= part.found(result)
        return JobResult([found[index] for index in range(len(job.texts))])

    async def _routed(
        self, job: TranslationJob, context: RequestContext, receive: Receive, timeout_s: float
    ) -> JobResult:
        """Translate texts that all go one way, in one leg or in two."""
        between = await self._apart(job, self._between, job)
        if between is None:
            return await self._translated(job, context, receive, timeout_s)
        end = time.monotonic() + timeout_s
        leg = first_leg(job, between)
        first = await self._translated(leg, context, receive, timeout_s)
        leg = second_leg(job, between, first)
        second = await self._translated(leg, context, receive, _left(end), counted=True)
        return joined_legs(job, (first, second))

    async def _translated(
        self,
        job: TranslationJob,
        context: RequestContext,
        receive: Receive,
        timeout_s: float,
        *,
        counted: bool = False,
    ) -> JobResult:
        plans, tickets = await self._apart(
            job, self._submit, job, context, timeout_s, counted=counted
        )
        results = await completed(tickets, receive, timeout_s)
        _note_results(context, results)
        return await self._apart(job, _job_result, job, plans, results)

    async def stream(
        self, job: TranslationJob, context: RequestContext
    ) -> AsyncGenerator[TextPartial | JobResult]:
        """Translate the texts of a job and give what becomes certain of them, at last the result.

        The generator is to be read to its end or closed: what is left is then given up.

        Raises what `translate` does before there is anything to read, and while it is read.
        """
        timeout_s = self._timeout(job)
        end = time.monotonic() + timeout_s
        parts = await self._parts(job)
        if not parts:
            return await self._streamed(job, context, timeout_s)
        with parts[0].naming():
            told = await self._streamed(parts[0].job, context, _left(end))
        return self._followed_parts(parts, told, context, end)

    async def _followed_parts(
        self,
        parts: Sequence[Part],
        told: AsyncGenerator[TextPartial | JobResult],
        context: RequestContext,
        end: float,
    ) -> AsyncGenerator[TextPartial | JobResult]:
        """One part after the other, of which the first has begun; at last the result of all."""
        found: dict[int, TextResult] = {}
        for number, part in enumerate(parts):
            with part.naming():
                if number:
                    told = await self._streamed(part.job, context, _left(end))
                async with aclosing(told):
                    async for event in told:
                        if isinstance(event, JobResult):
                            found |= part.found(event)
                        else:
                            yield TextPartial(part.indices[event.index], event.text)
        yield JobResult([found[index] for index in range(len(found))])

    async def _streamed(
        self, job: TranslationJob, context: RequestContext, timeout_s: float
    ) -> AsyncGenerator[TextPartial | JobResult]:
        """Submit texts that all go one way, and give what becomes certain of them."""
        between = await self._apart(job, self._between, job)
        if between is None:
            submitted = await self._apart(job, self._submit, job, context, timeout_s, stream=True)
            return self._followed(job, context, *submitted)
        leg = first_leg(job, between)
        submitted = await self._apart(leg, self._submit, leg, context, timeout_s)
        return self._followed_legs(job, between, context, submitted, timeout_s)

    async def _followed_legs(
        self,
        job: TranslationJob,
        between: str,
        context: RequestContext,
        submitted: _Submitted,
        timeout_s: float,
    ) -> AsyncGenerator[TextPartial | JobResult]:
        """Of the first leg nothing is told; the second is told as it comes."""
        end = time.monotonic() + timeout_s
        first: JobResult | None = None
        leg = first_leg(job, between)
        async with aclosing(self._followed(leg, context, *submitted)) as told:
            async for event in told:
                first = event if isinstance(event, JobResult) else first
        assert first is not None
        leg = second_leg(job, between, first)
        submitted = await self._apart(
            leg, self._submit, leg, context, _left(end), stream=True, counted=True
        )
        async with aclosing(self._followed(leg, context, *submitted)) as told:
            async for event in told:
                if isinstance(event, JobResult):
                    event = joined_legs(job, (first, event))
                yield event

    async def _followed(
        self,
        job: TranslationJob,
        context: RequestContext,
        plans: Sequence[_Plan],
        tickets: Sequence[TranslationTicket],
    ) -> AsyncGenerator[TextPartial | JobResult]:
        growing = GrowingTexts([plan.document for plan in plans])
        results: dict[int, Completed] = {}
        try:
            async for number, event in followed(tickets, context):
                if isinstance(event, Completed):
                    results[number] = event
                    grown = growing.ended(number, event.translation.text)
                else:
                    grown = growing.told(number, event.text)
                if grown is not None:
                    yield TextPartial(*grown)
            done = [results[number] for number in range(len(tickets))]
            _note_results(context, done)
            yield await self._apart(job, _job_result, job, plans, done)
        finally:
            for ticket in tickets:
                ticket.cancel()  # changes nothing where it has ended

    async def _parts(self, job: TranslationJob) -> list[Part]:
        """The parts of a job whose source is left open and of which some texts are in a language
        that goes to the target through a third only; none of any other, which is to stay whole."""
        if job.source != AUTO:
            return []
        roundabout = self._catalogue.roundabout_sources(job.target, job.model)
        detected = await self._apart(job, self._detected, job, roundabout) if roundabout else {}
        return parted(job, detected) if detected else []

    def _detected(
        self, job: TranslationJob, languages: Sequence[str]
    ) -> dict[int, tuple[str, float]]:
        """The texts that are in one of these languages rather than in one that has a model of its
        own to the target, with it and its probability."""
        direct = self._catalogue.sources(job.target, job.model)
        found = {}
        for index, document in enumerate(self._checked_documents(job)):
            language, probability = detect_among(
                document.visible, [*direct, *languages], job.target
            )
            if language in languages:
                found[index] = language, probability
        return found

    def _between(self, job: TranslationJob) -> str | None:
        """The language that the texts go through; None where one model translates them."""
        if job.source == AUTO:
            return None
        between = self._catalogue.pivot(job.source, job.target, job.model)
        if between is not None:
            # What is asked of the second model is looked at before the first one works.
            check_pivot(job, between)
            self._check_wishes(job)
            second = self._catalogue.choose(between, job.target, job.model)
            self._options(job, second)
        return between

    def _check_wishes(self, job: TranslationJob) -> None:
        """Raise RequestError for terms and prefixes beyond the server's limits."""
        check_texts(job.target_prefixes, self._settings, "target_prefix")
        check_terms(job.terms, self._settings)

    def _options(self, job: TranslationJob, model: ServedModel) -> SearchOptions:
        return choose_options(
            job.options, model.defaults, self._settings, alternatives=job.alternatives
        )

    async def _apart(
        self, job: TranslationJob, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call `act`: on another thread where the texts are so long that it would hold up other
        requests, or where a model may have to be loaded."""
        if sum(map(len, job.texts)) <= _SHORT and not self._catalogue.may_load:
            return act(*args, **kwargs)
        return await run_in_threadpool(act, *args, **kwargs)

    def _timeout(self, job: TranslationJob) -> float:
        settings = self._settings
        timeout_s = job.timeout_s or settings.default_timeout_s
        if timeout_s > settings.max_timeout_s:
            raise RequestError(
                f"timeout_s must be at most {settings.max_timeout_s:g} "
                f"({variable('max_timeout_s')}), got {timeout_s:g}",
                parameter="timeout_s",
            )
        return timeout_s

    def _submit(
        self,
        job: TranslationJob,
        context: RequestContext,
        timeout_s: float,
        *,
        stream: bool = False,
        counted: bool = False,
    ) -> _Submitted:
        """Plan the texts and queue their sentences, all or none of them. Texts that are no client's
        are `counted` already: neither their size nor their cost is looked at."""
        plans = self._plans(job, counted=counted)
        if not counted:
            beams = {plan.options.total_beams for plan in plans}
            sentences = sum(len(plan.document.sentences) for plan in plans)
            check_cost(sentences, max(beams, default=1), self._settings)
        context.note_model(_common_name(plans), len(plans))
        if not counted:
            self._gatekeeper.charge(context, sum(map(len, job.texts)))
        prefixes = job.target_prefixes or [""] * len(plans)
        asked = [
            (index, plan, request)
            for index, (plan, prefix) in enumerate(zip(plans, prefixes, strict=True))
            for request in _requests(job, plan, prefix, timeout_s, stream=stream)
        ]
        tickets: dict[int, TranslationTicket] = {}
        try:
            for model in {plan.model.name: plan.model for plan in plans}.values():
                own = [n for n, (_, plan, _) in enumerate(asked) if plan.model is model]
                try:
                    submitted = model.scheduler.submit_all([asked[n][2] for n in own])
                except RequestError as error:
                    if error.index is not None:
                        error.index = asked[own[error.index]][0]
                    raise
                tickets.update(zip(own, submitted, strict=True))
        except BaseException:
            for ticket in tickets.values():
                ticket.cancel()
            raise
        return plans, [tickets[number] for number in range(len(asked))]

    def _checked_documents(self, job: TranslationJob) -> list[Document]:
        """Read the texts of a client, within the server's limits."""
        settings = self._settings
        if job.format == "text":
            check_texts(job.texts, settings)
        else:
            check_tags(job.texts, settings)
        self._check_wishes(job)
        documents = list(_documents(job))
        if job.format != "text":
            check_texts([document.visible for document in documents], settings)
        return documents

    def _plans(self, job: TranslationJob, *, counted: bool) -> list[_Plan]:
        """Decide how each text is translated; raises RequestError, with the index of the text where
        a single one is at fault."""
        documents = list(_documents(job)) if counted else self._checked_documents(job)
        # Asked first: a target that nothing writes is at fault before any text is.
        readable = self._catalogue.sources(job.target, job.model) if job.source == AUTO else []
        plans: list[_Plan] = []
        options: dict[str, SearchOptions] = {}
        for index, (text, document) in enumerate(zip(job.texts, documents, strict=True)):
            source, confidence = job.source, None
            if source == AUTO:
                source, confidence = detect_among(document.visible, readable, job.target)
            translated = job.source != AUTO or source in readable  # else it is in the target
            model = self._catalogue.choose(
                source if translated else readable[0], job.target, job.model
            )
            if model.name not in options:
                options[model.name] = self._options(job, model)
            try:
                check_text(text)
                if translated:  # else it has no sentences and stays as it is
                    reader = model.scheduler
                    document.divide(
                        source,
                        reader.fits,
                        split=job.split_sentences,
                        target=job.target,
                        spells=reader.spells,
                    )
                check_single(options[model.name], job.terms, len(document.sentences))
            except RequestError as error:
                error.index = index
                raise
            plans.append(_Plan(document, model, options[model.name], source, confidence))
        return plans


@dataclass(frozen=True)
class _Plan:
    """How one text is translated: its sentences, the model, the options and the language."""

    document: Document
    model: ServedModel
    options: SearchOptions
    source: str
    confidence: float | None


def _left(end: float) -> float:
    """Seconds until then."""
    return max(0.0, end - time.monotonic())


_Submitted = tuple[list[_Plan], list[TranslationTicket]]


def _documents(job: TranslationJob) -> Iterator[Document]:
    for index, text in enumerate(job.texts):
        try:
            yield Document(text, job.format, job.ignored)
        except RequestError as error:
            error.index = index
            raise


def _common_name(plans: Sequence[_Plan]) -> str:
    """The name of the model for logs and metrics; texts of several languages may have several."""
    names = {plan.model.name for plan in plans}
    return names.pop() if len(names) == 1 else "several"


def _requests(
    job: TranslationJob, plan: _Plan, prefix: str, timeout_s: float, *, stream: bool
) -> Iterator[Request]:
    """One request of the scheduler for each sentence; the prefix belongs to the first."""
    for sentence in plan.document.sentences:
        yield Request(
            text=sentence,
            source=plan.source,
            target=job.target,
            options=plan.options,
            target_prefix=prefix,
            alignments=job.alignments or plan.document.needs_links,
            terms=job.terms,
            stream=stream,
            timeout_s=timeout_s,
        )
        prefix = ""


def _note_results(context: RequestContext, results: Sequence[Completed]) -> None:
    """Note in the context how long the texts took, and how many tokens were generated."""
    context.note_timings([result.timing for result in results], sum(map(_num_tokens, results)))


def _num_tokens(result: Completed) -> int:
    best = result.translation.hypotheses[:1]
    return sum(len(hypothesis.token_scores) for hypothesis in best)


def _job_result(
    job: TranslationJob, plans: Sequence[_Plan], results: Sequence[Completed]
) -> JobResult:
    rest = iter(results)
    return JobResult(
        [_text_result(job, plan, [next(rest) for _ in plan.document.sentences]) for plan in plans]
    )


def _text_result(job: TranslationJob, plan: _Plan, results: Sequence[Completed]) -> TextResult:
    sentences = [result.translation for result in results]
    joined = join_translations(plan.document, sentences, alignments=job.alignments)
    pair = plan.source, job.target
    untrained = pair not in plan.model.pairs and plan.source != job.target
    return TextResult(
        text=joined.text,
        hypotheses=joined.hypotheses,
        warnings=(*joined.warnings, *([_ZERO_SHOT] if untrained else [])),
        timing=join_timings([result.timing for result in results]),
        model=plan.model,
        source=plan.source,
        confidence=plan.confidence,
    )
