"""Starts the processes of a run on this machine, and ends them together."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from types import FrameType

import torch

from training.errors import ConfigError
from training.loop.ranks import ADDRESS, LOCAL_RANK, PORT, RANK, SIZE
from training.runs.folder import find_device

logger = logging.getLogger(__name__)

GRACE_SECONDS = 120.0
"""Seconds for the others after one has failed: rank 0 saves a checkpoint."""


def check_devices(name: str, processes: int) -> None:
    """Check that each of the processes finds its device: once here instead of in each of them.

    Raises ConfigError if one would not.
    """
    if name != "cuda":
        find_device(name)
        return
    found = torch.cuda.device_count()  # takes no GPU memory, unlike `find_device`
    if found < processes:
        raise ConfigError(
            f"loop.device='cuda' gives each of --processes = {processes} a GPU of its own, this "
            f"machine has {found} that torch can use; lower --processes or set loop.device=cpu"
        )


def launch(words: list[str], processes: int) -> int:
    """Run `python -m training` with these arguments in `processes` processes; returns the exit
    status.

    If one fails, the others notice it themselves; after a grace period they are ended. The same
    happens if this process is asked to end.
    """
    common = {SIZE: str(processes), ADDRESS: "127.0.0.1", PORT: str(_free_port())}
    children = []
    for rank in range(processes):
        own = {RANK: str(rank), LOCAL_RANK: str(rank)}
        command = [sys.executable, "-m", str(__package__).removesuffix(".loop"), *words]
        children.append(subprocess.Popen(command, env={**os.environ, **common, **own}))
    return accompany(children)


def accompany(children: list[subprocess.Popen[bytes]], grace: float = GRACE_SECONDS) -> int:
    """Wait for the processes of all ranks; returns the exit status. `grace` is in seconds."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        return _wait(children, grace)
    except KeyboardInterrupt:  # which the children have received as well
        _wait(children, grace)
        return 130
    except SystemExit:
        for child in children:
            child.terminate()
        _wait(children, grace, time.monotonic() + grace)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        for child in children:
            child.kill()
            child.wait()


def _wait(
    children: list[subprocess.Popen[bytes]], grace: float, deadline: float | None = None
) -> int:
    reported: set[int] = set()
    while None in [child.poll() for child in children]:
        for rank, child in enumerate(children):
            if child.returncode and rank not in reported:
                reported.add(rank)
                deadline = deadline or time.monotonic() + grace
                if child.returncode < 0:
                    name = signal.Signals(-child.returncode).name
                    logger.error("rank %d was ended by %s", rank, name)
        if deadline is not None and time.monotonic() > deadline:
            for child in children:
                child.kill()  # SIGTERM asked it to save, and it had time for that
        time.sleep(0.05)
    return int(any(child.returncode for child in children))


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
