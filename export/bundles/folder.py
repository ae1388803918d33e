"""Writes a bundle's folder atomically, and records in its manifest how it was made."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

from export.errors import ExportError
from serving.bundle.manifest import Manifest
from training.recipe.config import FineTuningRecipe, Recipe, recipe_to_dict
from training.runs.checkpoint import ordinary_mode
from training.runs.replacing import loses

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "sentencepiece", "tokenizers", "numpy")


def check_free(out: Path, *, force: bool) -> None:
    """Raise ExportError if a bundle exists that must not be replaced."""
    if out.exists() and not force:
        raise ExportError(f"{out} exists already; give --force to replace it")


def check_apart(out: Path, read: Iterable[Path]) -> None:
    """Raise ExportError if `out` exists and is, contains or lies in a file or folder that is read:
    replacing it would delete the source of the bundle."""
    lost = loses(out, read)
    if lost is not None:
        raise ExportError(
            f"{out}: {lost}, which is read, and would be deleted to make room for the bundle; name "
            "a folder outside of it that is not there yet"
        )


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out`, renamed to it at the end.

    Raises ExportError if it cannot be written; then nothing is left behind.
    """
    folder: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        yield folder
        folder.chmod(ordinary_mode(0o777))  # mkdtemp makes it private
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
            os.replace(out, old / out.name)
            os.replace(folder, out)
            shutil.rmtree(old)
        else:
            os.replace(folder, out)
    except OSError as error:
        raise ExportError(
            f"{out}: cannot be written: {error.strerror or error}; make room or give access, then "
            "the same command makes it"
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def origin_fields(recipe: Recipe) -> dict[str, Any]:
    """Manifest fields about the run that the bundle was made from.

    Paths of prepared text, runs and tables are left out: they are local to the training machine.
    """
    tree = recipe_to_dict(recipe)
    tree["data"].pop("cache", None)
    if tree["loop"].get("initial_weights") is not None:
        tree["loop"]["initial_weights"] = PurePath(tree["loop"]["initial_weights"]).name
    if isinstance(recipe, FineTuningRecipe):
        for key in ("train", "validation"):
            path = tree["data"][key]
            tree["data"][key] = None if path is None else "/".join(PurePath(path).parts[-2:])
    return {"attribution": recipe.data.attribution, "recipe": tree}


def with_makers(manifest: Manifest) -> Manifest:
    """The manifest with versions of the packages and the commit of the repository."""
    return manifest.model_copy(update={"versions": package_versions(), "commit": commit()})


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that made the bundle."""
    return {"python": platform.python_version()} | {
        name: module_version(name) for name in _PACKAGES
    }


def module_version(name: str) -> str:
    """The version of an imported module, from the module itself: two packages provide
    `onnxruntime`, under different names. Raises ImportError if it is missing."""
    return str(import_module(name).__version__)


def commit() -> str:
    """The repository's commit, marked if files differ from it; empty outside a repository.

    An installed package may lie inside an unrelated repository, which does not track it.
    """
    file = Path(__file__)
    kept = ["ls-files", "--error-unmatch", file.name]
    if _git(kept, file.parent) is None:
        return ""
    described = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return _git(described, file.parent) or ""


def _git(arguments: list[str], folder: Path) -> str | None:
    """The output of git; None if git fails or is missing."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
