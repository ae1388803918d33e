"""The kernels for ARM's 64-bit processors, compiled for them here and run under QEMU.

For whole translations MACARON_ARM64 names the folder of a foreign Python, which
`python -m tests.try_arm_wheel WHEEL --root FOLDER` makes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from serving.runtime import kernels

ROOT = Path(__file__).resolve().parents[3]
LINES = ["Guten Morgen!", "Kannst du mir bitte helfen?", "Der Zug kommt eine Stunde zu spät."]
LEVELS = kernels.LEVELS["aarch64"]
COMPILER = shutil.which("aarch64-linux-gnu-g++")
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
FOREIGN = os.environ.get("MACARON_ARM64")
TRANSLATE = """
import json, sys
from pathlib import Path
from serving.runtime import kernels
kernels.native_library = lambda: Path(sys.argv[1]) if sys.argv[1] else None
from serving import Translator  # only now: other modules import the function by its name
found = Translator(sys.argv[2], threads=1).translate(sys.argv[3:])
print(json.dumps([(each.text, each.hypotheses[0].score) for each in found]))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="needs aarch64-linux-gnu-g++"),
    pytest.mark.skipif(QEMU is None, reason="needs qemu-aarch64-static (qemu-user-static)"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as it is shipped on such a machine."""
    assert COMPILER is not None
    library = kernels.ship_library(COMPILER, tmp_path_factory.mktemp("built"))
    assert library is not None
    assert library.name.startswith("kernels-aarch64-")
    return library


@pytest.mark.parametrize(
    ("level", "processor"),
    [(LEVELS[0], "max"), (LEVELS[1], "max"), (LEVELS[1], "cortex-a76")],
)
def test_products_are_exact(level: str, processor: str, tmp_path: Path) -> None:
    program = tmp_path / "exact"
    source = Path(__file__).with_name("exact_products.cpp")
    flags = ("-std=c++17", "-O3", "-static", f"-march={level}", f"-I{kernels.SOURCES}")
    subprocess.run([str(COMPILER), *flags, "-o", program, source], check=True)
    done = subprocess.run(
        [str(QEMU), "-cpu", processor, program], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "exact\n")


def test_each_level_has_its_entry_and_its_instructions(whole: Path) -> None:
    tools = str(COMPILER).removesuffix("g++")
    done = subprocess.run([f"{tools}nm", "-D", whole], capture_output=True, text=True, check=True)
    assert {kernels.entry_of(level) for level in LEVELS} <= set(done.stdout.split())
    code = subprocess.run(
        [f"{tools}objdump", "-d", whole], capture_output=True, text=True, check=True
    ).stdout
    assert "\tusdot\t" in code
    assert "\tsdot\t" in code


def translate(library: str, processor: str) -> list[tuple[str, float]]:
    """Texts and scores by a foreign Python, with these kernels."""
    python = f"{FOREIGN}/usr/bin/python3.11"
    paths = f"PYTHONPATH={FOREIGN}/site:{ROOT}"
    emulated = [str(QEMU), "-cpu", processor, "-L", str(FOREIGN), "-E", paths, python]
    done = subprocess.run(
        [*emulated, "-c", TRANSLATE, library, str(ROOT / "models/macaron-de-en"), *LINES],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found: list[tuple[str, float]] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(FOREIGN is None, reason="needs an arm64 Python (MACARON_ARM64)")
def test_a_processor_gets_its_level_and_translates_as_the_standard_operators_do(
    whole: Path,
) -> None:
    wanted = translate("", "max")
    best, plain = translate(str(whole), "max"), translate(str(whole), "cortex-a76")
    oldest = translate(str(whole), "cortex-a72")
    assert best == plain  # both products are exact
    for found in (best, oldest):
        assert [text for text, _ in found] == [text for text, _ in wanted]
        np.testing.assert_allclose([x for _, x in found], [x for _, x in wanted], atol=1e-4)
