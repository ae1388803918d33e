"""The Python interface of encoders: vectors of texts, or classes with their probabilities.

Shape letters: B texts, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.manifest import Manifest, Reading
from serving.encoding.inputs import Input, load_inputs
from serving.encoding.scheduler import TextEngine
from serving.errors import BundleError, DeviceMemoryError, InvalidOptionError
from serving.runtime.device import batches_at_once, open_device
from serving.runtime.text_encoder import TextEncoder, batch_bytes
from serving.text.characters import listed
from serving.threads import default_threads

_WARM_UP_TEXT = "1 2 3"


class TextReader:
    """A bundle of an encoder: tokenizer and graph."""

    def __init__(self, folder: Path | str, threads: int | None = None, *, workers: int = 1) -> None:
        """Load a bundle for `encode` or `classify`, given by path or model name. `threads` defaults
        to the number of processors. `workers` is the number of batches that a server reads at the
        same time; on a GPU there are no more than it has streams for. Raises BundleError."""
        if threads is not None and threads < 1:
            raise InvalidOptionError(f"threads must be >= 1, got {threads}", parameter="threads")
        from serving.hub.pull import bundle_folder

        folder = bundle_folder(folder)
        self.inputs = load_inputs(folder)
        self.workers = batches_at_once(self.manifest, workers)
        batches = self.workers * batch_bytes(self.manifest)
        device = open_device(folder, self.manifest, batches, self.workers)
        self.device = device.use
        self.encoder = TextEncoder(folder, self.manifest, threads or default_threads(), device)

    @property
    def manifest(self) -> Manifest:
        """The bundle's description of itself."""
        return self.inputs.manifest

    @property
    def reading(self) -> Reading:
        """How the model's outputs are made and named."""
        return self.inputs.reading

    def engine(self) -> TextEngine:
        """Reads texts on the thread that calls it; all engines share the session."""
        return TextEngine(self.encoder)

    def warm_up(self) -> None:
        """Read something, because the first call takes longer."""
        self.read([_WARM_UP_TEXT])

    def encode(
        self,
        given: Input | Sequence[int],
        *,
        truncate: bool = False,
        prompt_name: str | None = None,
    ) -> EncodedText:
        """Token ids of an input; see `InputProcessor.encode`."""
        return self.inputs.encode(given, truncate=truncate, prompt_name=prompt_name)

    def read(
        self,
        texts: str | Sequence[Input],
        *,
        truncate: bool = False,
        prompt_name: str | None = None,
    ) -> Floats:
        """Read inputs: vectors [B,D] by a bundle for `encode`, logits [B,C] by one for `classify`.

        Inputs that do not fit into a device's memory are read in halves. Raises DeviceMemoryError
        for a text that does not fit alone.
        """
        return self._read(
            [
                self.encode(text, truncate=truncate, prompt_name=prompt_name)
                for text in listed(texts)
            ]
        )

    def _read(self, texts: Sequence[EncodedText]) -> Floats:
        try:
            return self.encoder.run(texts)
        except DeviceMemoryError:
            half = len(texts) // 2
            if not half:
                raise
        found_BW: Floats = np.concatenate([self._read(texts[:half]), self._read(texts[half:])])
        return found_BW


class Embedder(TextReader):
    """Vectors of texts, by a bundle for `encode`."""

    def __init__(self, folder: Path | str, threads: int | None = None) -> None:
        """Load a bundle as `TextReader` does; raises BundleError also for a bundle of another
        task."""
        super().__init__(folder, threads)
        _check_task(self.manifest, "encode")

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        truncate: bool = False,
        prompt_name: str | None = None,
    ) -> Floats:
        """The vectors [B,D] of texts, or the vector [D] of one text. The bundle's prompt of this
        name, or its default prompt, stands before each text.

        Raises RequestError for a text that cannot be read and for an unknown prompt. With
        `truncate` a text that is too long is cut at its end.
        """
        vectors_BD = self.read(texts, truncate=truncate, prompt_name=prompt_name)
        if isinstance(texts, str):
            vector_D: Floats = vectors_BD[0]
            return vector_D
        return vectors_BD


class Classifier(TextReader):
    """Classes of texts, by a bundle for `classify`."""

    def __init__(self, folder: Path | str, threads: int | None = None) -> None:
        """Load a bundle as `TextReader` does; raises BundleError also for a bundle of another
        task."""
        super().__init__(folder, threads)
        _check_task(self.manifest, "classify")

    @overload
    def classify(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self, texts: str, *, truncate: bool = False
    ) -> list[tuple[str, float]]: ...

    @overload
    def classify(
        self, texts: Sequence[Input], *, truncate: bool = False
    ) -> list[list[tuple[str, float]]]: ...

    def classify(
        self, texts: str | Sequence[Input], *, truncate: bool = False
    ) -> list[tuple[str, float]] | list[list[tuple[str, float]]]:
        """The labels of each text or pair with their probabilities, likeliest first; for a single
        text, its labels. Raises as `Embedder.embed` does."""
        if isinstance(texts, str):
            return self.classify([texts], truncate=truncate)[0]
        found_BC = probabilities(self.read(texts, truncate=truncate))
        return [ranked(self.reading.labels, row_C) for row_C in found_BC]


def _check_task(manifest: Manifest, task: str) -> None:
    if manifest.task != task:
        raise BundleError(f"{manifest.name}: task must be {task!r}, got {manifest.task!r}")


def ranked(labels: Sequence[str], scores_C: Floats) -> list[tuple[str, float]]:
    """Labels with their scores, the highest first."""
    order = np.argsort(-scores_C, kind="stable")
    # Whole lists, because converting one number of NumPy's at a time costs several times as much.
    named = map(labels.__getitem__, order.tolist())
    return list(zip(named, scores_C[order].tolist(), strict=True))


def probabilities(logits_BC: Floats) -> Floats:
    """Softmax over the classes; for a single class, the logistic function."""
    if logits_BC.shape[1] == 1:
        found: Floats = np.reciprocal(1.0 + np.exp(-logits_BC), dtype=np.float32)
        return found
    raised_BC = np.exp(logits_BC - logits_BC.max(axis=1, keepdims=True))
    result: Floats = raised_BC / raised_BC.sum(axis=1, keepdims=True)
    return result
