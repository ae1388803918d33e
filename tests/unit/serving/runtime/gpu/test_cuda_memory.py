"""Caches and sources in a recorded GPU's memory become what the CPU's become."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from export.graphs.row_graphs import row_graph
from serving.errors import DeviceMemoryError
from serving.runtime.cache_tensors import BlockPool, Caches
from serving.runtime.gpu.cuda_device import _open
from serving.runtime.gpu.cuda_memory import (
    GpuBlocks,
    GpuCaches,
    GpuTensors,
    in_memory,
    move_files,
)
from serving.runtime.gpu.layouts import bucket_capacity
from serving.runtime.gpu.sharing import Turns
from serving.search.prefix_tree import Repack
from tests.recorded_device import ARENA_SHORT, CUDA_SHORT, Recorded, recorded_gpu

TENSORS, DIM = 3, 8


@pytest.fixture
def gpu() -> Iterator[Recorded]:
    with recorded_gpu() as recorded:
        yield recorded


@pytest.mark.parametrize("two", [False, True])
def test_the_graphs_that_move_rows_are_those_that_the_export_makes(two: bool) -> None:
    model = row_graph(two=two)
    onnx.checker.check_model(model, full_check=True)
    assert move_files()[two].read_bytes() == model.SerializeToString()


def on_host(recorded: Recorded, caches: GpuCaches, sentences: int) -> np.ndarray:
    """The caches of the sentences that are asked for [T,B,H,C,D], looked at behind the GPU's
    back."""
    rows, height, capacity = caches.rows, caches.height, caches.capacity
    found = []
    for tensor in range(rows.tensors):
        _, memory = recorded.find(rows.address(tensor), max(1, rows.count * rows.row_bytes))
        size = sentences * height * capacity * rows.row_bytes
        found.append(memory[:size].view(np.float16).reshape(sentences, height, capacity, DIM))
    return np.array(found)


def put(recorded: Recorded, caches: GpuCaches, array: np.ndarray) -> None:
    for tensor, each in enumerate(array):
        flat = np.ascontiguousarray(each).view(np.uint8).ravel()
        _, memory = recorded.find(caches.rows.address(tensor), flat.size)
        memory[:] = flat


@pytest.mark.parametrize("seed", range(6))
def test_caches_are_at_every_change_what_they_are_on_the_cpu(gpu: Recorded, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mover, pool = _open().mover, BlockPool("float16")
    rows, height = 3, int(rng.integers(1, 4))
    own = GpuTensors(mover, "float16").caches(TENSORS, rows, DIM, height)
    wanted = pool.caches(TENSORS, rows, DIM, height)

    def grow(cuda: GpuCaches, cpu: Caches, count: int, slots: int) -> None:
        for caches in (cuda, cpu):
            caches.resize(slots)
        values = rng.random((TENSORS, count, cpu.height, slots, DIM)).astype(np.float16)
        for array, value in zip(cpu.arrays, values, strict=True):
            array[:] = value.reshape(array.shape)
        whole = on_host(gpu, cuda, count)
        assert whole.shape[3] == bucket_capacity(slots)
        whole[:, :, :, :slots] = values
        put(gpu, cuda, whole)

    grow(own, wanted, rows, 8)
    for _ in range(12):
        match rng.integers(4):
            case 0:
                slots = int(rng.integers(1, 60))
                own.resize(slots)
                wanted.resize(slots)
            case 1 if wanted.capacity:
                kept = np.sort(rng.choice(rows, int(rng.integers(1, rows + 1)), replace=False))
                used = int(rng.integers(1, wanted.capacity + 1))
                slots_BC = np.sort(rng.integers(0, wanted.capacity, (len(kept), used)), axis=1)
                repack = Repack(kept, slots_BC, np.full(len(kept), used), in_place=False)
                own.repack(repack)
                wanted.repack(repack)
                rows = len(kept)
            case 2:
                count = int(rng.integers(1, 4))
                other = GpuTensors(mover, "float16").caches(TENSORS, count, DIM, height)
                theirs = pool.caches(TENSORS, count, DIM, height)
                if rng.integers(2):
                    grow(other, theirs, count, int(rng.integers(1, 20)))
                idle = rng.choice(rows, int(rng.integers(0, min(rows, count) + 1)), replace=False)
                own.extend(other, idle)
                wanted.extend(theirs, idle)
                rows += count - len(idle)
            case _ if height > 1:
                height -= 1
                own.lower(height)
                wanted.lower(height)
        found = on_host(gpu, own, rows)[:, :, :, : wanted.capacity]
        for array, value in zip(wanted.arrays, found, strict=True):
            np.testing.assert_array_equal(value.reshape(array.shape), array)
        assert not np.isnan(on_host(gpu, own, rows)).any()
    assert gpu.to_host == 0
    own.free()


def test_memory_is_used_again_and_what_is_kept_is_bounded(gpu: Recorded) -> None:
    mover = _open().mover
    before = gpu.live_bytes

    def use(rows: int, slots: int) -> None:
        caches = GpuTensors(mover, "float16").caches(TENSORS, rows, DIM)
        for capacity in range(8, slots, 8):
            caches.resize(capacity)
        caches.free()

    use(5, 100)
    allocated, kept = gpu.allocated, gpu.live_bytes
    for _ in range(20):
        use(5, 100)
    assert (gpu.allocated, gpu.live_bytes) == (allocated, kept)
    for rows in range(1, 400, 7):
        use(rows, 100)
    largest = TENSORS * (1 + 512 * 128) * DIM * 2
    assert gpu.live_bytes < before + 8 * largest


def test_memory_of_captured_graphs_is_kept_until_memory_is_short(gpu: Recorded) -> None:
    class Captured: ...

    pool, graph = GpuBlocks(Turns(1)), Captured()
    captured, plain = pool.take(4096), pool.take(8192)
    captured.captures.add(graph)
    serial = captured.serial
    for block in (captured, plain):
        pool.give(block)
    del captured, plain, block
    for size in range(3, 9):  # each of a size of its own
        pool.give(pool.take(size * 4096))
    assert gpu.live_bytes <= 4096 + 3 * 8 * 4096
    assert pool.release(captured=False) > 0
    assert pool.take(4096).serial == serial  # and is not given back
    block = pool.take(4096)
    block.captures.add(graph)
    pool.give(block)
    del block
    assert pool.release(captured=True) == 1
    assert gpu.live_bytes == 0


def test_freed_memory_is_not_found(gpu: Recorded) -> None:
    block = GpuBlocks(Turns(1)).take(100)
    address = block.address
    gpu.find(address, 100)
    with pytest.raises(AssertionError, match="reaches over the end"):
        gpu.find(address, block.size + 1)
    del block
    with pytest.raises(AssertionError, match="given back or never taken"):
        gpu.find(address, 1)


def test_memory_that_nobody_uses_is_given_back_before_any_is_missed(gpu: Recorded) -> None:
    mover = _open().mover
    caches = GpuTensors(mover, "float16").caches(TENSORS, 4, DIM)
    for capacity in (64, 128, 256):
        caches.resize(capacity)
    caches.free()
    gpu.room = gpu.live_bytes + 1000
    large = GpuTensors(mover, "float16").caches(TENSORS, 5, DIM)
    large.resize(256)  # in the place of what was kept
    assert gpu.refused == 1
    with pytest.raises(DeviceMemoryError, match="too little memory: CUDA failure 2: out of memory"):
        large.resize(4096)


def test_memory_that_is_short_for_the_index_of_a_move_is_made_too(gpu: Recorded) -> None:
    mover = _open().mover

    def caches(*capacities: int) -> GpuCaches:
        found = GpuTensors(mover, "float16").caches(TENSORS, 4, DIM)
        for capacity in capacities:
            found.resize(capacity)
        return found

    own, others = caches(64), [caches(128), caches(256)]
    for other in others:
        other.free()
    gpu.room = gpu.live_bytes
    own.resize(128)  # into memory that is there already
    assert gpu.refused == 1
    gpu.room = float("inf")
    caches(256).free()
    gpu.room = gpu.live_bytes + 2 * own.rows.row_bytes
    kept = on_host(gpu, own, 4)[1, 0, 0, :2].tobytes()
    assert mover.read(own.rows, 1, np.arange(1, 3)) == kept
    assert gpu.refused == 2


@pytest.mark.parametrize("said", [ARENA_SHORT, CUDA_SHORT, "CUBLAS_STATUS_ALLOC_FAILED"])
def test_short_memory_is_distinguished_from_other_failures(said: str) -> None:
    def fail(message: str) -> None:
        raise RuntimeError(message)

    with pytest.raises(DeviceMemoryError, match=r"the GPU has too little memory"):
        in_memory(lambda: fail(said))
    with pytest.raises(RuntimeError, match=r"^CUDA failure 700: an illegal memory access"):
        in_memory(lambda: fail("CUDA failure 700: an illegal memory access was encountered"))
