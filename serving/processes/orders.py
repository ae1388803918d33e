"""The orders from the server to the processes that load models and decode with them.

Each started process has one connection for loading and dropping models and for starting decoders.
Each model has one more connection to each decoding process, for tasks and their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.queue.limits import BatchLimits


@dataclass(frozen=True)
class LoadOrder:
    """Load a model. The answer is its `DeviceUse`, or the exception with which loading failed."""

    model: int
    """The number by which later orders name the model."""
    folder: Path
    threads: int
    tune: bool
    """Whether to find out how many of the threads are fastest for a short text."""
    limits: BatchLimits | None = None


@dataclass(frozen=True)
class DropOrder:
    """Unload a model. The answer is None."""

    model: int


@dataclass(frozen=True)
class ServeOrder:
    """Decode for these models. A descriptor of a connection for each follows, in a message of its
    own. The answer is the id of the process that decodes, or the exception with which starting it
    failed."""

    models: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """An order on a model's connection: cancel some tasks, and decode others of one group."""

    cancelled: tuple[int, ...] = ()
    tasks: Mapping[int, Any] | None = None
