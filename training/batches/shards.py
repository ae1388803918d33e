"""Rows of unequal length on disk, read by memory map: prepared text that is larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from serving.arrays import Ints

_ENDS = "<i8"


class RowWriter:
    """Appends rows of numbers to two files: one holds the numbers of all rows, the other the end of
    each row among them. The `with` block closes both."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._size, self._end = np.dtype(dtype).itemsize, 0
        self._values = path.with_suffix(".values").open("wb")
        self._ends = path.with_suffix(".ends").open("wb")

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._values.close()
        self._ends.close()

    def write(self, rows: Sequence[bytes]) -> Ints:
        """Append rows, each given as its bytes; returns the number of numbers in each."""
        sizes = np.array([len(row) // self._size for row in rows], dtype=np.int64)
        ends = self._end + np.cumsum(sizes)
        self._end = int(ends[-1]) if len(rows) else self._end
        self._values.write(b"".join(rows))
        self._ends.write(ends.astype(_ENDS).tobytes())
        return sizes


class WrittenRows:
    """Rows that a `RowWriter` has written."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._values = _map(path.with_suffix(".values"), dtype)
        self._ends = _map(path.with_suffix(".ends"), _ENDS)

    def __len__(self) -> int:
        return len(self._ends)

    def sizes(self, first: int, last: int) -> Ints:
        """The lengths of rows `first` to `last`, which is not among them."""
        ends = np.array(self._ends[max(0, first - 1) : last], dtype=np.int64)
        return np.diff(ends) if first else np.diff(ends, prepend=0)

    def read(self, first: int, last: int) -> list[np.ndarray[Any, Any]]:
        """Copies of rows `first` to `last` (exclusive)."""
        sizes = self.sizes(first, last)
        end = int(self._ends[last - 1]) if last else 0
        content = np.array(self._values[end - int(sizes.sum()) : end])
        return np.split(content, np.cumsum(sizes)[:-1])


def _map(path: Path, dtype: str) -> np.ndarray[Any, Any]:
    if not path.stat().st_size:  # which cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype, "r")
