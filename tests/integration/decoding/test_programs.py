"""Graphs as programs of native code beside the same graphs in ONNX Runtime: equal to the bit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from serving import Translator
from serving.bundle.folder import read_manifest
from serving.bundle.graph import Graph
from serving.runtime import kernels, ort
from serving.runtime.cpu_graphs import CpuGraph, Program, load_program
from serving.search.options import SearchOptions

ROOT = Path(__file__).resolve().parents[3]
TRANSLATORS = ("macaron-de-en", "macaron-en-de", "macaron-fr-es-en")
TEXTS = (
    "Guten Morgen!",
    "Kannst du mir bitte helfen, den Koffer in den dritten Stock zu tragen?",
    "Der Zug kommt eine Stunde zu spät.",
    "Ja.",
)
Arrays = dict[str, NDArray[Any]]

pytestmark = pytest.mark.skipif(kernels.native_library() is None, reason="needs native kernels")


def program_of(file: Path) -> Program:
    library = kernels.native_library()
    assert library is not None
    made = load_program(library, file)
    assert made is not None, f"{file} is no program"
    return made


def session_of(file: Path) -> ort.OrtGraph:
    return ort.OrtGraph(ort.load_graph(file.parent, file.name, 1, int8=True))


def drawn(graph: Graph, sizes: Mapping[str, int], seed: int) -> Arrays:
    """Inputs of a step graph or encoder, of these sizes."""
    random = np.random.default_rng(seed)
    found: Arrays = {}
    for tensor in graph.inputs:
        shape = [axis if isinstance(axis, int) else sizes[axis] for axis in tensor.axes]
        if tensor.role in ("token", "label"):
            array = random.integers(0, 1000, shape)
        elif tensor.role in ("visible", "source_mask"):
            array = np.where(random.random(shape) < 0.3, -np.inf, 0).astype(np.float32)
            array[..., 0] = 0
        elif tensor.role == "position":
            array = random.integers(0, 50, shape)
        elif tensor.role == "write_index":
            array = random.integers(0, sizes["C"] - sizes["Q"] + 1, shape)
        else:
            array = random.standard_normal(shape).astype(np.float32)
        found[tensor.name] = array
    return found


def outputs_of(
    graph: CpuGraph,
    shapes: Mapping[str, Sequence[int]],
    kinds: Mapping[str, str],
    reads: Arrays,
) -> Arrays:
    """What a graph writes; its caches are read and written in place."""
    reads = {name: array.copy() for name, array in reads.items()}
    writes = {
        name: reads.get(name.removesuffix("_out"), np.zeros(shape, kinds[name]))
        for name, shape in shapes.items()
    }
    run = graph.bind(reads, writes)
    run()
    return writes


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("part", ["encoder", "step"])
def test_a_graph_is_the_same_in_a_program(name: str, part: str) -> None:
    folder = ROOT / "models" / name
    manifest = read_manifest(folder)
    graph = manifest.encoder if part == "encoder" else manifest.step_graph
    assert graph is not None
    program, session = program_of(folder / graph.file), session_of(folder / graph.file)
    kinds = {tensor.name: tensor.dtype for tensor in graph.outputs}
    for seed, (rows, queries, slots, source) in enumerate(
        [(1, 1, 8, 8), (1, 5, 16, 24), (3, 5, 64, 16), (7, 1, 24, 40), (2, 5, 8, 8)]
    ):
        sizes = {"B": rows, "Q": queries, "K": queries, "C": slots, "S": source}
        sizes |= {"N": 2 * queries, "M": rows * queries}
        shapes = {
            tensor.name: [axis if isinstance(axis, int) else sizes[axis] for axis in tensor.axes]
            for tensor in graph.outputs
        }
        reads = drawn(graph, sizes, seed)
        found = outputs_of(program, shapes, kinds, reads)
        wanted = outputs_of(session, shapes, kinds, reads)
        for output, array in wanted.items():
            assert array.tobytes() == found[output].tobytes(), (output, sizes)
        if part == "encoder":  # the same by a call that makes the arrays
            for made, array in zip(program.call(reads, shapes), wanted.values(), strict=True):
                assert made.tobytes() == array.tobytes()


def test_translations_are_the_same_where_numbers_have_a_comma(tmp_path: Path) -> None:
    """Attributes of operators must not be read by the process's locale."""
    localedef = shutil.which("localedef")
    made = tmp_path / "xx_XX.UTF-8"
    source = ["-i", "de_DE", "-f", "UTF-8"]
    if localedef is None or subprocess.run([localedef, *source, made]).returncode > 1:
        pytest.skip("needs localedef and the sources of locales")
    program = (
        "import locale, sys; from serving import Translator; "
        "locale.setlocale(locale.LC_ALL, sys.argv[2]); "
        "print(locale.localeconv()['decimal_point']); "
        "found = Translator(sys.argv[1], threads=1).translate(sys.argv[3])[0]; "
        "print(found.text, found.hypotheses[0].score)"
    )

    def said(name: str) -> list[str]:
        words = [sys.executable, "-c", program, ROOT / "models/macaron-de-en", name, TEXTS[1]]
        env = os.environ | {"LOCPATH": str(tmp_path)}
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert said("C")[0] == "."
    assert said(made.name)[0] == ","
    assert said("C")[1:] == said(made.name)[1:]


def test_a_translator_of_int8_graphs_needs_no_onnx_runtime() -> None:
    """Neither its memory nor the time to load it."""
    source = (
        "import sys; from serving import Translator; "
        "print(Translator(sys.argv[1], threads=1).translate('Guten Morgen!')[0].text); "
        "assert 'onnxruntime' not in sys.modules"
    )
    folder = ROOT / "models/macaron-de-en"
    done = subprocess.run(
        [sys.executable, "-c", source, folder], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "Good morning!\n"), done.stderr


@pytest.mark.parametrize("batch", [1, len(TEXTS)])
def test_texts_and_scores_are_the_same(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole translations: steps in a row by native code, beside steps one by one."""

    def translated() -> list[tuple[str, list[float]]]:
        translator = Translator(ROOT / "models/macaron-de-en", threads=1)
        found = [
            each
            for start in range(0, len(TEXTS), batch)
            for each in translator.translate(
                TEXTS[start : start + batch], SearchOptions(num_hypotheses=3)
            )
        ]
        return [(each.text, [one.score for one in each.hypotheses]) for each in found]

    by_program = translated()
    monkeypatch.setattr(ort, "load_program", lambda library, file: None)
    assert translated() == by_program


def file_of(
    folder: Path,
    operator: str,
    inputs: Sequence[NDArray[Any] | None],
    outputs: Sequence[NDArray[Any]],
    **attributes: int,
) -> Path:
    """A model of one call, whose inputs and outputs have the types and axes of these arrays."""

    def value(name: str, array: NDArray[Any]) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, [None] * array.ndim)

    names = ["" if array is None else f"i{place}" for place, array in enumerate(inputs)]
    results = [f"o{place}" for place in range(len(outputs))]
    node = helper.make_node(operator, names, results)
    node.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
    graph = helper.make_graph(
        [node],
        "one",
        [
            value(name, array)
            for name, array in zip(names, inputs, strict=True)
            if array is not None
        ],
        list(map(value, results, outputs)),
    )
    opsets = [helper.make_opsetid("", 24)]
    file = folder / "one.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=11), file)
    return file


def check_call(
    folder: Path,
    operator: str,
    inputs: Sequence[NDArray[Any] | None],
    outputs: Sequence[NDArray[Any]],
    **attributes: int,
) -> None:
    """One call in a program and in ONNX Runtime; `outputs` have the types and numbers of axes."""
    file = file_of(folder, operator, inputs, outputs, **attributes)
    reads = {f"i{place}": array for place, array in enumerate(inputs) if array is not None}
    names = {f"o{place}": () for place in range(len(outputs))}
    wanted = session_of(file).call(reads, names)
    shapes = {name: array.shape for name, array in zip(names, wanted, strict=True)}
    found = program_of(file).call(reads, shapes)
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=4)
NUMBERS = st.sampled_from([np.float32, np.int64, np.int32, np.uint8, np.int8])


def counted(shape: Sequence[int], dtype: Any = np.float32) -> NDArray[Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shape=SIZES, dtype=NUMBERS)
def test_layouts_equal_those_of_onnx_runtime(
    data: st.DataObject, shape: list[int], dtype: Any, folder: Path
) -> None:
    array, rank = counted(shape, dtype), len(shape)
    flat = counted((1,), dtype)
    axis = data.draw(st.integers(-rank, rank - 1))
    start, end = data.draw(st.integers(-5, 5)), data.draw(st.integers(-5, 5))
    check_call(folder, "Identity", [array], [array])
    check_call(folder, "Shape", [array], [ints(0)], start=start, end=end)
    if array.size:
        check_call(folder, "Reshape", [array, ints(-1)], [flat])
    added = data.draw(st.lists(st.integers(0, rank), max_size=2, unique=True))
    more = counted((1,) * (rank + len(added)), dtype)
    check_call(folder, "Unsqueeze", [array, ints(*added)], [more])
    one = counted([*shape[:1], 1, *shape[1:]], dtype)
    check_call(folder, "Squeeze", [one, ints(1)], [array])
    check_call(folder, "Concat", [array, array, array], [array], axis=axis)
    whole = shape[axis]
    if whole > 1:  # ONNX Runtime wants a number for each part
        check_call(folder, "Split", [array], [array, array], axis=axis, num_outputs=2)
    cut = data.draw(st.integers(0, whole))
    check_call(folder, "Split", [array, ints(cut, whole - cut)], [array, array], axis=axis)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shape=SIZES)
def test_numbers_equal_those_of_onnx_runtime(
    data: st.DataObject, shape: list[int], folder: Path
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    array = (random.standard_normal(shape) * 100).astype(np.float32)
    narrow = [size if data.draw(st.booleans()) else 1 for size in shape]
    other = random.standard_normal(narrow[data.draw(st.integers(0, len(shape))) :])
    check_call(folder, "Mul", [array, other.astype(np.float32)], [array])
    check_call(folder, "Mul", [other.astype(np.float32), array], [array])
    check_call(folder, "Relu", [array], [array])
    check_call(folder, "Expand", [other.astype(np.float32), ints(*shape)], [array])
    scale = np.float32(data.draw(st.floats(0.01, 3.0)))
    halves = np.append(array.ravel(), (np.arange(-300, 300) + 0.5) * scale).astype(np.float32)
    inputs: list[NDArray[Any]] = [
        halves,
        np.array(scale),
        np.array(data.draw(st.integers(0, 255)), np.uint8),
    ]
    check_call(folder, "QuantizeLinear", inputs, [counted((1,), np.uint8)])


@given(
    numbers=st.lists(st.integers(-(2**30), 2**30), max_size=5),
    ends=st.tuples(*[st.none() | st.integers(-9, 9)] * 2),
)
@settings(max_examples=40, deadline=None)
def test_numbers_are_cut_off_as_by_onnx_runtime(
    numbers: list[int], ends: tuple[int | None, int | None], folder: Path
) -> None:
    arrays = [None if end is None else np.array(end, np.int64) for end in ends]
    check_call(folder, "Clip", [np.array(numbers, np.int64), *arrays], [ints(0)])


@given(start=st.integers(-9, 9), limit=st.integers(-9, 9), delta=st.sampled_from([-3, -1, 1, 2]))
@settings(max_examples=40, deadline=None)
def test_ranges_equal_those_of_onnx_runtime(
    start: int, limit: int, delta: int, folder: Path
) -> None:
    numbers = [np.array(number, np.int64) for number in (start, limit, delta)]
    check_call(folder, "Range", numbers, [ints(0)])


BAD: dict[str, tuple[str, list[NDArray[Any]], list[NDArray[Any]], dict[str, int]]] = {
    "too few numbers": ("Reshape", [counted((2, 3)), ints(5, 5)], [counted((5, 5))], {}),
    "a negative size": ("Reshape", [counted((2, 3)), ints(-3, -2)], [counted((3, 2))], {}),
    "two open axes": ("Reshape", [counted((2, 3)), ints(-1, -1)], [counted((3, 2))], {}),
    "an axis too far": ("Reshape", [counted((6,)), ints(1, 0)], [counted((1, 6))], {}),
    "another type": ("Reshape", [counted((6,)), counted((1,))], [counted((6,))], {}),
    "no such axis": ("Unsqueeze", [counted((6,)), ints(9)], [counted((1, 6))], {}),
    "the same axis twice": ("Unsqueeze", [counted((6,)), ints(0, 0)], [counted((1, 1, 6))], {}),
    "an axis of several": ("Squeeze", [counted((2, 3)), ints(0)], [counted((3,))], {}),
    "axes that do not fit": ("Mul", [counted((2, 3)), counted((4,))], [counted((2, 3))], {}),
    "whole numbers": ("Mul", [counted((3,), np.int64)] * 2, [counted((3,), np.int64)], {}),
    "a shape below 0": ("Expand", [counted((1,)), ints(-4)], [counted((4,))], {}),
    "other rows": ("Concat", [counted((2, 3)), counted((2, 4))], [counted((2, 7))], {"axis": 0}),
    "other types": ("Concat", [counted((2,)), ints(1, 2)], [counted((4,))], {"axis": 0}),
    "no axis": ("Concat", [counted((2,)), counted((2,))], [counted((4,))], {"axis": 3}),
    "parts too large": (
        "Split",
        [counted((4,)), ints(3, 3)],
        [counted((3,)), counted((3,))],
        {"axis": 0},
    ),
    "several ends": ("Clip", [ints(1, 2), ints(1, 2)], [ints(1, 2)], {}),
    "no whole numbers": ("Clip", [counted((3,)), counted(())], [counted((3,))], {}),
    "no step": ("Range", [np.array(n, np.int64) for n in (0, 3, 0)], [ints(0, 1, 2)], {}),
    "several scales": (
        "QuantizeLinear",
        [counted((2,)), counted((2,)), counted((2,), np.uint8)],
        [counted((2,), np.uint8)],
        {},
    ),
}
"""Calls that no graph of ours has: operator, inputs, outputs as they would be written."""


OTHER_TYPES = ("another type", "whole numbers", "no whole numbers")


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_a_call_with_other_types_is_no_program(name: str, folder: Path) -> None:
    """ONNX Runtime may know it, and then runs it."""
    operator, inputs, outputs, attributes = BAD[name]
    library = kernels.native_library()
    assert library is not None
    assert load_program(library, file_of(folder, operator, inputs, outputs, **attributes)) is None


@pytest.mark.parametrize("name", [name for name in BAD if name not in OTHER_TYPES])
def test_a_bad_call_is_refused(name: str, folder: Path) -> None:
    operator, inputs, outputs, attributes = BAD[name]
    program = program_of(file_of(folder, operator, inputs, outputs, **attributes))
    reads = {f"i{place}": array for place, array in enumerate(inputs)}
    shapes = {f"o{place}": array.shape for place, array in enumerate(outputs)}
    with pytest.raises(RuntimeError):
        program.call(reads, shapes)


def test_an_output_of_another_shape_is_refused(folder: Path) -> None:
    program = program_of(file_of(folder, "Relu", [counted((2, 3))], [counted((2, 3))]))
    with pytest.raises(RuntimeError, match="another shape than is wanted"):
        program.call({"i0": counted((2, 3))}, {"o0": (3, 2)})


def test_ids_out_of_the_table_are_refused() -> None:
    encoder = ROOT / "models/macaron-de-en/encoder.onnx"
    program = program_of(encoder)
    shapes = {value.name: (1, 8, 256) for value in program.outputs}
    ids = np.full((1, 8), 5, np.int64)
    reads: Arrays = {"source_ids": ids, "source_mask": np.zeros((1, 8), np.float32)}
    for bad in (-1, 1 << 40):
        ids[0, 3] = bad
        with pytest.raises(RuntimeError, match="GatherDequantize"):
            program.call(reads, shapes)
    ids[0, 3] = 5  # it works on
    program.call(reads, shapes)


def test_a_graph_with_other_operators_is_no_program(folder: Path) -> None:
    library = kernels.native_library()
    assert library is not None
    array = counted((2, 3))
    assert load_program(library, file_of(folder, "Tanh", [array], [array])) is None
    # An attribute that native code does not know.
    file = file_of(folder, "Reshape", [array, ints(6)], [counted((6,))], allowzero=1)
    assert load_program(library, file) is None


def test_a_damaged_file_is_no_program(tmp_path: Path) -> None:
    library = kernels.native_library()
    assert library is not None
    data = (ROOT / "models/macaron-de-en/step.onnx").read_bytes()
    file = tmp_path / "step.onnx"
    random = np.random.default_rng(3)
    for cut in (0, 1, 1000, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:cut])
        assert load_program(library, file) is None  # the file that it refers to is missing, too
    for number in random.integers(0, 4000, 40):  # names and shapes of the first nodes
        changed = bytearray(data)
        changed[number] ^= 1 << int(number) % 8
        file.write_bytes(changed)
        assert load_program(library, file) is None


def test_programs_run_side_by_side() -> None:
    """Several threads use one program, each with memory of its own."""
    program = program_of(ROOT / "models/macaron-de-en/encoder.onnx")

    def encoded(length: int) -> list[bytes]:
        reads: Arrays = {
            "source_ids": np.full((2, length), length, np.int64),
            "source_mask": np.zeros((2, length), np.float32),
        }
        shapes = {value.name: (2, length, 256) for value in program.outputs}
        return [array.tobytes() for array in program.call(reads, shapes)]

    lengths = [8, 16, 24, 32] * 8
    alone = [encoded(length) for length in lengths]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encoded, lengths)) == alone
