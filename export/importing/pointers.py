"""Pointers of Git LFS: a few lines that replace a large file in a checkout until it is fetched."""

from __future__ import annotations

from pathlib import Path

from export.errors import ExportError

_START = b"version https://git-lfs.github.com/spec/"


def is_pointer(path: Path) -> bool:
    """Whether a file holds a pointer in place of its content."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_START)) == _START


def refuse_pointer(path: Path) -> None:
    """Raise ExportError if a file holds a pointer in place of its content."""
    if is_pointer(path):
        raise pointed(path)


def pointed(path: Path) -> ExportError:
    """The error to raise for a pointer of Git LFS."""
    return ExportError(
        f"{path}: is a pointer of Git LFS, not the file itself; fetch it with `git lfs pull` in "
        "its folder, or download the checkpoint again"
    )
