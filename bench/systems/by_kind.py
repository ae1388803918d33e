"""Loads the system of a worker process; only this module knows all of them."""

from __future__ import annotations

from collections.abc import Callable

from bench.subjects.job import BenchJob, LoadedSystem
from bench.systems.language import CTranslate2Language, EagerLanguage, LanguageEngine
from bench.systems.translation import CTranslate2, Eager, IdSystem, TextSystem

_KINDS: dict[str, Callable[[BenchJob], LoadedSystem]] = {
    "ctranslate2": CTranslate2,
    "eager": Eager,
    "compiled": Eager,
    "lm-ctranslate2": CTranslate2Language,
    "lm-eager": EagerLanguage,
    "lm-onnx": LanguageEngine,
}


def load(job: BenchJob) -> LoadedSystem:
    """Load the system of a job; with a tokenizer it reads texts, else ids."""
    if job.kind == "onnx":
        return TextSystem(job) if job.tokenizer_file else IdSystem(job)
    return _KINDS[job.kind](job)
