"""The native operators under the compiler's sanitisers of addresses and of undefined behaviour, for
each of the processor's instruction sets: random shapes beside the standard operators, and inputs
that no graph has."""

from __future__ import annotations

import os
import pickle
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from serving.runtime import kernels
from tests.integration.decoding import test_kernels
from tests.integration.decoding.kernel_inputs import CASES
from tests.integration.decoding.test_kernels import close, functions, one_call, run

COMPILER = kernels.find_compiler(os.environ)
# Stack traces need lines alone (-g1); describing variables, too, takes a third longer.
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
)
FEATURES = set(kernels.processor_features().split())
SETS: dict[str, tuple[str, set[str], dict[str, str]]] = {
    "AVX2": ("x86-64-v3", {"avx2", "fma"}, {"WITHOUT_VNNI": "1"}),
    "AVX-VNNI": ("x86-64-v3", {"avx2", "fma", "avx_vnni"}, {}),
    "AVX-512 with VNNI": ("x86-64-v4", {"avx512bw", "avx512_vnni"}, {"WITHOUT_TILES": "1"}),
    "AMX": ("x86-64-v4", {"avx512bw", "amx_int8"}, {}),
}
"""Instruction sets: what is compiled for, what the processor must have, and the environment."""
# Which unit multiplies is a matter of the processor: here it is one of the test.
SOURCE = """
#define has_avx_vnni vnni_there
#define tiles_work tiles_there
#include "product.h"
#include "tiles.h"
#undef has_avx_vnni
#undef tiles_work
#include <cstdlib>
namespace macaron {
#ifdef MACARON_PAIRS
inline bool has_avx_vnni() { return !std::getenv("WITHOUT_VNNI") && vnni_there(); }
#endif
#ifdef MACARON_WIDE
inline bool tiles_work() { return !std::getenv("WITHOUT_TILES") && tiles_there(); }
#endif
}
#include "operators.cpp"
"""
# Every tensor has memory of its own, so that the sanitiser sees where it ends. Each call is made in
# ONNX Runtime and as a program, which must give or refuse the same.
CHILD = """
import pickle, sys
from pathlib import Path
import numpy, onnxruntime
from serving.runtime.cpu_graphs import load_program
found, sessions, programs = [], {}, {}
def check_program(model, feed, wanted):
    if model not in programs:
        file = Path(sys.argv[3] + ".onnx")
        file.write_bytes(model)
        programs[model] = load_program(Path(sys.argv[1]), file, 2)
    program = programs[model]
    refused = isinstance(wanted, str)
    assert refused or program is not None, "no program"
    if program is None:
        return
    try:
        arrays = [] if refused else map(numpy.empty_like, wanted)
        writes = dict(zip([value.name for value in program.outputs], arrays))
        program.bind(feed, writes)()
    except (RuntimeError, ValueError) as error:  # no tensor of a program has seven axes
        assert refused or any(array.ndim > 6 for array in feed.values()), error
    else:
        assert not refused, f"only ONNX Runtime refuses it: {wanted}"
        for one, other in zip(writes.values(), wanted, strict=True):
            assert one.tobytes() == other.tobytes(), "other numbers in a program"
for name, model, feed in pickle.load(open(sys.argv[2], "rb")):
    print(name, flush=True)
    try:
        if model not in sessions:
            options = onnxruntime.SessionOptions()
            options.log_severity_level, options.intra_op_num_threads = 4, 2
            options.enable_cpu_mem_arena = options.enable_mem_pattern = False
            options.register_custom_ops_library(sys.argv[1])
            sessions[model] = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        found.append(sessions[model].run(None, feed))
    except Exception as error:
        found.append(str(error))
    check_program(model, feed, found[-1])
pickle.dump(found, open(sys.argv[3], "wb"))
"""
PROGRAMS = """
import sys
from pathlib import Path
from serving.runtime import kernels
kernels.native_library = lambda: Path(sys.argv[1])  # before other modules take it by its name
import pytest
files = ["tests/integration/decoding/test_programs.py"]
files += ["tests/integration/decoding/test_standard_operators.py"]
words = ["-q", "-n", "0", "-p", "no:cacheprovider", "--basetemp", sys.argv[2]]
# Translations load much beside, and processes of their own would have other kernels.
sys.exit(pytest.main([*words, "-k", "not translat and not texts_and_scores", *files]))
"""
SHAPES = ((0, 2, 5), (1, 1, 1), (2, 3, 8), (3, 2, 16), (1, 17, 33), (5, 6, 40))
"""Rows, queries and capacity: none, one, and those around vectors, tiles and panels."""
MANY = (60, 6, 40)
"""Of so many the work is shared out to threads."""

SHARE = 8
"""One of so many bad calls is made, in turn."""

Call = tuple[str, bytes, dict[str, NDArray[Any]]]

__all__ = ["functions"]  # a fixture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("traced_once"),
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64", reason="needs Linux on x86-64"
    ),
]


def runtime_libraries() -> list[str]:
    """What a process must have loaded first; none where the sanitisers are not installed."""
    assert COMPILER is not None
    found = []
    for name in ("libasan.so", "libubsan.so", "libstdc++.so.6"):
        words = [COMPILER, f"-print-file-name={name}"]
        path = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(path).is_absolute():
            return []
        found.append(path)
    return found


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By what they are compiled for."""
    assert COMPILER is not None
    if not runtime_libraries():
        pytest.skip(f"the sanitisers of {COMPILER} are not installed (libasan, libubsan)")
    folder = tmp_path_factory.mktemp("sanitised")
    source = folder / "sanitised.cpp"
    source.write_text(SOURCE)
    made = {}
    for level in sorted({level for level, needed, _ in SETS.values() if needed <= FEATURES}):
        made[level] = folder / f"{level}.so"
        words = [*FLAGS, f"-march={level}", f"-I{kernels.SOURCES}", "-o", made[level], source]
        subprocess.run([COMPILER, *words], check=True)
    return made


@pytest.fixture(params=SETS)
def sanitised(request: pytest.FixtureRequest, libraries: Mapping[str, Path]) -> tuple[Path, Any]:
    """A library, and the environment of those who use it."""
    level, needed, environment = SETS[request.param]
    if not needed <= FEATURES:
        pytest.skip(f"this processor has no {request.param}")
    return libraries[level], environment


def run_sanitised(
    sanitised: tuple[Path, dict[str, str]], calls: list[Call], folder: Path
) -> list[list[NDArray[Any]] | str]:
    """The outputs of each call, or the message with which it was refused."""
    (folder / "calls").write_bytes(pickle.dumps(calls))
    done = run_child(sanitised, CHILD, folder / "calls", folder / "found")
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{last}: {done.stderr[:3000]}"
    found: list[list[NDArray[Any]] | str] = pickle.loads((folder / "found").read_bytes())
    assert len(found) == len(calls)
    return found


def run_child(
    sanitised: tuple[Path, dict[str, str]], source: str, *words: Path
) -> subprocess.CompletedProcess[str]:
    """A process of this source; its first word is the library."""
    library, environment = sanitised
    return subprocess.run(
        [sys.executable, "-c", source, library, *words],
        env=os.environ
        | environment
        | {
            "LD_PRELOAD": " ".join(runtime_libraries()),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python's
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONMALLOC": "malloc",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )


def case(name: str, shape: tuple[int, int, int]) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    return CASES[name](np.random.default_rng(sum(shape)), *shape)


def test_random_shapes_come_out_as_by_the_standard_operators(
    functions: dict[str, onnx.FunctionProto],
    sanitised: tuple[Path, dict[str, str]],
    tmp_path: Path,
) -> None:
    names = [(name, shape) for name in CASES for shape in (*SHAPES, MANY)]
    given = [case(*each) for each in names]
    calls = [
        (f"{name} {shape}", *one_call(functions[name], *each))
        for (name, shape), each in zip(names, given, strict=True)
    ]
    results = run_sanitised(sanitised, calls, tmp_path)
    for (name, shape), (inputs, attributes), found in zip(names, given, results, strict=True):
        assert not isinstance(found, str), f"{name} {shape}: {found}"
        if 0 in shape:  # most standard operators refuse these
            assert not sum(output.size for output in found), name
            continue
        if name.endswith("Twice"):
            rows = test_kernels.rounded_twice(name, inputs)
            standard = run(functions[name], None, inputs, attributes)
            test_kernels.both_near(rows, list(zip(standard, found, strict=True)))
            continue
        if name in test_kernels.EXACT:
            wanted = [test_kernels.EXACT[name](*inputs)]
        else:
            wanted = run(functions[name], None, inputs, attributes)
        for one, other in zip(wanted, found, strict=True):
            known = test_kernels.known_logits(name, inputs)
            close(one, other) if known is None else close(one[known], other[known])


def bad_inputs(value: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """A tensor with other axes, and with other numbers."""
    yield "no axes", np.zeros((), value.dtype)
    yield "an axis more", value[None]
    yield "seven axes", value.reshape((1,) * (7 - value.ndim) + value.shape)
    for axis in range(value.ndim):
        yield f"axis {axis} is 0", np.take(value, [], axis)
        yield f"axis {axis} is 1", np.take(value, [0], axis)
        yield f"axis {axis} is less", np.take(value, range(value.shape[axis] - 1), axis)
        yield f"axis {axis} is more", np.repeat(value, 2, axis)
        yield f"axis {axis} is merged", value.reshape(value.shape[axis], -1)
    if value.dtype == np.float32:
        numbers = [np.nan, np.inf, -np.inf, 0.0, 3e38, -3e38]
    else:
        known = np.iinfo(value.dtype)
        numbers = [known.min, known.max, 0, min(value.max(), known.max - 1) + 1]
        numbers += [] if known.min == 0 else [value.min() - 1 if value.min() > known.min else 0, -1]
    for number in numbers:
        yield f"all are {number}", np.full_like(value, number)
        changed = value.copy()
        changed.reshape(-1)[-1:] = number
        yield f"the last is {number}", changed


def bad_calls(functions: Mapping[str, onnx.FunctionProto]) -> Iterator[Call]:
    """Each operator with one input or attribute that does not fit the others."""
    for name in CASES:
        inputs, attributes = case(name, (3, 2, 8))
        for index, value in enumerate(inputs):
            for words, bad in bad_inputs(value):
                whole = np.array(bad, order="C")
                changed = [*inputs[:index], whole, *inputs[index + 1 :]]
                label = f"{name}: input {index}: {words}"
                yield label, *one_call(functions[name], changed, attributes)
        for attribute, known in attributes.items():
            others = (0, -1, 3, 2**62, -(2**63))
            for other in others if isinstance(known, int) else (0.0, -1.0, np.inf, np.nan):
                call = one_call(functions[name], inputs, attributes | {attribute: other})
                yield f"{name}: {attribute}: {other}", *call


def test_what_is_refused_is_refused_before_anything_is_read(
    functions: dict[str, onnx.FunctionProto],
    sanitised: tuple[Path, dict[str, str]],
    tmp_path: Path,
) -> None:
    calls = []
    for name, changed, change, _ in test_kernels.REFUSED:
        inputs, attributes = CASES[name](np.random.default_rng(4), 3, 2, 8)
        inputs[changed] = np.array(change(inputs[changed]), order="C")
        calls.append((f"{name}: input {changed}", *one_call(functions[name], inputs, attributes)))
    results = run_sanitised(sanitised, calls, tmp_path)
    for (label, *_), (*_, wanted), found in zip(calls, test_kernels.REFUSED, results, strict=True):
        assert isinstance(found, str), f"{label}: was not refused"
        assert re.search(wanted, found), f"{label}: {found}"


def test_products_of_any_size_equal_their_exact_results(
    functions: dict[str, onnx.FunctionProto],
    sanitised: tuple[Path, dict[str, str]],
    tmp_path: Path,
) -> None:
    """Inputs and outputs of 1, and of no multiple of 4 or 64."""
    names = [name for name in test_kernels.EXACT if "Product" in name]
    given = [
        (name, CASES[name](np.random.default_rng(seed), rows, 1, 1 + seed))
        for name in names
        for seed in range(8)
        for rows in (0, 1, 17)
    ]
    calls = [
        (f"{name} {inputs[0].shape} {inputs[1].shape}", *one_call(functions[name], inputs, {}))
        for name, (inputs, _) in given
    ]
    results = run_sanitised(sanitised, calls, tmp_path)
    for (label, *_), (name, (inputs, _)), found in zip(calls, given, results, strict=True):
        assert not isinstance(found, str), f"{label}: {found}"
        close(test_kernels.EXACT[name](*inputs), found[0])


def test_bad_inputs_are_refused_or_well_defined(
    functions: dict[str, onnx.FunctionProto],
    sanitised: tuple[Path, dict[str, str]],
    tmp_path: Path,
) -> None:
    calls = list(bad_calls(functions))[::SHARE]
    results = run_sanitised(sanitised, calls, tmp_path)
    pairs = zip(calls, results, strict=True)
    refused = [(call[0], found) for call, found in pairs if isinstance(found, str)]
    assert len(refused) > len(calls) / 4
    for label, message in refused:
        assert label.partition(":")[0] in message, f"{label}: {message}"


def test_whole_programs_stay_within_their_tensors(
    sanitised: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Those of shipped bundles, and calls of standard operators, right and wrong ones."""
    done = run_child(sanitised, PROGRAMS, tmp_path / "base")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[:3000]
    assert re.search(r"\d+ passed", done.stdout)
