"""Changes of layout as indices: gathered by them, arrays become what the CPU's caches become."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.runtime.cache_tensors import BlockPool, Caches, Sources
from serving.runtime.gpu.layouts import (
    bucket,
    bucket_capacity,
    extended,
    filled,
    merged,
    numbered,
    repacked,
    resized,
)
from serving.search.prefix_tree import Repack

property_test = settings(max_examples=150, deadline=None, derandomize=True)
DIM, TENSORS = 3, 2


def test_buckets_are_few_and_at_most_half_as_large_again() -> None:
    sizes = sorted({bucket(count) for count in range(1, 1000)})
    assert sizes == [
        1,
        2,
        3,
        4,
        6,
        8,
        12,
        16,
        24,
        32,
        48,
        64,
        96,
        128,
        192,
        256,
        384,
        512,
        768,
        1024,
    ]
    assert all(count <= bucket(count) <= 1.5 * count for count in range(1, 1000))
    capacities = {bucket_capacity(slots) for slots in range(1, 200)}
    assert sorted(capacities) == [8, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    assert bucket_capacity(0) == 0


def gathered(array_TN: np.ndarray, index: np.ndarray) -> np.ndarray:
    """What a device does: rows of an array behind a row of zeros."""
    zeros = np.zeros((len(array_TN), 1, DIM), array_TN.dtype)
    return np.concatenate([zeros, array_TN], axis=1)[:, index.ravel()]


def caches(rng: np.random.Generator, rows: int, height: int, capacity: int) -> Caches:
    made = Caches(BlockPool(), TENSORS, rows, DIM, height)
    made.resize(capacity)
    for array in made.arrays:
        array[:] = rng.random(array.shape)
    return made


def flat(caches: Caches) -> np.ndarray:
    """A copy of the tensors as [T,N,D]."""
    return np.stack([array.reshape(-1, DIM) for array in caches.arrays])


def check(
    found: Caches, index_BHC: np.ndarray, before: np.ndarray, change: Callable[[], None]
) -> None:
    rows_TND = gathered(before, index_BHC)
    change()
    assert index_BHC.size == found.rows * found.capacity
    np.testing.assert_array_equal(rows_TND, flat(found))


SIZES = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 9), st.integers(0, 99))


@property_test
@given(SIZES, st.integers(0, 12))
def test_caches_grow_and_shrink(sizes: tuple[int, int, int, int], capacity: int) -> None:
    rows, height, slots, seed = sizes
    own = caches(np.random.default_rng(seed), rows, height, slots)
    index = resized(numbered(rows, height, slots), capacity)
    check(own, index, flat(own), lambda: own.resize(capacity))


@property_test
@given(SIZES, st.data())
def test_rows_and_slots_are_kept(sizes: tuple[int, int, int, int], data: st.DataObject) -> None:
    rows, height, slots, seed = sizes
    rng = np.random.default_rng(seed)
    own = caches(rng, rows, height, slots + 1)
    kept = np.sort(rng.choice(rows, data.draw(st.integers(1, rows)), replace=False))
    used = data.draw(st.integers(1, slots + 1))
    slots_BC = np.sort(rng.integers(0, slots + 1, (len(kept), used)), axis=1)
    repack = Repack(kept, slots_BC, np.full(len(kept), used), in_place=False)
    index = repacked(numbered(rows, height, slots + 1), repack)
    check(own, index, flat(own), lambda: own.repack(repack))


def test_a_repack_in_place_moves_what_matters() -> None:
    rng = np.random.default_rng(3)
    own = caches(rng, 3, 2, 8)
    slots_BC = np.array(
        [[0, 2, 3, 5, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 0], [0, 1, 0, 0, 0, 0, 0, 0]]
    )
    used_B = np.array([4, 7, 2])
    repack = Repack(np.arange(3), slots_BC, used_B, in_place=True)
    index = repacked(numbered(3, 2, 8), repack)
    rows_TND = gathered(flat(own), index)
    own.repack(repack)
    for row, used in enumerate(used_B):
        found = rows_TND.reshape(TENSORS, 3, 2, 8, DIM)[:, row, :, :used]
        wanted = flat(own).reshape(TENSORS, 3, 2, 8, DIM)[:, row, :, :used]
        np.testing.assert_array_equal(found, wanted)


@property_test
@given(SIZES, SIZES, st.data())
def test_sentences_join(
    sizes: tuple[int, int, int, int], others: tuple[int, int, int, int], data: st.DataObject
) -> None:
    rng = np.random.default_rng(sizes[3])
    own, other = caches(rng, *sizes[:3]), caches(rng, *others[:3])
    most = min(sizes[0], others[0])
    idle = rng.choice(sizes[0], data.draw(st.integers(0, most)), replace=False)
    theirs = numbered(*others[:3]) + sizes[0] * sizes[1] * sizes[2]
    index = extended(numbered(*sizes[:3]), theirs, idle)
    before = np.concatenate([flat(own), flat(other)], axis=1)
    check(own, index, before, lambda: own.extend(other, idle))


def test_sentences_lose_cache_rows() -> None:
    own = caches(np.random.default_rng(3), 3, 4, 8)
    index = numbered(3, 4, 8)[:, :2]
    check(own, index, flat(own), lambda: own.lower(2))


def test_sources_of_several_calls_become_one_batch() -> None:
    rng = np.random.default_rng(3)
    parts = [
        Sources([rng.random((rows, length, DIM)).astype(np.float32)], np.zeros((rows, length), "f"))
        for rows, length in ((2, 24), (3, 8), (1, 16))
    ]
    groups = [[1, 4], [0, 2, 5], [3]]
    whole = Sources.merged(parts, groups)
    found = np.zeros_like(whole.tensors[0])
    for part, index in zip(parts, merged([p.mask_BS.shape for p in parts], groups), strict=True):
        assert index.shape == whole.mask_BS.shape
        rows = gathered(part.tensors[0].reshape(1, -1, DIM), index)[0].reshape(*index.shape, DIM)
        assert not found[index > 0].any()
        found += rows
    np.testing.assert_array_equal(found, whole.tensors[0])


@pytest.mark.parametrize("rows", [3, 4, 6])
def test_rows_that_fill_up_a_bucket_are_zeros(rows: int) -> None:
    index = filled(numbered(3, 2), rows)
    assert index.shape == (rows, 2)
    assert index[:3].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert not index[3:].any()
