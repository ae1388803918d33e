"""Memory of processes. It imports nothing, so that small processes can use it too."""

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


def pss_of_tree(pid: int) -> int:
    """Bytes that a process and its descendants hold now: memory that several processes share is
    divided between them (PSS). Processes that have ended count as nothing."""
    import psutil

    total = 0
    try:
        tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in tree:
        try:
            total += int(process.memory_full_info().pss)
        except psutil.Error:
            continue
    return total


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
