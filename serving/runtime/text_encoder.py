"""An encoder's graph over packed texts: products see no padding.

Shape letters: B texts, S ids of the longest, M ids of all, W numbers read from each.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from serving.arrays import Floats, Ints
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.device import check_device
from serving.runtime.ort import check_int8, load_graph
from serving.search.prefix_tree import round_up

CALL_TOKENS = 512
"""Ids of one call, unless a single text has more: beyond it a call is no faster a token, and what
passes between its operators outgrows the processor's cache."""


class EncoderInput(Protocol):
    """The ids that an encoder reads, and of which part of the text each is."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def segments(self) -> Sequence[int]: ...


class TextEncoder:
    """A session that reads packed texts."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        """Load the graph with `threads` intra-op threads; raises BundleError where the bundle has
        none or is for another device, or ONNX Runtime refuses it."""
        if manifest.encoder is None or manifest.reading is None:
            raise BundleError(f"{folder}: a bundle for {manifest.task!r} reads no texts")
        check_device(folder, manifest)
        check_int8(folder, manifest)
        graph, int8 = manifest.encoder, manifest.precision == "int8"
        self._session = load_graph(folder, graph.file, threads, int8=int8)
        names: dict[str, str] = {tensor.role: tensor.name for tensor in graph.inputs}
        self._inputs = [names[role] for role in Packed._fields]
        self._outputs = [graph.outputs[0].name]
        self._width = graph.outputs[0].axes[-1]

    def run(self, texts: Sequence[EncoderInput]) -> Floats:
        """What is read from each text, [B,W]: a text's numbers do not depend on the others."""
        if len(texts) == 1:
            return self._read(texts)
        found_BW = np.empty((len(texts), int(self._width)), np.float32)
        for numbers in calls([len(text.ids) for text in texts]):
            found_BW[numbers] = self._read([texts[number] for number in numbers])
        return found_BW

    def _read(self, texts: Sequence[EncoderInput]) -> Floats:
        """[B,W], in one call."""
        inputs = dict(zip(self._inputs, pack(texts), strict=True))
        found_BW: Floats = self._session.run(self._outputs, inputs)[0]
        return found_BW


class Packed(NamedTuple):
    """The inputs of the graph, by role."""

    token: Ints
    """[1,M]"""
    position: Ints
    """[1,M]"""
    segment: Ints
    """[1,M]"""
    slot: Ints
    """[B,S]: the place of each text's ids in M, behind its end that of its last one."""
    source_mask: Floats
    """[B,S]: 0 at ids, -inf behind them."""
    packed_row: Ints
    """[M]: the place of each id in B * S."""


class _Places(NamedTuple):
    """The inputs of the graph beside the ids; they depend on the lengths of the texts only."""

    position: Ints
    slot: Ints
    source_mask: Floats
    packed_row: Ints


def pack(texts: Sequence[EncoderInput]) -> Packed:
    """Lay texts behind one another; S is a multiple of 8."""
    lengths = tuple([len(text.ids) for text in texts])
    places = _alone(lengths[0]) if len(lengths) == 1 else _places(lengths)
    return Packed(
        _behind_one_another([text.ids for text in texts]),
        places.position,
        _behind_one_another([text.segments for text in texts]),
        places.slot,
        places.source_mask,
        places.packed_row,
    )


def _behind_one_another(texts: Sequence[Sequence[int]]) -> Ints:
    return np.array([number for text in texts for number in text], np.int64)[None]


@functools.lru_cache(maxsize=512)
def _alone(length: int) -> _Places:
    """Of a text alone, whose read takes so little time that finding them would be a tenth of it."""
    return _places((length,))


def _places(lengths: tuple[int, ...]) -> _Places:
    lengths_B1 = np.array(lengths, np.int64)[:, None]
    width = round_up(max(lengths))
    starts_B1 = np.cumsum(lengths_B1, axis=0) - lengths_B1
    places_1S = np.arange(width)[None]
    real_BS = places_1S < lengths_B1
    return _Places(
        position=np.broadcast_to(places_1S, real_BS.shape)[real_BS][None],
        slot=starts_B1 + np.minimum(places_1S, lengths_B1 - 1),
        source_mask=np.where(real_BS, np.float32(0.0), np.float32(-np.inf)),
        packed_row=np.flatnonzero(real_BS),
    )


def calls(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Which texts are read in one call, as lists of their numbers, the longest first."""
    ordered = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    taken: list[int] = []
    tokens = 0
    for number in ordered:
        if taken and tokens + lengths[number] > CALL_TOKENS:
            yield taken
            taken, tokens = [], 0
        taken.append(number)
        tokens += lengths[number]
    if taken:
        yield taken
