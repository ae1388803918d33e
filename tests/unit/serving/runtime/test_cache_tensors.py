"""Memory that goes from one batch to the next: what is kept, and that it changes no output."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from export.graphs.writing import write_graphs
from serving.bundle.folder import parse_manifest
from serving.resident import resident_bytes
from serving.runtime.cache_tensors import (
    MOST_JOINT_STATES,
    Bindings,
    BlockPool,
    Caches,
    CacheSizes,
    Sources,
    aligned_empty,
    aligned_zeros,
)
from serving.runtime.session import Binding
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.search.prefix_tree import Repack
from tests.unit.training.tiny import tiny_joint_model, tiny_model
from training.models import TranslationModel

pytestmark = pytest.mark.usefixtures("traced_once")
SHIPPED = Path(__file__).resolve().parents[4] / "models"


def test_a_block_that_was_given_back_is_taken_again() -> None:
    pool = BlockPool()
    block = pool.take(100)
    assert block.size >= 100
    pool.give(block)
    assert pool.take(block.size) is block
    assert pool.take(100) is not block  # it is taken


def test_the_smallest_that_fits_is_taken_and_few_are_kept() -> None:
    pool = BlockPool()
    pool.caches(tensors=3, rows=1, dim=1)  # their blocks, and one for the next layout
    blocks = [pool.take(size) for size in (500, 100, 600, 300, 400, 200)]
    assert [block.size for block in blocks] == [750, 150, 900, 450, 600, 300]
    for block in blocks:
        pool.give(block)
    assert pool.take(700).size == 750
    assert [pool.take(1).size for _ in range(4)] == [450, 600, 900, 1]  # 150 and 300 are gone


def test_a_larger_block_takes_the_place_of_one_that_is_too_small() -> None:
    pool = BlockPool()
    pool.caches(tensors=1, rows=1, dim=1)
    small, large = pool.take(100), pool.take(200)
    pool.give(small)
    pool.give(large)
    assert pool.take(1000).size == 1500
    assert pool.take(1) is small
    assert pool.take(1).size == 1  # the large one is gone


def test_a_block_may_come_back_whenever_garbage_is_collected() -> None:
    pool, given = BlockPool(), []

    def give(phase: str, _: object) -> None:
        if phase == "start" and threading.current_thread() is taker:
            given.append(np.zeros(5, np.float32))
            pool.give(given[-1])

    def take() -> None:
        gc.set_threshold(1)  # at each new object, so that some fall into `take` and `give`
        for _ in range(500):
            pool.give(pool.take(3))

    taker = threading.Thread(target=take, daemon=True)
    before = gc.get_threshold()
    gc.callbacks.append(give)
    try:
        taker.start()
        taker.join(60)
    finally:
        gc.callbacks.remove(give)
        gc.set_threshold(*before)
    assert not taker.is_alive()
    assert given
    assert pool.take(1).size == 5
    assert pool.take(1).size == 1  # no more are kept than one


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_a_large_block_goes_back_to_the_system_once_it_is_dropped() -> None:
    block = BlockPool().take(4 << 20)
    assert not block.any()
    block[:] = 1.0  # 24 MiB
    before = resident_bytes()
    del block
    assert before - resident_bytes() > 20 << 20


class NotingCaches:
    """Caches of eight slots that note how much is bound to them as they move."""

    capacity = 8

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.bound: list[int] = []

    def resize(self, capacity: int) -> None:
        self.bound.append(len(self.bindings.of(0)))

    def repack(self, repack: Repack) -> None:
        self.bound.append(len(self.bindings.of(0)))


def test_what_was_bound_is_forgotten_before_caches_move_and_not_if_they_stay() -> None:
    """It would keep the memory that they leave."""
    for stays in (True, False):
        bindings = Bindings()
        caches: Any = NotingCaches(bindings)
        for change in (
            lambda bindings, caches, stays: bindings.resize(caches, 8 if stays else 16),
            lambda bindings, caches, stays: bindings.repack(
                caches, Repack(np.arange(1), np.arange(8)[None], np.array([8]), in_place=stays)
            ),
        ):
            bindings.of(0)["steps"] = cast(Binding, object())
            change(bindings, caches, stays)
        assert caches.bound == [int(stays)] * 2


def test_caches_are_of_their_pools_type_in_every_layout() -> None:
    caches = Caches(BlockPool("float16"), tensors=2, rows=3, dim=4)
    other = Caches(BlockPool("float16"), tensors=2, rows=1, dim=4, height=2)
    for change in (
        lambda: caches.resize(8),
        lambda: caches.extend(other, np.array([1])),
        lambda: caches.lower(1),
        lambda: caches.repack(Repack(np.array([0]), np.array([[3, 1]]), np.array([2]), False)),
    ):
        assert {array.dtype for array in caches.arrays} == {np.dtype(np.float16)}
        change()
    assert {array.dtype for array in caches.arrays} == {np.dtype(np.float16)}


def test_a_new_layout_takes_one_tensors_memory_beside_the_caches() -> None:
    pool = BlockPool()
    caches = pool.caches(tensors=6, rows=4, dim=16)
    caches.resize(8)
    tracemalloc.start()
    caches.resize(64)
    caches.resize(56)
    caches.resize(64)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    tensor = int(4 * 64 * 16 * 4 * 1.5)
    assert 6 * tensor <= most < 7.5 * tensor


def test_blocks_are_never_shared_between_threads() -> None:
    pool = BlockPool()
    taken: list[np.ndarray] = []
    for _ in range(4):
        pool.give(np.zeros(50, np.float32))

    def take() -> None:
        for _ in range(500):
            block = pool.take(50)
            block[0] += 1
            taken.append(block)
            pool.give(block)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    blocks = {id(block): block for block in taken}
    assert sum(block[0] for block in blocks.values()) == 2000


@pytest.mark.parametrize("model", [tiny_model(), tiny_joint_model()], ids=["cross", "joint"])
def test_what_an_earlier_batch_left_changes_nothing(
    tmp_path: object, model: TranslationModel
) -> None:
    manifest = write_graphs(model, tmp_path, name="tiny", precision="fp32")  # type: ignore[arg-type]
    generator = np.random.default_rng(2)
    options = SearchOptions(beam_size=3, num_hypotheses=3, max_length=20, loop_guard=False)
    sentences = [
        Sentence([*generator.integers(4, 37, 1 + i).tolist(), EOS_ID], options, [5] * (i % 4))
        for i in range(7)
    ]
    used, fresh = (OnnxStepper(tmp_path, manifest, 1) for _ in range(2))  # type: ignore[arg-type]
    first = decode(used, sentences)
    for _, pool in used._memory._memories:
        assert isinstance(pool, BlockPool)
        for block in pool._blocks:
            block[:] = 1e30  # finite, as what a batch leaves is
    assert decode(used, sentences) == first == decode(fresh, sentences)


def test_a_joint_batch_is_bounded_by_states_but_on_cuda() -> None:
    manifest = parse_manifest(SHIPPED / "joint-fast-de-en")
    assert CacheSizes(manifest).most_states == MOST_JOINT_STATES
    assert CacheSizes(manifest.model_copy(update={"target": "cuda"})).most_states is None
    plain = parse_manifest(SHIPPED / "macaron-de-en")
    assert CacheSizes(plain).most_states is None


def test_arrays_begin_at_a_cache_line_whatever_their_size() -> None:
    for shape in ((1,), (3, 7), (5, 30, 256), (40, 8000)):
        for make in (aligned_empty, aligned_zeros):
            for dtype in (np.float32, np.int64, np.uint8):
                array = make(shape, dtype)
                assert array.ctypes.data % 64 == 0
                assert (array.shape, array.dtype) == (shape, dtype)
                assert array.flags.c_contiguous
                assert array.flags.writeable
        assert not aligned_zeros(shape, np.float32).any()
    assert aligned_zeros((0, 4), np.float32).shape == (0, 4)


def test_sources_begin_at_a_cache_line_after_every_change() -> None:
    def sources(rows: int, length: int) -> Sources:
        tensor = np.arange(rows * length * 8, dtype=np.float32).reshape(rows, length, 8)
        return Sources([tensor], np.zeros((rows, length), np.float32))

    merged = Sources.merged([sources(2, 6), sources(1, 4)], [[2, 0], [1]])
    begins = [merged.tensors[0].ctypes.data]
    longer = sources(3, 9)
    merged.extend(longer, np.array([1]))
    begins.append(merged.tensors[0].ctypes.data)
    np.testing.assert_array_equal(merged.tensors[0][1], longer.tensors[0][0])
    wanted = merged.tensors[0][[3, 0]][:, :5]
    merged.keep(np.array([3, 0]))
    begins.append(merged.tensors[0].ctypes.data)
    merged.trim(5)
    begins.append(merged.tensors[0].ctypes.data)
    np.testing.assert_array_equal(merged.tensors[0], wanted)
    assert merged.tensors[0].flags.c_contiguous
    assert [begin % 64 for begin in begins] == [0, 0, 0, 0]
