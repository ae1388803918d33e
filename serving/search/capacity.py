"""How many slots a cache has, and when a sentence drops its dead ones: numbers alone, so that who
reads manifests needs no arrays."""

from __future__ import annotations

REPACK_EVERY = {"cross": 8, "joint": 2, "lm": 16}
"""Steps between repacks by kind of decoder. Slots of a joint model are S times as large. Most rows
of a language model have one query, so that their slots never die."""
ALIGNMENT = 8  # capacities and source lengths are multiples of this


def round_up(length: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def round_capacity(slots: int) -> int:
    """Capacity for a number of slots. Long caches grow in larger steps, because each step copies
    the whole cache."""
    unit = ALIGNMENT if slots <= 256 else 32 if slots <= 1024 else 128
    return -(-slots // unit) * unit


def most_slots(
    prefix_length: int,
    beam_size: int,
    steps: int,
    repack_every: int,
    reach: int | None = None,
) -> int:
    """Upper bound of the capacity that a sentence can need if only slots out of reach are dropped,
    which happens at the first repack."""
    slots = prefix_length + beam_size * (steps + repack_every)
    if reach is not None:
        first = prefix_length + beam_size * repack_every
        slots = min(slots, max(first, beam_size * (reach + repack_every)))
    return round_capacity(slots)
