"""What needs no server runs where there is no fork and nothing else of Unix alone, as on Windows:
acted out here by taking it away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WITHOUT = """
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"):
    sys.modules[name] = None
for name in ("fork", "killpg", "sched_getaffinity", "sched_setaffinity", "memfd_create"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGCHLD", "SIGUSR1", "SIGUSR2"):
    if hasattr(signal, name):
        delattr(signal, name)
from serving.runtime import kernels
kernels.sys = type("System", (), {"platform": "win32"})
from macaron import Translator, doctor
doctor.sys = kernels.sys
print(Translator("models/macaron-de-en").translate("Guten Morgen!")[0].text)
sys.exit(doctor.main(["models/macaron-de-en"], "macaron doctor"))
"""


def test_translates_and_is_well_without_what_unix_alone_has() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore:only soft file lock", "-c", WITHOUT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Good morning!\n")
    assert "standard operators; on win32 there are no others" in done.stdout
    assert done.stderr == ""
