"""Translates the texts of a request, for every dialect.

A dialect parses its request into a `TranslationJob` and formats the `JobResult`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain

from starlette.types import Receive

from serving.errors import RequestError, UnknownLanguageError
from serving.queue.ticket import HeldWork
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


@dataclass(frozen=True)
class _Leg:
    """Texts of one language pair that are submitted together."""

    asked: TranslationJob
    """What the client asks for with these texts."""
    limit: TimeLimit
    job: TranslationJob
    """The same, or its first step through the language `between`."""
    between: str | None = None
    part: Part | None = None
    """Which texts of the request these are; None for all."""

    def naming(self) -> AbstractContextManager[None]:
        """Errors name the texts by their indices in the request."""
        return self.part.naming() if self.part else nullcontext()


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
        """Submit the texts of a job; returns their events."""
        matched = self._planner.matched(job)
        with _naming_languages(job, matched):
            return await self._matched(matched, self._caller(matched, context, receive))

    async def _matched(self, job: TranslationJob, caller: Caller) -> _Events:
        """The same for a job with the models' language codes."""
        limit = self._pipeline.limit(job.timeout_s, caller.context)
        open_source = job.source == AUTO
        parts = await apart(caller, self._planner.parts, job) if open_source else []
        between = self._planner.between
        legs = [_leg_of(part.job, limit, between(part.job), part) for part in parts]
        legs = legs or [_leg_of(job, limit, between(job))]
        begun = await self._pipeline.begin(caller, lambda: self._chosen(legs, caller))
        caller = replace(caller, loads=False)
        if not parts:
            return self._of_leg(legs[0], begun[0], caller)
        return self._in_parts(parts, legs, begun, caller)

    async def _in_parts(
        self,
        parts: Sequence[Part],
        legs: Sequence[_Leg],
        begun: Sequence[_Submitted],
        caller: Caller,
    ) -> _Events:
        """Yield the events of all parts in turn, then the result."""
        found: dict[int, TextResult] = {}
        try:
            for part, leg, submitted in zip(parts, legs, begun, strict=True):
                if found:  # it has waited for the parts before it
                    leg = replace(leg, limit=replace(leg.limit.rest(), held=leg.limit.held))
                with part.naming():
                    async with aclosing(self._of_leg(leg, submitted, caller)) as events:
                        async for event in events:
                            if isinstance(event, JobResult):
                                found |= part.found(event)
                            else:
                                yield TextPartial(part.indices[event.index], event.text)
        except BaseException:
            _cancel(begun)
            raise
        yield JobResult([found[index] for index in range(len(found))])

    def _of_leg(self, leg: _Leg, submitted: _Submitted, caller: Caller) -> _Events:
        """The events of submitted texts, and of what follows through a third language."""
        events = self._followed(leg, *submitted, caller)
        return self._in_legs(leg, leg.between, events, caller) if leg.between else events

    async def _in_legs(self, leg: _Leg, between: str, events: _Events, caller: Caller) -> _Events:
        """Wait for the first leg, then yield the events of the second, whose texts were made here
        and are not charged to the client."""
        first = await _last(events)
        second = _leg_of(second_leg(leg.asked, between, first), leg.limit.rest())
        (submitted,) = await self._pipeline.begin(
            caller, lambda: self._chosen([second], caller, counted=True)
        )
        async with aclosing(self._followed(second, *submitted, caller)) as events:
            async for event in events:
                if isinstance(event, JobResult):
                    event = joined_legs(leg.asked, (first, event))
                yield event

    def _chosen(
        self, legs: Sequence[_Leg], caller: Caller, *, counted: bool = False
    ) -> Chosen[list[_Submitted]]:
        """Plan all texts of a request before any is submitted: it is accepted, and charged, as a
        whole or not at all. `counted` texts are not charged."""
        plans: list[list[Plan]] = []
        for leg in legs:
            with leg.naming():
                if leg.between is not None:
                    self._planner.check_legs(leg.asked, leg.between)
                plans.append(self._planner.plans(leg.job, counted=counted))
        return Chosen(
            model=common_name(chain.from_iterable(plans)),
            task=legs[0].job.task,
            texts=sum(map(len, plans)),
            characters=None if counted else sum(_characters(leg.job) for leg in legs),
            submit=lambda: _submit_all(legs, plans, streams=caller.receive is None),
        )

    async def _followed(
        self,
        leg: _Leg,
        plans: Sequence[Plan],
        tickets: Sequence[TranslationTicket],
        caller: Caller,
    ) -> _Events:
        job, growing = leg.job, None
        if caller.receive is None:
            growing = GrowingTexts([plan.document for plan in plans])
        terms = sentences_with_terms(plans) if job.glossary else {}
        results: dict[int, Completed] = {}
        async with aclosing(self._pipeline.events(tickets, caller, leg.limit)) as events:
            async for number, event in events:
                if isinstance(event, Completed):
                    if number in terms:
                        put = with_terms(event.translation, *terms[number], job.target)
                        event = replace(event, translation=put)
                    results[number] = event
                if growing is None:
                    continue
                if isinstance(event, Completed):
                    linked = event.translation.linked
                    grown = growing.ended(number, linked.text, linked.links)
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


def _leg_of(
    asked: TranslationJob, limit: TimeLimit, between: str | None = None, part: Part | None = None
) -> _Leg:
    """What is submitted first of texts. Their works are held on their own, if at all, because the
    parts of a request are waited for in turn."""
    limit = replace(limit, held=None if limit.held is None else [])
    return _Leg(asked, limit, first_leg(asked, between) if between else asked, between, part)


def _submit_all(
    legs: Sequence[_Leg], plans: Sequence[list[Plan]], *, streams: bool
) -> list[_Submitted]:
    """Queue the sentences of all legs, or none if one is refused."""
    begun: list[_Submitted] = []
    # Those of the first legs would be decoded while the last one is read.
    held: list[HeldWork] = []
    holds = len(legs) > 1 and legs[0].limit.held is None
    try:
        for leg, own in zip(legs, plans, strict=True):
            streamed = streams and leg.between is None  # a client gets no events of a first leg
            limit = replace(leg.limit, held=held) if holds else leg.limit
            with leg.naming():
                tickets = _submit(leg.job, own, limit, streamed=streamed)
            begun.append((own, tickets))
        for work in held:
            work.queue()
    except BaseException:
        _cancel(begun)
        raise
    return begun


def _cancel(begun: Sequence[_Submitted]) -> None:
    for _, tickets in begun:
        for ticket in tickets:
            ticket.cancel()  # has no effect if it has ended


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
