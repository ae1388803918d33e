"""Steps of a running batch with native code between them. It does the same as the search does in
NumPy, on the search's own arrays and on those bound to the step graph (serving/native/beams.h)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Int32s, Ints
from serving.runtime.cpu_graphs import BoundProgram, CpuBinding
from serving.runtime.kernels import native_library
from serving.search.stepper import BeamArrays

_COUNTS = ("rows", "beams", "slots", "lookback", "candidates", "repack_every", "reach", "caches")
_OWN = (
    ("tokens", "int64"),
    ("positions", "int64"),
    ("scores", "float32"),
    ("queries", "int64"),
    ("steps_left", "int64"),
    ("running", "bool"),
    ("visible", "float32"),
    ("slot_positions", "int64"),
    ("used", "int64"),
    ("next", "int64"),
    ("peak", "int64"),
    ("joined", "int64"),
    ("ancestors", "int64"),
    ("ends", "int64"),
    ("first_end", "int64"),
)
_PLACES = len(_OWN) - 2
"""Number of entries of `_OWN` that are arrays of `BeamArrays`, in its order."""
_INPUTS = (
    ("token", "int64"),
    ("position", "int64"),
    ("write_index", "int64"),
    ("visible", "float32"),
    ("score", "float32"),
    ("slot_position", "int64"),
    ("ancestor", "int64"),
)
"""Inputs of the step graph by role, and the types of their numbers."""
_OUTPUTS = (
    ("candidate_score", "float32"),
    ("candidate_token", "int32"),
    ("candidate_parent", "int32"),
)
_STRETCH_NS = 1_000_000
"""Time in nanoseconds after which no further step is taken before Python looks whether sentences
wait to join or were cancelled."""
_FAILED = -(2**63)
_CACHES = (("cache_data", "int64"), ("cache_rows", "int64"), ("slot_bytes", "int64"))
_KEPT = (("tokens", "int32"), ("parents", "int32"), ("scores", "float32"))


class _Arrays(ctypes.Structure):
    """The struct `Beams` of serving/native/beams.h: counts, then addresses in this order."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in _COUNTS]
        + [(name, ctypes.c_void_p) for name, _ in _OWN]
        + [(f"{name}_in", ctypes.c_void_p) for name, _ in _INPUTS]
        + [(f"found_{name}", ctypes.c_void_p) for name, _ in _OUTPUTS]
        + [(f"kept_{name}", ctypes.c_void_p) for name, _ in _KEPT]
        + [(name, ctypes.c_void_p) for name, _ in _CACHES]
        + [(name, ctypes.c_void_p) for name in ("room", "places", "eventful")]
    )


@functools.cache
def _library() -> ctypes.PyDLL | None:
    """The native functions; None if there are no kernels. They are short, so they keep Python's
    lock."""
    path = native_library()
    if path is None:
        return None
    library = ctypes.PyDLL(str(path))
    library.macaron_put_inputs.argtypes = (ctypes.c_void_p,)
    library.macaron_go_on.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    library.macaron_grow.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.macaron_plan.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    library.macaron_pack.argtypes = (ctypes.c_void_p,)
    library.macaron_go_on.restype = ctypes.c_bool
    library.macaron_choose.argtypes = library.macaron_move.argtypes = (
        ctypes.c_void_p,
        ctypes.c_int64,
    )
    library.macaron_choose.restype, library.macaron_move.restype = ctypes.c_int64, None
    library.macaron_plan.restype = library.macaron_pack.restype = None
    library.macaron_put_inputs.restype = library.macaron_grow.restype = None
    return library


@functools.cache
def _take_steps() -> Callable[..., int]:
    """The native function that takes several steps, without Python's lock."""
    take = ctypes.CDLL(str(native_library())).macaron_take_steps
    take.argtypes = (ctypes.c_void_p, ctypes.c_void_p, *(ctypes.c_int64,) * 3)
    take.restype = ctypes.c_int64
    return take


class NativeSteps:
    """The `BoundSteps` of a binding on the CPU.

    `is_current`, `move` and `pack` are functions of other objects: they are called at every step,
    and a method that only forwards a call would take as long as the call.
    """

    found: tuple[Floats, Int32s, Int32s]
    """Scores, tokens and parents of the candidates, which each run overwrites; None for each if the
    graph chooses none."""

    def __init__(
        self,
        library: ctypes.PyDLL,
        beams: BeamArrays,
        binding: CpuBinding,
        current: Callable[[], bool],
    ) -> None:
        """`current` returns whether the binding still belongs to the memory of its batch.

        Raises TypeError if native code cannot read an array.
        """
        caches = binding.caches
        self._run, self.is_current = binding.run, current
        ends = [list(ids) for ids in beams.ends]
        flat = np.array([end for ids in ends for end in ids], dtype=np.int64)
        first = np.array([0, *accumulate(map(len, ends))], dtype=np.int64)
        rows, width, slots = beams.visible_BKC.shape
        lookback, reach = beams.ancestors_BKW.shape[2], beams.reach
        found: list[Any] = [binding.outputs.get(role) for role, _ in _OUTPUTS]
        scores, tokens, parents = found
        self.found = scores, tokens, parents
        own: list[Any] = [*beams[:_PLACES], flat, first]
        self._held = [
            *_checked(_OWN, own),
            *_checked(_INPUTS, [binding.inputs.get(role) for role, _ in _INPUTS]),
            *_checked(_OUTPUTS, found),
            *_checked(_KEPT, beams.kept or (None, None, None)),
            np.array([_address(cache) for cache in caches], dtype=np.int64),
            np.array([len(cache) // rows for cache in caches], dtype=np.int64),
            np.array([cache.itemsize * cache.shape[2] for cache in caches], dtype=np.int64),
            np.zeros(width * max(slots, 2 * lookback), dtype=np.float32),
            np.zeros((rows, slots), dtype=np.int64),
            eventful := np.zeros(rows, dtype=np.int64),
        ]
        self._eventful: Ints = eventful
        self._arrays = _Arrays(
            rows,
            width,
            slots,
            lookback,
            0 if found[0] is None else found[0].shape[1],
            beams.repack_every,
            -1 if reach is None else reach,
            len(caches),
            *(None if array is None else _address(array) for array in self._held),
        )
        at = ctypes.addressof(self._arrays)
        self._planned = (ctypes.c_int64 * 2)()
        self._put = functools.partial(library.macaron_put_inputs, at)
        self._grow = functools.partial(library.macaron_grow, at)
        self._plan = functools.partial(library.macaron_plan, at)
        self._go_on: Callable[[int], bool] = functools.partial(library.macaron_go_on, at)
        self._take: Callable[[int, int, int], int] | None = None
        if isinstance(binding.run, BoundProgram):
            self._graph = (ctypes.c_void_p * 4)(*binding.run.addresses)
            graph = ctypes.addressof(self._graph)
            self._take = functools.partial(_take_steps(), at, graph)
        self._choose = functools.partial(library.macaron_choose, at)
        self.move: Callable[[int], None] = functools.partial(library.macaron_move, at)
        self.pack: Callable[[], None] = functools.partial(library.macaron_pack, at)

    def run(self) -> None:
        """Give each query its slot, and run the graph."""
        self._put()
        self._run()

    def go_on(self, place: int, most: int) -> tuple[int, bool]:
        """Take up to `most` steps; see `BoundSteps`. Without a program it is one."""
        if self._take is None:
            self.run()
            gone = self._go_on(place)
            return int(gone), not gone
        taken = self._take(place, most, _STRETCH_NS)
        if taken >= 0:
            return taken, False
        if taken == _FAILED:
            assert isinstance(self._run, BoundProgram)
            self._run.fail()
        return -1 - taken, True

    def choose(self, place: int) -> list[int] | None:
        """Begin a step in which something happens; see `BoundSteps`."""
        count = self._choose(place)
        return None if count < 0 else self._eventful[:count].tolist()

    def grow(self, parents_BK: Int32s) -> None:
        """Move the tree to beams that descend from these queries."""
        assert parents_BK.dtype == np.int32
        assert parents_BK.flags.c_contiguous
        self._grow(_address(parents_BK))

    def plan(self, steps: int) -> tuple[int, int]:
        """Look for dead slots; see `BoundTree`."""
        self._plan(steps, self._planned)
        return self._planned[0], self._planned[1]


def _address(array: NDArray[Any]) -> int:
    """The address of an array. This takes half as long as `array.ctypes.data`."""
    address: int = array.__array_interface__["data"][0]
    return address


def _checked(
    kinds: Sequence[tuple[str, str]], arrays: Sequence[NDArray[Any] | None]
) -> Sequence[NDArray[Any] | None]:
    """The same arrays. Raises TypeError if one has another type of numbers or is not contiguous."""
    for (name, dtype), array in zip(kinds, arrays, strict=True):
        if array is not None and (array.dtype != dtype or not array.flags.c_contiguous):
            raise TypeError(f"{name} must be {dtype} in one piece, got {array.dtype}")
    return arrays


def native_steps(
    beams: BeamArrays, binding: CpuBinding, current: Callable[[], bool]
) -> NativeSteps | None:
    """Native steps on these arrays and this binding of the CPU; None if there are no kernels."""
    library = _library()
    return None if library is None else NativeSteps(library, beams, binding, current)
