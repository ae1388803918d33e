"""Starts a model: warms it up and creates its scheduler."""

from __future__ import annotations

import logging
import time

from serving.encoding.scheduler import TextScheduler
from serving.generation.scheduler import GenerationScheduler
from serving.server.http.metrics import Metrics
from serving.server.http.settings import Settings
from serving.server.models.bundles import AnyBundle, AnyGenerator, AnyReader
from serving.server.models.manifests import check_defaults
from serving.server.models.served import (
    LoadedModel,
    ServedEncoder,
    ServedLanguageModel,
    ServedTranslator,
)
from serving.translation.scheduler import TranslationBundle, TranslationScheduler

logger = logging.getLogger(__name__)


class Starter:
    """Starts models according to the settings; their activity is counted in `metrics`."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics

    def start(self, bundle: AnyBundle) -> LoadedModel:
        """Warm up the model of a bundle and create its scheduler.

        Raises SettingsError if the default options of the bundle exceed a limit.
        """
        manifest = bundle.manifest
        logger.info(
            "serving %s (%s, %s) on %s: %s",
            manifest.name,
            manifest.family,
            manifest.precision,
            bundle.device.name,
            bundle.device.reason,
        )
        if isinstance(bundle, AnyGenerator):
            return self._start_generator(bundle)
        if isinstance(bundle, AnyReader):
            return self._start_reader(bundle)
        return self.start_translator(bundle)

    def start_translator(self, translator: TranslationBundle) -> ServedTranslator:
        """Start a translation model, as `start` does."""
        defaults = translator.default_options
        check_defaults(translator.manifest.name, defaults, self._settings)
        translator.warm_up()
        scheduler = TranslationScheduler(
            translator,
            max_queue=self._settings.max_queue,
            limits=self._settings.batch_limits(translator.device.name),
            workers=translator.workers,
            answer_cache_bytes=self._settings.answer_cache_bytes,
            observer=self._metrics.observer(translator.manifest.name),
        )
        return ServedTranslator(translator.manifest, defaults, scheduler, translator.device)

    def _start_generator(self, generator: AnyGenerator) -> ServedLanguageModel:
        generator.warm_up()
        scheduler = GenerationScheduler(
            generator,
            max_queue=self._settings.max_queue,
            max_context_tokens=self._settings.max_context_tokens,
            limits=self._settings.batch_limits(generator.device.name),
            workers=generator.workers,
            observer=self._metrics.observer(generator.manifest.name),
        )
        return ServedLanguageModel(
            generator.manifest, generator.prompts, scheduler, int(time.time()), generator.device
        )

    def _start_reader(self, reader: AnyReader) -> ServedEncoder:
        reader.warm_up()
        scheduler = TextScheduler(
            reader,
            max_queue=self._settings.max_queue,
            limits=self._settings.batch_limits(reader.device.name),
            workers=reader.workers,
            observer=self._metrics.observer(reader.manifest.name),
        )
        return ServedEncoder(
            reader.manifest, reader.inputs, scheduler, int(time.time()), reader.device
        )
