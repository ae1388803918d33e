"""The texts of a batch, concatenated into tensors without padding, so that matrix products compute
nothing for padding.

Shape letters: B texts, S ids of the longest, M ids of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from training.models.sublayers.attention import Packing


@dataclass(frozen=True, kw_only=True)
class PackedTexts:
    """Packed texts, the input of `Bert.encode_packed` and `TextModel.read_packed`."""

    token_ids_1M: Tensor
    segment_ids_1M: Tensor
    packing: Packing
    firsts_B: Tensor
    """The place of each text's first id in M."""

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Packing]:
        """The arguments of the models, in their order."""
        return self.token_ids_1M, self.segment_ids_1M, self.packing

    def to(self, device: torch.device) -> PackedTexts:
        """The same texts on a device; out of pinned memory they are copied while others
        compute."""
        return self._moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> PackedTexts:
        """The same texts in pinned memory, which a GPU can read directly."""
        return self._moved(lambda tensor: tensor.pin_memory())

    def _moved(self, move: Callable[[Tensor], Tensor]) -> PackedTexts:
        return PackedTexts(
            token_ids_1M=move(self.token_ids_1M),
            segment_ids_1M=move(self.segment_ids_1M),
            packing=Packing(
                slots_BS=move(self.packing.slots_BS),
                mask_BS=move(self.packing.mask_BS),
                rows_M=move(self.packing.rows_M),
                positions_1M=move(self.packing.positions_1M),
            ),
            firsts_B=move(self.firsts_B),
        )


def pack_texts(
    ids: Sequence[Sequence[int] | np.ndarray], segments: Sequence[Sequence[int] | np.ndarray]
) -> PackedTexts:
    """Concatenate texts, none of them empty, in the machine's memory."""
    lengths_B1 = np.array([len(text) for text in ids])[:, None]
    firsts_B1 = np.cumsum(lengths_B1, axis=0) - lengths_B1
    places_1S = np.arange(int(lengths_B1.max()))[None]
    real_BS = places_1S < lengths_B1
    mask_BS = np.where(real_BS, np.float32(0.0), np.float32(-np.inf))
    return PackedTexts(
        token_ids_1M=_row(ids),
        segment_ids_1M=_row(segments),
        packing=Packing(
            slots_BS=torch.from_numpy(firsts_B1 + np.minimum(places_1S, lengths_B1 - 1)),
            mask_BS=torch.from_numpy(mask_BS),
            rows_M=torch.from_numpy(np.flatnonzero(real_BS)),
            positions_1M=torch.from_numpy(np.broadcast_to(places_1S, real_BS.shape)[real_BS][None]),
        ),
        firsts_B=torch.from_numpy(firsts_B1[:, 0]),
    )


def _row(texts: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    return torch.tensor(np.fromiter(chain.from_iterable(texts), np.int64))[None]
