"""The models being served: loads bundles, starts a scheduler for each, chooses one for a request.

Knows nothing of HTTP.
"""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.bundle import Manifest, find_bundles, parse_manifest
from serving.errors import (
    BundleError,
    NotReadyError,
    SettingsError,
    UnknownLanguageError,
    UnknownModelError,
)
from serving.generation_options import GenerationOptions
from serving.generation_scheduler import GenerationScheduler
from serving.generator import Generator
from serving.options import SearchOptions
from serving.presets import load_generator, load_translator
from serving.scheduler import Scheduler
from serving.settings import Settings, variable
from serving.translator import Translator

AUTO = "auto"
"""The source language where the caller leaves it to us."""

_WARM_UP_TEXT = "1 2 3"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Model:
    """One bundle and the scheduler that decodes with it."""

    manifest: Manifest
    defaults: SearchOptions
    scheduler: Scheduler

    @property
    def name(self) -> str:
        """The manifest's name, by which requests choose it."""
        return self.manifest.name

    def serves(self, source: str, target: str) -> bool:
        """Whether it translates between the two languages."""
        languages = self.manifest.languages
        return source in languages.source and target in languages.target


@dataclass(frozen=True)
class LanguageModel:
    """A language model's bundle and the scheduler that decodes with it."""

    manifest: Manifest
    generator: Generator
    scheduler: GenerationScheduler
    loaded_at: int
    """Seconds since 1970."""

    @property
    def name(self) -> str:
        """The manifest's name, by which requests choose it."""
        return self.manifest.name


def load_bundles(settings: Settings) -> list[Translator | Generator]:
    """Load and check every bundle.

    Raises BundleError, in one line, for a folder without bundles, a bundle that cannot be used and
    two of one name.
    """
    folders = find_bundles(settings.bundles)
    if not folders:
        found = "has no bundle in it" if settings.bundles.is_dir() else "is no folder"
        raise BundleError(
            f"{settings.bundles} {found}; set {variable('bundles')} to the folder that holds the "
            "bundle folders, or make a bundle with `python -m export bundle`"
        )
    loaded: dict[str, Translator | Generator] = {}
    for folder in folders:
        try:
            bundle = _load(folder, settings)
        except BundleError:
            raise
        except Exception as error:  # whatever a damaged file makes a library raise
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BundleError(f"{folder}: the bundle cannot be loaded: {reason}") from error
        manifest = bundle.manifest
        if manifest.name in loaded:
            raise BundleError(
                f"{folder}: another bundle is named {manifest.name!r} too; export one of them "
                "under another name"
            )
        loaded[manifest.name] = bundle
    return list(loaded.values())


def _load(folder: Path, settings: Settings) -> Translator | Generator:
    if parse_manifest(folder).task == "generate":
        return load_generator(folder, settings.preset, settings.threads)
    return load_translator(folder, settings.preset, settings.threads, settings.batch_limits)


class Registry:
    """The models, from the start of the server to its end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: dict[str, Model] = {}
        self._language_models: dict[str, LanguageModel] = {}
        self._ready = self._draining = False

    @property
    def ready(self) -> bool:
        """Whether every model is warm and the server is not shutting down."""
        return self._ready and not self._draining

    @property
    def models(self) -> list[Model]:
        """Every translation model, the preferred ones first; raises NotReadyError while they are
        loaded."""
        self._check_ready()
        return list(self._models.values())

    @property
    def language_models(self) -> list[LanguageModel]:
        """Every language model, the preferred ones first; raises NotReadyError while they are
        loaded."""
        self._check_ready()
        return list(self._language_models.values())

    def start(self, bundles: Iterable[Translator | Generator]) -> None:
        """Warm the models up and open them to requests.

        Raises SettingsError where a bundle's own default options are over a limit.
        """
        ranked = sorted(bundles, key=lambda b: (-b.manifest.priority, b.manifest.name))
        for bundle in ranked:
            manifest = bundle.manifest
            if isinstance(bundle, Generator):
                self._language_models[manifest.name] = self._start_generator(bundle)
            else:
                self._models[manifest.name] = self._start_translator(bundle)
            logger.info("serving %s (%s, %s)", manifest.name, manifest.family, manifest.precision)
        self._ready = True

    def add(self, model: Model) -> None:
        """Open a translation model whose scheduler is already running."""
        self._models[model.name] = model
        self._ready = True

    def _start_translator(self, translator: Translator) -> Model:
        defaults = translator.default_options
        self._check_defaults(translator.manifest.name, defaults)
        translator.translate(_WARM_UP_TEXT)
        scheduler = Scheduler(
            translator,
            max_queue=self._settings.max_queue,
            limits=self._settings.batch_limits,
            workers=translator.workers,
        )
        return Model(translator.manifest, defaults, scheduler)

    def _start_generator(self, generator: Generator) -> LanguageModel:
        generator.generate(_WARM_UP_TEXT, GenerationOptions(max_length=4))
        scheduler = GenerationScheduler(
            generator,
            max_queue=self._settings.max_queue,
            max_context_tokens=self._settings.max_context_tokens,
            limits=self._settings.batch_limits,
        )
        return LanguageModel(generator.manifest, generator, scheduler, int(time.time()))

    def choose_language_model(self, name: str | None = None) -> LanguageModel:
        """The language model of that name, or the first; raises UnknownModelError, which names what
        there is."""
        models = self.language_models
        if name is None and models:
            return models[0]
        if name not in self._language_models:
            raise UnknownModelError(f"model {_unknown(name or '', list(self._language_models))}")
        return self._language_models[name]

    def choose(self, source: str, target: str, name: str | None = None) -> Model:
        """The model for a request: the one named, else the first for the language pair.

        Raises UnknownModelError or UnknownLanguageError, which name what there is.
        """
        sources = self.sources(target, name)
        for model in self._candidates(name):
            if model.serves(source, target):
                return model
        raise UnknownLanguageError(f"source {_unknown(source, sources)} for target {target!r}")

    def sources(self, target: str, name: str | None = None) -> list[str]:
        """Languages that can be translated into the target, by the model named or by any; raises
        as `choose` does."""
        models = self._candidates(name)
        targets = _languages(model.manifest.languages.target for model in models)
        if target not in targets:
            raise UnknownLanguageError(f"target {_unknown(target, targets)}")
        return _languages(
            model.manifest.languages.source
            for model in models
            if target in model.manifest.languages.target
        )

    def _candidates(self, name: str | None) -> list[Model]:
        models = self.models
        if name is None:
            return models
        if name not in self._models:
            raise UnknownModelError(f"model {_unknown(name, list(self._models))}")
        return [self._models[name]]

    def drain(self) -> None:
        """Turn not ready, so that no new request is sent here; requests are still served."""
        self._draining = True

    def close(self) -> None:
        """Finish what was accepted and end the schedulers."""
        self.drain()
        for model in self._models.values():
            model.scheduler.close()
        for language_model in self._language_models.values():
            language_model.scheduler.close()

    def _check_ready(self) -> None:
        if not self._ready:
            raise NotReadyError("the models are being loaded; try again later")

    def _check_defaults(self, name: str, options: SearchOptions) -> None:
        for option, limit in (
            ("beam_size", "max_beam_size"),
            ("num_hypotheses", "max_num_hypotheses"),
        ):
            if getattr(options, option) > getattr(self._settings, limit):
                raise SettingsError(
                    f"{variable(limit)} must be at least {getattr(options, option)}, the default "
                    f"{option} of bundle {name!r}, got {getattr(self._settings, limit)}"
                )


def _languages(groups: Iterable[Sequence[str]]) -> list[str]:
    return sorted({code for group in groups for code in group})


def _unknown(value: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"must be one of {sorted(known)}, got {value!r}{hint}"
