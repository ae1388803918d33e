"""Language pairs that no model translates: by way of a third language, with two models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from serving.errors import InvalidOptionError, RequestError
from serving.server.work.translating.job import JobResult, TextResult, TranslationJob
from serving.text.terms import NO_TERMS

PIVOT = "pivot"
"""The warning of a translation that came so about."""
WITHOUT_MEMORY = "memory"
"""The warning of a text, its language left open, that the memory of its job is not for: it is in
another language than that, or went through a third one."""


@dataclass(frozen=True)
class Part:
    """Texts of a job that go one way."""

    job: TranslationJob
    indices: Sequence[int]
    """Which texts of the whole job they are."""
    confidences: Sequence[float] = ()
    """Of their language, where it has been detected for this."""
    warnings: Sequence[str] = ()
    """Of all of them."""

    @contextmanager
    def naming(self) -> Iterator[None]:
        """A text at fault is named as the whole job counts it."""
        try:
            yield
        except RequestError as error:
            if error.index is not None:
                error.index = self.indices[error.index]
            raise

    def found(self, result: JobResult) -> dict[int, TextResult]:
        """What its texts became, by their numbers in the whole job."""
        translations = result.translations
        if self.confidences:
            pairs = zip(translations, self.confidences, strict=True)
            translations = [
                replace(each, confidence=confidence, warnings=(*each.warnings, *self.warnings))
                for each, confidence in pairs
            ]
        return dict(zip(self.indices, translations, strict=True))


def split_by_route(job: TranslationJob, detected: Mapping[int, tuple[str, float]]) -> list[Part]:
    """A job whose source is left open, in parts: the texts that were `detected` to be in a language
    that goes through a third one, by that language, and all others, whose source stays open. Who
    leaves the source open cannot know which these are: they come without alignments, and without
    what a memory has."""
    groups: dict[str, list[int]] = {}
    for index in range(len(job.texts)):
        source = detected[index][0] if index in detected else job.source
        groups.setdefault(source, []).append(index)
    return [_part(job, source, indices, detected) for source, indices in groups.items()]


def _part(
    job: TranslationJob,
    source: str,
    indices: Sequence[int],
    detected: Mapping[int, tuple[str, float]],
) -> Part:
    """The texts of these numbers, which have one source."""
    prefixes = [job.target_prefixes[index] for index in indices] if job.target_prefixes else ()
    own = replace(job, texts=[job.texts[index] for index in indices], target_prefixes=prefixes)
    if source == job.source:
        return Part(own, indices)
    return Part(
        replace(own, source=source, alignments=False, memory=None),
        indices,
        [detected[index][1] for index in indices],
        () if job.memory is None else (WITHOUT_MEMORY,),
    )


def check_pivot(job: TranslationJob, between: str) -> None:
    """Raise InvalidOptionError for what needs one model that reads the source and writes the
    target."""
    for name, asked in (
        ("alignments", job.alignments),
        ("glossary", job.terms.glossary),
        ("glossary_id", job.glossary),
        ("memory_id", job.memory),
    ):
        if asked:
            raise InvalidOptionError(
                f"{name} needs a model from {job.source} to {job.target}; texts of that pair go "
                f"through {between} here: leave {name} out",
                parameter=name,
            )


def first_leg(job: TranslationJob, between: str) -> TranslationJob:
    """From the source language: the best translation of each text, as the model's defaults have
    it. What else is asked for is of the target language."""
    return replace(
        job,
        target=between,
        options={},
        alternatives=0,
        target_prefixes=(),
        terms=NO_TERMS,
        glossary=(),
        memory=None,
    )


def second_leg(job: TranslationJob, between: str, first: JobResult) -> TranslationJob:
    """To the target language, with all that was asked for."""
    texts = [translation.text for translation in first.translations]
    return replace(job, texts=texts, source=between)


def joined_legs(job: TranslationJob, legs: Sequence[JobResult]) -> JobResult:
    """What the second leg found, with the source and the warnings of the first as well."""
    first, second = legs
    both = zip(first.translations, second.translations, strict=True)
    return JobResult([_joined(job, *each) for each in both])


def _joined(job: TranslationJob, first: TextResult, second: TextResult) -> TextResult:
    warnings = dict.fromkeys((*first.warnings, *second.warnings, PIVOT))
    timing = replace(
        second.timing,
        queue_s=first.timing.queue_s + second.timing.queue_s,
        encode_s=first.timing.encode_s + second.timing.encode_s,
        decode_s=first.timing.decode_s + second.timing.decode_s,
    )
    # How likely the second leg is good says nothing of the first.
    hypotheses = [replace(each, probability=None) for each in second.hypotheses]
    return replace(
        second,
        source=job.source,
        hypotheses=hypotheses,
        warnings=tuple(warnings),
        repaired=(*first.repaired, *second.repaired),
        timing=timing,
    )
