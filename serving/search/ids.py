"""Ids of the special tokens, which every vocabulary has at the same place."""

from __future__ import annotations

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
