"""Tries a wheel as a user without a compiler would: `python -m tests.try_wheel dist/*.whl`.

It is installed with the packages of `serve` into a fresh environment, by pip as it is configured
here, and translates there on the kernels in the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

MODEL = Path(__file__).resolve().parents[1] / "models" / "macaron-de-en"


def run(folder: Path, *words: str, **more: str) -> str:
    """The output of a program in a folder's environment; no other program can be found there."""
    binaries = folder / "environment" / "bin"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MACARON_")}
    done = subprocess.run(
        [binaries / words[0], *words[1:]],
        cwd=folder,
        env=kept | {"PATH": str(binaries), "XDG_CACHE_HOME": str(folder / "cache")} | more,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(f"failed: {' '.join(words)}\n{done.stdout}")
    return done.stdout


def main(wheel: Path) -> None:
    """Install the wheel and translate; ends with status 1 if something is wrong."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        venv.create(folder / "environment", with_pip=True)
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(folder, "python", *pip, f"macaron[serve] @ {wheel.resolve().as_uri()}", CXX="")
        print(run(folder, "macaron", "doctor", str(MODEL), CXX=""), end="")
        if not list(folder.glob("environment/lib/*/site-packages/macaron/py.typed")):
            sys.exit("failed: type checkers would not read its annotations (py.typed)")
        compiled = list(folder.glob("cache/macaron/kernels-*"))
        if compiled:
            sys.exit(f"failed: something was compiled: {compiled}")
    print(f"{wheel.name} runs without a compiler")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
