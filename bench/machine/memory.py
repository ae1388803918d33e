"""Memory of this process. It imports nothing, so that small processes can use it too."""

from __future__ import annotations


def peak_rss() -> int:
    """Peak memory of this process in bytes."""
    # Not ru_maxrss: it starts at the parent's memory at the time of the fork.
    return _status("VmHWM") or current_rss()


def current_rss() -> int:
    """Bytes that this process holds now."""
    found = _status("VmRSS")
    if found is None:
        import psutil

        found = int(psutil.Process().memory_info().rss)
    return found


def peak_rss_of(pid: int) -> int:
    """Peak memory of another process in bytes; 0 if the system does not state it."""
    return _status("VmHWM", str(pid)) or 0


def _status(name: str, process: str = "self") -> int | None:
    """A size in bytes of a process's status; None if there is none."""
    try:
        with open(f"/proc/{process}/status") as file:
            for line in file:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
