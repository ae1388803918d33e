"""ONNX's operators in programs of native code beside those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from serving.runtime import kernels
from serving.runtime.cpu_graphs import Program, load_program
from serving.runtime.ort import OrtGraph
from tests.integration.decoding.programs import (
    counted,
    file_of,
    file_of_nodes,
    ints,
    program_of,
    session_of,
)

pytestmark = pytest.mark.skipif(kernels.native_library() is None, reason="needs native kernels")

SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=4)
NUMBERS = st.sampled_from([np.float32, np.int64, np.int32, np.uint8, np.int8])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def check_call(
    folder: Path,
    operator: str,
    inputs: Sequence[NDArray[Any] | None],
    outputs: Sequence[NDArray[Any]],
    **attributes: int | Sequence[int],
) -> None:
    """One call in a program and in ONNX Runtime; `outputs` have the types and numbers of axes."""
    check_file(file_of(folder, operator, inputs, outputs, **attributes), inputs, outputs)


def check_near(
    folder: Path, operator: str, inputs: Sequence[NDArray[Any] | None], **attributes: float
) -> None:
    """One call, whose result has as many axes as the first input, and is rounded in another way."""
    assert inputs[0] is not None
    file = file_of(folder, operator, inputs, inputs[:1], **attributes)
    check_file(file, inputs, inputs[:1], tolerance=1e-5)


def check_file(
    file: Path,
    inputs: Sequence[NDArray[Any] | None],
    outputs: Sequence[NDArray[Any]],
    tolerance: float = 0.0,
) -> None:
    """A model in a program, on one thread and on several, and in ONNX Runtime."""
    reads = {f"i{place}": array for place, array in enumerate(inputs) if array is not None}
    names = {f"o{place}": () for place in range(len(outputs))}
    session, program, threaded = loaded(file.read_bytes(), file)
    wanted = session.call(reads, names)
    shapes = {name: array.shape for name, array in zip(names, wanted, strict=True)}
    found = program.call(reads, shapes)
    shared = threaded.call(reads, shapes)
    for one, same, other in zip(found, shared, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == same.tobytes()
        if tolerance:
            largest = float(np.abs(other).max(initial=1))  # terms of opposite signs are rounded so
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * largest)
        else:
            assert one.tobytes() == other.tobytes()


LOADED: dict[bytes, tuple[OrtGraph, Program, Program]] = {}
"""By what is in a file: arrays of other sizes run in the same programs, as batches do."""


def loaded(content: bytes, file: Path) -> tuple[OrtGraph, Program, Program]:
    if content not in LOADED:
        LOADED[content] = session_of(file), program_of(file), program_of(file, threads=3)
    return LOADED[content]


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
    thick = counted([size + 2 for size in shape], dtype)[None]
    check_call(folder, "Squeeze", [thick, ints()], [thick[0]])
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
    drawn = random.standard_normal(narrow[data.draw(st.integers(0, len(shape))) :])
    other = np.asarray(drawn, np.float32)
    for operator in ("Add", "Sub", "Mul", "Div"):
        check_call(folder, operator, [array, other], [array])
        check_call(folder, operator, [other, array], [array])
    numbers, others = array.astype(np.int64), np.asarray(100 * other, np.int64)
    for operator in ("Add", "Sub", "Mul"):
        check_call(folder, operator, [numbers, others], [numbers])
    check_call(folder, "Cast", [numbers], [array], to=1)
    check_call(folder, "Relu", [array], [array])
    check_call(folder, "Sqrt", [np.abs(array)], [array])
    check_call(folder, "Pow", [array, np.array(2, np.float32)], [array])
    check_call(folder, "ConstantOfShape", [ints(*shape)], [array])
    ends = [np.array(data.draw(st.integers(-99, 99)), np.float32) for _ in range(2)]
    check_call(folder, "Clip", [array, *ends], [array])
    check_call(folder, "Expand", [other, ints(*shape)], [array])
    scale = np.float32(data.draw(st.floats(0.01, 3.0)))
    halves = np.append(array.ravel(), (np.arange(-300, 300) + 0.5) * scale).astype(np.float32)
    inputs: list[NDArray[Any]] = [
        halves,
        np.array(scale),
        np.array(data.draw(st.integers(0, 255)), np.uint8),
    ]
    check_call(folder, "QuantizeLinear", inputs, [counted((1,), np.uint8)])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), shape=SIZES, dtype=NUMBERS)
def test_parts_equal_those_of_onnx_runtime(
    data: st.DataObject, shape: list[int], dtype: Any, folder: Path
) -> None:
    array, rank = counted(shape, dtype), len(shape)
    cut = st.integers(-6, 6) | st.sampled_from([-(2**62), 2**62])
    chosen = data.draw(st.lists(st.integers(0, rank - 1), max_size=rank, unique=True))
    cuts = [ints(*(data.draw(cut) for _ in chosen)) for _ in range(2)]
    check_call(folder, "Slice", [array, *cuts, ints(*chosen)], [array])
    order = data.draw(st.permutations(range(rank)))
    check_call(folder, "Transpose", [array], [array], perm=order)
    check_call(folder, "Transpose", [array], [array])
    steps = ints(*(data.draw(cut.filter(bool)) for _ in chosen))
    check_call(folder, "Slice", [array, *cuts, ints(*chosen), steps], [array])

    def places(count: int, *axes: int) -> NDArray[np.int64]:
        found = [data.draw(st.integers(-count, count - 1)) for _ in range(int(np.prod(axes)))]
        return ints(*found).reshape(axes)

    axis = data.draw(st.integers(-rank, rank - 1))
    if shape[axis]:
        check_call(folder, "Gather", [array, places(shape[axis], 3)], [array], axis=axis)
        one = places(shape[axis]).reshape(())
        check_call(folder, "Gather", [array, one], [counted((1,) * (rank - 1), dtype)], axis=axis)
        indices = [data.draw(st.integers(0, size)) for size in shape]
        indices[axis] = data.draw(st.integers(0, 3))
        wanted = places(shape[axis], *indices)
        check_call(folder, "GatherElements", [array, wanted], [array], axis=axis)
    if rank > 1 and shape[1] and dtype in (np.float32, np.int64):
        wanted = places(shape[1], shape[0], 2, 1)
        check_call(folder, "GatherND", [array, wanted], [counted((1,) * rank, dtype)], batch_dims=1)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=3, max_size=4))
def test_caches_are_written_as_by_onnx_runtime(
    data: st.DataObject, shape: list[int], folder: Path
) -> None:
    axis = data.draw(st.integers(1, len(shape) - 1))
    places = data.draw(st.integers(0, shape[axis]))
    update = -counted([places if at == axis else size for at, size in enumerate(shape)])
    begins = ints(*(data.draw(st.integers(0, shape[axis] - places)) for _ in range(shape[0])))
    cache = counted(shape)
    check_call(folder, "TensorScatter", [cache, update, begins], [cache], axis=axis)
    program = program_of(folder / "few.onnx")
    (wanted,) = program.call({"i0": cache, "i1": update, "i2": begins}, {"o0": cache.shape})
    program.bind({"i0": cache, "i1": update, "i2": begins}, {"o0": cache})()  # in place
    assert cache.tobytes() == wanted.tobytes()


@settings(max_examples=40, deadline=None)
@given(data=st.data(), shape=SIZES, whole=st.booleans())
def test_choices_equal_those_of_onnx_runtime(
    data: st.DataObject, shape: list[int], whole: bool, folder: Path
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    dtype = np.int64 if whole else np.float32
    array = random.integers(-2, 3, shape).astype(dtype)
    drawn = random.integers(-2, 3, shape[data.draw(st.integers(0, len(shape))) :])
    other = np.asarray(drawn, dtype)
    made = helper.make_node
    for first, second in (("Less", "Equal"), ("Greater", "GreaterOrEqual")):
        nodes = [
            made(first, ["i0", "i1"], ["one"]),
            made(second, ["i1", "i0"], ["two"]),
            made("Not", ["one"], ["not"]),
            made("And", ["not", "two"], ["and"]),
            made("Or", ["and", "one"], ["or"]),
            made("Where", ["or", "i0", "i1"], ["o0"]),
            made("Where", ["two", "i1", "i0"], ["o1"]),
        ]
        inputs, outputs = [array, other], [array, array]
        check_file(file_of_nodes(folder, nodes, inputs, outputs), inputs, outputs)


@st.composite
def reals(draw: st.DrawFn) -> NDArray[np.float32]:
    shape = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    return (random.standard_normal(shape) * 5).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(array=reals())
def test_functions_are_near_those_of_onnx_runtime(array: NDArray[np.float32], folder: Path) -> None:
    for operator in ("Sin", "Cos", "Tanh", "Sigmoid", "Gelu", "Softmax"):
        check_near(folder, operator, [array])
    check_near(folder, "Pow", [np.abs(array), np.array(1.5, np.float32)])
    weight, bias = np.random.default_rng(1).standard_normal((2, array.shape[-1])).astype(np.float32)
    check_near(folder, "LayerNormalization", [array, weight, bias], epsilon=1e-3)
    check_near(folder, "LayerNormalization", [array, weight], axis=-1)
    check_near(folder, "RMSNormalization", [array, weight])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), array=reals())
def test_sums_are_those_of_real_numbers(
    data: st.DataObject, array: NDArray[np.float32], folder: Path
) -> None:
    """NumPy adds in 64 bits here; ONNX Runtime rounds after each addition."""
    axes = data.draw(st.lists(st.integers(-array.ndim, -1), unique=True))
    kept = data.draw(st.booleans())
    along = tuple(axes) or None
    exact = array.astype(np.float64)
    squares = np.sum(exact**2, axis=along, keepdims=kept)
    for operator, wanted in (
        ("ReduceSum", np.sum(exact, axis=along, keepdims=kept)),
        ("ReduceMean", np.mean(exact, axis=along, keepdims=kept)),
        ("ReduceL2", np.sqrt(squares)),
    ):
        file = file_of(
            folder,
            operator,
            [array, ints(*axes)],
            [np.asarray(wanted, np.float32)],
            keepdims=int(kept),
        )
        reads = {"i0": array, "i1": ints(*axes)}
        assert np.shape(session_of(file).call(reads, {"o0": ()})[0]) == np.shape(wanted)
        (found,) = program_of(file).call(reads, {"o0": np.shape(wanted)})
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_the_mean_of_no_numbers_is_that_of_onnx_runtime(folder: Path) -> None:
    check_near(folder, "ReduceMean", [counted((0, 3)), ints(0)])


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 5, 3), (0, 5, 3), (40, 256, 300)])
def test_products_of_real_numbers_are_near_those_of_onnx_runtime(
    rows: int, inputs: int, outputs: int, folder: Path
) -> None:
    random = np.random.default_rng(rows)
    x, weight = random.standard_normal((rows, inputs)), random.standard_normal((outputs, inputs))
    arrays = [each.astype(np.float32) for each in (x, weight, weight[:, 0])]
    check_near(folder, "Gemm", arrays, transB=1)
    check_near(folder, "Gemm", arrays[:2], transB=1, alpha=1.0, transA=0)


def test_rows_of_norms_are_shared_out_to_threads(folder: Path) -> None:
    array = np.random.default_rng(3).standard_normal((700, 256)).astype(np.float32)
    check_near(folder, "LayerNormalization", [array, array[0], array[1]])
    check_near(folder, "RMSNormalization", [array, array[0]])


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
    "whole numbers": ("Div", [counted((3,), np.int64)] * 2, [counted((3,), np.int64)], {}),
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
    "numbers of two kinds": ("Clip", [ints(1, 2), counted(())], [ints(1, 2)], {}),
    "a step of 0": ("Slice", [counted((4,)), *map(ints, (0, 4, 0, 0))], [counted((4,))], {}),
    "an axis cut twice": (
        "Slice",
        [counted((4,)), ints(0, 0), ints(4, 4), ints(0, -1)],
        [counted((4,))],
        {},
    ),
    "starts without ends": ("Slice", [counted((4,)), ints(0, 0), ints(4)], [counted((4,))], {}),
    "a place too far": ("Gather", [counted((4,)), ints(4)], [counted((1,))], {}),
    "a place before the first": ("Gather", [counted((4,)), ints(-5)], [counted((1,))], {}),
    "an element too far": ("GatherElements", [counted((4,)), ints(4)], [counted((1,))], {}),
    "more rows of elements": (
        "GatherElements",
        [counted((1, 4)), ints(0, 0).reshape(2, 1)],
        [counted((2, 1))],
        {"axis": 1},
    ),
    "a slice too far": (
        "GatherND",
        [counted((2, 3)), ints(0, 3).reshape(2, 1)],
        [counted((2,))],
        {"batch_dims": 1},
    ),
    "other batches": (
        "GatherND",
        [counted((2, 3)), ints(0).reshape(1, 1)],
        [counted((1,))],
        {"batch_dims": 1},
    ),
    "an update too far": (
        "TensorScatter",
        [counted((1, 4, 1)), counted((1, 2, 1)), ints(3)],
        [counted((1, 4, 1))],
        {"axis": 1},
    ),
    "an update before the first": (
        "TensorScatter",
        [counted((1, 4, 1)), counted((1, 2, 1)), ints(-1)],
        [counted((1, 4, 1))],
        {"axis": 1},
    ),
    "another kind of update": (
        "TensorScatter",
        [counted((1, 4, 1)), counted((1, 2, 1), np.int64), ints(0)],
        [counted((1, 4, 1))],
        {"axis": 1},
    ),
    "inputs of another number": (
        "Gemm",
        [counted((2, 3)), counted((4, 2))],
        [counted((2, 4))],
        {"transB": 1},
    ),
    "a shorter bias": (
        "Gemm",
        [counted((2, 3)), counted((4, 3)), counted((3,))],
        [counted((2, 4))],
        {"transB": 1},
    ),
    "a negative size of zeros": ("ConstantOfShape", [ints(-2)], [counted((2,))], {}),
    "several powers": ("Pow", [counted((2,)), counted((2,))], [counted((2,))], {}),
    "an axis summed twice": ("ReduceSum", [counted((2, 3)), ints(0, 0)], [counted((1, 3))], {}),
    "a longer weight": (
        "LayerNormalization",
        [counted((2, 3)), counted((4,))],
        [counted((2, 3))],
        {},
    ),
    "no step": ("Range", [np.array(n, np.int64) for n in (0, 3, 0)], [ints(0, 1, 2)], {}),
    "several scales": (
        "QuantizeLinear",
        [counted((2,)), counted((2,)), counted((2,), np.uint8)],
        [counted((2,), np.uint8)],
        {},
    ),
}
"""Calls that no graph of ours has: operator, inputs, outputs as they would be written."""


OTHER_TYPES = ("another type", "whole numbers", "numbers of two kinds")


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_a_call_with_other_types_is_no_program(name: str, folder: Path) -> None:
    """ONNX Runtime may know it, and then runs it."""
    operator, inputs, outputs, attributes = BAD[name]
    library = kernels.native_library()
    assert library is not None
    file = file_of(folder, operator, inputs, outputs, **attributes)
    assert load_program(library, file, 1) is None


@pytest.mark.parametrize("name", [name for name in BAD if name not in OTHER_TYPES])
def test_a_bad_call_is_refused(name: str, folder: Path) -> None:
    operator, inputs, outputs, attributes = BAD[name]
    program = program_of(file_of(folder, operator, inputs, outputs, **attributes))
    reads = {f"i{place}": array for place, array in enumerate(inputs)}
    shapes = {f"o{place}": array.shape for place, array in enumerate(outputs)}
    with pytest.raises(RuntimeError):
        program.call(reads, shapes)


HUGE: dict[str, tuple[str, list[NDArray[Any]], int]] = {
    "a range": ("Range", [np.array(number, np.int64) for number in (0, 2**61, 1)], 1),
    "a range around": ("Range", [np.array(n, np.int64) for n in (-(2**62), 2**62, 1)], 1),
    "a range backwards": ("Range", [np.array(n, np.int64) for n in (2, 0, -(2**63))], 1),
    "zeros": ("ConstantOfShape", [ints(2**62 - 2**30)], 1),
    "zeros of two axes": ("ConstantOfShape", [ints(2**32, 2**32)], 1),
    "an empty shape": ("Reshape", [counted((0,)), ints(2**32, 2**32)], 1),
    "an empty shape with a 0": ("ConstantOfShape", [ints(0, 2**62, 2**62)], 1),
    "a broadcast": ("Expand", [counted((1,)), ints(2**31, 2**31)], 1),
    "parts": ("Split", [counted((3,)), ints(1, 2**63 - 1, 1)], 3),
}
"""Calls whose results could not be in memory: operator, inputs, number of outputs."""


@pytest.mark.parametrize("name", HUGE)
def test_a_tensor_that_is_too_large_is_refused(name: str, folder: Path) -> None:
    """Also where nobody says which shape it must have."""
    operator, inputs, outputs = HUGE[name]
    names = [f"i{place}" for place in range(len(inputs))]
    made = helper.make_node(operator, names, [f"m{place}" for place in range(outputs)])
    nodes = [made, helper.make_node("Shape", ["m0"], ["o0"])]
    program = program_of(file_of_nodes(folder, nodes, inputs, [ints(0)]))
    reads = dict(zip(names, inputs, strict=True))
    with pytest.raises(RuntimeError, match=r"large|must"):
        program.call(reads, {"o0": (1,)})


def test_a_cache_that_is_read_after_it_was_written_makes_no_program(folder: Path) -> None:
    """It may be in the same memory as what it was written into."""
    library = kernels.native_library()
    assert library is not None
    cache, update = counted((1, 4, 1)), counted((1, 1, 1))
    write = helper.make_node("TensorScatter", ["i0", "i1", "i2"], ["o0"], axis=1)
    read = helper.make_node("Relu", ["i0"], ["o1"])
    for nodes, works in (([read, write], True), ([write, read], False)):
        file = file_of_nodes(folder, nodes, [cache, update, ints(2)], [cache, cache])
        assert (load_program(library, file, 1) is not None) == works


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("Gemm", [counted((3, 3)), counted((1,))], {"transB": 1}),
        ("Gemm", [counted((3, 3)), counted((2, 3))], {"transB": 1}),
        ("Pow", [counted((3,))], {}),
        ("Pow", [counted((1, 1))], {}),
        ("LayerNormalization", [counted((1,))], {}),
        ("LayerNormalization", [counted((3,)), counted((1, 3))], {}),
        ("RMSNormalization", [counted((1, 3))], {}),
    ],
)
def test_constants_of_other_shapes_are_left_to_onnx_runtime(
    operator: str, constants: list[NDArray[Any]], attributes: dict[str, int], folder: Path
) -> None:
    names = [f"c{place}" for place in range(len(constants))]
    nodes = [helper.make_node(operator, ["i0", *names], ["o0"], **attributes)]
    array, library = counted((2, 3)), kernels.native_library()
    assert library is not None
    stored = dict(zip(names, constants, strict=True))
    file = file_of_nodes(folder, nodes, [array], [array], stored)
    assert session_of(file).call({"i0": array}, {"o0": ()})
    assert load_program(library, file, 1) is None


def test_an_output_of_another_shape_is_refused(folder: Path) -> None:
    program = program_of(file_of(folder, "Relu", [counted((2, 3))], [counted((2, 3))]))
    with pytest.raises(RuntimeError, match="another shape than is wanted"):
        program.call({"i0": counted((2, 3))}, {"o0": (3, 2)})


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("Erf", [counted((2, 3))], {}),
        # Attributes that native code does not know.
        ("Cast", [counted((2, 3), np.int64)], {"to": 11}),
        ("Gemm", [counted((2, 3)), counted((3, 3))], {"transB": 0}),
        ("Gemm", [counted((2, 3)), counted((3, 3))], {"transB": 1, "alpha": 0.5}),
        ("Softmax", [counted((2, 3))], {"axis": 0}),
        ("LayerNormalization", [counted((2, 3)), counted((2, 3))], {"axis": 0}),
        ("ReduceSum", [counted((2, 3)), ints(0)], {"noop_with_empty_axes": 1}),
    ],
)
def test_a_graph_with_other_operators_is_no_program(
    operator: str, inputs: list[NDArray[Any]], attributes: dict[str, float], folder: Path
) -> None:
    library = kernels.native_library()
    assert library is not None
    file = file_of(folder, operator, inputs, [counted((2, 3))], **attributes)
    assert load_program(library, file, 1) is None
