"""The finished parts of an output file. They stay on disk until all parts are done, so that an
interrupted run can be resumed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving.bulk.blocks import Kind, join, open_bytes
from serving.bulk.worker import Failure
from serving.errors import ServingError

_PLAN = "plan.json"


class BulkError(ServingError):
    """A file cannot be processed, or not to its end."""


class Parts:
    """The folder OUT.parts: the plan, and two files for each finished block."""

    def __init__(self, out: Path, plan: dict[str, Any]) -> None:
        """Create the folder, or resume one that has the same plan.

        Raises BulkError if the folder belongs to another input, bundle or set of options.
        """
        self._out = out
        self.folder = out.with_name(f"{out.name}.parts")
        path = self.folder / _PLAN
        if path.exists():
            _check_plan(self.folder, json.loads(path.read_text(encoding="utf-8")), plan)
            return
        self.folder.mkdir(exist_ok=True)
        if any(self.folder.iterdir()):
            raise BulkError(
                f"{self.folder} contains files but no {_PLAN}, so it may belong to something "
                "else; move it away, or write to another file"
            )
        _write(path, json.dumps(plan, indent=1).encode())

    def missing(self, numbers: Sequence[int]) -> list[int]:
        """The given blocks that are not finished."""
        return [number for number in numbers if not self._part(number).exists()]

    def add(self, number: int, content: bytes, failures: Sequence[Failure]) -> None:
        """Store a finished block, atomically."""
        lines = [json.dumps(failure._asdict(), ensure_ascii=False) for failure in failures]
        _write(self._failed(number), "".join(f"{line}\n" for line in lines).encode())
        _write(self._part(number), content)

    def finish(self, kind: Kind, numbers: Sequence[int], side: Path) -> int:
        """Write the output from all parts, and the file of failed rows if there are any; returns
        the number of failed rows. Removes the folder."""
        failed = b"".join(self._failed(number).read_bytes() for number in numbers)
        whole = self.folder / "whole"
        with open_bytes(whole, "wb", self._out) as file:
            join(kind, [self._part(number) for number in numbers], file)
        if failed:
            _write(side, failed)
        else:
            side.unlink(missing_ok=True)
        os.replace(whole, self._out)
        # The plan is deleted last, because parts without one would belong to nothing.
        for number in numbers:
            self._part(number).unlink()
            self._failed(number).unlink()
        shutil.rmtree(self.folder)
        return failed.count(b"\n")

    def _part(self, number: int) -> Path:
        return self.folder / f"{number:06d}.part"

    def _failed(self, number: int) -> Path:
        return self.folder / f"{number:06d}.failed"


def _check_plan(folder: Path, begun: dict[str, Any], plan: dict[str, Any]) -> None:
    other = [key for key in plan if begun.get(key) != plan[key]]
    if other:
        raise BulkError(
            f"{folder} was begun with another {other[0]} ({begun.get(other[0])!r}, now "
            f"{plan[other[0]]!r}); remove that folder, or write to another file"
        )


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
