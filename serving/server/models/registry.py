"""The life cycle of the served models, from the start of the server to its end.

Independent of HTTP.
"""

from __future__ import annotations

import gc
import logging
import math
import threading
import time
import weakref
from collections.abc import Iterable
from pathlib import Path

from serving.bundle.manifest import Manifest
from serving.errors import BundleError, NotReadyError, RequestError
from serving.resident import give_back, large_blocks_apart
from serving.search.options import parse_options
from serving.server.http.metrics import Metrics, ModelState, State
from serving.server.http.settings import Settings
from serving.server.models.bundles import (
    AnyBundle,
    AnyGenerator,
    AnyReader,
    decoding_processes,
    load_bundle,
    load_bundles,
)
from serving.server.models.catalogue import Catalogue
from serving.server.models.idle import IdleWatch
from serving.server.models.manifests import check_defaults, read_manifests
from serving.server.models.served import (
    AnyModel,
    AnyScheduler,
    LoadedModel,
    ServedTranslator,
    StoredTranslator,
)
from serving.server.models.starting import Starter

logger = logging.getLogger(__name__)


class Registry(Catalogue):
    """Loads, replaces and closes models; its catalogue chooses among them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._draining = False
        self._reloading = threading.Lock()
        self._retired: weakref.WeakSet[AnyScheduler] = weakref.WeakSet()
        self._processes = decoding_processes(settings)
        self._folders: dict[str, Path] = {}
        """Bundle folders by model name."""
        self.metrics = Metrics(self._state)
        self._starter = Starter(settings, self.metrics)
        self._idle = IdleWatch(settings.idle_unload_s, self._let_idle_leave)

    @property
    def ready(self) -> bool:
        """Whether every model is warm and can decode, and the server is not shutting down."""
        return self._ready and not self._draining and not self._down

    def load(self) -> None:
        """Make every bundle available: load it now, or on demand if the settings say so. Raises as
        `load_bundles` and `start` do."""
        stored = self._to_store(self._read_manifests())
        with large_blocks_apart():
            bundles = self._load_all_but([model.manifest for model in stored])
        self._serve([*map(self._starter.start, bundles), *stored])
        del bundles
        _tidy()
        self._idle.start()

    def start_processes(self) -> None:
        """Start the decoding processes early if there are translation models, so that loading is
        faster."""
        tasks = {manifest.task for manifest in read_manifests(self._settings).values()}
        if "translate" in tasks and self._settings.decode_in == "processes":
            self._processes.start()

    def start(self, bundles: Iterable[AnyBundle]) -> None:
        """Warm up models and make them available.

        Raises SettingsError if the default options of a bundle exceed a limit.
        """
        self._serve([self._starter.start(bundle) for bundle in bundles])

    def add(self, model: ServedTranslator) -> None:
        """Add a translation model whose scheduler is already running."""
        self._put(model)

    def reload(self) -> None:
        """Serve the current content of the bundle folder. Changed bundles are loaded beside the
        running models and then replace them at once; removed ones are no longer served.

        No request is lost: a replaced model finishes the requests that it has accepted, and those
        of callers that have already chosen it. If a bundle is unusable, nothing changes and the
        reason is logged.
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
            started.extend(self._starter.start(bundle) for bundle in bundles)
        except Exception as error:  # a bad bundle must not stop the old ones
            for new in started:
                new.scheduler.retire()
            self._folders = folders
            self.metrics.reloads.labels("refused").inc()
            reason = " ".join(str(error).split()) or type(error).__name__
            logger.error("reload refused; the bundles are served as before: %s", reason)
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
        """Read the manifests in the bundle folder, and record their folders."""
        found = read_manifests(self._settings)
        self._folders = {manifest.name: folder for folder, manifest in found.items()}
        return list(found.values())

    def _load_all_but(self, manifests: list[Manifest]) -> list[AnyBundle]:
        return load_bundles(self._settings, manifests, self._processes)

    def _to_store(self, manifests: Iterable[Manifest]) -> list[StoredTranslator]:
        """The models to load on demand: all translation models if the settings say so, otherwise
        those that do not fit into the memory limit."""
        stored, limit = [], self._settings.max_model_bytes
        room = limit - sum(map(self.num_bytes, self._loaded)) if limit else math.inf
        for manifest in sorted(manifests, key=lambda each: (-each.priority, each.name)):
            if manifest.task != "translate":
                continue
            check_defaults(manifest.name, parse_options(manifest.search), self._settings)
            size = self.num_bytes(StoredTranslator(manifest)) if limit else 0
            if self._settings.load == "use" or size > room:
                stored.append(StoredTranslator(manifest))
            else:
                room -= size
        return stored

    def num_bytes(self, model: AnyModel) -> int:
        """Size of a model's bundle in bytes; 0 if it has no folder."""
        folder = self._folders.get(model.name)
        if folder is None:
            return 0
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())

    def _load(self, model: StoredTranslator) -> ServedTranslator:
        """Load a model; raises NotReadyError if that fails."""
        with self._reloading:
            found = self._find(model.name)
            if isinstance(found, ServedTranslator):  # another request has loaded it
                return found
            begin = time.monotonic()
            try:
                served = self._load_stored(model.manifest)
            except Exception as error:  # a bad bundle may raise anything
                reason = " ".join(str(error).split()) or type(error).__name__
                logger.error("the model %s cannot be loaded: %s", model.name, reason)
                raise NotReadyError(
                    f"the model {model.name!r} cannot be loaded now; try again later"
                ) from error
            logger.info("loaded %s in %.2f s", model.name, time.monotonic() - begin)
            if found is not None:
                self._put(served)
                self._make_room(served)
            else:  # a reload has removed it
                self._retire(served)
            return served

    def _load_stored(self, manifest: Manifest) -> ServedTranslator:
        folder = self._folders[manifest.name]
        bundle = load_bundle(folder, manifest, self._settings, self._processes)
        if isinstance(bundle, AnyGenerator | AnyReader) or bundle.manifest != manifest:
            raise BundleError(f"{folder}: the bundle has changed; reload")
        return self._starter.start_translator(bundle)

    def _make_room(self, wanted: ServedTranslator | None = None) -> None:
        """Unload models until the rest fit into the memory limit: least recently used ones first;
        among those never used, the least preferred. Models with work, and the `wanted` one,
        stay."""
        limit = self._settings.max_model_bytes
        ranked = list(enumerate(self._loaded))
        ranked.sort(key=lambda each: (self._used.get(each[1].name, 0.0), -each[0]))
        for _, model in ranked:
            if not limit or sum(map(self.num_bytes, self._loaded)) <= limit:
                return
            if model is not wanted and model.idle:
                self._let_leave(model, "to make room")

    def _let_idle_leave(self) -> None:
        """Unload translation models that were idle for the configured time; the next request loads
        them again."""
        with self._reloading:
            over = [
                model
                for model in self._loaded
                if self._idle.over(model.scheduler, self._used.get(model.name, 0.0))
                and model.idle
                and model.name in self._folders
            ]
            for model in over:
                self._let_leave(model, "because it was idle")
        if over:
            del model, over
            _tidy()

    def _let_leave(self, model: ServedTranslator, why: str) -> None:
        self._put(StoredTranslator(model.manifest))
        self._retire(model)
        logger.info("%s leaves %s", model.name, why)

    def load_named(self, name: str) -> None:
        """Load a translation model by name, unless it is loaded; raises UnknownModelError and
        NotReadyError."""
        self._use(self._named(name))

    def unload_named(self, name: str) -> None:
        """Unload a translation model by name, after its accepted requests; the next request loads
        it again.

        Raises UnknownModelError, and RequestError for a model that could not be loaded again.
        """
        with self._reloading:
            model = self._named(name)
            if not isinstance(model, ServedTranslator):
                return
            if name not in self._folders:
                raise RequestError(f"the model {name!r} has no bundle; it stays", parameter="model")
            self._let_leave(model, "on request")
            del model
        _tidy()

    def _named(self, name: str) -> StoredTranslator:
        """The translation model with this name; raises RequestError for a model of another task."""
        if any(model.name == name for model in (*self.language_models, *self.encoders)):
            raise RequestError(
                f"only translation models can be loaded and unloaded; {name!r} is not one",
                parameter="model",
            )
        return self._candidates(name)[0]

    def asked_s(self, name: str) -> float | None:
        """Seconds since the last request for a translation model; None if there was none."""
        used = self._used.get(name)
        return None if used is None else time.monotonic() - used

    def _retire(self, model: LoadedModel) -> None:
        """Close a model when the last request that has chosen it releases it."""
        self._retired.add(model.scheduler)
        weakref.finalize(model, model.scheduler.retire)

    def drain(self) -> None:
        """Report not ready, so that no new requests are sent here; requests are still served."""
        self._draining = True

    def close(self) -> None:
        """Finish the accepted requests and close the schedulers."""
        self.drain()
        self._idle.close()
        for scheduler in self._schedulers():
            scheduler.close()
        self._processes.close()

    def abandon(self) -> None:
        """Accept no new requests and fail the accepted ones."""
        self.drain()
        for scheduler in self._schedulers():
            scheduler.retire()
            scheduler.abandon()

    def loaded(self) -> list[LoadedModel]:
        """The loaded models of all tasks."""
        return [model for model in self._all_models() if isinstance(model, LoadedModel)]

    @property
    def _down(self) -> list[str]:
        """The names of the loaded models that cannot decode."""
        return [model.name for model in self.loaded() if model.scheduler.down]

    def _schedulers(self) -> list[AnyScheduler]:
        return [*(model.scheduler for model in self.loaded()), *self._retired]

    def _state(self) -> State:
        states = list(map(_model_state, self._all_models()))
        return State(self.ready, states, self._processes.held_bytes)

    def check_ready(self) -> None:
        """Raise NotReadyError while models are being loaded, while one cannot decode, and after the
        server started to shut down."""
        if self._down:
            raise NotReadyError(
                f"the model {self._down[0]!r} cannot decode; the log says why. Start the server "
                "again if that lasts"
            )
        if not self.ready:
            raise NotReadyError("starting or shutting down; try again later")


def _tidy() -> None:
    """Return freed memory to the system now."""
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
