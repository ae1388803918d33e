"""Measures the time of a call's int8 products alone: the share of its time that no bookkeeping can
save.

Decoding a batch is one run of the encoder graph and one run of the step graph for each token. Here
these runs consist only of their matrix products, with the same weights on as many rows, in the same
order: before a product comes again, all others have been through the processor's cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from serving.bundle.graph import Graph
from serving.bundle.manifest import Manifest
from serving.runtime.ort import register_kernels
from serving.runtime.translation_stepper import OnnxState, OnnxStepper
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.search.prefix_tree import ALIGNMENT
from serving.search.stepper import BeamArrays, StepInputs, StepOutputs
from serving.translation.offline import decode_in_batches

TIED = ("TiedProduct", "BiasedTiedProduct")
"""Operators whose weights are a table [N,K]."""
PRODUCTS = ("MatMulIntegerToFloat", "BiasedProduct", *TIED)


@dataclass(frozen=True)
class BatchSize:
    """A batch as the engine decodes it in one step."""

    sentences: int
    source_length: int
    """Ids of the longest source, to which all are padded."""
    queries: int
    """Queries of each sentence in one step."""


@dataclass(frozen=True)
class _Product:
    """One matrix product: the names of its values in the graph, and its weight's shape."""

    rows: str
    scales: str | None
    """The name of the scales; None for a static scale, which is a constant."""
    output: str
    inputs: int
    outputs: int


class ProductList:
    """The int8 products of one graph, in order; the list may be empty."""

    def __init__(self, folder: Path, graph: Graph, threads: int) -> None:
        """Read a graph and load its products with `threads` intra-op threads."""
        model = onnx.load(folder / graph.file)
        nodes = [node for node in model.graph.node if node.op_type in PRODUCTS]
        weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
        self._graph = graph
        self._products = [
            _Product(
                node.input[0],
                None if node.input[2] in weights else node.input[2],
                node.output[0],
                *weights[node.input[1]][:: -1 if node.op_type in TIED else 1],
            )
            for node in nodes
        ]
        if nodes:
            self.alone = _load(_products_alone(model, nodes, self._products), threads)
            """A session of the products only, from their rows to their outputs."""
            self._whole = _load(_with_rows_as_outputs(model, self._products), threads)

    def count_rows(self, size: BatchSize) -> list[int]:
        """Rows of each product, found by running the whole graph once."""
        if not self._products:
            return []
        batch, length, queries = size.sentences, size.source_length, size.queries
        sizes = {"B": batch, "S": length, "BS": batch * length, "C": ALIGNMENT}
        sizes |= {"K": queries, "Q": queries}
        feeds = {
            tensor.name: np.zeros(
                [axis if isinstance(axis, int) else sizes[axis] for axis in tensor.axes],
                tensor.dtype,
            )
            for tensor in self._graph.inputs
        }
        names = _distinct_rows(self._products)
        arrays = self._whole.run(names, feeds)
        counts = {n: array.size // array.shape[-1] for n, array in zip(names, arrays, strict=True)}
        return [counts[product.rows] for product in self._products]

    def bind(self, size: BatchSize) -> Callable[[], None]:
        """The products of one run, with separate buffers for each distinct shape."""
        return self.bind_rows(self.count_rows(size))

    def bind_same(self, rows: int) -> Callable[[], None]:
        """The same if all products have `rows` rows, as those of an encoder of texts have."""
        return self.bind_rows([rows] * len(self._products))

    def bind_rows(self, rows_of_each: Sequence[int]) -> Callable[[], None]:
        """The same, with a number of rows for each product."""
        if not self._products:
            return lambda: None
        io, generator = self.alone.io_binding(), np.random.default_rng(0)
        buffers: dict[tuple[str, int, int], NDArray[Any]] = {}

        def buffer(kind: str, height: int, width: int) -> NDArray[Any]:
            key = (kind, height, width)
            if key not in buffers:
                values = generator.integers(0, 256, (height, width), dtype=np.uint8)
                buffers[key] = values if kind == "u8" else values.astype(np.float32)
            return buffers[key]

        inputs: dict[str, NDArray[Any]] = {}
        for product, rows in zip(self._products, rows_of_each, strict=True):
            inputs[product.rows] = buffer("u8", rows, product.inputs)
            if product.scales is not None:
                inputs[product.scales] = buffer("scales", rows, 1)
            output = buffer("outputs", rows, product.outputs)
            io.bind_output(product.output, "cpu", 0, output.dtype, output.shape, output.ctypes.data)
        for name, array in inputs.items():
            io.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

        return partial(_run, self.alone, io, buffers)


def time_products(
    folder: Path,
    manifest: Manifest,
    calls: Sequence[Sequence[Sequence[int]]],
    options: SearchOptions,
    *,
    workers: int,
    threads: int,
    repetitions: int,
) -> list[float]:
    """Seconds that the int8 products of all calls take together, in each repetition.

    A call holds sources of ids. Every sentence must go on until `options.max_length`, so that a
    batch keeps its size. Up to `workers` batches run at once, as in decoding.
    """
    assert manifest.encoder is not None
    assert options.max_length is not None
    recorder = _Recorder(folder, manifest, threads)
    sizes = [recorder.decode(call, options, workers) for call in calls]
    del recorder
    encoder = ProductList(folder, manifest.encoder, threads)
    step = ProductList(folder, manifest.step_graph, threads)
    seconds = [0.0] * repetitions
    for batches in sizes:
        runs = [
            (encoder.bind(first), step.bind(first), step.bind(later)) for first, later in batches
        ]
        _replay(runs, 2, workers)  # touches the new buffers and wakes the threads
        for repetition in range(repetitions):
            start = time.perf_counter()
            _replay(runs, options.max_length, workers)
            seconds[repetition] += time.perf_counter() - start
    return seconds


def _run(session: onnxruntime.InferenceSession, io: onnxruntime.IOBinding, held: object) -> None:
    """Run bound products. `held` keeps the buffers alive, because the binding knows only their
    addresses."""
    del held
    session.run_with_iobinding(io)


class _Recorder(OnnxStepper):
    """Notes the size of each batch's first step."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        super().__init__(folder, manifest, threads)
        self._begun: dict[int, tuple[OnnxState, BatchSize]] = {}
        """The states that have begun, by their identity. Each state is kept, so that no other
        object gets its identity."""

    def step(
        self,
        state: OnnxState,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        """Run the step; the first step of a batch records its size."""
        if id(state) not in self._begun:
            rows, length = state.sources.mask_BS.shape
            size = BatchSize(rows, length, inputs.token_ids_BQ.shape[1])
            self._begun[id(state)] = (state, size)
        return super().step(state, inputs, want_logits=want_logits, attention_rows=attention_rows)

    def bind(self, state: OnnxState, beams: BeamArrays) -> None:
        """Has no bound steps, so that every step goes through `step`."""
        return

    def decode(
        self, call: Sequence[Sequence[int]], options: SearchOptions, workers: int
    ) -> list[tuple[BatchSize, BatchSize]]:
        """The first and any later step of the batches that one call is decoded in."""
        self._begun.clear()
        sentences = {i: Sentence(source, options) for i, source in enumerate(call)}
        for _ in decode_in_batches(self, sentences, workers):
            pass
        return [
            (first, replace(first, queries=options.beam_size)) for _, first in self._begun.values()
        ]


def _replay(batches: Sequence[tuple[Callable[[], None], ...]], steps: int, workers: int) -> None:
    """The products of one call."""

    def run(batch: tuple[Callable[[], None], ...]) -> None:
        encoder, first, later = batch
        encoder()
        first()
        for _ in range(steps - 1):
            later()

    if workers == 1 or len(batches) == 1:
        for batch in batches:
            run(batch)
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, batches))


def _products_alone(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], products: list[_Product]
) -> onnx.ModelProto:
    """A graph of these nodes only; rows and scales are its inputs."""
    inputs = {}
    for product in products:
        inputs[product.rows] = (TensorProto.UINT8, product.inputs)
        if product.scales is not None:
            inputs[product.scales] = (TensorProto.FLOAT, 1)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(n, kind, (None, w)) for n, (kind, w) in inputs.items()],
        [
            helper.make_tensor_value_info(p.output, TensorProto.FLOAT, (None, p.outputs))
            for p in products
        ],
        [tensor for tensor in model.graph.initializer if tensor.name in used],
    )
    return helper.make_model(
        graph,
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        functions=[f for f in model.functions if f.name in PRODUCTS],
    )


def _with_rows_as_outputs(model: onnx.ModelProto, products: list[_Product]) -> onnx.ModelProto:
    """The whole graph, with the rows of each product among its outputs."""
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.UINT8, None)
        for name in _distinct_rows(products)
    )
    return model


def _distinct_rows(products: list[_Product]) -> list[str]:
    """Names of the products' rows; several products may share theirs."""
    return list(dict.fromkeys(product.rows for product in products))


def _load(model: onnx.ModelProto, threads: int) -> onnxruntime.InferenceSession:
    """Load a graph in the way the engine loads its graphs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    register_kernels(options, int8=True)
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
