"""Translates language pairs that no model supports through a third language, with two models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from serving.errors import InvalidOptionError, RequestError
from serving.server.work.translating.job import JobResult, TextResult, TranslationJob
from serving.text.terms import NO_TERMS

PIVOT = "pivot"
"""Warning for a translation through a third language."""
WITHOUT_MEMORY = "memory"
"""Warning for a text without a given language that the job's memory was not used for: it is in
another language than the memory's, or was translated through a third language."""


@dataclass(frozen=True)
class Part:
    """Texts of a job that take the same route."""

    job: TranslationJob
    indices: Sequence[int]
    """Indices of the texts in the whole job."""
    confidences: Sequence[float] = ()
    """Confidences of the languages, if they were detected for this division."""
    warnings: Sequence[str] = ()
    """Warnings for all of these texts."""

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Rename the text at fault in errors to its index in the whole job."""
        try:
            yield
        except RequestError as error:
            if error.index is not None:
                error.index = self.indices[error.index]
            raise

    def found(self, result: JobResult) -> dict[int, TextResult]:
        """The results of its texts, by their indices in the whole job."""
        translations = result.translations
        if self.confidences:
            pairs = zip(translations, self.confidences, strict=True)
            translations = [
                replace(each, confidence=confidence, warnings=(*each.warnings, *self.warnings))
                for each, confidence in pairs
            ]
        return dict(zip(self.indices, translations, strict=True))


def split_by_route(job: TranslationJob, detected: Mapping[int, tuple[str, float]]) -> list[Part]:
    """Divide a job without a source language: the texts `detected` to be in a language that needs a
    third one, by that language, and all others, whose source stays open. A client that leaves the
    source open cannot know which texts these are, so they are translated without alignments and
    without a memory."""
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
    """The part with the texts of these indices, which have one source language."""
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
    """Raise InvalidOptionError for options that need a single model for the source and the
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
    """The job for the first step, from the source language: the best translation of each text, with
    the model's default options. All other options are for the target language."""
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
    """The job for the second step, into the target language, with all requested options."""
    texts = [translation.text for translation in first.translations]
    return replace(job, texts=texts, source=between)


def joined_legs(job: TranslationJob, legs: Sequence[JobResult]) -> JobResult:
    """The results of the second step, with the source languages and the warnings of the first as
    well."""
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
    # The probability of the second step says nothing about the first.
    hypotheses = [replace(each, probability=None) for each in second.hypotheses]
    return replace(
        second,
        source=job.source,
        hypotheses=hypotheses,
        warnings=tuple(warnings),
        repaired=(*first.repaired, *second.repaired),
        timing=timing,
    )
