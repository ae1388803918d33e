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
import pytest
from numpy.typing import NDArray

from serving import Embedder, GenerationOptions, Generator, Translator
from serving.bundle.folder import read_manifest
from serving.bundle.graph import Graph
from serving.runtime import kernels, ort
from serving.runtime.cpu_graphs import CpuGraph, load_program
from serving.search.options import SearchOptions
from tests.integration.decoding.programs import program_of, session_of

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


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    """Of a text that is long enough for its work to be shared out."""
    encoder = ROOT / "models/macaron-de-en/encoder.onnx"
    random = np.random.default_rng(5)
    reads: Arrays = {
        "source_ids": random.integers(0, 1000, (3, 200)),
        "source_mask": np.zeros((3, 200), np.float32),
    }
    alone = program_of(encoder)
    shapes = {value.name: (3, 200, 256) for value in alone.outputs}
    wanted = [array.tobytes() for array in alone.call(reads, shapes)]
    for threads in (2, 3, 8):
        found = program_of(encoder, threads).call(reads, shapes)
        assert [array.tobytes() for array in found] == wanted


def test_a_fork_has_threads_of_its_own() -> None:
    """Those of its parent do not live in it."""
    source = (
        "import os, sys, numpy; from pathlib import Path; "
        "from tests.integration.decoding.programs import program_of; "
        "program = program_of(Path(sys.argv[1]), 3); "
        "reads = {'source_ids': numpy.full((4, 256), 7, numpy.int64), "
        "'source_mask': numpy.zeros((4, 256), numpy.float32)}; "
        "shapes = {value.name: (4, 256, 256) for value in program.outputs}; "
        "run = lambda: program.call(reads, shapes)[0].tobytes(); "
        "tasks = lambda: len(os.listdir('/proc/self/task')); "
        "before = tasks(); wanted = run(); assert tasks() == before + 2; "
        "child = os.fork(); "
        "same = run() == wanted; "
        "os._exit(not (same and tasks() == 3)) if child == 0 else None; "
        "print(os.waitpid(child, 0)[1], same)"
    )
    words = [sys.executable, "-c", source, ROOT / "models/macaron-de-en/encoder.onnx"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr


def test_vectors_are_near_those_of_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph has sums and norms, which a program rounds in another way."""

    def embedded(threads: int) -> NDArray[np.float32]:
        return Embedder(ROOT / "models/embedder", threads=threads).embed(TEXTS)

    by_program = embedded(1)
    assert embedded(2).tobytes() == by_program.tobytes()
    monkeypatch.setattr(ort, "load_program", lambda library, file, threads: None)
    np.testing.assert_allclose(by_program, embedded(1), atol=2e-3)


def test_generated_texts_are_those_of_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    options = GenerationOptions(max_length=24, min_length=24, temperature=0)

    def generated(threads: int) -> list[tuple[str, list[float]]]:
        generator = Generator(ROOT / "models/lm-cascade", threads=threads)
        found = generator.generate(["The old house", "In the morning she"], options)
        return [(one.text, [token.log_prob for token in one.tokens]) for (one,) in found]

    by_program = generated(1)
    assert generated(2) == by_program
    monkeypatch.setattr(ort, "load_program", lambda library, file, threads: None)
    for (text, scores), (wanted, others) in zip(by_program, generated(1), strict=True):
        assert text == wanted
        np.testing.assert_allclose(scores, others, atol=1e-2)


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
    monkeypatch.setattr(ort, "load_program", lambda library, file, threads: None)
    assert translated() == by_program


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


def test_a_damaged_file_is_no_program(tmp_path: Path) -> None:
    library = kernels.native_library()
    assert library is not None
    data = (ROOT / "models/macaron-de-en/step.onnx").read_bytes()
    file = tmp_path / "step.onnx"
    random = np.random.default_rng(3)
    for cut in (0, 1, 1000, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:cut])
        assert load_program(library, file, 1) is None  # the file that it refers to is missing, too
    for number in random.integers(0, 4000, 40):  # names and shapes of the first nodes
        changed = bytearray(data)
        changed[number] ^= 1 << int(number) % 8
        file.write_bytes(changed)
        assert load_program(library, file, 1) is None


@pytest.mark.parametrize("threads", [1, 3])
def test_programs_run_side_by_side(threads: int) -> None:
    """Several threads use one program, each with memory of its own. One of them is helped."""
    program = program_of(ROOT / "models/macaron-de-en/encoder.onnx", threads)

    def encoded(length: int) -> list[bytes]:
        reads: Arrays = {
            "source_ids": np.full((2, length), length, np.int64),
            "source_mask": np.zeros((2, length), np.float32),
        }
        shapes = {value.name: (2, length, 256) for value in program.outputs}
        return [array.tobytes() for array in program.call(reads, shapes)]

    lengths = [8, 16, 24, 256] * 8
    alone = [encoded(length) for length in lengths]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encoded, lengths)) == alone
