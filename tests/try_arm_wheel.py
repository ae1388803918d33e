"""Tries the wheel for ARM on another machine, under QEMU: `python -m tests.try_arm_wheel
dist/*.whl`.

It needs Debian or Ubuntu with `qemu-user-static` and a network. An arm64 Python of the same
distribution and the packages of requirements/serve.txt are unpacked into a folder, which `--root
FOLDER` names and keeps. The slow tests run whole translations in that folder, if MACARON_ARM64
names it. The wheel is installed there, and a bundle translates on the wheel's own kernels. QEMU
shows that the code is right; it says nothing about speed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "macaron-de-en"
PACKAGES = ("python3.11", "libstdc++6", "libgomp1")
"""Packages of Debian 12; apt-get adds their dependencies."""
GLIBC = (17, 27, 28, 34)
"""Minor versions of manylinux_2 that Debian 12, with glibc 2.36, can run."""
CPUINFO = """\
processor\t: 0
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3
"""
"""A Cortex-A72. ONNX Runtime believes this file, so it must not promise more than the oldest
processor that is emulated; the kernels of Macaron ask the system instead."""


def run(*command: str | Path, **more: str) -> str:
    """The output of a command, with more variables; ends this program if the command fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=os.environ | more, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"failed: {' '.join(words)}\n{done.stdout}")
    return done.stdout


def unpack_python(folder: Path) -> None:
    """Unpack an arm64 Python and its libraries; this system's own packages do not change."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("lists/partial", "archives/partial"):
            Path(place, name).mkdir(parents=True)
        Path(place, "status").touch()
        settings = Path(place, "apt.conf")
        settings.write_text(
            'APT::Architecture "arm64"; APT::Architectures { "arm64"; };\n'
            f'Dir::State "{place}"; Dir::State::status "{place}/status"; Dir::Cache "{place}";\n'
        )
        run("apt-get", "update", "-qq", APT_CONFIG=str(settings))
        wanted = ("-qq", "--no-install-recommends", "--download-only", *PACKAGES)
        run("apt-get", "install", *wanted, APT_CONFIG=str(settings))
        for package in sorted(Path(place, "archives").glob("*.deb")):
            run("dpkg-deb", "-x", package, folder)
    (folder / "proc").mkdir(exist_ok=True)
    (folder / "proc" / "cpuinfo").write_text(CPUINFO)


def install(folder: Path, *what: str) -> None:
    """Install packages for ARM into `site` of the folder, without their dependencies."""
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in GLIBC]
    target = ("--target", str(folder / "site"), "--python-version=311", "--no-deps", "--upgrade")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    only = ("--only-binary=:all:", "--platform=manylinux2014_aarch64", "--platform=linux_aarch64")
    run(*pip, *target, *only, *platforms, *what)


def emulate(folder: Path, *words: str | Path) -> str:
    """The output of the foreign Python, which sees only its own packages."""
    python, paths = folder / "usr/bin/python3.11", f"PYTHONPATH={folder / 'site'}"
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None:
        sys.exit("qemu-aarch64 is missing: apt-get install qemu-user-static")
    with tempfile.TemporaryDirectory() as empty:
        caches = {"XDG_CACHE_HOME": empty, "CXX": "", "PATH": empty}
        own = [word for name, value in caches.items() for word in ("-E", f"{name}={value}")]
        command = [qemu, "-cpu", "max", "-L", folder, "-E", paths, *own, python, "-P", *words]
        return run(*command)


def main(words: list[str] | None = None) -> None:
    """Install the wheel and translate; ends with status 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--root", type=Path, help="the folder of the foreign Python, which is kept")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        folder = (options.root or Path(place)).resolve()
        if not (folder / "usr/bin/python3.11").exists():
            unpack_python(folder)
            install(folder, "-r", str(ROOT / "requirements" / "serve.txt"))
        install(folder, str(options.wheel.resolve()))
        found = emulate(folder, "-m", "macaron", "doctor", MODEL)
    print(found, end="")
    if "native, came with the package" not in found:
        sys.exit(f"failed: the kernels of {options.wheel.name} were not used")
    print(f"{options.wheel.name} runs under QEMU")


if __name__ == "__main__":
    main()
