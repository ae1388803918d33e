"""An imported encoder in this engine, beside ONNX Runtime's dynamic int8 and CTranslate2.

All read the same ids, tokenized beforehand, in the same calls, in the order of the file. The timed
work ends with one vector per text, the mean of its states.

Shape letters: B texts, S ids of the longest, D features.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

from bench.errors import BenchError
from bench.machine.processor import cpuinfo, rivals_environment
from bench.machine.roofline import ProductList
from bench.reports.report import Machine, head_lines, table_line
from bench.subjects.encoders import export_encoder
from bench.systems.processes.repetitions import Progress
from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.manifest import Manifest
from serving.encoding.reader import TextReader
from serving.runtime.text_encoder import calls

OURS, RUNTIME, CTRANSLATE2 = "this engine, int8", "ONNX Runtime, dynamic int8", "CTranslate2, int8"
PRODUCTS = "int8 products of this engine alone"
"""A lower bound: the same calls with only their matrix products."""
LEAST_COSINE = 0.95
"""Smallest mean cosine of a peer's vectors with ours; both use int8 products with the same
weights."""
Read = Callable[[Sequence[EncodedText]], Floats]
"""Vectors [B,D] of the texts of one call, not normalised."""


@dataclass(frozen=True)
class EncoderPlan:
    """The parameters of a comparison of encoder systems."""

    source: Path
    """A BERT folder of Hugging Face, from which the peers are made."""
    bundle: Path
    """The same model as int8, imported with mean pooling."""
    texts: list[str]
    batches: tuple[int, ...]
    repetitions: int
    threads: int


@dataclass(frozen=True)
class EncoderSpeed:
    """The speed of one system in calls of one size."""

    system: str
    batch: int
    texts_per_second: list[float]
    """Texts per second, one entry per repetition."""
    cosine: float | None
    """Mean cosine of its vectors with ours; None if only products are timed."""


def time_encoders(plan: EncoderPlan, folder: Path, progress: Progress) -> list[EncoderSpeed]:
    """Time each system in turns, after a warm-up repetition; the peers are made in `folder`.

    Raises BenchError if a peer's vectors differ from ours.
    """
    reader = TextReader(plan.bundle, threads=plan.threads)
    if reader.reading.pooling != "mean":
        raise BenchError(f"{plan.bundle}: pooling must be 'mean', got {reader.reading.pooling!r}")
    texts = [reader.encode(text, truncate=True) for text in plan.texts]
    progress("making the peers")
    systems: dict[str, Read] = {
        OURS: reader.encoder.run,
        RUNTIME: _runtime(plan, folder),
        CTRANSLATE2: _ctranslate2(plan, folder),
    }
    cosines = _compare(systems, texts, max(plan.batches))
    products = _ProductsAlone(plan, reader.manifest)
    found = []
    for batch in plan.batches:
        speeds: dict[str, list[float]] = {name: [] for name in (*systems, PRODUCTS)}
        for repetition in range(plan.repetitions + 1):
            progress(f"{batch} texts a call: repetition {repetition} of {plan.repetitions}")
            for name, read in systems.items():
                start = time.perf_counter()
                for call in _calls(texts, batch):
                    read(call)
                if repetition:
                    speeds[name].append(len(texts) / (time.perf_counter() - start))
            seconds = products.seconds(_calls(texts, batch))
            if repetition:
                speeds[PRODUCTS].append(len(texts) / seconds)
        found += [
            EncoderSpeed(name, batch, each, cosines.get(name)) for name, each in speeds.items()
        ]
    return found


class _ProductsAlone:
    """The int8 products of the bundle's graph, for the number of rows of the calls."""

    def __init__(self, plan: EncoderPlan, manifest: Manifest) -> None:
        assert manifest.encoder is not None
        if manifest.precision != "int8" or manifest.activations == "row16":
            raise BenchError(
                f"{plan.bundle}: must be int8 with activations of 8 bits, whose products are timed "
                "alone, too; make it with `python -m macaron export import`"
            )
        self._list = ProductList(plan.bundle, manifest.encoder, plan.threads)
        self._bound: dict[int, Callable[[], None]] = {}

    def seconds(self, batches: Sequence[Sequence[EncodedText]]) -> float:
        """The time of the products in these calls, divided as the engine divides them."""
        sizes = [
            sum(len(batch[number].ids) for number in numbers)
            for batch in batches
            for numbers in calls([len(text.ids) for text in batch])
        ]
        for size in set(sizes) - self._bound.keys():
            self._bound[size] = self._list.bind_same(size)
            self._bound[size]()  # touches the new buffers
        start = time.perf_counter()
        for size in sizes:
            self._bound[size]()
        return time.perf_counter() - start


def encoders_markdown(
    command: str, machine: Machine, plan: EncoderPlan, found: Sequence[EncoderSpeed]
) -> str:
    """The table, with our speed relative to each peer."""
    subject = (
        f"{len(plan.texts)} texts through the encoder of {plan.source.name}, {plan.threads} "
        f"thread{'s' if plan.threads > 1 else ''}, ids to vectors; median of {plan.repetitions}."
    )
    columns = ["texts a call", "system", "texts/s (min-max)", "ours / its", "cosine with ours"]
    lines = [*head_lines(command, machine, subject), "", table_line(columns)]
    lines.append(table_line(["---:", "---", "---:", "---:", "---:"]))
    ours = {e.batch: statistics.median(e.texts_per_second) for e in found if e.system == OURS}
    for each in found:
        speeds, median = each.texts_per_second, statistics.median(each.texts_per_second)
        span = f"{median:,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f})"
        ratio = f"{ours[each.batch] / median:.2f}"
        cosine = "" if each.cosine is None else f"{each.cosine:.4f}"
        cells = [f"{each.batch}", each.system, span, ratio, cosine]
        lines.append(table_line(cells))
    return "\n".join(lines)


def _calls(texts: Sequence[EncodedText], batch: int) -> list[Sequence[EncodedText]]:
    return [texts[i : i + batch] for i in range(0, len(texts), batch)]


def _compare(
    systems: dict[str, Read], texts: Sequence[EncodedText], batch: int
) -> dict[str, float]:
    """The mean cosine of each system's vectors with ours."""
    vectors = {}
    for name, read in systems.items():
        found_BD = np.concatenate([read(call) for call in _calls(texts, batch)])
        vectors[name] = found_BD / np.linalg.norm(found_BD, axis=1, keepdims=True)
    cosines = {name: float((v * vectors[OURS]).sum(1).mean()) for name, v in vectors.items()}
    for name, cosine in cosines.items():
        if not cosine >= LEAST_COSINE:
            raise BenchError(
                f"{name}: its vectors have a cosine of {cosine:.3f} with those of the bundle (at "
                f"least {LEAST_COSINE}); give the bundle of the same encoder"
            )
    return cosines


def _padded(texts: Sequence[EncodedText]) -> dict[str, Any]:
    """The inputs [B,S] of a model with padded batches."""
    width = max(len(text.ids) for text in texts)
    arrays = {
        name: np.zeros((len(texts), width), np.int64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    for row, text in enumerate(texts):
        arrays["input_ids"][row, : len(text.ids)] = text.ids
        arrays["attention_mask"][row, : len(text.ids)] = 1
    return arrays


def _mean(states_BSD: Floats, texts: Sequence[EncodedText]) -> Floats:
    """Vectors [B,D], ignoring positions after the end of a text."""
    lengths_B1 = np.array([len(text.ids) for text in texts])[:, None]
    real_BS = np.arange(states_BSD.shape[1]) < lengths_B1
    total_BD = (states_BSD * real_BS[:, :, None].astype(np.float32)).sum(axis=1)
    mean_BD: Floats = total_BD / lengths_B1.astype(np.float32)
    return mean_BD


def _runtime(plan: EncoderPlan, folder: Path) -> Read:
    """Run the model as users of `optimum` do: its own graph with dynamic int8 products."""
    export_encoder(plan.source, folder / "model.onnx")
    quantize_dynamic(folder / "model.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = plan.threads, 3
    session = onnxruntime.InferenceSession(
        str(folder / "int8.onnx"), options, providers=["CPUExecutionProvider"]
    )
    known = {each.name for each in session.get_inputs()}

    def read(texts: Sequence[EncodedText]) -> Floats:
        inputs = {name: array for name, array in _padded(texts).items() if name in known}
        return _mean(session.run(["states"], inputs)[0], texts)

    return read


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for libraries that read them once, as CTranslate2 does when it is
    imported. Variables that the user has set stay, and processes that are started later do not see
    the new ones."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _ctranslate2(plan: EncoderPlan, folder: Path) -> Read:
    with _variables(rivals_environment(cpuinfo(), "int8")):
        import ctranslate2

    made, source = folder / "ctranslate2", folder / "source"
    source.mkdir()
    for file in plan.source.iterdir():
        (source / file.name).symlink_to(file.absolute())
    config = json.loads((plan.source / "config.json").read_text())
    config.setdefault("position_embedding_type", "absolute")  # newer files leave it out
    (source / "config.json").unlink()
    (source / "config.json").write_text(json.dumps(config))
    converter = ctranslate2.converters.TransformersConverter(str(source))
    converter.convert(str(made), quantization="int8")
    encoder = ctranslate2.Encoder(
        str(made), compute_type="int8", inter_threads=1, intra_threads=plan.threads
    )

    def read(texts: Sequence[EncodedText]) -> Floats:
        output = encoder.forward_batch([list(text.ids) for text in texts])
        return _mean(np.asarray(output.last_hidden_state), texts)

    return read
