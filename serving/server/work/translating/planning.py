"""Plans the translation of a job's texts: sentences, model and source language."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from serving.errors import InvalidOptionError, RequestError
from serving.queue.ticket import RequestTiming
from serving.search.options import SearchOptions
from serving.server.http.settings import Settings
from serving.server.models.catalogue import AUTO, Catalogue
from serving.server.models.served import ServedTranslator
from serving.server.work.admission import (
    check_cost,
    check_tags,
    check_terms,
    check_texts,
    choose_options,
)
from serving.server.work.translating.job import SentenceOrigin, TranslationJob
from serving.server.work.translating.pivot import Part, check_pivot, split_by_route
from serving.text.characters import check_text
from serving.text.detection import detect_among
from serving.text.document import Document
from serving.text.glossary import Match, TermIndex, terms_of
from serving.text.memory.segments import MemoryUse, Recalled, draft_of
from serving.translation.results import Translation, check_single, needs_one_sentence
from serving.translation.ticket import Completed, Request

_NO_TIME = RequestTiming(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True)
class Known:
    """A memory's translation of a sentence."""

    text: str
    """The translation as a model would write it, with masks."""
    origin: SentenceOrigin


@dataclass(frozen=True)
class Plan:
    """The plan for one text: its sentences, the model, the options and the language."""

    document: Document
    model: ServedTranslator
    options: SearchOptions
    source: str
    confidence: float | None
    terms: Mapping[int, Sequence[Match]]
    """Terms of stored glossaries, by sentence number; sentences without terms are left out."""
    known: Mapping[int, Known] = field(default_factory=dict)
    """Translations from a memory, by sentence number; these sentences are not decoded and have no
    terms."""
    offered: Mapping[int, Recalled] = field(default_factory=dict)
    """Similar segments of a memory, whose translations may give the beginning."""

    @property
    def num_sentences(self) -> int:
        """Number of sentences of the text."""
        return len(self.document.sentences)


class Planner:
    """Plans jobs with the models of a catalogue, within the limits of the settings."""

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        self._catalogue, self._settings = catalogue, settings

    def loads(self, job: TranslationJob) -> bool | None:
        """Whether a plan has to wait for a model that is loaded (`Catalogue.loads`)."""
        return self._catalogue.loads(job.source, job.target, job.model)

    def matched(self, job: TranslationJob) -> TranslationJob:
        """The job with the models' language codes (`Catalogue.codes`)."""
        source, target = self._catalogue.codes(job.source, job.target, job.model)
        return replace(job, source=source, target=target)

    def parts(self, job: TranslationJob) -> list[Part]:
        """The parts of a job without a source language, if some of its texts reach the target
        through a third language only; an empty list for any other job, which stays whole."""
        roundabout = self._catalogue.roundabout_sources(job.target, job.model)
        detected = self._detected(job, roundabout) if roundabout else {}
        return split_by_route(job, detected) if detected else []

    def between(self, job: TranslationJob) -> str | None:
        """The language that the texts are translated through; None if one model translates them."""
        if job.source == AUTO:
            return None
        return self._catalogue.pivot(job.source, job.target, job.model)

    def check_legs(self, job: TranslationJob, between: str) -> None:
        """Raise RequestError for what does not go through a third language, and for options of the
        second leg, before the first leg starts."""
        check_pivot(job, between)
        self._check_wishes(job)
        second = self._catalogue.choose(between, job.target, job.model)
        self._options(job, second)

    def plans(self, job: TranslationJob, *, counted: bool) -> list[Plan]:
        """Plan each text. Raises RequestError, with the index of a single text at fault. Texts that
        are `counted` come from the server itself: their size and cost are not checked."""
        documents = _documents(job) if counted else self._checked_documents(job)
        keeper = self._catalogue.keeper(job.source, job.target, job.model)

        @functools.cache
        def chosen(source: str) -> tuple[ServedTranslator, SearchOptions]:
            model = keeper or self._catalogue.choose(source, job.target, job.model)
            return model, self._options(job, model)

        # First, because unknown languages are reported before any text.
        readable = self._catalogue.sources(job.target, job.model) if job.source == AUTO else []
        if job.source != AUTO and job.texts:
            chosen(job.source)
        plans: list[Plan] = []
        for index, (text, document) in enumerate(zip(job.texts, documents, strict=True)):
            source, confidence = job.source, None
            if source == AUTO:
                source, confidence = detect_among(document.visible, readable, job.target)
            # Otherwise it is already in the target language.
            translated = keeper is None and (job.source != AUTO or source in readable)
            model, options = chosen(source if translated or keeper else readable[0])
            try:
                check_text(text)
                if translated:  # otherwise it has no sentences and stays unchanged
                    texts = model.scheduler.texts
                    whole = job.memory is not None or needs_one_sentence(options, job.terms)
                    document.divide(
                        source,
                        texts.fits,
                        split=job.split_sentences,
                        target=job.target,
                        spells=texts.spells,
                        usual=None if whole else texts.usual,
                        score=texts.score,
                        greeting=None
                        if whole or any(job.target_prefixes)
                        else functools.partial(texts.greeting, source=source, target=job.target),
                    )
                if len(document.sentences) > 1:
                    check_single(options, job.terms, len(document.sentences))
            except RequestError as error:
                error.index = index
                raise
            terms = _terms(job.glossary, document) if job.glossary else {}
            plans.append(Plan(document, model, options, source, confidence, terms))
        if not counted:
            beams = {plan.options.total_beams for plan in plans}
            sentences = sum(plan.num_sentences for plan in plans)
            check_cost(sentences, max(beams, default=1), self._settings)
        return plans if job.memory is None else _with_memory(plans, job.memory)

    def _detected(
        self, job: TranslationJob, languages: Sequence[str]
    ) -> dict[int, tuple[str, float]]:
        """The texts that are likelier in one of these languages than in one with a direct model,
        each with the language and its probability."""
        direct = self._catalogue.sources(job.target, job.model)
        found = {}
        for index, document in enumerate(self._checked_documents(job)):
            language, probability = detect_among(
                document.visible, [*direct, *languages], job.target
            )
            if language in languages:
                found[index] = language, probability
        return found

    def _checked_documents(self, job: TranslationJob) -> Iterable[Document]:
        """Parse the texts of a client, within the limits of the server. Plain texts are parsed as
        needed, because only markup hides the length of a text."""
        settings = self._settings
        if job.format == "text":
            check_texts(job.texts, settings)
        else:
            check_tags(job.texts, settings)
        self._check_wishes(job)
        if job.format == "text":
            return _documents(job)
        documents = list(_documents(job))
        check_texts([document.visible for document in documents], settings)
        return documents

    def _check_wishes(self, job: TranslationJob) -> None:
        """Raise RequestError for terms and prefixes that exceed the limits of the server."""
        check_texts(job.target_prefixes, self._settings, "target_prefix")
        check_terms(job.terms, self._settings)
        _check_memory(job)

    def _options(self, job: TranslationJob, model: ServedTranslator) -> SearchOptions:
        return choose_options(
            job.options, model.defaults, self._settings, alternatives=job.alternatives
        )


def _check_memory(job: TranslationJob) -> None:
    """Raise InvalidOptionError if a job names a memory and also options that exclude it."""
    for name, asked in (
        ("target_prefix", any(job.target_prefixes)),
        ("required", job.terms.required),
        ("forbidden", job.terms.forbidden),
        ("glossary", job.terms.glossary),
    ):
        if job.memory is not None and asked:
            raise InvalidOptionError(
                f"{name} cannot be combined with memory_id: a memory's translations are used "
                "unchanged; leave one of the two out",
                parameter=name,
            )


def _terms(glossary: Sequence[TermIndex], document: Document) -> dict[int, Sequence[Match]]:
    """The terms of sentences that contain any, by sentence number."""
    found = (terms_of(glossary, document, n) for n in range(len(document.sentences)))
    return {number: terms for number, terms in enumerate(found) if terms}


def _with_memory(plans: Sequence[Plan], memory: MemoryUse) -> list[Plan]:
    """The plans with the memory's translations for sentences in its language; all are looked up at
    once."""
    places = [
        (n, own)
        for n, plan in enumerate(plans)
        if memory.serves(plan.source)
        for own in range(plan.num_sentences)
    ]
    asked = [plans[n].document.as_given(own) for n, own in places]
    known: list[dict[int, Known]] = [{} for _ in plans]
    offered: list[dict[int, Recalled]] = [{} for _ in plans]
    for (n, own), sentence, recalled in zip(
        places, asked, memory.find(asked, memory.threshold), strict=True
    ):
        if recalled is None:
            continue
        if memory.as_prefix and recalled.score < 100:
            offered[n][own] = recalled
        elif text := plans[n].document.take(own, recalled.text):
            known[n][own] = Known(text, SentenceOrigin(sentence, recalled))
    return [
        replace(
            plan,
            known=own,
            offered=like,
            terms={number: terms for number, terms in plan.terms.items() if number not in own},
        )
        for plan, own, like in zip(plans, known, offered, strict=True)
    ]


def _documents(job: TranslationJob) -> Iterator[Document]:
    for index, text in enumerate(job.texts):
        try:
            yield Document(text, job.format, job.ignored)
        except RequestError as error:
            error.index = index
            raise


def common_name(plans: Iterable[Plan]) -> str:
    """Name of the model for logs and metrics; `several` if texts have different ones."""
    names = {plan.model.name for plan in plans}
    return names.pop() if len(names) == 1 else "several"


def requests(
    job: TranslationJob, plan: Plan, prefix: str, timeout_s: float, *, stream: bool
) -> Iterator[Request | Completed]:
    """Scheduler requests, one for each sentence, or its known translation. The prefix belongs to
    the first sentence."""
    for number, sentence in enumerate(plan.document.sentences):
        if number in plan.known:
            yield Completed(Translation(plan.known[number].text), _NO_TIME)
            continue
        offered = plan.offered.get(number)
        yield Request(
            text=sentence,
            source=plan.source,
            target=job.target,
            options=plan.options,
            target_prefix=prefix,
            alignments=job.alignments or plan.document.needs_links or number in plan.terms,
            terms=job.terms,
            draft=draft_of(offered, plan.document.as_given(number)) if offered else None,
            # Streamed text stays, but a term may replace any word.
            stream=stream and number not in plan.terms,
            timeout_s=timeout_s,
        )
        prefix = ""


def sentences_with_terms(plans: Sequence[Plan]) -> dict[int, tuple[str, Sequence[Match]]]:
    """The sentences that contain terms of stored glossaries, with these terms, by their numbers
    among the sentences of all texts."""
    every = [(p, n, s) for p in plans for n, s in enumerate(p.document.sentences)]
    return {
        number: (sentence, plan.terms[own])
        for number, (plan, own, sentence) in enumerate(every)
        if own in plan.terms
    }
