"""Language pairs that no model translates: by way of a third language, with two models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serving.errors import InvalidOptionError
from serving.server.translation_job import JobResult, TextResult, TranslationJob
from serving.text.terms import NO_TERMS

PIVOT = "pivot"
"""The warning of a translation that came so about."""


def check_pivot(job: TranslationJob, between: str) -> None:
    """Raise InvalidOptionError for what needs one model that reads the source and writes the
    target."""
    for name, asked in (("alignments", job.alignments), ("glossary", job.terms.glossary)):
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
    return replace(second, source=job.source, warnings=tuple(warnings), timing=timing)
