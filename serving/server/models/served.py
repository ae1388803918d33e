"""The models of a server, loaded or not."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from hashlib import sha256

from serving.bundle.manifest import Manifest
from serving.encoding.reader import TextReader
from serving.encoding.scheduler import TextScheduler
from serving.generation.generator import Generator
from serving.generation.scheduler import GenerationScheduler
from serving.runtime.session import ON_CPU, DeviceUse
from serving.search.options import SearchOptions
from serving.translation.scheduler import TranslationScheduler

AnyScheduler = TranslationScheduler | GenerationScheduler | TextScheduler


@dataclass(frozen=True)
class _Model:
    manifest: Manifest

    @functools.cached_property
    def name(self) -> str:
        """The manifest's name, by which requests choose the model."""
        return self.manifest.name

    @functools.cached_property
    def made_by(self) -> str:
        """SHA-256 of the manifest: what another model has made is told apart by it."""
        return sha256(repr(self.manifest).encode()).hexdigest()


@dataclass(frozen=True)
class StoredTranslator(_Model):
    """A translation model that is loaded when it is asked for."""

    @functools.cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The pairs of source and target that the model was trained to translate."""
        return frozenset(self.manifest.languages.trained)


@dataclass(frozen=True)
class ServedTranslator(StoredTranslator):
    """A translation model that is loaded, opened to requests."""

    defaults: SearchOptions
    scheduler: TranslationScheduler
    device: DeviceUse = ON_CPU

    @property
    def idle(self) -> bool:
        """Whether nothing is decoded and nothing waits for it."""
        return not self.scheduler.num_held and not self.scheduler.queue_depth


@dataclass(frozen=True)
class ServedLanguageModel(_Model):
    """A language model, opened to requests."""

    generator: Generator
    scheduler: GenerationScheduler
    loaded_at: int
    """Seconds since 1970."""

    @property
    def device(self) -> DeviceUse:
        """What it runs on, and why."""
        return self.generator.device


@dataclass(frozen=True)
class ServedEncoder(_Model):
    """An encoder, opened to requests."""

    reader: TextReader
    scheduler: TextScheduler
    loaded_at: int
    """Seconds since 1970."""

    @property
    def device(self) -> DeviceUse:
        """What it runs on, and why."""
        return self.reader.device


LoadedModel = ServedTranslator | ServedLanguageModel | ServedEncoder
AnyModel = StoredTranslator | ServedLanguageModel | ServedEncoder
