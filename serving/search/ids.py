"""Ids of the special pieces: those of what is trained here, and a place for those of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
"""Every vocabulary that is trained here has them at these places."""


@dataclass(frozen=True)
class SpecialIds:
    """Ids of a vocabulary's special pieces, as a bundle's manifest lists them."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    pad: int = PAD_ID
    unk: int = UNK_ID
    bos: int = BOS_ID
    """What the decoder is given before the first piece; models of others have another piece there,
    such as padding."""
    eos: int = EOS_ID
    """Ends a source and a target."""


OWN_IDS = SpecialIds()
"""Those of what is trained here."""
