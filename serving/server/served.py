"""A model that is being served: its manifest and the scheduler that decodes with it."""

from __future__ import annotations

from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.generation.generator import Generator
from serving.generation.scheduler import GenerationScheduler
from serving.search.options import SearchOptions
from serving.translation.scheduler import TranslationScheduler


@dataclass(frozen=True)
class ServedModel:
    """A translation model, opened to requests."""

    manifest: Manifest
    defaults: SearchOptions
    scheduler: TranslationScheduler

    @property
    def name(self) -> str:
        """The manifest's name, by which requests choose the model."""
        return self.manifest.name

    def serves(self, source: str, target: str) -> bool:
        """Whether the model translates from the one language into the other."""
        languages = self.manifest.languages
        return source in languages.source and target in languages.target


@dataclass(frozen=True)
class ServedLanguageModel:
    """A language model, opened to requests."""

    manifest: Manifest
    generator: Generator
    scheduler: GenerationScheduler
    loaded_at: int
    """Seconds since 1970."""

    @property
    def name(self) -> str:
        """The manifest's name, by which requests choose the model."""
        return self.manifest.name
