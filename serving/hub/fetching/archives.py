"""Unpacks archives into a folder and nowhere else."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path

from serving.errors import ModelNameError
from serving.hub.tell import size_text

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_ZIPS = (".zip", ".argosmodel")


def unpacked(name: str, path: Path, folder: Path) -> Path:
    """Unpack an archive into a folder; a file that is not an archive becomes a link there.

    Returns the file. For an archive it returns the folder, or the only folder in it if there is
    nothing else. Raises ModelNameError for a damaged archive, which is deleted, and if there is not
    enough disk space.
    """
    try:
        if path.name.endswith(_ZIPS):
            _unzip(name, path, folder)
        elif path.name.endswith(_TARS):
            _untar(name, path, folder)
        else:
            (folder / path.name).symlink_to(path)
            return folder / path.name
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        path.unlink()
        raise ModelNameError(
            f"{name}: {path.name} is damaged ({error}); the same command downloads it again"
        ) from error
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _unzip(name: str, path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        _check_room(name, folder, sum(member.file_size for member in archive.infolist()))
        archive.extractall(folder)


def _untar(name: str, path: Path, folder: Path) -> None:
    with tarfile.open(path) as archive:
        _check_room(name, folder, sum(member.size for member in archive.getmembers()))
        archive.extractall(folder, filter="data")


def _check_room(name: str, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise ModelNameError(
            f"{name}: the disk of {folder} has {size_text(free)} free, but the unpacked archive "
            f"needs {size_text(size)}; make room, or name another folder with MACARON_CACHE"
        )
