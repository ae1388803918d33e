"""The prefix tree against a plain cache that is reordered: random parents, repacks and rows."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from serving.search.prefix_tree import ALIGNMENT, PrefixTree


class TwoCaches:
    """Node ids in a cache laid out by `PrefixTree`, beside each beam's own list of nodes."""

    def __init__(self, prefixes: list[int], beam_size: int, repack_every: int) -> None:
        self.tree = PrefixTree(np.array(prefixes), beam_size, repack_every)
        self.cache_BC = np.full((len(prefixes), self.tree.capacity), -1)
        self.paths = [[list(range(length)) for _ in range(beam_size)] for length in prefixes]
        self.queries = np.ones(len(prefixes), dtype=np.int64)
        self.running = np.ones(len(prefixes), dtype=np.bool_)
        self.next_node = 1000
        for row, length in enumerate(prefixes):
            self.cache_BC[row, :length] = np.arange(length)

    def write(self) -> None:
        """Every query, idle and dead ones too, writes a node of its own."""
        beam_size, index_B = self.tree.beam_size, self.tree.write()
        assert (index_B + beam_size <= self.tree.capacity).all()
        assert self.tree.capacity % ALIGNMENT == 0
        assert (index_B[~self.running] == 0).all()
        for row, index in enumerate(index_B):
            for beam in range(beam_size):
                self.cache_BC[row, index + beam] = self.next_node
                self.paths[row][beam].append(self.next_node)
                self.next_node += 1

    def check(self) -> None:
        """Each live query sees its own path, in order, and each query sees at least itself."""
        for row, beam in np.ndindex(self.tree.visible.shape[:2]):
            seen = self.cache_BC[row, self.tree.visible[row, beam] == 0].tolist()
            own = self.paths[row][beam][-1]
            if self.running[row] and beam < self.queries[row]:
                assert seen == self.paths[row][beam]
            assert own in seen

    def advance(self, parents_BK: np.ndarray) -> None:
        """Reorder the plain caches and move the tree on."""
        self.paths = [
            [list(paths[parent]) for parent in parents]
            for paths, parents in zip(self.paths, parents_BK.tolist(), strict=True)
        ]
        self.tree.advance(parents_BK, self.queries)
        self.queries = np.where(self.running, self.tree.beam_size, 0)

    def retire(self, row: int) -> None:
        self.running[row], self.queries[row] = False, 0
        self.tree.clear(row)

    def repack(self, rows: np.ndarray) -> None:
        """Keep the given rows; slots move as the tree says."""
        repack = self.tree.repack(rows)
        if repack is None:
            assert len(rows) == len(self.running)
            return
        laid_out_BC = self.cache_BC[repack.rows[:, None], repack.slots_BC]
        if repack.in_place:
            moved_rows, old, new = repack.moves()
            assert (new < old).all()
            self.cache_BC[moved_rows, new] = self.cache_BC[moved_rows, old]
            for row, used in enumerate(repack.used_B):
                assert (self.cache_BC[row, :used] == laid_out_BC[row, :used]).all()
        else:
            self.cache_BC = laid_out_BC
        assert self.cache_BC.shape == (len(rows), self.tree.capacity)
        self.paths = [self.paths[row] for row in rows]
        self.running, self.queries = self.running[rows], self.queries[rows]
        for row in np.flatnonzero(self.running):
            if self.tree.steps[row] % self.tree.repack_every == 0:
                nodes = {node for path in self.paths[row] for node in path}
                assert self.tree.used[row] == len(nodes)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
@given(
    seed=st.integers(0, 10**6),
    prefixes=st.lists(st.integers(0, 11), min_size=1, max_size=5),
    beam_size=st.integers(1, 6),
    repack_every=st.sampled_from([1, 2, 3, 8]),
)
def test_equals_a_reordered_cache(
    seed: int, prefixes: list[int], beam_size: int, repack_every: int
) -> None:
    rng = np.random.default_rng(seed)
    caches = TwoCaches(prefixes, beam_size, repack_every)
    for _ in range(30):
        caches.write()
        caches.check()
        queries_B1 = np.maximum(caches.queries, 1)[:, None]
        parents_BK = rng.integers(0, queries_B1, (len(queries_B1), beam_size))
        if rng.random() < 0.1:
            caches.retire(int(rng.integers(len(caches.running))))
        caches.advance(parents_BK)
        rows = np.arange(len(caches.running))
        if rng.random() < 0.2 and caches.running.any():
            rows = np.flatnonzero(caches.running)
        caches.repack(rows)


def test_a_layout_does_not_depend_on_batch_mates() -> None:
    rng = np.random.default_rng(0)
    alone, together = PrefixTree(np.array([3]), 4, 8), PrefixTree(np.array([0, 3, 20]), 4, 8)
    for _ in range(40):
        assert together.write()[1] == alone.write()[0]
        assert (together.visible[1, :, : alone.capacity] == alone.visible[0]).all()
        parents = rng.integers(0, 4, (3, 4))
        together.advance(parents, np.full(3, 4))
        alone.advance(parents[1:2], np.full(1, 4))
        together.repack(np.arange(3))
        alone.repack(np.arange(1))
        assert together.peak[1] == alone.peak[0]


def test_slots_of_dead_queries_are_reused() -> None:
    tree = PrefixTree(np.array([0]), beam_size=5, repack_every=8)
    tree.write()
    tree.advance(np.zeros((1, 5), dtype=np.int64), np.array([1]))
    assert tree.write().tolist() == [1]
    tree.advance(np.zeros((1, 5), dtype=np.int64), np.array([3]))
    assert tree.write().tolist() == [4]
    assert tree.peak.tolist() == [4]


def test_capacity_shrinks_when_beams_share_their_history() -> None:
    tree = PrefixTree(np.array([0]), beam_size=8, repack_every=8)
    capacities = []
    for _ in range(64):
        tree.write()
        tree.advance(np.zeros((1, 8), dtype=np.int64), np.array([8]))
        tree.repack(np.arange(1))
        capacities.append(tree.capacity)
    assert tree.used.tolist() == [64]
    assert max(capacities) <= 64 + 8 * 8


def test_nothing_to_do_is_no_repack() -> None:
    tree = PrefixTree(np.array([0, 0]), beam_size=2, repack_every=8)
    tree.write()
    tree.advance(np.zeros((2, 2), dtype=np.int64), np.array([1, 1]))
    assert tree.repack(np.arange(2)) is None
    repack = tree.repack(np.array([1]))
    assert repack is not None
    assert repack.rows.tolist() == [1]
    assert tree.steps.tolist() == [1]


def test_one_beam_is_not_copied_while_there_is_room() -> None:
    tree = PrefixTree(np.array([0]), 1, 2)
    copies = 0
    for _ in range(32):
        tree.write()
        tree.advance(np.zeros((1, 1), dtype=np.int64), np.array([1]))
        copies += tree.repack(np.arange(1)) is not None
    assert tree.used.tolist() == [32]
    assert copies == 32 // ALIGNMENT
