"""The sizes for which engines are built: a bundle's limits, narrowed by a profile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from export.errors import ExportError
from serving.bundle.engines import Span
from serving.bundle.manifest import Manifest
from serving.queue.limits import BatchLimits
from serving.runtime.cache_tensors import round_up
from serving.runtime.translation_stepper import PREFILL_CHUNK
from serving.search.options import MAX_STEPS
from serving.search.prefix_tree import ALIGNMENT, REPACK_EVERY
from serving.search.sampling.drawing import TOP
from serving.search.sampling.prompts import CHUNK

KEYS = ("rows", "source", "beam", "capacity")
_EXAMPLE = "--profile rows=8:32,source=64,beam=5,capacity=64,128,256"
_LIMITS = BatchLimits()
_MOST_BEAM = 16
"""The service's default limit."""
_USUAL_ROWS, _USUAL_SOURCE, _USUAL_BEAM = 8, 32, 5
_FIRST_CAPACITY = 64
_OPEN_CONTEXT = 1024
"""Slots of the largest default engines of a model whose layers see all of a text. Longer texts run
on the graph unless larger capacities are requested: each engine holds all weights."""


@dataclass(frozen=True)
class Sizes:
    """Smallest, usual and largest batch sizes, and cache capacities."""

    rows: Span
    source: Span | None
    """Source lengths in ids; None for models without a source."""
    beam: Span
    capacities: tuple[int, ...]
    chunk: int
    """Largest number of tokens of a prefix or prompt that are read at once."""

    def spans(self) -> dict[str, Span]:
        """Spans by axis letter."""
        _, usual_beam, most_beam = self.beam
        queries = (1, usual_beam, max(most_beam, self.chunk))
        top = min(TOP, 2 * usual_beam) if self.source else TOP
        spans: dict[str, Span] = {"B": self.rows, "Q": queries, "K": queries, "R": queries}
        spans["T"] = (1, top, 2 * queries[2])
        if self.source is not None:
            rows, source = self.rows, self.source
            spans["S"] = source
            # No scheduler makes a batch of more tokens; one source always fits.
            most = max(source[2], min(rows[2] * source[2], _LIMITS.max_tokens))
            spans["BS"] = (source[0], min(rows[1] * source[1], most), most)
        return spans


def choose_sizes(manifest: Manifest, profile: str | None) -> Sizes:
    """The sizes of a bundle's engines; `profile` narrows the bundle's limits.

    A profile is a list of KEY=VALUE: the largest rows, source or beam, or usual and largest with a
    colon; and all capacities. Raises ExportError for a malformed one.
    """
    asked = _read(profile or "")
    kind = manifest.decoder_kind
    chunk = PREFILL_CHUNK.get(kind, CHUNK)
    beam = int(manifest.search.get("beam_size", 1 if manifest.task == "generate" else _USUAL_BEAM))
    source: Span | None = None
    if manifest.sizes.max_source is not None:
        most = round_up(manifest.sizes.max_source)
        source = _span(asked, "source", ALIGNMENT, _USUAL_SOURCE, most)
    elif "source" in asked:
        raise ExportError(f"--profile: {manifest.name} is a language model and has no source")
    beams = _span(asked, "beam", 1, beam, _MOST_BEAM)
    capacities = tuple(asked.get("capacity", ())) or _capacities(manifest, beams[1])
    wrong = [each for each in capacities if each % ALIGNMENT or not each]
    if wrong or list(capacities) != sorted(set(capacities)):
        raise ExportError(
            f"--profile: capacity must be rising multiples of {ALIGNMENT}, got "
            f"{','.join(map(str, capacities))}; e.g. {_EXAMPLE}"
        )
    rows = _span(asked, "rows", 1, _USUAL_ROWS, _LIMITS.max_rows)
    return Sizes(rows, source, beams, capacities, chunk)


def _read(profile: str) -> Mapping[str, list[int]]:
    """The numbers of each key."""
    found: dict[str, list[int]] = {}
    key = ""
    for part in filter(None, profile.split(",")):
        name, equals, value = part.rpartition("=")
        key = name.strip() if equals else key
        if key not in KEYS or (equals and key in found):
            wrong = "is given twice" if key in found else "is not a key"
            raise ExportError(f"--profile: {name or part!r} {wrong}; there are {', '.join(KEYS)}")
        most = r"\d+" if key == "capacity" else r"\d+(:\d+)?"
        if not re.fullmatch(most, value.strip()) or (key in found and key != "capacity"):
            raise ExportError(f"--profile: {part!r} cannot be read; e.g. {_EXAMPLE}")
        found.setdefault(key, []).extend(map(int, value.split(":")))
    return found


def _span(asked: Mapping[str, list[int]], key: str, least: int, usual: int, most: int) -> Span:
    """The span of one key; `most` is the limit of the bundle or of the service."""
    numbers = asked.get(key, [most])
    if least == ALIGNMENT:
        numbers = [round_up(number) for number in numbers]
    largest = numbers[-1]
    if len(numbers) == 1:
        numbers = [min(usual, largest), largest]
    allowed = f"{least} to {most}" if key == "source" else f"{least} or more"
    if not least <= numbers[0] <= largest or (key == "source" and largest > most):
        shown = ":".join(map(str, asked.get(key, numbers)))
        raise ExportError(
            f"--profile: {key} must be {allowed}, the usual one before the largest, got {shown}"
        )
    return least, numbers[0], largest


def _capacities(manifest: Manifest, beam: int) -> tuple[int, ...]:
    """Capacities from a short text to the longest, each twice the previous one."""
    kind, reach = manifest.decoder_kind, manifest.sizes.reach
    if kind == "lm":
        needed = max(reach) + CHUNK if reach else _OPEN_CONTEXT
    else:
        # Of a long hypothesis few slots are not its own; those of a few steps wait for a repack.
        needed = MAX_STEPS + 2 * beam * REPACK_EVERY[kind]
    capacities = [_FIRST_CAPACITY]
    while capacities[-1] < needed:
        capacities.append(2 * capacities[-1])
    return tuple(capacities)
