"""The library for any x86-64 processor: each of its levels beside exact integers and beside what is
compiled for this processor."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving import Translator
from serving.runtime import kernels, ort
from tests.integration.decoding import test_product

LEVELS = kernels.LEVELS["x86_64"]
ROOT = Path(__file__).resolve().parents[3]
LINES = ["Guten Morgen!", "Kannst du mir bitte helfen?", "Der Zug kommt eine Stunde zu spät."]
COMPILER = kernels.find_compiler(os.environ)
QEMU = shutil.which("qemu-x86_64-static")
EMULATED = ("Nehalem", "Haswell")
"""Processors without AVX and without AVX-512, which QEMU stands in for."""
CHOSEN = """
extern "C" void *CHOSEN(void *, const void *);
extern "C" void *RegisterCustomOps(void *options, const void *base) {
  return CHOSEN(options, base);
}
"""
TRANSLATE = """
import json, sys
from pathlib import Path
from serving.runtime import kernels
kernels.native_library = lambda: Path(sys.argv[1])
from serving import Translator  # only now: other modules import the function by its name
found = Translator(sys.argv[2], threads=1).translate(sys.argv[3:])
print(json.dumps([(each.text, each.hypotheses[0].score) for each in found]))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64", reason="needs Linux on x86-64"
    ),
]


@pytest.fixture(scope="module", params=LEVELS)
def level(
    request: pytest.FixtureRequest, shipped_kernels: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A library whose operators are those of one level of the shipped one, which this processor
    has."""
    assert COMPILER is not None
    found = set(kernels.processor_features().split())
    needed = {"x86-64-v4": {"avx512bw", "avx512vl"}, "x86-64-v3": {"avx2", "fma"}}
    if not needed.get(request.param, set()) <= found:
        pytest.skip(f"this processor is not of level {request.param}")
    folder = tmp_path_factory.mktemp("level")
    source, library = folder / "level.cpp", folder / "level.so"
    source.write_text(CHOSEN)
    chosen = f"-DCHOSEN={kernels.entry_of(request.param)}"
    command = [COMPILER, "-shared", "-fPIC", chosen, "-o", library, source, shipped_kernels]
    subprocess.run([*command, f"-Wl,-rpath,{shipped_kernels.parent}"], check=True)
    return library


def scores(library: Path | None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Translations with their scores, by these kernels."""
    monkeypatch.setattr(ort, "native_library", lambda: library)
    found = Translator(ROOT / "models/macaron-de-en", threads=1).translate(LINES)
    return [(each.text, each.hypotheses[0].score) for each in found]


def test_only_the_entries_are_seen(shipped_kernels: Path) -> None:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", shipped_kernels], capture_output=True, text=True
    )
    seen = {line.split()[-1] for line in done.stdout.splitlines()}
    # Those that serving/runtime/native_steps.py calls are the same on every level.
    steps = re.findall(r"MACARON_SEEN \w+ (\w+)\(", (kernels.SOURCES / "beams.h").read_text())
    assert len(steps) == 8
    assert seen == {"RegisterCustomOps", *map(kernels.entry_of, LEVELS), *steps}


def sections(library: Path) -> dict[str, int]:
    """The sizes of a library's sections, in bytes."""
    done = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True)
    found = re.findall(r"\] (\S+) +[A-Z]\S* +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+)", done.stdout)
    return {name: int(size, 16) for name, size in found}


def test_nothing_of_a_level_runs_before_it_is_chosen(shipped_kernels: Path, tmp_path: Path) -> None:
    """A library has as many constructors with operators as without."""
    empty, library = tmp_path / "empty.cpp", tmp_path / "empty.so"
    entries = [f"void *{kernels.entry_of(level)}() {{ return nullptr; }}" for level in LEVELS]
    empty.write_text('extern "C" {\n' + "\n".join(entries) + "\n}\n")
    levels = kernels.SOURCES / "levels.cpp"
    command = [str(COMPILER), "-std=c++17", "-fPIC", "-shared", "-o", library, levels, empty]
    subprocess.run(command, check=True)
    found, wanted = sections(shipped_kernels), sections(library)
    assert found[".text"] > wanted[".text"] + 100_000
    assert found[".init_array"] == wanted[".init_array"]


def test_what_is_shipped_gives_what_is_compiled_for_this_processor_to_the_bit(
    shipped_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scores(shipped_kernels, monkeypatch) == scores(kernels.native_library(), monkeypatch)


def test_products_of_each_level_are_exact(level: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "native_library", lambda: level)
    monkeypatch.setattr(test_product, "session", test_product.session.__wrapped__)
    for rows, inputs, outputs in ((1, 40, 33), (7, 512, 64), (70, 130, 700)):
        given = test_product.random_rows(rows, rows, inputs)
        scale = np.asarray(test_product.ACTIVATION_SCALE[0])
        found = test_product.run(given, outputs, scale, bias=True)
        wanted = test_product.exact(given, outputs, scale, bias=True)
        size = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * size)


def test_each_level_translates_alike(level: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, wanted = scores(level, monkeypatch), scores(None, monkeypatch)
    assert [text for text, _ in found] == [text for text, _ in wanted]
    np.testing.assert_allclose([x for _, x in found], [x for _, x in wanted], atol=1e-3)


@pytest.mark.skipif(QEMU is None, reason="needs qemu-x86_64-static (qemu-user-static)")
@pytest.mark.parametrize("processor", EMULATED)
def test_a_lesser_processor_gets_what_it_can_run(
    processor: str, shipped_kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [str(shipped_kernels), str(ROOT / "models/macaron-de-en"), *LINES]
    done = subprocess.run(
        [str(QEMU), "-cpu", processor, sys.executable, "-c", TRANSLATE, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found, wanted = json.loads(done.stdout), scores(shipped_kernels, monkeypatch)
    assert [text for text, _ in found] == [text for text, _ in wanted]
    np.testing.assert_allclose([x for _, x in found], [x for _, x in wanted], atol=1e-3)
