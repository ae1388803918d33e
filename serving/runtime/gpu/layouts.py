"""Changes of a tensor's layout as indices of rows, for devices that gather rows.

A device keeps tensors of one shape in one array [T, 1 + N, D]: T tensors of N rows of D features,
preceded by a row of zeros. For each row of the next array, an index names a row of the current one;
0 is the row of zeros. This module knows no device.

Shape letters: B sentences, H cache rows of a sentence, C slots, S source positions, N rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.arrays import Ints
from serving.search.prefix_tree import ALIGNMENT, Repack, places

ZERO = 0
"""The row of zeros."""


def bucket(count: int, unit: int = 1) -> int:
    """Rounds up to 1, 2, 3, 4, 6, 8, 12, 16, 24, ... units. There are few sizes, each at most half
    as large again as the one before, so that buffers and captured graphs are reused."""
    units = max(1, -(-count // unit))
    power = 1 << (units - 1).bit_length()
    return unit * (power * 3 // 4 if power > 2 and units <= power * 3 // 4 else power)


def bucket_capacity(slots: int) -> int:
    """Rounds a number of slots up to a bucket. Kernels need a multiple of 8."""
    return bucket(slots, ALIGNMENT) if slots else 0


def numbered(*shape: int) -> Ints:
    """The index of every current row, as an array of that shape."""
    return 1 + np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def resized(own_BHC: Ints, capacity: int) -> Ints:
    """The index with this many slots; new ones are zeros."""
    new = np.full((*own_BHC.shape[:2], capacity), ZERO, dtype=np.int64)
    kept = min(own_BHC.shape[2], capacity)
    new[:, :, :kept] = own_BHC[:, :, :kept]
    return new


def repacked(own_BHC: Ints, repack: Repack) -> Ints:
    """The rows and slots that a repack keeps."""
    slots_BHC = np.broadcast_to(
        repack.slots_BC[:, None], (len(repack.rows), own_BHC.shape[1], repack.slots_BC.shape[1])
    )
    found: Ints = np.take_along_axis(own_BHC[repack.rows], slots_BHC, axis=2)
    return found


def extended(own: Ints, other: Ints, rows: Ints) -> Ints:
    """Puts the other rows in place of these, and the rest at the end. Each axis has the longer
    length, and free places are zeros. The other index counts from the place where its rows are
    put."""
    count, added = len(own), len(other)
    taken = places(rows, count, added)
    shape = np.maximum(own.shape[1:], other.shape[1:])
    new = np.full((count + added - len(rows), *shape), ZERO, dtype=np.int64)
    new[tuple(slice(length) for length in own.shape)] = own
    new[rows] = ZERO
    part = tuple(slice(length) for length in other.shape[1:])
    for place, row in zip(taken, other, strict=True):
        new[place][part] = row
    return new


def merged(lengths: Sequence[tuple[int, int]], groups: Sequence[Sequence[int]]) -> list[Ints]:
    """One index [B,S] for each part of the sources, with the places of the part's rows in the
    merged array and zeros elsewhere."""
    total, longest = sum(map(len, groups)), max(length for _, length in lengths)
    found = []
    for (count, length), rows in zip(lengths, groups, strict=True):
        whole = np.full((total, longest), ZERO, dtype=np.int64)
        whole[list(rows), :length] = numbered(count, length)
        found.append(whole)
    return found


def filled(index: Ints, rows: int) -> Ints:
    """The index with this many rows on its first axis; new rows are zeros."""
    if len(index) == rows:
        return index
    new = np.full((rows, *index.shape[1:]), ZERO, dtype=np.int64)
    new[: len(index)] = index
    return new
