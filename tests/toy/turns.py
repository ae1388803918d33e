"""Whether other threads of Python run beside some work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def turns_beside(work: Callable[[], object]) -> int:
    """How often this thread gets a turn while another one works."""
    turns, worker = 0, threading.Thread(target=work)
    worker.start()
    while worker.is_alive():
        time.sleep(0.001)
        turns += 1
    worker.join()
    return turns
