"""Graphs for a GPU, as far as a machine without one can tell: their types and shapes, the rules of
the CUDA kernels, and what they compute on the CPU and in ONNX's own reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper, shape_inference

from export.arithmetic.half import HALF_TYPES, half_twin
from export.comparison.translation import PairedStepper, search_all, total_log_probs
from export.errors import ExportError
from export.gates.reference_run import TOKENS, evaluate, graph_inputs, run_reference, torch_logits
from export.graphs.writing import ALLOWED, HEAD_UNIT, write_graphs, write_language_graphs
from export.passes.cuda_operators import check_operators, cuda_table
from export.passes.mixed_precision import MASK_FILL
from serving.bundle.graph import Graph
from serving.bundle.manifest import Manifest
from serving.runtime.cpu_graphs import CpuSession
from serving.runtime.language_stepper import LanguageStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.options import SearchOptions
from serving.search.prefix_tree import chain
from tests.integration.decoding.test_language_decoding import model_of
from tests.integration.export.test_bundle import MODELS, random_model, random_sentences
from training.decoding.stepper import TorchStepper
from training.models import CausalLanguageModel, TransformerConfig, TranslationModel, build_model

pytestmark = pytest.mark.usefixtures("traced_once")

TRANSLATION = ["standard", "macaron", "joint fast", "joint base", "own attention"]
TRANSLATION += ["scale norm", "joint rms norm", "swiglu", "dynamic convolution"]
LANGUAGE = ["full standard pre", "dilated_memory standard pre", "cascade macaron post"]
LANGUAGE += ["own standard pre"]
FORMS = [(target, precision) for target, found in ALLOWED.items() for precision in found]
HALVES = list(HALF_TYPES)
SIZES = {"B": 2, "Q": 8, "K": 8, "C": 16, "S": 24, "R": 3, "T": 5}
SIZES |= {"BS": 2 * 24, "N": 2 * 8}
CHOICES = {"candidate_score", "candidate_token", "candidate_parent", "top_score", "top_token"}

MOST = {"fp16": 0.05, "bf16": 0.4, "w8a16": 0.3}
MEAN = {"fp16": 0.002, "bf16": 0.02, "w8a16": 0.02}
"""By which logits may differ from those of fp32, any and in the mean; they range over about 10."""
IN_FP32 = {"LayerNormalization", "RMSNormalization", "ReduceL2", "LogSoftmax", "Softmax"}
NEAR_TIE = 2e-3
"""Outputs may differ where fp32 scores both within this, nats a token."""


@cache
def model_named(name: str) -> TranslationModel | CausalLanguageModel:
    return model_of(*name.split()) if name in LANGUAGE else random_model(name)


@dataclasses.dataclass(frozen=True)
class Written:
    """Graphs of a model, and their manifest, which says that they are for the CPU."""

    folder: Path
    manifest: Manifest

    def graphs(self) -> Iterator[tuple[onnx.ModelProto, Graph]]:
        for graph in (self.manifest.encoder, self.manifest.step):
            if graph is not None:
                yield onnx.load(self.folder / graph.file), graph


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


def write(place: Path, name: str, target: str, precision: str) -> Written:
    folder = place / "-".join((*name.split(), target, precision))
    made, model = folder / "made.json", model_named(name)
    if not made.exists():
        folder.mkdir()
        write = write_language_graphs if name in LANGUAGE else write_graphs
        manifest = write(model, folder, name="tiny", precision=precision, target=target)  # type: ignore[operator]
        assert manifest.target == target
        made.write_text(manifest.model_copy(update={"target": "cpu"}).model_dump_json())
    return Written(folder, Manifest.model_validate_json(made.read_text()))


def element_of(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


@pytest.mark.parametrize("name", [*TRANSLATION, *LANGUAGE])
@pytest.mark.parametrize(("target", "precision"), FORMS)
def test_graphs_are_valid_and_have_the_types_and_shapes_of_the_manifest(
    bundles: Path, name: str, target: str, precision: str
) -> None:
    for model, graph in write(bundles, name, target, precision).graphs():
        onnx.checker.check_model(model, full_check=True)
        described = {t.name: t for t in (*graph.inputs, *graph.outputs)}
        for value in model.graph.input:
            tensor = described[value.name]
            dims = value.type.tensor_type.shape.dim
            for dim, axis in zip(dims, tensor.axes, strict=True):
                assert isinstance(axis, str) or dim.dim_value == axis
                dim.dim_value = SIZES.get(axis, dim.dim_value)  # type: ignore[arg-type]
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        inferred = shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=True
        )
        for value in (*inferred.graph.input, *inferred.graph.output):
            tensor = described.pop(value.name)
            assert value.type.tensor_type.elem_type == element_of(tensor.dtype)
            sizes = SIZES | {"M": SIZES["B"] * SIZES["R" if name in LANGUAGE else "Q"]}
            wanted = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
            found = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            # ONNX knows no sizes of the int8 operators of Microsoft's domain, nor of a choice of as
            # many as another input says: they are 0.
            if precision in ("int8", "w8a16"):
                assert all(a in (0, b) for a, b in zip(found, wanted, strict=False))
            else:
                assert found == ([0] * len(wanted) if tensor.role in CHOICES else wanted)
        assert not described


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {i.name: i.data_type for i in inferred.initializer}


@pytest.mark.parametrize("name", [*TRANSLATION, *LANGUAGE])
@pytest.mark.parametrize("precision", ALLOWED["cuda"])
def test_the_rules_of_cuda_kernels_hold(bundles: Path, name: str, precision: str) -> None:
    half = HALF_TYPES.get(precision)
    element = TensorProto.FLOAT if half is None else half.onnx
    for model, _ in write(bundles, name, "cuda", precision).graphs():
        check_operators(model)
        assert not model.functions
        types = types_of(model)
        producers = {output: node for node in model.graph.node for output in node.output}
        constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type in IN_FP32:
                assert types[node.input[0]] == TensorProto.FLOAT
            if node.op_type in ("Attention", "TensorScatter"):
                kept = TensorProto.FLOAT if node.input[0].startswith("state_") else element
                assert types[node.output[0]] == kept
            if node.op_type == "Attention":
                assert {types[name] for name in node.input} == {element}
                assert_finite_mask(node.input[3], producers, constants, element)
            if node.op_type in ("Gemm", "MatMul") and node.input[1] in constants:
                assert types[node.output[0]] == element
            if node.op_type == "LogSoftmax" and half is not None:
                assert producers[node.input[0]].op_type in ("Cast", "Reshape")


def assert_finite_mask(
    name: str, producers: dict[str, NodeProto], constants: dict[str, np.ndarray], element: int
) -> None:
    """Between a mask's last -inf and attention is a Clip, and then nothing that makes another."""
    while producers[name].op_type != "Clip":
        assert producers[name].op_type in ("Cast", "Reshape", "Unsqueeze", "Expand", "Transpose")
        name = producers[name].input[0]
    assert constants[producers[name].input[1]] == np.float32(MASK_FILL[element])


def test_the_table_says_what_is_known_of_the_kernels() -> None:
    operators = cuda_table()["operators"]
    assert "onnxruntime-gpu 1.31.1" in cuda_table()["source"]
    assert "bfloat16" not in operators["Einsum"][0]["T"]
    assert operators["LogSoftmax"] == [{"T": ["double", "float", "float16"]}]
    assert {kernel["U"][-1] for kernel in operators["Attention"]} >= {"float16"}


def test_an_operator_without_a_kernel_is_named_with_its_types() -> None:
    values = [helper.make_tensor_value_info(n, TensorProto.BFLOAT16, [2, 3]) for n in "xy"]
    nodes = [helper.make_node("LogSoftmax", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    with pytest.raises(
        ExportError, match=r"1\.31\.1 cannot compute LogSoftmax of bfloat16 on a GPU"
    ):
        check_operators(model)


def test_heads_of_another_size_than_the_kernels_take_are_refused(tmp_path: Path) -> None:
    config = dataclasses.replace(MODELS["standard"], num_heads=8)
    assert isinstance(config, TransformerConfig)
    model = build_model(config)
    with pytest.raises(ExportError, match=rf"a multiple of {HEAD_UNIT} features, got 4 .*cpu"):
        write_graphs(model, tmp_path, name="tiny", precision="fp16", target="cuda")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["macaron", "joint fast", "full standard pre"])
def test_capacities_and_source_lengths_go_in_steps_of_eight(
    bundles: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write(bundles, name, "cuda", "fp16")
    bound: list[dict[str, int]] = []

    bind = CpuSession.bind

    def note(session: CpuSession, sizes: dict[str, int], *more: Any) -> Any:
        bound.append(dict(sizes))
        return bind(session, sizes, *more)

    monkeypatch.setattr(CpuSession, "bind", note)
    stepper = stepper_of(written)
    stepper.spare_slots = 0  # as on a GPU, where a new layout binds nothing anew
    options = SearchOptions(beam_size=3, max_length=30, loop_guard=False)
    sentences = [
        dataclasses.replace(sentence, target_prefix=[7, 30, 12, 9, 41][: i % 6])
        for i, sentence in enumerate(random_sentences(9, options=options))
    ]
    decode(stepper, sentences)
    assert len({sizes["C"] for sizes in bound}) > 2
    assert {sizes["C"] % 8 for sizes in bound} == {sizes.get("S", 0) % 8 for sizes in bound} == {0}


def stepper_of(written: Written) -> Any:
    if written.manifest.task == "generate":
        return LanguageStepper(written.folder, written.manifest, 1)
    return OnnxStepper(written.folder, written.manifest, 1)


@pytest.mark.parametrize("name", [*TRANSLATION, "ssru"])
def test_fp16_on_the_cpu_is_fp32_but_for_rounding_at_each_step_and_in_whole_searches(
    bundles: Path, name: str
) -> None:
    model = model_named(name)
    assert isinstance(model, TranslationModel)
    bundle = stepper_of(write(bundles, name, "cuda", "fp16"))
    checkpoint = TorchStepper(model)
    sentences = random_sentences(12, model.config.vocab_size)
    paired = PairedStepper(checkpoint, bundle)
    wanted, found = search_all(paired, sentences), search_all(bundle, sentences)
    assert paired.count > 1000
    assert 0 < paired.largest < MOST["fp16"]
    assert paired.total / paired.count < MEAN["fp16"]
    scores = [total_log_probs(checkpoint, sentences, each) for each in (wanted, found)]
    lengths = [np.array([len(tokens) + 1 for tokens in each]) for each in (wanted, found)]
    assert np.abs(scores[0] / lengths[0] - scores[1] / lengths[1]).max() < NEAR_TIE
    assert sum(a == b for a, b in zip(wanted, found, strict=True)) >= 10


@pytest.mark.parametrize("name", ["macaron", "joint fast"])
def test_a_sentence_of_an_fp16_bundle_is_equal_to_the_bit_in_any_batch(
    bundles: Path, name: str
) -> None:
    bundle = stepper_of(write(bundles, name, "cuda", "fp16"))
    sentences = random_sentences(7)
    alone = [decode(bundle, [sentence])[0].hypotheses for sentence in sentences]
    assert alone == [finished.hypotheses for finished in decode(bundle, sentences)]
    assert alone[::-1] == [finished.hypotheses for finished in decode(bundle, sentences[::-1])]


@pytest.mark.parametrize("name", [*TRANSLATION, *LANGUAGE])
@pytest.mark.parametrize("precision", HALVES)
def test_graphs_of_16_bits_compute_nearly_what_those_of_fp32_do_in_onnx_own_reference(
    bundles: Path, name: str, precision: str
) -> None:
    """Where every value is rounded to its type, as on a GPU; the CPU of ONNX Runtime rounds few,
    and has no bf16."""
    wanted = reference_logits(write(bundles, name, "cuda", "fp32"))
    found = reference_logits(write(bundles, name, "cuda", precision))
    assert found.dtype == np.float32
    difference = np.abs(wanted - found)
    assert 0 < difference.max() < MOST[precision]
    assert difference.mean() < MEAN[precision]
    assert np.ptp(wanted) > 3


def reference_logits(written: Written) -> np.ndarray:
    """Logits of the first tokens of two sentences, one of which has a padded source."""
    generator = np.random.default_rng(4)
    mask = np.zeros((SIZES["B"], SIZES["S"]), np.float32)
    mask[1, 17:] = -np.inf
    causal = np.arange(SIZES["C"]) <= np.arange(SIZES["Q"])[:, None]
    values: dict[str, np.ndarray] = {
        "source_ids": generator.integers(4, 60, mask.shape),
        "source_mask": mask,
        "token_ids": generator.integers(4, 60, (SIZES["B"], SIZES["Q"])),
        "positions": np.tile(np.arange(SIZES["Q"]), (SIZES["B"], 1)),
        "slot_positions": np.tile(np.arange(SIZES["C"]), (SIZES["B"], 1)),
        "write_index": np.zeros(SIZES["B"], np.int64),
        "visible": np.tile(np.where(causal, 0, -np.inf), (SIZES["B"], 1, 1, 1)).astype(np.float32),
        "output_index": np.tile(np.arange(SIZES["R"]), (SIZES["B"], 1)),
        "ancestors": np.tile(chain(0, SIZES["Q"], written.manifest.lookback), (SIZES["B"], 1, 1)),
    }
    for model, graph in written.graphs():
        for tensor in graph.inputs:
            if tensor.is_cache:
                shape = [SIZES[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
                values[tensor.name] = np.zeros(shape, dtype_of(tensor.dtype))
        kept = [t.name for t in graph.outputs if t.role in ("source", "logits") or t.is_cache]
        values |= evaluate(model, kept, values)
    return values["logits"]


@pytest.mark.parametrize(
    ("name", "precision"),
    [("dynamic convolution", "fp16"), ("ssru", "bf16"), ("own standard pre", "fp16")],
)
def test_the_reference_run_of_an_export_reads_the_states_of_the_tokens_before(
    bundles: Path, name: str, precision: str
) -> None:
    """A recurrent block reads one token a call there; training without caches is the measure."""
    written, generator = write(bundles, name, "cuda", precision), np.random.default_rng(6)
    twin = half_twin(model_named(name), HALF_TYPES[precision], frozenset())
    sources = [generator.integers(4, 60, length).tolist() for length in (9, 5)]
    sources = [[], []] if name in LANGUAGE else sources
    targets = [generator.integers(4, 60, TOKENS).tolist() for _ in sources]
    found = run_reference(twin, written.folder, written.manifest, sources, targets)
    assert found.tokens == 2 * TOKENS
    values = graph_inputs(written.manifest, sources, targets)
    names = ["token_ids"] if name in LANGUAGE else ["source_ids", "token_ids"]
    with torch.no_grad():
        trained = twin(*(torch.from_numpy(values[each]) for each in names)).flatten(0, 1).numpy()
    cached = torch_logits(twin, written.manifest, values)
    np.testing.assert_allclose(cached, trained, rtol=1e-4, atol=1e-5)


def dtype_of(dtype: str) -> Any:
    return ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
