"""An encoder's graph over packed texts, whose matrix products see no padding.

Shape letters: B texts, S ids of the longest, M ids of all, W numbers read from each.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from serving.arrays import Floats, Ints
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.graph import FLOAT_BYTES
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.cache_tensors import round_up
from serving.runtime.device import open_device
from serving.runtime.ort import check_int8, trying_out
from serving.runtime.session import Device
from serving.search.ids import PAD_ID

CALL_TOKENS = 512
"""Largest number of ids in one call, unless a single text has more. A larger call takes no less
time per token, and the tensors between its operators outgrow the processor's cache."""
GPU_CALL_TOKENS = 16_384
"""Largest number of texts times ids of the longest text in one call on a GPU, where attention also
reads the padding."""
_WIDE = 8
"""Memory that an id takes in a call, as a multiple of the model's features: the feed-forward,
usually four times as wide as the model, before and after its activation."""


class EncoderInput(Protocol):
    """The ids that an encoder reads, and the segment of the text that each belongs to."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def segments(self) -> Sequence[int]: ...


class TextEncoder:
    """A session that reads packed texts."""

    def __init__(
        self, folder: Path, manifest: Manifest, threads: int, device: Device | None = None
    ) -> None:
        """Load the graph with `threads` intra-op threads, on a device that was opened for the
        bundle or on its own. Raises BundleError if the bundle has no encoder or is for another
        device, or if ONNX Runtime refuses it."""
        if manifest.encoder is None or manifest.reading is None:
            raise BundleError(f"{folder}: a bundle for {manifest.task!r} reads no texts")
        device = device or open_device(folder, manifest, batch_bytes(manifest))
        check_int8(folder, manifest)
        graph, int8 = manifest.encoder, manifest.precision == "int8"
        self._session = device.load(folder, graph, threads, int8=int8)
        self._width = graph.outputs[0].axes[-1]
        self._on_cpu = device.use.name == "cpu"
        if self._on_cpu:
            with trying_out(folder):
                self._read([EncodedText((PAD_ID,), (0,))])

    def run(self, texts: Sequence[EncoderInput]) -> Floats:
        """Encode texts; returns the numbers read from each, [B,W]. On a CPU a text's numbers do not
        depend on the other texts.

        Raises DeviceMemoryError if a call does not fit into the device's memory.
        """
        if len(texts) == 1:
            return self._read(texts)
        found_BW = np.empty((len(texts), int(self._width)), np.float32)
        lengths = [len(text.ids) for text in texts]
        for numbers in calls(lengths) if self._on_cpu else padded_calls(lengths):
            found_BW[numbers] = self._read([texts[number] for number in numbers])
        return found_BW

    def _read(self, texts: Sequence[EncoderInput]) -> Floats:
        """Encode texts in one call; returns [B,W]."""
        return self._session.read(pack(texts)._asdict())


def batch_bytes(manifest: Manifest) -> int:
    """Bytes of GPU memory that one call may take, roughly."""
    return GPU_CALL_TOKENS * _WIDE * manifest.sizes.model_dim * FLOAT_BYTES["float32"]


class Packed(NamedTuple):
    """The inputs of the graph, by role."""

    token: Ints
    """[1,M]"""
    position: Ints
    """[1,M]"""
    segment: Ints
    """[1,M]"""
    slot: Ints
    """[B,S]: the place of each text's ids in M; after a text's end, the place of its last id."""
    source_mask: Floats
    """[B,S]: 0 at ids, -inf after them."""
    packed_row: Ints
    """[M]: the place of each id in B * S."""


class _Places(NamedTuple):
    """The inputs of the graph beside the ids; they depend on the lengths of the texts only."""

    position: Ints
    slot: Ints
    source_mask: Floats
    packed_row: Ints


def pack(texts: Sequence[EncoderInput]) -> Packed:
    """Put texts one after another; S is a multiple of 8."""
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
    """The places of a single text. They are cached, because computing them would take a tenth of
    the time that the encoder needs for so short a call."""
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
    """Divide texts into calls of at most `CALL_TOKENS` ids: lists of the texts' numbers, the
    longest texts first."""
    taken: list[int] = []
    tokens = 0
    for number in _longest_first(lengths):
        if taken and tokens + lengths[number] > CALL_TOKENS:
            yield taken
            taken, tokens = [], 0
        taken.append(number)
        tokens += lengths[number]
    if taken:
        yield taken


def padded_calls(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Divide texts into calls as `calls` does, but for a GPU: the limit is on texts times ids of
    the longest text."""
    ordered = _longest_first(lengths)
    while ordered:
        count = max(1, GPU_CALL_TOKENS // lengths[ordered[0]])
        yield ordered[:count]
        ordered = ordered[count:]


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda number: -lengths[number])
