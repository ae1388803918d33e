"""What the server orders of the processes that load models and decode with them.

There is one connection to each process that was started, for what is loaded and dropped and who
decodes, and one for each model and decoding process, for sentences and what comes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.queue.limits import BatchLimits
from serving.search.beams.sentence import Sentence


@dataclass(frozen=True)
class LoadOrder:
    """Load a model. The answer is the `DeviceUse` of it, or the exception with which it failed."""

    model: int
    """The number by which later orders name it."""
    folder: Path
    threads: int
    tune: bool
    """Whether to find out how many of the threads are fastest for a short text."""
    limits: BatchLimits | None = None


@dataclass(frozen=True)
class DropOrder:
    """Forget a model. The answer is None."""

    model: int


@dataclass(frozen=True)
class ServeOrder:
    """Decode for these models; a descriptor of a connection for each follows, in a message of its
    own. The answer is the id of the process that does, or the exception with which it failed."""

    models: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """On the connection of a model: to give up some sentences, and to take others."""

    cancelled: tuple[int, ...] = ()
    sentences: Mapping[int, Sentence] | None = None
