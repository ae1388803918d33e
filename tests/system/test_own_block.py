"""docs/how-to/new-architecture.md works as it stands: its blocks train, export and serve."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import OVERRIDES
from tests.toy.recipe import write_toy_recipe

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/how-to/new-architecture.md"


def run(
    *arguments: str, path: Path | None = None, text: str = "", device: str = "auto"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path or ""), "OMP_NUM_THREADS": "1"}
    environment["MACARON_DEVICE"] = device
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("number", "name", "most_lines"), [(0, "parallel_block", 40), (1, "convolution_block", 60)]
)
def test_a_block_of_ones_own_is_trained_exported_and_served(
    tmp_path: Path, number: int, name: str, most_lines: int
) -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[number]
    assert len(code.splitlines()) < most_lines
    assert f"`{name}.py`" in guide
    (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    recipe = write_toy_recipe(tmp_path, pairs=3000, seed=2, task="copy")
    block = f"model.block={name}:BLOCK"
    command = ["training", "train", str(recipe), *OVERRIDES, block, "--threads", "1"]
    run(*command, "--run", str(tmp_path / "run"), path=tmp_path)
    bundle = tmp_path / "bundle"
    run("export", "bundle", str(tmp_path / "run"), str(bundle), path=tmp_path)
    # The server does not know the block: its file is not on the path.
    text = "dog cat child\n\nking apple house key\n"
    assert run("serving", "translate", str(bundle), text=text).stdout == text
    cuda = tmp_path / "cuda"
    form = ["--target", "cuda", "--precision", "fp16"]
    run("export", "bundle", str(tmp_path / "run"), str(cuda), *form, path=tmp_path)
    assert run("serving", "translate", str(cuda), text=text, device="cpu").stdout == text
    assert f'"{name}:BLOCK"' in (bundle / "manifest.json").read_text(encoding="utf-8")
