"""The models being served: starts a scheduler for each, chooses one for a request.

Knows nothing of HTTP.
"""

from __future__ import annotations

import difflib
import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.bundle.manifest import Manifest, Task
from serving.encoding.reader import TextReader
from serving.encoding.scheduler import TextScheduler
from serving.errors import (
    NotReadyError,
    RequestError,
    SettingsError,
    UnknownLanguageError,
    UnknownModelError,
)
from serving.generation.generator import Generator
from serving.generation.scheduler import GenerationScheduler
from serving.runtime.session import ON_CPU, DeviceUse
from serving.search.options import SearchOptions
from serving.search.sampling_options import GenerationOptions
from serving.server.loading import load_bundles, read_manifests
from serving.server.metrics import Metrics, ModelState, State
from serving.server.settings import Settings, variable
from serving.text.languages import language_name
from serving.translation.scheduler import TranslationModel, TranslationScheduler

AUTO = "auto"
"""The source language where the caller leaves it to us."""

_WARM_UP_TEXT = "1 2 3"

AnyScheduler = TranslationScheduler | GenerationScheduler | TextScheduler

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedModel:
    """A translation model, opened to requests."""

    manifest: Manifest
    defaults: SearchOptions
    scheduler: TranslationScheduler
    device: DeviceUse = ON_CPU

    @property
    def name(self) -> str:
        """The manifest's name, by which requests choose the model."""
        return self.manifest.name

    def serves(self, source: str, target: str) -> bool:
        """Whether the model was trained to translate from the one language into the other."""
        return (source, target) in self.manifest.languages.trained


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


@dataclass(frozen=True)
class ServedEncoder:
    """An encoder, opened to requests."""

    manifest: Manifest
    reader: TextReader
    scheduler: TextScheduler
    loaded_at: int
    """Seconds since 1970."""

    @property
    def name(self) -> str:
        """The manifest's name, by which requests choose the model."""
        return self.manifest.name


AnyBundle = TranslationModel | Generator | TextReader
AnyModel = ServedModel | ServedLanguageModel | ServedEncoder


class Registry:
    """Holds the models that are served, from the start of the server to its end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: dict[str, ServedModel] = {}
        self._language_models: dict[str, ServedLanguageModel] = {}
        self._encoders: dict[str, ServedEncoder] = {}
        self._ready = self._draining = False
        self._reloading = threading.Lock()
        self._retired: weakref.WeakSet[AnyScheduler] = weakref.WeakSet()
        self.metrics = Metrics(self._state)

    @property
    def ready(self) -> bool:
        """Whether every model is warm and the server is not shutting down."""
        return self._ready and not self._draining

    @property
    def models(self) -> list[ServedModel]:
        """Every translation model, the preferred ones first; raises NotReadyError while they are
        loaded."""
        self._check_loaded()
        return list(self._models.values())

    @property
    def language_models(self) -> list[ServedLanguageModel]:
        """Every language model, the preferred ones first; raises NotReadyError while they are
        loaded."""
        self._check_loaded()
        return list(self._language_models.values())

    @property
    def encoders(self) -> list[ServedEncoder]:
        """Every encoder, the preferred ones first; raises NotReadyError while they are loaded."""
        self._check_loaded()
        return list(self._encoders.values())

    def start(self, bundles: Iterable[AnyBundle]) -> None:
        """Warm the models up and open them to requests.

        Raises SettingsError where a bundle's own default options are over a limit.
        """
        self._serve([self._start(bundle) for bundle in bundles])
        self._ready = True

    def add(self, model: ServedModel) -> None:
        """Open a translation model whose scheduler is already running."""
        self._models[model.name] = model
        self._ready = True

    def reload(self) -> None:
        """Serve what now lies in the folder of bundles: what has changed is loaded beside what
        runs, then takes its place at once; what has gone is served no more.

        No request is lost: a model that is replaced finishes what it has accepted and whatever
        those accept who have chosen it already. Where a bundle cannot be used, everything stays as
        it was, and the log says why.
        """
        with self._reloading:
            self._exchange()
        # Memory of the models that have gone is free now, not at some later collection.
        gc.collect()

    def _exchange(self) -> None:
        begin = time.monotonic()
        before, started = self._all_models(), list[AnyModel]()
        try:
            manifests = list(read_manifests(self._settings).values())
            kept = [model for model in before if model.manifest in manifests]
            bundles = load_bundles(self._settings, [model.manifest for model in kept])
            started.extend(self._start(bundle) for bundle in bundles)
        except Exception as error:  # whatever a bad bundle does, the old ones go on
            for model in started:
                model.scheduler.retire()
            self.metrics.reloads.labels("refused").inc()
            reason = " ".join(str(error).split()) or type(error).__name__
            logger.error("reload refused, all is served as before: %s", reason)
            return
        self._serve([*kept, *started])
        stay = {id(model) for model in kept}
        gone = [model for model in before if id(model) not in stay]
        for model in gone:
            self._retire(model)
        self.metrics.reloads.labels("done").inc()
        logger.info(
            "reloaded in %.1f s: %d new, %d kept, %d gone",
            time.monotonic() - begin,
            len(started),
            len(kept),
            len(gone),
        )

    def _all_models(self) -> list[AnyModel]:
        return [
            *self._models.values(),
            *self._language_models.values(),
            *self._encoders.values(),
        ]

    def _serve(self, models: Iterable[AnyModel]) -> None:
        """Open these models to requests, and no others."""
        ranked = sorted(models, key=lambda m: (-m.manifest.priority, m.name))
        self._models = {m.name: m for m in ranked if isinstance(m, ServedModel)}
        self._language_models = {m.name: m for m in ranked if isinstance(m, ServedLanguageModel)}
        self._encoders = {m.name: m for m in ranked if isinstance(m, ServedEncoder)}

    def _retire(self, model: AnyModel) -> None:
        """Let a model end when the last request that has chosen it lets go of it."""
        self._retired.add(model.scheduler)
        weakref.finalize(model, model.scheduler.retire)

    def _start(self, bundle: AnyBundle) -> AnyModel:
        manifest = bundle.manifest
        logger.info(
            "serving %s (%s, %s) on %s: %s",
            manifest.name,
            manifest.family,
            manifest.precision,
            bundle.device.name,
            bundle.device.reason,
        )
        if isinstance(bundle, Generator):
            return self._start_generator(bundle)
        if isinstance(bundle, TextReader):
            return self._start_reader(bundle)
        return self._start_translator(bundle)

    def _start_translator(self, translator: TranslationModel) -> ServedModel:
        defaults = translator.default_options
        self._check_defaults(translator.manifest.name, defaults)
        translator.warm_up()
        scheduler = TranslationScheduler(
            translator,
            max_queue=self._settings.max_queue,
            limits=self._settings.batch_limits,
            workers=translator.workers,
            answer_cache_bytes=self._settings.answer_cache_bytes,
            observer=self.metrics.observer(translator.manifest.name),
        )
        return ServedModel(translator.manifest, defaults, scheduler, translator.device)

    def _start_generator(self, generator: Generator) -> ServedLanguageModel:
        generator.generate(_WARM_UP_TEXT, GenerationOptions(max_length=4))
        scheduler = GenerationScheduler(
            generator,
            max_queue=self._settings.max_queue,
            max_context_tokens=self._settings.max_context_tokens,
            limits=self._settings.batch_limits,
            workers=generator.workers,
            observer=self.metrics.observer(generator.manifest.name),
        )
        return ServedLanguageModel(generator.manifest, generator, scheduler, int(time.time()))

    def _start_reader(self, reader: TextReader) -> ServedEncoder:
        reader.read([_WARM_UP_TEXT])
        scheduler = TextScheduler(
            reader.encoder,
            max_queue=self._settings.max_queue,
            limits=self._settings.batch_limits,
            workers=reader.workers,
            observer=self.metrics.observer(reader.manifest.name),
        )
        return ServedEncoder(reader.manifest, reader, scheduler, int(time.time()))

    def choose_encoder(self, task: Task, name: str | None = None) -> ServedEncoder:
        """The encoder of that name, or the first for the task.

        Raises UnknownModelError, which names what there is, and RequestError, which names the task
        of the model, where it is another one.
        """
        self._check_loaded()
        fitting = [model for model in self._encoders.values() if model.manifest.task == task]
        if name is None:
            if not fitting:
                raise UnknownModelError(
                    f"no loaded model is for {task!r}; add a bundle for it", parameter="model"
                )
            return fitting[0]
        for model in self._all_models():
            if model.name != name:
                continue
            if isinstance(model, ServedEncoder) and model.manifest.task == task:
                return model
            raise RequestError(
                f"the model {name!r} is for {model.manifest.task!r}, and {task!r} is asked of it",
                parameter="model",
            )
        raise _unknown_model(name, fitting)

    def choose_language_model(self, name: str | None = None) -> ServedLanguageModel:
        """The language model of that name, or the first; raises UnknownModelError, which names what
        there is."""
        models = self.language_models
        if name is None and models:
            return models[0]
        for model in models:
            if model.name == name:
                return model
        raise _unknown_model(name or "", models)

    def choose(self, source: str, target: str, name: str | None = None) -> ServedModel:
        """The model for a request: the one named, else the first for the language pair, or, where
        the settings allow it, the first that knows both languages.

        Raises UnknownModelError or UnknownLanguageError, which name what there is.
        """
        candidates = self._candidates(name)
        for model in candidates:
            if model.serves(source, target):
                return model
        knowing = [m for m in candidates if m.manifest.languages.zero_shot(source, target)]
        if knowing and self._settings.zero_shot:
            return knowing[0]
        sources = self.sources(target, name)  # says so where it is the target that is not known
        hint = f"source {_unknown(source, sources)} for target {target!r}"
        for model in knowing[:1]:
            hint = (
                f"the model {model.name!r} was trained on {model.manifest.languages.listing}; "
                f"{variable('zero_shot')}=on lets it try other pairs all the same"
            )
        known = _languages(model.manifest.languages.source for model in candidates)
        if source not in known:
            raise UnknownLanguageError(f"{source} is not supported", parameter="source", hint=hint)
        raise UnknownLanguageError(
            f"{language_name(target)} ({target}) is not available as a target language from "
            f"{language_name(source)} ({source})",
            parameter="source",
            hint=hint,
        )

    def pivot(self, source: str, target: str, name: str | None = None) -> str | None:
        """The language by way of which two models, or the one named alone, translate the pair in
        two legs, where no model does directly; None where one does, or there are no such two."""
        models = self._candidates(name)
        if source == target or any(model.serves(source, target) for model in models):
            return None
        for first in models:
            for origin, between in first.manifest.languages.trained:
                if origin == source and any(model.serves(between, target) for model in models):
                    return between
        return None

    def targets(self, source: str) -> list[str]:
        """Languages that a source can be translated into, by one model or by way of a third
        language, in order."""
        return [
            target
            for target in self.target_languages
            if self._directly(source, target, self.models) or self.pivot(source, target)
        ]

    def _directly(self, source: str, target: str, models: Sequence[ServedModel]) -> bool:
        """Whether one of these models translates the pair in one leg."""
        if any(model.serves(source, target) for model in models):
            return True
        allowed = self._settings.zero_shot and not self.pivot(source, target)
        return allowed and any(m.manifest.languages.zero_shot(source, target) for m in models)

    def roundabout_sources(self, target: str, name: str | None = None) -> list[str]:
        """Languages that go to the target through a third one only, by the model named or by any
        two."""
        models = self._candidates(name)
        return [
            source
            for source in _languages(model.manifest.languages.source for model in models)
            if self.pivot(source, target, name)
        ]

    def sources(self, target: str, name: str | None = None) -> list[str]:
        """Languages that can be translated into the target in one leg, by the model named or by
        any; raises as `choose` does."""
        models = self._candidates(name)
        targets = _languages(model.manifest.languages.target for model in models)
        if target not in targets:
            raise UnknownLanguageError(
                f"{target} is not supported",
                parameter="target",
                hint=f"target {_unknown(target, targets)}",
            )
        sources = _languages(model.manifest.languages.source for model in models)
        return [source for source in sources if self._directly(source, target, models)]

    def _candidates(self, name: str | None) -> list[ServedModel]:
        models = self.models
        if name is None:
            return models
        named = [model for model in models if model.name == name]
        if not named:
            raise _unknown_model(name, models)
        return named

    @property
    def source_languages(self) -> list[str]:
        """Codes of the languages that some translation model reads, in order."""
        return _languages(model.manifest.languages.source for model in self.models)

    @property
    def target_languages(self) -> list[str]:
        """Codes of the languages that some translation model writes, in order."""
        return _languages(model.manifest.languages.target for model in self.models)

    def drain(self) -> None:
        """Turn not ready, so that no new request is sent here; requests are still served."""
        self._draining = True

    def close(self) -> None:
        """Finish what was accepted and end the schedulers."""
        self.drain()
        for scheduler in self._schedulers():
            scheduler.close()

    def abandon(self) -> None:
        """Accept nothing more and fail what has been accepted."""
        self.drain()
        for scheduler in self._schedulers():
            scheduler.retire()
            scheduler.abandon()

    def _schedulers(self) -> list[AnyScheduler]:
        return [*(model.scheduler for model in self._all_models()), *self._retired]

    def _state(self) -> State:
        return State(
            self.ready,
            [
                ModelState(
                    name=model.name,
                    task=model.manifest.task,
                    family=model.manifest.family,
                    precision=model.manifest.precision,
                    queue_depth=model.scheduler.queue_depth,
                    rows=model.scheduler.num_held,
                    cache_bytes=model.scheduler.answer_cache_bytes,
                    resident_bytes=model.scheduler.resident_bytes,
                )
                for model in self._all_models()
            ],
        )

    def check_ready(self) -> None:
        """Raise NotReadyError while models are loaded and once the server is to end."""
        if not self.ready:
            raise NotReadyError("starting or shutting down; try again later")

    def _check_loaded(self) -> None:
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


def _unknown_model(name: str, models: Sequence[AnyModel]) -> UnknownModelError:
    known = [model.name for model in models]
    return UnknownModelError(f"model {_unknown(name, known)}", parameter="model")


def _unknown(value: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"must be one of {sorted(known)}, got {value!r}{hint}"
