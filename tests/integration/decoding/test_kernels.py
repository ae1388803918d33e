"""The native operators beside the standard ones that they stand for: the bodies of the functions in
exported graphs, which ONNX Runtime runs without the library."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.arithmetic.activation_ranges import measure_ranges, measure_translation_ranges
from export.arithmetic.quantize import Products, quantized_twin
from export.graphs.writing import write_graphs, write_language_graphs, write_text_graph
from export.passes.domains import MACARON
from serving.arrays import Floats, Ints
from serving.bundle.shortlist import Shortlist
from serving.runtime import kernels, ort
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from tests.integration.decoding.kernel_inputs import (
    CASES,
    SIZES,
    VOCABULARY,
    beam_candidates,
    row_scales,
    shortlist_logits,
    shortlist_logits_integer,
    tree,
)
from training.models import (
    CausalLanguageModel,
    EmbedderConfig,
    LanguageModelConfig,
    TextModel,
    TransformerConfig,
    TranslationModel,
    build_model,
    build_trainable,
)

pytestmark = [
    pytest.mark.skipif(kernels.find_compiler(os.environ) is None, reason="needs a C++ compiler"),
    pytest.mark.usefixtures("traced_once"),
]

Arrays = dict[str, NDArray[Any]]
READ_BEFOREHAND = {
    "GatherDequantize": 0,
    "ShortlistLogitsInteger": 2,
    "BiasedShortlistLogitsInteger": 2,
    "BiasedProduct": 1,
    "WideProduct": 1,
    "BiasedWideProduct": 1,
    "TiedProduct": 1,
    "BiasedTiedProduct": 1,
    "TiedWideProduct": 1,
    "BiasedTiedWideProduct": 1,
}
"""Which input of a kernel must be a constant."""


@pytest.fixture(scope="module")
def library() -> Path:
    library = kernels.native_library()
    assert library is not None, "the kernels do not compile; see the log"
    return library


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, onnx.FunctionProto]:
    """Of exported graphs, by name."""
    found = {}
    shortlist = Shortlist(np.array([3, 5]), np.arange(VOCABULARY + 1), np.arange(VOCABULARY))
    for precision in ("fp32", "int8"):
        folder = tmp_path_factory.mktemp(precision)
        sentences = [Sentence([5, 6, 7, 3]), Sentence([8, 9, 3])]
        for model in (translation_model(output_bias=True), translation_model()):
            ranges = None
            if precision == "int8":
                ranges = measure_translation_ranges(quantized_twin(model), sentences, 8)
            write_graphs(
                model,
                folder,
                name="random",
                precision=precision,
                products=Products(ranges),
                shortlist=shortlist,
            )
            found |= functions_of(folder / "step_shortlist.onnx")
        found |= functions_of(folder / "step.onnx")
        for positions in ("relative_bias", "relative"):
            found |= step_functions(folder, precision, positions=positions)
        # Two layers have kernels of different widths.
        found |= step_functions(folder, precision, decoder_mixing="dynamic_conv")
        found |= encoder_functions(folder, precision, rows=False)
        language = CausalLanguageModel(
            LanguageModelConfig(
                **SIZES,
                num_decoder_layers=2,
                vocab_size=VOCABULARY,
                attention="cascade",
                block="standard",
                norm="pre",
            )
        ).eval()
        ranges = None
        if precision == "int8":
            twin = quantized_twin(language)
            ranges = measure_ranges(twin, lambda twin=twin: twin(torch.tensor([[5, 6, 7, 8]])))
        write_language_graphs(
            language, folder, name="random", precision=precision, products=Products(ranges)
        )
        found |= functions_of(folder / "step.onnx")
    folder = tmp_path_factory.mktemp("rows")
    # Weights of the output that are no table, a table, and a table with a bias.
    outputs = ({"tie_embeddings": False}, {}, {"output_bias": True})
    for model in (translation_model(**changes) for changes in outputs):
        for products in (Products(), Products(wide=True)):
            write_graphs(model, folder, name="random", precision="int8", products=products)
            found |= functions_of(folder / "step.onnx")
    for activation in ("swiglu", "geglu_tanh"):
        language = CausalLanguageModel(
            LanguageModelConfig(
                **SIZES,
                num_decoder_layers=2,
                vocab_size=VOCABULARY,
                positions="rotary",
                norm_type="rms",
                activation=activation,
            )
        ).eval()
        write_language_graphs(
            language, folder, name="random", precision="int8", products=Products()
        )
        found |= functions_of(folder / "step.onnx")
    return found | encoder_functions(folder, "int8", rows=True)


def encoder_functions(folder: Path, precision: str, *, rows: bool) -> dict[str, onnx.FunctionProto]:
    """Of an encoder, whose int8 products have static scales or one for each of the `rows`."""
    model = text_encoder()
    ranges = None
    if precision == "int8" and not rows:
        twin = quantized_twin(model)
        ranges = measure_ranges(twin, lambda: twin(torch.tensor([[5, 6, 7, 8]])))
    write_text_graph(
        model,
        folder,
        name="random",
        precision=precision,
        products=Products(ranges),
        max_length=64,
    )
    found = functions_of(folder / "encoder.onnx")
    found.pop("MaskedAttention")  # of the mean, where keys and values are one input
    return found


def text_encoder() -> TextModel:
    torch.manual_seed(7)
    sizes = SIZES | {"num_encoder_layers": 2, "vocab_size": VOCABULARY, "max_positions": 64}
    model = build_trainable(EmbedderConfig(**sizes, pooling="mean"))
    assert isinstance(model, TextModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def step_functions(folder: Path, precision: str, **changes: Any) -> dict[str, onnx.FunctionProto]:
    """Of the steps of another translation model."""
    model = translation_model(**changes)
    ranges = None
    if precision == "int8":
        ranges = measure_translation_ranges(quantized_twin(model), [Sentence([5, 6, 7, 3])], 8)
    write_graphs(model, folder, name="random", precision=precision, products=Products(ranges))
    return functions_of(folder / "step.onnx")


def translation_model(**changes: Any) -> TranslationModel:
    torch.manual_seed(7)
    config = TransformerConfig(
        **SIZES, num_encoder_layers=1, num_decoder_layers=2, vocab_size=VOCABULARY, **changes
    )
    model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def functions_of(path: Path) -> dict[str, onnx.FunctionProto]:
    model = onnx.load(path, load_external_data=False)
    called = {node.op_type for node in model.graph.node if node.domain == MACARON}
    functions = {function.name: function for function in model.functions}
    assert called == functions.keys()
    return functions


def test_every_kernel_is_used(functions: dict[str, onnx.FunctionProto]) -> None:
    native = Path(kernels.__file__).parents[1] / "native"
    text = "".join((native / name).read_text() for name in ("operators.cpp", "product_operator.h"))
    kernel_names = set(re.findall(r'\w+_table(?:<[\w, ]+>)?\(\),\s+"(\w+)"', text))
    assert functions.keys() == kernel_names - {"MatMulIntegerToFloat"}  # a domain's own operator


@cache
def _types() -> dict[np.dtype[Any], int]:
    return {
        np.dtype(kind): number
        for kind, number in (
            (np.float32, TensorProto.FLOAT),
            (np.int64, TensorProto.INT64),
            (np.int32, TensorProto.INT32),
            (np.int8, TensorProto.INT8),
            (np.uint8, TensorProto.UINT8),
        )
    }


def run_both(
    function: onnx.FunctionProto,
    library: Path,
    inputs: list[NDArray[Any]],
    attributes: Mapping[str, float | int],
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Each output of one call, by the standard operators and by the kernel."""
    standard, native = (run(function, path, inputs, attributes) for path in (None, library))
    return list(zip(standard, native, strict=True))


def run(
    function: onnx.FunctionProto,
    library: Path | None,
    inputs: list[NDArray[Any]],
    attributes: Mapping[str, float | int],
    threads: int = 1,
) -> list[NDArray[Any]]:
    """The outputs of one call."""
    model, feed = one_call(function, inputs, attributes)
    found: list[NDArray[Any]] = session(model, library, threads).run(None, feed)
    return found


def one_call(
    function: onnx.FunctionProto,
    inputs: list[NDArray[Any]],
    attributes: Mapping[str, float | int],
) -> tuple[bytes, Arrays]:
    """A graph of one call, and what it is given."""
    names = [f"in_{i}" for i in range(len(inputs))]
    outputs = [f"out_{i}" for i in range(len(function.output))]
    node = helper.make_node(function.name, names, outputs, domain=MACARON, **attributes)
    feed = dict(zip(names, inputs, strict=True))
    constants = []
    if function.name in READ_BEFOREHAND:
        name = names[READ_BEFOREHAND[function.name]]
        constants = [numpy_helper.from_array(feed.pop(name), name)]
    given = [
        helper.make_tensor_value_info(name, _types()[value.dtype], [None] * value.ndim)
        for name, value in feed.items()
    ]
    wanted = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "one", given, wanted, constants)
    opsets = [*function.opset_import, helper.make_opsetid(MACARON, 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)
    return model.SerializeToString(), feed


@cache
def session(model: bytes, library: Path | None, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    if library is None:  # as serving opens what it has no kernels for
        options.add_session_config_entry(ort.EXACT_PRODUCTS, "1")
    else:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def close(standard: NDArray[Any], native: NDArray[Any]) -> None:
    assert standard.shape == native.shape
    assert standard.dtype == native.dtype
    if standard.dtype == np.uint8:  # a value halfway between two levels may go either way
        difference = np.abs(standard.astype(int) - native.astype(int))
        assert difference.max(initial=0) <= 1
        assert (difference > 0).mean() < 0.02
    else:
        np.testing.assert_allclose(standard, native, rtol=2e-5, atol=2e-5)


def both_near(rows: NDArray[Any], found: list[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    """Rows that were rounded twice, whose two parts make them up: where the first one may go either
    way, the second one is another, too."""
    (standard_u8, native_u8), (standard_scales, native_scales) = found
    for levels, scales in ((standard_u8, standard_scales), (native_u8, native_scales)):
        parts = (levels.astype(np.float32) - 128) * scales
        least = scales[len(rows) :]
        within = 0.55 * least + 2e-7 * np.abs(rows)  # the second term is for fp32
        assert (np.abs(parts[: len(rows)] + parts[len(rows) :] - rows) <= within).all()
        assert (127 * scales[: len(rows)] >= np.abs(rows).max(-1, keepdims=True) * 0.9999).all()
        assert (least <= np.maximum(scales[: len(rows)] / 250, 1e-8)).all()  # but for zeros


def exact_product(
    rows: NDArray[np.uint8],
    weight: NDArray[np.int8],
    row_scales: Floats,
    scales: Floats,
    zero_point: NDArray[np.uint8],
    bias: Floats | float = 0.0,
) -> Floats:
    """Summed up as integers: rows [..,K], weight [K,N] -> [..,N]."""
    sums = (rows.astype(np.int64) - zero_point) @ weight.astype(np.int64)
    return (sums * row_scales.astype(np.float64) * scales + bias).astype(np.float32)


def exact_wide_product(rows: NDArray[np.uint8], *others: Any) -> Floats:
    """Of both halves of the rows [2M,K] -> [M,N]"""
    weight, row_scales, scales, zero_point, *bias = others
    halves = zip(np.split(rows, 2), np.split(row_scales, 2), strict=True)
    first, rest = (exact_product(half, weight, own, scales, zero_point) for half, own in halves)
    return (first.astype(np.float64) + rest + sum(bias)).astype(np.float32)


def exact_listed_logits(
    x: NDArray[np.uint8],
    row_scales: Floats,
    table: NDArray[np.int8],
    scales: Floats,
    zero_point: NDArray[np.uint8],
    columns: Ints,
    *bias: Floats,
) -> Floats:
    """Each sentence's product with the rows of the table [V,D] that it lists -> [B,Q,L]"""
    row_scales = np.broadcast_to(row_scales, (*x.shape[:2], 1))
    found = [
        exact_product(
            row, table[listed].T, own, scales[listed], zero_point, *(b[listed] for b in bias)
        )
        for row, own, listed in zip(x, row_scales, columns, strict=True)
    ]
    return np.stack(found)


def rounded_twice(name: str, inputs: list[NDArray[Any]]) -> Floats:
    """The rows [M,K] that both halves of a rounding come near to."""
    return np.maximum(inputs[0], 0) if "Relu" in name else inputs[0]


def known_logits(name: str, inputs: list[NDArray[Any]]) -> NDArray[np.bool_] | None:
    """Which logits [B,Q,L] of lists matter; None for other kernels, whose outputs all do."""
    if "ShortlistLogits" not in name:
        return None
    columns = inputs[5 if name.endswith("Integer") else 2]
    return np.broadcast_to(columns[:, None] >= 0, (*inputs[0].shape[:2], columns.shape[1]))


def of_table(exact: Callable[..., Floats]) -> Callable[..., Floats]:
    """The same with a weight that is a table [N,K]."""
    return lambda rows, table, *others: exact(rows, table.T, *others)


EXACT: dict[str, Callable[..., Floats]] = {
    "BiasedProduct": exact_product,
    "WideProduct": exact_wide_product,
    "BiasedWideProduct": exact_wide_product,
    "TiedProduct": of_table(exact_product),
    "BiasedTiedProduct": of_table(exact_product),
    "TiedWideProduct": of_table(exact_wide_product),
    "BiasedTiedWideProduct": of_table(exact_wide_product),
    "ShortlistLogitsInteger": exact_listed_logits,
    "BiasedShortlistLogitsInteger": exact_listed_logits,
}
"""What no processor may get wrong: some cut sums of products of 8 bits off at 16."""


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 5),
    queries=st.integers(1, 6),
    capacity=st.integers(1, 40),
)
def test_a_kernel_equals_the_standard_operators(
    functions: dict[str, onnx.FunctionProto],
    library: Path,
    name: str,
    seed: int,
    rows: int,
    queries: int,
    capacity: int,
) -> None:
    inputs, attributes = CASES[name](np.random.default_rng(seed), rows, queries, capacity)
    known = known_logits(name, inputs)
    found = run_both(functions[name], library, inputs, attributes)
    if name.endswith("Twice"):
        both_near(rounded_twice(name, inputs), found)
        return
    if name in EXACT:
        exact = EXACT[name](*inputs)
        found = [(exact, result) for pair in found for result in pair]
    for standard, native in found:
        close(standard, native) if known is None else close(standard[known], native[known])


@pytest.mark.parametrize(
    "width", [*range(1, 18), 24, 32, 40, 48, 52, 56, 64, 72, 80, 100, 128, 144]
)
def test_heads_of_any_width(
    functions: dict[str, onnx.FunctionProto], library: Path, width: int
) -> None:
    """Vectors have 4, 8 or 16 numbers; heads may end with half of one, or within that. Caches that
    lie head by head give the same."""
    for capacity in (1, 6, 7):
        inputs, attributes = tree(False, False, width)(np.random.default_rng(width), 2, 2, capacity)
        found = run_both(functions["TreeAttention"], library, inputs, attributes)
        for standard, native in found:
            close(standard, native)
        inputs[1:3] = [by_head(cache, width) for cache in inputs[1:3]]
        context, *caches = run(
            functions["TreeAttentionByHead"], library, inputs, {"scale": attributes["scale"]}
        )
        close(found[0][1], context)
        for (_, flat), moved in zip(found[1:], caches, strict=True):
            np.testing.assert_array_equal(by_head(flat, width), moved)


def by_head(cache: NDArray[Any], width: int) -> NDArray[Any]:
    """[B,C,D] as [B,H,C,E]."""
    return np.ascontiguousarray(cache.reshape(*cache.shape[:2], -1, width).transpose(0, 2, 1, 3))


@pytest.mark.parametrize("name", ["Rotary", "Swiglu", "GegluTanh", "AddRmsNorm"])
def test_threads_share_the_rows_of_a_long_prompt(
    functions: dict[str, onnx.FunctionProto], library: Path, name: str
) -> None:
    inputs, attributes = CASES[name](np.random.default_rng(2), 1, 4096, 8)
    alone, shared = (run(functions[name], library, inputs, attributes, count) for count in (1, 2))
    for one, other in zip(alone, shared, strict=True):
        assert len(one.reshape(-1, one.shape[-1])) == 4096
        np.testing.assert_array_equal(one, other)


def test_swiglu_is_as_exact_far_from_zero(
    functions: dict[str, onnx.FunctionProto], library: Path
) -> None:
    """The standard Sigmoid is some 1e-6 off there."""
    gate = np.concatenate([np.linspace(-80, 80, 999), [-1e4, -0.0, 0.0, 1e4]])
    x = np.concatenate([gate, np.full_like(gate, 0.5)]).astype(np.float32)[None, None]
    (found,) = run(functions["Swiglu"], library, [x], {})
    gate = x[0, 0, : len(gate)].astype(np.float64)
    wanted = 0.5 * gate * np.exp(-np.logaddexp(0, -gate))
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6, atol=1e-30)
    (found,) = run(functions["Swiglu"], library, [np.full((1, 1, 2), np.nan, np.float32)], {})
    assert np.isnan(found).all()


def test_a_beam_without_numbers_is_reported(
    functions: dict[str, onnx.FunctionProto], library: Path
) -> None:
    inputs, _ = beam_candidates(np.random.default_rng(1), 3, 4, 8)
    inputs[0][5, 7] = np.nan  # the second sentence
    (_, scores), *_ = run_both(functions["Candidates"], library, inputs, {})
    assert np.isnan(scores[1]).any()
    assert np.isfinite(scores[[0, 2]]).all()


def test_more_queries_than_beams_are_refused(
    functions: dict[str, onnx.FunctionProto], library: Path
) -> None:
    (logits, scores, labels), _ = beam_candidates(np.random.default_rng(1), 2, 3, 8)
    for other in (scores[:, :2], np.repeat(scores, 2, axis=1)):  # nor are fewer, but for one
        with pytest.raises(Exception, match="a row for each beam of a sentence, or one"):
            run(functions["Candidates"], library, [logits, other, labels], {})


Change = Callable[[NDArray[Any]], NDArray[Any]]

REFUSED: list[tuple[str, int, Change, str]] = [
    ("TreeAttention", 0, lambda qkv: qkv[..., :-1], "qkv and caches must be"),
    ("TreeAttention", 2, lambda values: values[:, :-1], "qkv and caches must be"),
    ("TreeAttention", 3, lambda index: index + 9, "must leave room for the new slots"),
    ("TreeAttention", 3, lambda index: index - 9, "must leave room for the new slots"),
    ("TreeAttention", 3, lambda index: index[:-1], "must leave room for the new slots"),
    ("TreeAttention", 4, lambda mask: mask[..., :-1], "a mask must be"),
    ("TreeAttentionQuantize", 5, lambda scale: scale.repeat(2), "must be single numbers"),
    ("BiasedTreeAttention", 5, lambda bias: bias[..., :-1], "a bias must be"),
    ("BiasedTreeAttention", 5, lambda bias: bias[..., 0], "a bias must be"),
    ("BiasedTreeAttention", 5, lambda bias: bias.repeat(3, 1), "qkv and caches must be"),
    ("BiasedTreeAttention", 5, lambda bias: bias[:, :0], "attention must have a head"),
    ("BiasedTreeAttention", 5, lambda bias: bias.repeat(5, 0), "a bias must be"),
    ("BiasedTreeAttention", 5, lambda bias: bias.repeat(5, 2), "a bias must be"),
    ("RelativeTreeAttention", 5, lambda places: places[..., :-1], "places and tables must be"),
    ("RelativeTreeAttention", 5, lambda places: places[:1], "places and tables must be"),
    ("RelativeTreeAttention", 5, lambda places: places + 99, "places must be rows of the tables"),
    ("RelativeTreeAttention", 5, lambda places: places - 99, "places must be rows of the tables"),
    ("RelativeTreeAttention", 6, lambda table: table[:, :-1], "D a multiple of E"),
    ("RelativeTreeAttention", 6, lambda table: table[:, :0], "D a multiple of E"),
    ("RelativeTreeAttention", 6, lambda table: table[:0], "places and tables must be"),
    ("RelativeTreeAttention", 7, lambda table: table[:, :-1], "places and tables must be"),
    ("RelativeTreeAttention", 7, lambda table: table[0], "places and tables must be"),
    ("RelativeTreeAttention", 8, lambda scale: scale.repeat(2), "the scale must be a single"),
    ("RelativeTreeAttentionQuantize", 9, lambda scale: scale.repeat(2), "must be single numbers"),
    ("Rotary", 0, lambda x: x[:, :, :-1], "the sizes must add up to P"),
    ("Rotary", 0, lambda x: x[0], "x, cosines and sines must be"),
    ("Rotary", 1, lambda cosines: cosines[:, :-1], "x, cosines and sines must be"),
    ("Rotary", 2, lambda sines: sines[..., :-1], "x, cosines and sines must be"),
    ("Rotary", 3, lambda sizes: sizes[:1], "there must be two sizes"),
    ("Rotary", 4, lambda pairs: pairs - 1, "as wide as their angles"),
    ("Rotary", 4, lambda pairs: pairs[:0], "as wide as their angles"),
    ("Rotary", 3, lambda sizes: sizes - [1, -1], "the first be of whole heads"),
    ("Rotary", 3, lambda sizes: sizes * [-1, 3], "the sizes must add up to P"),
    ("Swiglu", 0, lambda x: x[..., :-1], "Swiglu: x must be"),
    ("Swiglu", 0, lambda x: x[0, 0, 0], "Swiglu: x must be"),
    ("AddRmsNorm", 1, lambda y: y[1:], "x and y must have shapes that go together"),
    ("AddRmsNorm", 2, lambda weight: weight[:-1], "weight and bias of a norm"),
    ("TreeAttentionByHead", 1, lambda keys: keys[:, :, :-1], "qkv and caches must be"),
    ("TreeAttentionByHead", 1, lambda keys: keys[:, :0], "attention must have a head"),
    ("AncestorConvolution", 1, lambda cache: cache[..., :-1], "x, cache, ancestors and kernel"),
    ("AncestorConvolution", 2, lambda index: index + 99, "must leave room for the new slots"),
    ("AncestorConvolution", 3, lambda slots: slots[:-1], "x, cache, ancestors and kernel"),
    ("AncestorConvolution", 3, lambda slots: slots + 99, "ancestors must be slots, or -1"),
    ("AncestorConvolution", 3, lambda slots: slots - 99, "ancestors must be slots, or -1"),
    ("AncestorConvolution", 4, lambda kernel: kernel.repeat(9, axis=3), "at most W . 1 taps"),
    ("MaskedAttention", 1, lambda keys: keys[:-1], "queries, keys and values must be"),
    ("MaskedAttention", 2, lambda values: values[:, :-1], "queries, keys and values must be"),
    ("MaskedAttention", 0, lambda query: query[..., :0], "queries, keys and values must be"),
    ("MaskedAttention", 3, lambda mask: mask[:2], "a mask must be"),
    ("ReachMask", 1, lambda positions: positions[:, :-1], "visible, positions and their slots'"),
    ("ReachMask", 2, lambda slots: slots[:, :-1], "visible, positions and their slots'"),
    ("AddNormQuantize", 2, lambda weight: weight[:-1], "weight and bias of a norm"),
    ("AddNormQuantize", 1, lambda y: y[:, :, 1:], "x and y must have shapes that go together"),
    ("AddPostNorm", 0, lambda x: x[..., 1:], "x and y must have shapes that go together"),
    (
        "AddPostNorm",
        1,
        lambda _: np.array(1, np.float32),
        "AddPostNorm: a tensor must have an axis",
    ),
    ("AddPostNormQuantize", 3, lambda bias: bias[:-1], "weight and bias of a norm"),
    ("PackedAttention", 0, lambda qkv: qkv[..., :-1], r"qkv must be \[..,3D\]"),
    ("PackedAttention", 0, lambda qkv: qkv[:, :-1], "places must be of qkv"),
    ("PackedAttention", 1, lambda places: places - 9, "places must be of qkv"),
    ("PackedAttention", 2, lambda places: places + 1, "must lie behind their queries"),
    ("PackedAttention", 5, lambda mask: mask[..., :-1], "a mask must be"),
    ("PackedAttention", 6, lambda rows: rows + 99, "rows of places"),
    ("PackedAttentionQuantize", 7, lambda scale: scale.repeat(2), "must be single numbers"),
    ("AddNormQuantizeRows", 4, lambda zeros: zeros[:-1], "zero points, least peak and level"),
    ("PackedAttentionQuantizeRows", 7, lambda zeros: zeros[:-1], "zero points, least peak and"),
    ("BiasedProduct", 4, lambda zero: zero.repeat(0), "the zero point must be a single number"),
    ("BiasedProduct", 5, lambda bias: bias[:0], r"BiasedProduct: .*; inputs are \[6,"),
    ("BiasedProduct", 5, lambda bias: bias[:-1], "rows, their scales, weights' scales and bias"),
    ("BiasedWideProduct", 0, lambda rows: rows[:-1], r"rows must be \[2M,K\]"),
    ("BiasedWideProduct", 5, lambda bias: bias[:-1], "rows, their scales, weights' scales and"),
    ("WideProduct", 2, lambda scales: scales[:-1], "rows, their scales, weights' scales and bias"),
    ("TiedProduct", 0, lambda rows: np.repeat(rows, 2, 1), "weights' scales and bias must be"),
    ("TiedProduct", 0, lambda _: np.array(1, np.uint8), "TiedProduct: a tensor must have an axis"),
    ("TiedProduct", 1, lambda table: table[:0], "weights must be .* neither of them 0"),
    ("TiedProduct", 1, lambda table: table[:, :0], "weights must be .* neither of them 0"),
    ("TiedProduct", 1, lambda table: table[0], "weights must be .* neither of them 0"),
    ("TiedProduct", 1, lambda table: table[None], "weights must be .* neither of them 0"),
    ("TiedProduct", 1, lambda table: np.repeat(table, 2, 1), "weights' scales and bias must be"),
    ("TiedProduct", 1, lambda table: np.resize(table, (2, 65537)), "at most 65536 inputs"),
    ("TiedProduct", 3, lambda scales: scales.repeat(2)[1:], "weights' scales and bias must be"),
    ("BiasedTiedProduct", 2, lambda scales: scales[:0], "weights' scales and bias must be"),
    ("BiasedTiedProduct", 4, lambda zero: zero.repeat(0), "zero point must be a single number"),
    ("BiasedTiedProduct", 5, lambda bias: bias.repeat(2), "weights' scales and bias must be"),
    ("TiedWideProduct", 0, lambda rows: rows[:-1], r"rows must be \[2M,K\]"),
    ("TiedWideProduct", 0, lambda rows: rows[None], r"rows must be \[2M,K\]"),
    ("TiedWideProduct", 2, lambda scales: scales[:-1], "weights' scales and bias must be"),
    ("BiasedTiedWideProduct", 1, lambda table: table[1:-1], "weights' scales and bias must be"),
    ("BiasedTiedWideProduct", 5, lambda bias: bias[:0], "weights' scales and bias must be"),
    ("QuantizeRowsTwice", 1, lambda zeros: zeros[:-1], "zero points, least peak and level"),
    ("QuantizeRows", 1, lambda zeros: zeros[:-1], "zero points, least peak and level"),
    ("GeluQuantize", 1, lambda scale: scale.repeat(2), "must be single numbers"),
    ("GatherDequantize", 1, lambda scales: scales[:-1], "table, scales and ids must be"),
    ("GatherDequantize", 2, lambda ids: ids + 8, "input 2 must be from 0 to 7, and has"),
    ("GatherDequantize", 2, lambda ids: ids - 8, "ids must be rows of the table"),
    ("Sinusoids", 1, lambda offset: offset.repeat(2), "positions, offset and frequencies"),
    ("Candidates", 1, lambda scores: scores[:, :0], "logits must have a row for each beam"),
    ("Candidates", 2, lambda labels: labels[:-1], "logits, scores and labels must be"),
    ("Candidates", 2, lambda labels: labels + VOCABULARY, "labels must be below the size"),
    ("Candidates", 2, lambda labels: labels - VOCABULARY, "labels must be below the size"),
    ("ShortlistLogitsInteger", 1, lambda scale: scale.repeat(0), "must be those of each row"),
    ("ShortlistLogitsInteger", 4, lambda zero: zero.repeat(0), "must be a single number"),
    ("ShortlistLogitsInteger", 3, lambda scales: scales[:-1], "scales must be those of each row"),
    ("TopTokens", 0, lambda logits: logits[:-1], "logits, labels and ranks must be"),
    ("TopTokens", 1, lambda labels: labels + VOCABULARY, "labels must be below the size"),
    ("TopTokens", 2, lambda _: np.arange(VOCABULARY + 1), "logits, labels and ranks must be"),
]


@pytest.mark.parametrize(("name", "changed", "change", "message"), REFUSED)
def test_what_would_be_read_or_written_out_of_bounds_is_refused(
    functions: dict[str, onnx.FunctionProto],
    library: Path,
    name: str,
    changed: int,
    change: Change,
    message: str,
) -> None:
    inputs, attributes = CASES[name](np.random.default_rng(4), 3, 2, 8)
    inputs[changed] = np.array(change(inputs[changed]), order="C")
    with pytest.raises(Exception, match=message):
        run(functions[name], library, inputs, attributes)


def test_rows_of_no_numbers_have_the_least_scale(
    functions: dict[str, onnx.FunctionProto], library: Path
) -> None:
    for name in ("QuantizeRows", "GeluQuantizeRows"):
        inputs = [np.zeros((3, 0), np.float32), *row_scales(3)]
        levels, scales = run(functions[name], library, inputs, {})
        assert levels.shape == (3, 0)
        np.testing.assert_allclose(scales, np.full((3, 1), 1e-8 / 127), rtol=1e-5)


def test_an_infinite_score_of_a_beam_is_reported(
    functions: dict[str, onnx.FunctionProto], library: Path
) -> None:
    (logits, scores, labels), _ = beam_candidates(np.random.default_rng(1), 2, 3, 8)
    logits[:, ::2], scores[0, 0] = -np.inf, np.inf
    labels[:] = 1
    found, *_ = run(functions["Candidates"], library, [logits, scores, labels], {})
    assert np.isnan(found[0]).any()
    assert np.isfinite(found[1]).all()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_a_large_table_in_a_file_is_not_in_memory_as_a_whole(
    functions: dict[str, onnx.FunctionProto], library: Path, tmp_path: Path
) -> None:
    generator = np.random.default_rng(5)
    table = generator.integers(-127, 128, (70_000, 256), dtype=np.int8)  # 17 MiB
    scales = generator.random((70_000, 1)).astype(np.float32)
    model, _ = one_call(functions["GatherDequantize"], [table, scales, np.zeros((1, 1), int)], {})
    (tmp_path / "graph.onnx").write_bytes(model)
    loaded = ort.load_graph(tmp_path, "graph.onnx", 1, int8=True)
    for ids in generator.integers(0, 70_000, (40, 2, 25)):
        (found,) = loaded.run(None, {"in_1": scales, "in_2": ids})
        np.testing.assert_array_equal(found, table[ids].astype(np.float32) * scales[ids])
    parts = Path("/proc/self/smaps").read_text().split(str(tmp_path / "graph.onnx"))[1:]
    assert parts
    assert sum(int(re.findall(r"Rss: +(\d+)", part)[0]) for part in parts) < 4096  # KiB


def test_lists_that_do_not_fit_are_refused(
    functions: dict[str, onnx.FunctionProto], library: Path
) -> None:
    for make in (shortlist_logits, shortlist_logits_integer):
        name = "".join(part.title() for part in make.__name__.split("_"))
        inputs, _ = make(np.random.default_rng(1), 3, 2, 8)
        with pytest.raises(Exception, match=r"\[B,Q,D\], \[V,D\] and \[B,L\]"):
            run(functions[name], library, [*inputs[:-1], inputs[-1][:2]], {})
        inputs[-1][0, 0] = VOCABULARY
        with pytest.raises(Exception, match="rows of the table, or -1"):
            run(functions[name], library, inputs, {})


def test_lists_shared_out_to_threads_come_out_the_same(
    functions: dict[str, onnx.FunctionProto], library: Path
) -> None:
    generator = np.random.default_rng(2)
    inputs = [
        generator.integers(0, 256, (16, 5, 512), dtype=np.uint8),
        np.array(0.01, np.float32),
        generator.integers(-127, 128, (1000, 512), dtype=np.int8),
        generator.random(1000).astype(np.float32),
        np.array(128, np.uint8),
        np.array([generator.permutation(1000)[:500] for _ in range(16)]),
    ]
    function = functions["ShortlistLogitsInteger"]
    (together,) = run(function, library, inputs, {}, threads=2)
    for row in range(16):
        part = slice(row, row + 1)
        (alone,) = run(function, library, [inputs[0][part], *inputs[1:5], inputs[5][part]], {})
        assert np.array_equal(alone[0], together[row])


@pytest.mark.parametrize("form", ["fp32", "int8", "int8 of 16 bits"])
def test_a_bundle_decodes_without_kernels_too(
    form: str, tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(3)
    sources = [
        [*generator.integers(4, VOCABULARY, size=length).tolist(), 3] for length in range(2, 14)
    ]
    model = translation_model()
    options = SearchOptions(beam_size=4, max_length=16, loop_guard=False)
    sentences = [Sentence(source, options) for source in sources]
    ranges = None
    precision = form.partition(" ")[0]
    if form == "int8":
        ranges = measure_translation_ranges(quantized_twin(model), sentences, 16)
    products = Products(ranges, wide=form == "int8 of 16 bits")
    manifest = write_graphs(model, tmp_path, name="random", precision=precision, products=products)
    stepper = OnnxStepper(tmp_path, manifest, 1)
    assert stepper.one_query_first
    native = decode(stepper, sentences)
    stepper.one_query_first = False
    assert native == decode(stepper, sentences)  # to the bit
    monkeypatch.setattr(ort, "native_library", lambda: None)
    stepper = OnnxStepper(tmp_path, manifest, 1)
    assert not stepper.one_query_first
    standard = decode(stepper, sentences)
    pairs = list(zip(native, standard, strict=True))
    if precision == "fp32":
        assert [n.hypotheses[0].tokens for n, _ in pairs] == [
            s.hypotheses[0].tokens for _, s in pairs
        ]
    for one, other in pairs:
        assert one.hypotheses[0].score == pytest.approx(
            other.hypotheses[0].score, abs=1e-4 if precision == "fp32" else 0.05
        )
