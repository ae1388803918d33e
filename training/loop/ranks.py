"""The processes that train one model together, each on its share of the batches, and their
communication. Only the first of them, rank 0, writes files and reports progress."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

# This module's functions have the group of all processes as a default, bound at its import. Were
# that after the group is made (torch's optimizers do it), the group would outlive `leave`, and its
# threads abort the process at its exit.
import torch.distributed.nn
from torch import Tensor, nn

from training.errors import CheckpointError, RankLostError
from training.runs.folder import find_device

_LONGEST_WAIT = timedelta(hours=2)
"""Longest wait for rank 0 while it cleans text or validates; a process that has died is noticed at
once."""

RANK, SIZE, LOCAL_RANK = "RANK", "WORLD_SIZE", "LOCAL_RANK"
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"


class TrainingRanks:
    """One of the processes that train together. By default it is the only one, and communicates
    with no other."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self._device = torch.device("cpu")

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    @classmethod
    def join(cls, device: str) -> TrainingRanks:
        """Join the other processes that `launch` or torchrun has started, as the environment says.

        Raises ConfigError if the device cannot be used, RankLostError if the others do not join.
        """
        if not is_one_of_many():
            return cls()
        ranks = cls(int(os.environ[RANK]), int(os.environ[SIZE]))
        ranks._device = find_device(ranks.device(device))
        backend = "gloo"
        if ranks._device.type == "cuda":
            torch.cuda.set_device(ranks._device)
            backend = "nccl"
        with _others():
            dist.init_process_group(backend, timeout=_LONGEST_WAIT)
        return ranks

    def leave(self) -> None:
        """Leave the group of processes and end its threads; no method may communicate
        afterwards."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def device(self, name: str) -> str:
        """The device of this process: of several GPUs of a machine each has its own."""
        return f"cuda:{os.environ.get(LOCAL_RANK, 0)}" if name == "cuda" and self.size > 1 else name

    def share_of(self, batches: list[Any]) -> list[Any]:
        """The batches of an update that this process computes: every `size`-th one, possibly
        none."""
        return batches[self.rank :: self.size]

    def seed(self, seed: int, step: int) -> None:
        """Make dropout of an update differ from that of the other processes.

        Rank 0 goes on with its own random numbers, which checkpoints store. The others start each
        update from a new seed, so nothing of theirs has to be stored.
        """
        if not self.is_first:
            digest = hashlib.sha256(f"{seed} {step} {self.rank}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:7]))

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Let rank 0 run the block before the others, which then find what it has written."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def wait(self) -> None:
        """Return when all processes have called this."""
        self.sum([0.0])

    def sum(self, values: list[float]) -> list[float]:
        """Sums over all processes, in fp64."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64, device=self._device)
        with _others():
            dist.all_reduce(total)
            return [float(value) for value in total]  # NCCL has only queued it: errors come here

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes, bit for bit the same in each."""
        if self.size == 1:
            return
        listed = list(parameters)
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in listed]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        with _others():
            dist.all_reduce(flat)
        parts: list[Tensor] = list(flat.split([parameter.numel() for parameter in listed]))
        for parameter, part in zip(listed, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    @contextmanager
    def heeding_sigterm(self) -> Iterator[Callable[[], bool]]:
        """Keep SIGTERM from ending any of several processes within the block. Yields a function
        that tells whether one of them has received SIGTERM; all processes must call it together,
        and all get the same answer.

        With a single process SIGTERM works as always.
        """
        if self.size == 1:
            yield lambda: False
            return
        sent = [0.0]

        def note(number: int, frame: FrameType | None) -> None:
            sent[0] = 1.0

        before = signal.signal(signal.SIGTERM, note)
        try:
            yield lambda: self.sum(sent)[0] > 0
        finally:
            signal.signal(signal.SIGTERM, before)

    def from_first(self, value: Any) -> Any:
        """The value of rank 0 in all processes; the values of the others are ignored."""
        if self.size == 1:
            return value
        values = [value]
        with _others():
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def check_same(self, facts: dict[str, Any]) -> None:
        """Check that all processes agree on each of these named facts.

        Raises CheckpointError in rank 0, and RankLostError in the others, if they differ.
        """
        if self.size == 1:
            return
        found: list[dict[str, Any]] = [{} for _ in range(self.size)]
        with _others():
            dist.all_gather_object(found, facts)
        for rank, others in enumerate(found):
            for name, value in found[0].items():
                if others[name] == value:
                    continue
                if not self.is_first:
                    raise RankLostError("rank 0 says why")
                raise CheckpointError(
                    f"rank {rank} has another {name} than rank 0: {others[name]!r} in place of "
                    f"{value!r}; every process of a run must read the same files"
                )


def is_one_of_many() -> bool:
    """Whether the environment says that this process was started as one of several."""
    needed = (RANK, SIZE, ADDRESS, PORT)
    return all(name in os.environ for name in needed) and int(os.environ[SIZE]) > 1


@contextmanager
def _others() -> Iterator[None]:
    """Turn the errors that backends raise when a process is gone into RankLostError."""
    try:
        yield
    except RuntimeError as error:  # torch's own errors of this kind are RuntimeErrors
        reason = " ".join(str(error).split())[:200]
        raise RankLostError(f"another process of this run has ended ({reason})") from error
