"""The served models, and the choice of a model for a request."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from serving.bundle.languages import match_language
from serving.bundle.manifest import Task
from serving.errors import NotReadyError, RequestError, UnknownLanguageError, UnknownModelError
from serving.hub.names import nearest
from serving.server.http.settings import Settings, variable
from serving.server.models.served import (
    AnyModel,
    ServedEncoder,
    ServedLanguageModel,
    ServedTranslator,
    StoredTranslator,
)
from serving.text.detection import detect_among
from serving.text.languages import language_name

AUTO = "auto"
"""Source language code that requests detection."""


class Catalogue(ABC):
    """Chooses among the available models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._translators: dict[str, StoredTranslator] = {}
        self._language_models: dict[str, ServedLanguageModel] = {}
        self._encoders: dict[str, ServedEncoder] = {}
        self._ready = False
        self._used: dict[str, float] = {}
        """Time of the last use of each translation model (monotonic)."""

    @abstractmethod
    def _load(self, model: StoredTranslator) -> ServedTranslator:
        """Load a model; raises NotReadyError if that fails."""

    def _check_loaded(self) -> None:
        if not self._ready:
            raise NotReadyError("the models are being loaded; try again later")

    @property
    def translators(self) -> list[StoredTranslator]:
        """All translation models, the preferred ones first; raises NotReadyError during the
        start."""
        self._check_loaded()
        return list(self._translators.values())

    @property
    def language_models(self) -> list[ServedLanguageModel]:
        """All language models, the preferred ones first; raises NotReadyError during the start."""
        self._check_loaded()
        return list(self._language_models.values())

    @property
    def encoders(self) -> list[ServedEncoder]:
        """All encoders, the preferred ones first; raises NotReadyError during the start."""
        self._check_loaded()
        return list(self._encoders.values())

    def loads(self, source: str, target: str, name: str | None = None) -> bool | None:
        """Whether choosing the model for a pair takes the time to load it. None if it may, which
        the languages alone do not show.

        Raises UnknownModelError, which lists the models.
        """
        models = self._candidates(name)
        if all(isinstance(model, ServedTranslator) for model in models):
            return False
        found = next((model for model in models if (source, target) in model.pairs), None)
        if found is None:
            return None
        self._used[found.name] = time.monotonic()  # it must not be unloaded before it is chosen
        return not isinstance(found, ServedTranslator)

    def _all_models(self) -> list[AnyModel]:
        return [
            *self._translators.values(),
            *self._language_models.values(),
            *self._encoders.values(),
        ]

    def _serve(self, models: Iterable[AnyModel]) -> None:
        """Make these models available, and no others."""
        ranked = sorted(models, key=lambda m: (-m.manifest.priority, m.name))
        self._translators = {m.name: m for m in ranked if isinstance(m, StoredTranslator)}
        self._language_models = {m.name: m for m in ranked if isinstance(m, ServedLanguageModel)}
        self._encoders = {m.name: m for m in ranked if isinstance(m, ServedEncoder)}

        self._ready = True

    def _put(self, translator: StoredTranslator) -> None:
        """Add a translation model, or replace the one with its name."""
        self._translators = {**self._translators, translator.name: translator}
        self._ready = True

    def _find(self, name: str) -> StoredTranslator | None:
        """The available translation model with this name."""
        return self._translators.get(name)

    @property
    def _loaded(self) -> list[ServedTranslator]:
        """The loaded translation models, the preferred ones first."""
        return [each for each in self._translators.values() if isinstance(each, ServedTranslator)]

    def _use(self, model: StoredTranslator) -> ServedTranslator:
        """The loaded form of a model; raises NotReadyError if it cannot be loaded."""
        self._used[model.name] = time.monotonic()
        if isinstance(model, ServedTranslator):
            return model
        return self._load(model)

    def choose_encoder(self, task: Task, name: str | None = None) -> ServedEncoder:
        """The encoder with this name, or the first one for the task.

        Raises UnknownModelError, which lists the models, and RequestError, which names the task of
        the model, if it has another one.
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
        """The language model with this name, or the first one; raises UnknownModelError, which
        lists the models."""
        models = self.language_models
        if name is None and models:
            return models[0]
        for model in models:
            if model.name == name:
                return model
        raise _unknown_model(name or "", models)

    def choose(self, source: str, target: str, name: str | None = None) -> ServedTranslator:
        """The model for a request: the one named, else the first for the language pair, or, if the
        settings allow it, the first that knows both languages. It is loaded if necessary (`loads`),
        which takes a while.

        Raises UnknownModelError or UnknownLanguageError, which list the alternatives.
        """
        candidates = self._candidates(name)
        for model in candidates:
            if (source, target) in model.pairs:
                return self._use(model)
        knowing = [m for m in candidates if m.manifest.languages.zero_shot(source, target)]
        if knowing and self._settings.zero_shot:
            return self._use(knowing[0])
        sources = self.sources(target, name)  # raises if the target is unknown
        hint = f"source {_unknown(source, sources)} for target {target!r}"
        for model in knowing[:1]:
            hint = (
                f"the model {model.name!r} was trained on {model.manifest.languages.listing}; "
                f"{variable('zero_shot')}=on allows other pairs anyway"
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

    def codes(self, source: str, target: str, name: str | None = None) -> tuple[str, str]:
        """The models' codes for the source and target of a request, by `match_language`. A code
        that no model reads, or writes, stays unchanged. Both may be one language that is only read
        or only written.

        Raises UnknownModelError, which lists the models.
        """
        models = self._candidates(name)
        if any((source, target) in model.pairs for model in models):
            return source, target
        read = _languages(model.manifest.languages.source for model in models)
        written = _languages(model.manifest.languages.target for model in models)
        if source.lower() == AUTO:
            return AUTO, match_language(target, written) or target
        same = match_language(source, [*read, *written])
        if same is not None and same == match_language(target, [*read, *written]):
            return same, same
        return match_language(source, read) or source, match_language(target, written) or target

    def keeper(self, source: str, target: str, name: str | None = None) -> ServedTranslator | None:
        """The model whose name is given for texts that stay unchanged because source and target are
        the same language. None if they differ, if a model was trained on just that (one that
        corrects or shortens), and if no model knows the language."""
        models = self._candidates(name)
        if source != target or any((source, target) in model.pairs for model in models):
            return None
        for model in models:
            if source in (*model.manifest.languages.target, *model.manifest.languages.source):
                return self._use(model)
        return None

    def pivot(self, source: str, target: str, name: str | None = None) -> str | None:
        """The language through which two models, or the named one alone, translate the pair in two
        steps; None if a model translates it directly, or if there is no such language."""
        models = self._candidates(name)
        if source == target or any((source, target) in model.pairs for model in models):
            return None
        for first in models:
            for origin, between in first.manifest.languages.trained:
                if origin == source and any((between, target) in model.pairs for model in models):
                    return between
        return None

    def targets(self, source: str) -> list[str]:
        """The target languages of a source, directly or through a third language, in order."""
        return [
            target
            for target in self.target_languages
            if self._directly(source, target, self.translators) or self.pivot(source, target)
        ]

    def _directly(self, source: str, target: str, models: Sequence[StoredTranslator]) -> bool:
        """Whether one of these models translates the pair directly."""
        if any((source, target) in model.pairs for model in models):
            return True
        allowed = self._settings.zero_shot and not self.pivot(source, target)
        return allowed and any(m.manifest.languages.zero_shot(source, target) for m in models)

    def roundabout_sources(self, target: str, name: str | None = None) -> list[str]:
        """Source languages that reach the target through a third language only, with the named
        model or with any two."""
        models = self._candidates(name)
        return [
            source
            for source in _languages(model.manifest.languages.source for model in models)
            if self.pivot(source, target, name)
        ]

    def detected(self, text: str, target: str, name: str | None = None) -> str:
        """The language of a text, detected among those that reach the target, directly or through
        a third language; raises as `sources` does."""
        direct, around = self.sources(target, name), self.roundabout_sources(target, name)
        return detect_among(text, [*direct, *around], target)[0]

    def sources(self, target: str, name: str | None = None) -> list[str]:
        """Source languages of direct translation into the target, with the named model or any;
        raises as `choose` does."""
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

    def _candidates(self, name: str | None) -> list[StoredTranslator]:
        models = self.translators
        if name is None:
            return models
        named = [model for model in models if model.name == name]
        if not named:
            raise _unknown_model(name, models)
        return named

    @property
    def source_languages(self) -> list[str]:
        """Codes of all source languages of translation models, in order."""
        return _languages(model.manifest.languages.source for model in self.translators)

    @property
    def target_languages(self) -> list[str]:
        """Codes of all target languages of translation models, in order."""
        return _languages(model.manifest.languages.target for model in self.translators)


def _languages(groups: Iterable[Sequence[str]]) -> list[str]:
    return sorted({code for group in groups for code in group})


def _unknown_model(name: str, models: Sequence[AnyModel]) -> UnknownModelError:
    known = [model.name for model in models]
    return UnknownModelError(f"model {_unknown(name, known)}", parameter="model")


def _unknown(value: str, known: Sequence[str]) -> str:
    return f"must be one of {sorted(known)}, got {value!r}{nearest(value, known)}"
