"""Makes a bundle of a teacher that is a run or a checkpoint, because texts are translated by the
engine that serves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.bundle.folder import MANIFEST, file_hash
from training.errors import CheckpointError, ConfigError
from training.recipe.config import LanguageRecipe
from training.runs.checkpoint import WEIGHTS, find_checkpoint
from training.runs.folder import read_run_recipe

_EXPORT = f"{str(__package__).removesuffix('.derive').removesuffix('training')}export"
"""Name of the export package. It may not be imported here, but it may be run."""


@contextmanager
def as_bundle(teacher: Path, out: Path) -> Iterator[Path]:
    """The bundle itself, or one made from a checkpoint, which stays beside `out` until the block
    ends without an error.

    After an interruption the bundle of the same weights is found again. Raises ConfigError if
    `teacher` is not one, and if the export fails.
    """
    if (teacher / MANIFEST).is_file():
        yield teacher
        return
    try:
        checkpoint = find_checkpoint(teacher)
    except CheckpointError as error:
        raise ConfigError(f"{teacher}: neither a bundle nor a run or a checkpoint") from error
    if isinstance(read_run_recipe(checkpoint), LanguageRecipe):
        raise ConfigError(f"{teacher}: a model that translates is needed, this is a language model")
    key = file_hash(checkpoint / WEIGHTS)[:12]
    bundle = out.with_name(f"{out.name}.{key}.bundle")
    if not (bundle / MANIFEST).is_file():
        print(f"{teacher}: exported to {bundle} first", file=sys.stderr)
        command = [sys.executable, "-m", _EXPORT, "bundle", str(checkpoint), str(bundle)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise ConfigError(
                f"{teacher}: no bundle can be made of it; the lines above say why: fix that, or "
                "make one with `python -m macaron export bundle RUN BUNDLE` and name it"
            )
    yield bundle
    shutil.rmtree(bundle)
