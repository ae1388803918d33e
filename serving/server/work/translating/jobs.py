"""Translates the texts of a request, for every dialect.

A dialect parses its request into a `TranslationJob` and formats the `JobResult`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace

from starlette.types import Receive

from serving.errors import RequestError, UnknownLanguageError
from serving.server.access.gate import Gatekeeper
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.models.catalogue import AUTO, Catalogue
from serving.server.work.pipeline import Caller, Chosen, Pipeline, TimeLimit, apart
from serving.server.work.translating.job import (
    JobResult,
    SentenceOrigin,
    TextPartial,
    TextResult,
    TranslationJob,
)
from serving.server.work.translating.pivot import (
    WITHOUT_MEMORY,
    Part,
    first_leg,
    joined_legs,
    second_leg,
)
from serving.server.work.translating.planning import (
    Plan,
    Planner,
    common_name,
    requests,
    sentences_with_terms,
)
from serving.text.characters import counted_characters
from serving.text.growing import GrowingTexts
from serving.translation.glossing import with_terms
from serving.translation.results import Translation, join_timings, join_translations
from serving.translation.ticket import Completed, Request, TranslationTicket

_ZERO_SHOT = "zero_shot"
"""Warning for a translation of a pair that its model was not trained on."""
_Events = AsyncGenerator[TextPartial | JobResult]
_Submitted = tuple[list[Plan], list[TranslationTicket]]


class Jobs:
    """Translates jobs with the models of a catalogue; the gatekeeper counts them first."""

    def __init__(self, catalogue: Catalogue, settings: Settings, gatekeeper: Gatekeeper) -> None:
        self._gatekeeper = gatekeeper
        self._pipeline = Pipeline(settings, gatekeeper)
        self._planner = Planner(catalogue, settings)

    @property
    def idle_s(self) -> float:
        """Seconds since the last interactive request."""
        return self._gatekeeper.idle_s

    async def translate(
        self, job: TranslationJob, context: RequestContext, receive: Receive
    ) -> JobResult:
        """Translate the texts of a job; stops if `receive` shows that the client has disconnected.

        Raises RequestError and the errors of the scheduler. `index` of a RequestError is the index
        of the text at fault, if one text is.
        """
        return await _last(await self._begun(job, context, receive))

    async def stream(self, job: TranslationJob, context: RequestContext) -> _Events:
        """Translate the texts of a job; yields their certain beginnings, then the result.

        Read the generator to its end or close it; closing cancels the rest. Both this call and the
        generator raise what `translate` raises.
        """
        return await self._begun(job, context, None)

    async def _begun(
        self, job: TranslationJob, context: RequestContext, receive: Receive | None
    ) -> _Events:
        """Submit the texts of a job, or a first part of them; returns the events of all."""
        matched = self._planner.matched(job)
        with _naming_languages(job, matched):
            return await self._matched(matched, self._caller(matched, context, receive))

    async def _matched(self, job: TranslationJob, caller: Caller) -> _Events:
        """The same for a job with the models' language codes."""
        limit = self._pipeline.limit(job.timeout_s, caller.context)
        open_source = job.source == AUTO
        parts = await apart(caller, self._planner.parts, job) if open_source else []
        if not parts:
            return await self._routed(job, caller, limit)
        with parts[0].naming():
            events = await self._routed(parts[0].job, caller, limit)
        return self._in_parts(parts, events, caller, limit)

    async def _in_parts(
        self, parts: Sequence[Part], events: _Events, caller: Caller, limit: TimeLimit
    ) -> _Events:
        """Yield the events of all parts in turn, then the result. The first part is already
        submitted."""
        found: dict[int, TextResult] = {}
        for number, part in enumerate(parts):
            with part.naming():
                if number:
                    events = await self._routed(part.job, caller, limit.rest())
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, JobResult):
                            found |= part.found(event)
                        else:
                            yield TextPartial(part.indices[event.index], event.text)
        yield JobResult([found[index] for index in range(len(found))])

    async def _routed(self, job: TranslationJob, caller: Caller, limit: TimeLimit) -> _Events:
        """Submit texts that share one route: directly, or through a third language."""
        between = self._planner.between(job)
        if between is None:
            return await self._leg(job, caller, limit)
        await apart(caller, self._planner.check_legs, job, between)
        # The client gets no events of the first leg.
        first = await self._leg(first_leg(job, between), caller, limit, streamed=False)
        return self._in_legs(job, between, first, caller, limit)

    async def _in_legs(
        self, job: TranslationJob, between: str, events: _Events, caller: Caller, limit: TimeLimit
    ) -> _Events:
        """Wait for the first leg, then yield the events of the second."""
        first = await _last(events)
        leg = second_leg(job, between, first)
        async with aclosing(await self._leg(leg, caller, limit.rest(), counted=True)) as events:
            async for event in events:
                if isinstance(event, JobResult):
                    event = joined_legs(job, (first, event))
                yield event

    async def _leg(
        self,
        job: TranslationJob,
        caller: Caller,
        limit: TimeLimit,
        *,
        streamed: bool = True,
        counted: bool = False,
    ) -> _Events:
        """Submit texts of one language pair. If `streamed`, a caller that streams gets their
        certain beginnings. `counted` texts were made here and are not charged to the client."""
        streamed = streamed and caller.receive is None

        def choose() -> Chosen[_Submitted]:
            plans = self._planner.plans(job, counted=counted)
            return Chosen(
                model=common_name(plans),
                task=job.task,
                texts=len(plans),
                characters=None if counted else _characters(job),
                submit=lambda: (plans, _submit(job, plans, limit, streamed=streamed)),
            )

        begun = await self._pipeline.begin(caller, choose)
        caller = replace(caller, loads=False)
        return self._followed(job, *begun, caller, limit)

    async def _followed(
        self,
        job: TranslationJob,
        plans: Sequence[Plan],
        tickets: Sequence[TranslationTicket],
        caller: Caller,
        limit: TimeLimit,
    ) -> _Events:
        growing = None
        if caller.receive is None:
            growing = GrowingTexts([plan.document for plan in plans])
        terms = sentences_with_terms(plans) if job.glossary else {}
        results: dict[int, Completed] = {}
        async with aclosing(self._pipeline.events(tickets, caller, limit)) as events:
            async for number, event in events:
                if isinstance(event, Completed):
                    if number in terms:
                        put = with_terms(event.translation, *terms[number], job.target)
                        event = replace(event, translation=put)
                    results[number] = event
                if growing is None:
                    continue
                if isinstance(event, Completed):
                    grown = growing.ended(number, event.translation.text)
                else:
                    grown = growing.update(number, event.text)
                if grown is not None:
                    yield TextPartial(*grown)
        done = [results[number] for number in range(len(tickets))]
        yield await apart(caller, _job_result, job, plans, done)

    def _caller(
        self, job: TranslationJob, context: RequestContext, receive: Receive | None
    ) -> Caller:
        """The client of a job. Its characters are infinite, so that another thread is used, if the
        job has a memory or shares sentences with a document, or if it forbids terms, all
        segmentations of which must be found."""
        elsewhere = job.memory is not None or job.sentences is not None or job.terms.forbidden
        size = math.inf if elsewhere else sum(map(len, job.texts))
        return Caller(context, size, receive, self._planner.loads(job))


@contextmanager
def _naming_languages(asked: TranslationJob, matched: TranslationJob) -> Iterator[None]:
    """Errors about languages use the codes of the request if the models' codes differ."""
    try:
        yield
    except UnknownLanguageError as error:
        pairs = ((asked.source, matched.source), (asked.target, matched.target))
        taken = [f"{given!r} was taken for {found!r}" for given, found in pairs if given != found]
        error.hint = "; ".join([*filter(None, [error.hint]), *taken]) or None
        raise


async def _last(events: _Events) -> JobResult:
    """The result, which is the last event of every stream."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, JobResult):
                return event
    raise AssertionError("a stream has no result")


def _characters(job: TranslationJob) -> int:
    """Number of characters of a job that are charged to the client."""
    if job.format == "text":
        return sum(map(len, job.texts))
    return sum(counted_characters(text, job.format) for text in job.texts)


def _submit(
    job: TranslationJob, plans: Sequence[Plan], limit: TimeLimit, *, streamed: bool
) -> list[TranslationTicket]:
    """Queue the sentences of all texts, or none if one is refused."""
    prefixes = job.target_prefixes or [""] * len(plans)
    asked = [
        (index, plan, request)
        for index, (plan, prefix) in enumerate(zip(plans, prefixes, strict=True))
        for request in requests(job, plan, prefix, limit.timeout_s, stream=streamed)
    ]
    tickets: dict[int, TranslationTicket] = {}
    for number, (_, _, known) in enumerate(asked):
        if isinstance(known, Completed):
            tickets[number] = TranslationTicket()
            tickets[number].complete(known)
    try:
        for model in {plan.model.name: plan.model for plan in plans}.values():
            own = {
                n: request
                for n, (_, plan, request) in enumerate(asked)
                if plan.model is model and isinstance(request, Request)
            }
            submit = functools.partial(
                model.scheduler.submit_all, max_wait_s=limit.max_wait_s, held=limit.held
            )
            new = list(own.values())
            try:
                if job.sentences is None:
                    submitted = submit(new)
                else:
                    submitted = job.sentences.submit_all(new, model.made_by, submit)
            except RequestError as error:
                if error.index is not None:
                    error.index = asked[list(own)[error.index]][0]
                raise
            tickets.update(zip(own, submitted, strict=True))
    except BaseException:
        for ticket in tickets.values():
            ticket.cancel()
        raise
    return [tickets[number] for number in range(len(asked))]


def _job_result(
    job: TranslationJob, plans: Sequence[Plan], results: Sequence[Completed]
) -> JobResult:
    rest = iter(results)
    return JobResult(
        [_text_result(job, plan, [next(rest) for _ in plan.document.sentences]) for plan in plans]
    )


def _text_result(job: TranslationJob, plan: Plan, results: Sequence[Completed]) -> TextResult:
    sentences = [result.translation for result in results]
    timing = join_timings([result.timing for result in results])
    joined = join_translations(plan.document, sentences, alignments=job.alignments)
    pair = plan.source, job.target
    untrained = pair not in plan.model.pairs and plan.source != job.target
    unserved = job.memory is not None and not job.memory.serves(plan.source) and bool(results)
    added = [*([_ZERO_SHOT] if untrained else []), *([WITHOUT_MEMORY] if unserved else [])]
    return TextResult(
        text=joined.text,
        hypotheses=joined.hypotheses,
        warnings=(*joined.warnings, *added),
        repaired=joined.repaired,
        timing=timing,
        model=plan.model,
        source=plan.source,
        confidence=plan.confidence,
        origins=list(_origins(plan, sentences)) if job.memory is not None else (),
    )


def _origins(plan: Plan, translations: Sequence[Translation]) -> Iterator[SentenceOrigin]:
    for number, translation in enumerate(translations):
        sentence = plan.document.as_given(number)
        if number in plan.known:
            yield plan.known[number].origin
        elif number in plan.offered:
            yield SentenceOrigin(sentence, plan.offered[number], translation.beginning)
        else:
            yield SentenceOrigin(sentence, None)
