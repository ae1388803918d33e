"""Whether the bundles can be served: `python -m serving.server.check`.

In a process of its own, whose memory is free again before the server needs it.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NoReturn

from serving.errors import ServingError
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from serving.translation.processes.group import environment


def check_apart() -> None:
    """End this process where a bundle is bad, with one line on stderr that says so."""
    command = [sys.executable, "-m", __name__]
    checked = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, check=False)
    if checked.returncode:
        raise SystemExit(1)


def refuse(error: ServingError) -> NoReturn:
    """End the process with the error in one line on stderr."""
    print(f"macaron: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def main() -> None:
    """Load every bundle that the server loads at its start, and have each say something."""
    try:
        # The trials that find the fastest number of threads are the worker's.
        update = {"preset": "throughput", "decode_in": "threads"}
        settings = Settings.from_environment().model_copy(update=update)
        registry = Registry(settings)
        registry.load()
    except ServingError as error:
        refuse(error)
    registry.close()


if __name__ == "__main__":
    main()
