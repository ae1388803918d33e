"""Ids of special pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
"""The ids in every vocabulary that this project trains."""


@dataclass(frozen=True)
class SpecialIds:
    """Ids of a vocabulary's special pieces, from a bundle's manifest."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    pad: int = PAD_ID
    unk: int = UNK_ID
    bos: int = BOS_ID
    """The decoder's first input. Imported models may start with another piece, such as padding."""
    eos: int = EOS_ID
    """The piece that ends a source and a target."""


OWN_IDS = SpecialIds()
"""The special ids of models that this project trains."""
