"""The interface between the steppers and a device: sessions of graphs, and memory for the tensors
of a batch.

On the CPU `serving.runtime.ort` and `serving.runtime.cache_tensors` implement it, with NumPy arrays
that graphs read and write in place. On another device only the inputs of a step and its choices
cross to the host.

Shape letters: B sentences, R some of them, S source positions, D model, W numbers read from each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from serving.arrays import Floats, Ints
from serving.bundle.graph import DType, Graph
from serving.search.prefix_tree import Repack

Self = TypeVar("Self")


@dataclass(frozen=True)
class DeviceUse:
    """The device that a bundle runs on, and the reason why it is not another."""

    name: str
    """`cpu`, `cuda` or `tensorrt`."""
    reason: str
    """One line for the people who run the service."""
    count: int = 1
    """Number of such devices, each with memory of its own. Engines are spread over them evenly."""


ON_CPU = DeviceUse("cpu", "the bundle is for the CPU; --target cuda exports one for a GPU")


class CacheMemory(Protocol):
    """The caches of a running batch: each cache tensor has cache rows, and each row has slots of
    features."""

    @property
    def layout(self) -> int:
        """The number of the present layout. Bindings to an earlier layout are void."""
        ...

    @property
    def capacity(self) -> int:
        """Number of slots of each row. A device may give more slots than were requested."""
        ...

    def resize(self, capacity: int) -> None:
        """Grow or shrink to `capacity` slots or a few more; new slots are finite."""
        ...

    def repack(self, repack: Repack) -> None:
        """Keep the given rows and slots, in the given order."""
        ...

    def extend(self: Self, other: Self, sentences: Ints) -> None:
        """Put the other's sentences, which keep their slots, into these rows, and the rest at the
        end. The other is left empty. The old content of the rows is overwritten completely."""
        ...

    def lower(self, height: int) -> None:
        """Keep only the first `height` cache rows of each sentence."""
        ...

    def free(self) -> None:
        """Give the memory back; nothing may be bound to it any more."""
        ...


class SourceMemory(Protocol):
    """The encoder's outputs for the sources of a batch: tensors [B,S,D], and a mask."""

    mask_BS: Floats
    """0 at ids and -inf after them, on the host."""
    layout: int
    """The number of the present layout, as in `CacheMemory.layout`."""

    def keep(self, rows: Ints) -> None:
        """Keep these rows, in this order."""
        ...

    def extend(self: Self, other: Self, rows: Ints) -> None:
        """Put the other's sentences into these rows, the rest at the end, and pad the shorter ones.
        The other is left empty."""
        ...

    def trim(self, length: int) -> None:
        """Cut sources to that many positions."""
        ...

    def read(self, number: int, rows: Sequence[int]) -> Floats:
        """Copy some rows of one tensor to the host, in fp32."""
        ...

    def free(self) -> None:
        """Give the memory back; nothing may be bound to it any more."""
        ...


class TensorMemory(Protocol):
    """Memory for the caches of one stepper, kept and used again from batch to batch."""

    def caches(self, tensors: int, rows: int, dim: int, height: int = 1) -> CacheMemory:
        """Caches of `rows` sentences of `height` cache rows each, without slots."""
        ...


class Binding(Protocol):
    """A graph with arrays bound to its inputs and outputs, which each run reads and writes."""

    inputs: dict[str, NDArray[Any]]
    """Input arrays by role; the caller fills them before each run."""

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Output arrays by role; each run overwrites them. On a device other than the CPU, an
        output crosses to the host only when it is looked at, and logits only when they are indexed
        or reshaped."""
        ...

    def run(self) -> None:
        """Run the graph on the present contents of `inputs`."""
        ...


class GraphSession(Protocol):
    """One graph of a bundle, loaded on a device."""

    def bind(
        self,
        sizes: Mapping[str, int],
        caches: Any,
        sources: Any = None,
        given: Mapping[str, Sequence[NDArray[Any]]] | None = None,
        unwanted: Collection[str] = (),
    ) -> Binding:
        """Bind something to every input and output of the graph.

        `caches` and `sources` are memory of the session's own device; caches are read and written
        in place. Arrays `given` by role are read at each run. All other tensors are allocated, with
        `sizes` by letter of the axis. Outputs of the roles `unwanted` are left out.
        """
        ...

    def encode(self, ids_BS: Ints, mask_BS: Floats) -> Any:
        """Run an encoder's graph; returns the encoded sources of a batch, in the device's
        memory."""
        ...

    def read(self, packed: Mapping[str, NDArray[Any]]) -> Floats:
        """Run the graph of an encoder alone over packed texts, given by role
        (`serving.runtime.text_encoder.Packed`). Returns the numbers read from each text, [B,W]."""
        ...


class Device(Protocol):
    """A device: loads graphs and gives memory."""

    use: DeviceUse

    def load(
        self,
        folder: Path,
        graph: Graph,
        threads: int,
        *,
        int8: bool,
        profile_prefix: Path | None = None,
    ) -> GraphSession:
        """Load one graph of a bundle, as `serving.runtime.ort.load_graph` does. Raises BundleError
        if it is refused."""
        ...

    def memory(self, dtype: DType) -> TensorMemory:
        """Memory for caches of numbers of that type."""
        ...

    def merge(self, parts: Sequence[Any], groups: Sequence[Sequence[int]]) -> Any:
        """Merge several batches of sources: row n of a part becomes row `groups[part][n]` of the
        whole. The first part must have the longest sources. The parts must not be used
        afterwards."""
        ...
