"""The models being served: starts a scheduler for each, chooses one for a request.

Knows nothing of HTTP.
"""

from __future__ import annotations

import difflib
import functools
import gc
import logging
import math
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.bundle.manifest import Manifest, Task
from serving.encoding.reader import TextReader
from serving.encoding.scheduler import TextScheduler
from serving.errors import (
    BundleError,
    NotReadyError,
    RequestError,
    SettingsError,
    UnknownLanguageError,
    UnknownModelError,
)
from serving.generation.generator import Generator
from serving.generation.scheduler import GenerationScheduler
from serving.resident import give_back, large_blocks_apart
from serving.runtime.session import ON_CPU, DeviceUse
from serving.search.options import SearchOptions, parse_options
from serving.search.sampling_options import GenerationOptions
from serving.server.loading import (
    AnyBundle,
    decoding_processes,
    load_bundle,
    load_bundles,
    read_manifests,
)
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
class StoredModel:
    """A translation model that is loaded when it is asked for."""

    manifest: Manifest

    @property
    def name(self) -> str:
        """The manifest's name, by which requests choose the model."""
        return self.manifest.name

    @functools.cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The pairs of source and target that the model was trained to translate."""
        return frozenset(self.manifest.languages.trained)


@dataclass(frozen=True)
class ServedModel(StoredModel):
    """A translation model that is loaded, opened to requests."""

    defaults: SearchOptions
    scheduler: TranslationScheduler
    device: DeviceUse = ON_CPU

    @property
    def idle(self) -> bool:
        """Whether nothing is decoded and nothing waits for it."""
        return not self.scheduler.num_held and not self.scheduler.queue_depth


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


LoadedModel = ServedModel | ServedLanguageModel | ServedEncoder
AnyModel = StoredModel | ServedLanguageModel | ServedEncoder


class Registry:
    """Holds the models that are served, from the start of the server to its end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: dict[str, StoredModel] = {}
        self._language_models: dict[str, ServedLanguageModel] = {}
        self._encoders: dict[str, ServedEncoder] = {}
        self._ready = self._draining = False
        self._reloading = threading.Lock()
        self._retired: weakref.WeakSet[AnyScheduler] = weakref.WeakSet()
        self._processes = decoding_processes(settings)
        self._folders: dict[str, Path] = {}
        """Of the bundles, by name."""
        self._used: dict[str, float] = {}
        """When each translation model was last chosen, by the monotonic clock."""
        self.metrics = Metrics(self._state)

    @property
    def ready(self) -> bool:
        """Whether every model is warm and the server is not shutting down."""
        return self._ready and not self._draining

    @property
    def models(self) -> list[StoredModel]:
        """Every translation model, the preferred ones first; raises NotReadyError at the start."""
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

    def load(self) -> None:
        """Open every bundle to requests: load it now, or where the settings say so when it is
        asked for. Raises as `load_bundles` and `start` do."""
        stored = self._to_store(self._read_manifests())
        if self._settings.load == "use" and self._settings.decode_in == "processes":
            self._processes.start()
        with large_blocks_apart():
            bundles = self._load_all_but([model.manifest for model in stored])
        self._serve([*map(self._start, bundles), *stored])
        del bundles
        _tidy()
        self._ready = True

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
        with self._reloading, large_blocks_apart():
            self._exchange()
        _tidy()

    def _exchange(self) -> None:
        begin = time.monotonic()
        before, started = self._all_models(), list[LoadedModel]()
        folders = self._folders
        try:
            manifests = self._read_manifests()
            kept = [model for model in before if model.manifest in manifests]
            known = [model.manifest for model in kept]
            stored = self._to_store([each for each in manifests if each not in known])
            bundles = self._load_all_but([*known, *(model.manifest for model in stored)])
            started.extend(self._start(bundle) for bundle in bundles)
        except Exception as error:  # whatever a bad bundle does, the old ones go on
            for new in started:
                new.scheduler.retire()
            self._folders = folders
            self.metrics.reloads.labels("refused").inc()
            reason = " ".join(str(error).split()) or type(error).__name__
            logger.error("reload refused, all is served as before: %s", reason)
            return
        self._serve([*kept, *started, *stored])
        self._make_room()
        stay = {id(model) for model in kept}
        gone = [model for model in before if id(model) not in stay]
        for model in gone:
            if isinstance(model, LoadedModel):
                self._retire(model)
        self.metrics.reloads.labels("done").inc()
        logger.info(
            "reloaded in %.1f s: %d new, %d kept, %d gone",
            time.monotonic() - begin,
            len(started) + len(stored),
            len(kept),
            len(gone),
        )

    def _read_manifests(self) -> list[Manifest]:
        """What lies in the folder of bundles, noting where."""
        found = read_manifests(self._settings)
        self._folders = {manifest.name: folder for folder, manifest in found.items()}
        return list(found.values())

    def _load_all_but(self, manifests: list[Manifest]) -> list[AnyBundle]:
        return load_bundles(self._settings, manifests, self._processes)

    def _to_store(self, manifests: Iterable[Manifest]) -> list[StoredModel]:
        """The models of those that are not to be loaded before they are asked for: where the
        settings say so all translation models, else those for which there is no room."""
        stored, limit = [], self._settings.max_model_bytes
        room = limit - sum(map(self._num_bytes, self._loaded)) if limit else math.inf
        for manifest in sorted(manifests, key=lambda each: (-each.priority, each.name)):
            if manifest.task != "translate":
                continue
            self._check_defaults(manifest.name, parse_options(manifest.search))
            size = self._num_bytes(StoredModel(manifest)) if limit else 0
            if self._settings.load == "use" or size > room:
                stored.append(StoredModel(manifest))
            else:
                room -= size
        return stored

    @property
    def _loaded(self) -> list[ServedModel]:
        return [model for model in self._models.values() if isinstance(model, ServedModel)]

    def _num_bytes(self, model: StoredModel) -> int:
        """Bytes of a bundle's files; 0 where it has no folder."""
        folder = self._folders.get(model.name)
        if folder is None:
            return 0
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())

    @property
    def may_load(self) -> bool:
        """Whether to choose a model may take the time to load it."""
        return any(not isinstance(model, ServedModel) for model in list(self._models.values()))

    def _use(self, model: StoredModel) -> ServedModel:
        """The model, loaded; raises NotReadyError where it cannot be."""
        self._used[model.name] = time.monotonic()
        if isinstance(model, ServedModel):
            return model
        with self._reloading:
            found = self._models.get(model.name, model)
            if isinstance(found, ServedModel):  # another request had it loaded
                return found
            begin = time.monotonic()
            try:
                served = self._load_stored(model.manifest)
            except Exception as error:  # whatever a bad bundle does
                reason = " ".join(str(error).split()) or type(error).__name__
                logger.error("the model %s cannot be loaded: %s", model.name, reason)
                raise NotReadyError(
                    f"the model {model.name!r} cannot be loaded now; try again later"
                ) from error
            logger.info("loaded %s in %.2f s", model.name, time.monotonic() - begin)
            if model.name in self._models:
                self._models = {**self._models, model.name: served}
                self._make_room(served)
            else:  # a reload has taken it away
                self._retire(served)
            return served

    def _load_stored(self, manifest: Manifest) -> ServedModel:
        bundle = load_bundle(
            self._folders[manifest.name], manifest, self._settings, self._processes
        )
        if isinstance(bundle, Generator | TextReader) or bundle.manifest != manifest:
            raise BundleError(f"{self._folders[manifest.name]}: the bundle has changed; reload")
        return self._start_translator(bundle)

    def _make_room(self, wanted: ServedModel | None = None) -> None:
        """Let the least recently used models leave, of those that were never used the least
        preferred, until the rest keep to the bytes that models may have; but not the one that is
        wanted, nor one that has work."""
        limit = self._settings.max_model_bytes
        ranked = list(enumerate(self._loaded))
        ranked.sort(key=lambda each: (self._used.get(each[1].name, 0.0), -each[0]))
        for _, model in ranked:
            if not limit or sum(map(self._num_bytes, self._loaded)) <= limit:
                return
            if model is not wanted and model.idle:
                self._models = {**self._models, model.name: StoredModel(model.manifest)}
                self._retire(model)
                logger.info("%s leaves for want of room", model.name)

    def _all_models(self) -> list[AnyModel]:
        return [
            *self._models.values(),
            *self._language_models.values(),
            *self._encoders.values(),
        ]

    def _serve(self, models: Iterable[AnyModel]) -> None:
        """Open these models to requests, and no others."""
        ranked = sorted(models, key=lambda m: (-m.manifest.priority, m.name))
        self._models = {m.name: m for m in ranked if isinstance(m, StoredModel)}
        self._language_models = {m.name: m for m in ranked if isinstance(m, ServedLanguageModel)}
        self._encoders = {m.name: m for m in ranked if isinstance(m, ServedEncoder)}

    def _retire(self, model: LoadedModel) -> None:
        """Let a model end when the last request that has chosen it lets go of it."""
        self._retired.add(model.scheduler)
        weakref.finalize(model, model.scheduler.retire)

    def _start(self, bundle: AnyBundle) -> LoadedModel:
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
        the settings allow it, the first that knows both languages. It is loaded where it is not
        (`may_load`), which takes a while.

        Raises UnknownModelError or UnknownLanguageError, which name what there is.
        """
        candidates = self._candidates(name)
        for model in candidates:
            if (source, target) in model.pairs:
                return self._use(model)
        knowing = [m for m in candidates if m.manifest.languages.zero_shot(source, target)]
        if knowing and self._settings.zero_shot:
            return self._use(knowing[0])
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
        if source == target or any((source, target) in model.pairs for model in models):
            return None
        for first in models:
            for origin, between in first.manifest.languages.trained:
                if origin == source and any((between, target) in model.pairs for model in models):
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

    def _directly(self, source: str, target: str, models: Sequence[StoredModel]) -> bool:
        """Whether one of these models translates the pair in one leg."""
        if any((source, target) in model.pairs for model in models):
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

    def _candidates(self, name: str | None) -> list[StoredModel]:
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
        self._processes.close()

    def abandon(self) -> None:
        """Accept nothing more and fail what has been accepted."""
        self.drain()
        for scheduler in self._schedulers():
            scheduler.retire()
            scheduler.abandon()

    def _schedulers(self) -> list[AnyScheduler]:
        loaded = [model for model in self._all_models() if isinstance(model, LoadedModel)]
        return [*(model.scheduler for model in loaded), *self._retired]

    def _state(self) -> State:
        states = list(map(_model_state, self._all_models()))
        return State(self.ready, states, self._processes.held_bytes)

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


def _tidy() -> None:
    """Give the memory of what has been loaded and has gone back now, not at some later time."""
    gc.collect()
    give_back()


def _model_state(model: AnyModel) -> ModelState:
    scheduler: AnyScheduler | None = None
    if isinstance(model, LoadedModel):
        scheduler = model.scheduler
    return ModelState(
        name=model.name,
        task=model.manifest.task,
        family=model.manifest.family,
        precision=model.manifest.precision,
        queue_depth=scheduler.queue_depth if scheduler else 0,
        rows=scheduler.num_held if scheduler else 0,
        cache_bytes=scheduler.answer_cache_bytes if scheduler else 0,
        loaded=scheduler is not None,
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
