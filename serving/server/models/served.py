"""The models of a server, loaded or not."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from hashlib import sha256

from serving.bundle.manifest import Manifest
from serving.encoding.inputs import InputProcessor
from serving.encoding.scheduler import TextScheduler
from serving.generation.prompts import PromptProcessor
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
        """SHA-256 of the manifest's content, by which results of different models are
        distinguished."""
        return sha256(repr(self.manifest).encode()).hexdigest()


@dataclass(frozen=True)
class StoredTranslator(_Model):
    """A translation model that is loaded when it is needed."""

    @functools.cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The pairs of source and target that the model was trained to translate."""
        return frozenset(self.manifest.languages.trained)


@dataclass(frozen=True)
class ServedTranslator(StoredTranslator):
    """A loaded translation model with its scheduler."""

    defaults: SearchOptions
    scheduler: TranslationScheduler
    device: DeviceUse = ON_CPU

    @property
    def idle(self) -> bool:
        """Whether the model decodes nothing and no request waits for it."""
        return not self.scheduler.num_held and not self.scheduler.queue_depth


@dataclass(frozen=True)
class ServedLanguageModel(_Model):
    """A loaded language model with its scheduler."""

    prompts: PromptProcessor
    scheduler: GenerationScheduler
    loaded_at: int
    """Time of loading, in seconds since 1970."""
    device: DeviceUse
    """The device that the model runs on, and the reason."""


@dataclass(frozen=True)
class ServedEncoder(_Model):
    """A loaded encoder with its scheduler."""

    inputs: InputProcessor
    scheduler: TextScheduler
    loaded_at: int
    """Time of loading, in seconds since 1970."""
    device: DeviceUse
    """The device that the model runs on, and the reason."""


LoadedModel = ServedTranslator | ServedLanguageModel | ServedEncoder
AnyModel = StoredTranslator | ServedLanguageModel | ServedEncoder
