"""Downloads files by URL. A file is complete and matches its hash, or it does not exist;
interrupted downloads are resumed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from ssl import SSLError
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from serving.bundle.folder import file_hash
from serving.errors import ModelNameError
from serving.hub.cache import cannot_write, downloads_folder, locked
from serving.progress import ProgressLine

_TIMEOUT_S = 60
_WAIT_S = 1.0
"""Seconds before a server is asked again."""
_TRIES = 3
"""Number of consecutive tries without data before giving up."""
_CHUNK = 1 << 18
_HEADERS = {"User-Agent": "macaron"}


@dataclass(frozen=True)
class RemoteFile:
    """A file to download."""

    name: str
    """The local file name, without a folder."""
    urls: tuple[str, ...]
    """The URLs of the file; each is tried if the one before fails."""
    size: int
    """Bytes; 0 if unknown."""
    sha256: str | None
    """Hash of the file; None if its publisher gives none."""


def read_json(name: str, url: str) -> Any:
    """Read JSON from a URL; `name` is the model's, for messages. Raises ModelNameError."""
    return _json(name, url)[0]


def read_pages(name: str, url: str) -> list[dict[str, Any]]:
    """Yield the objects in `data` of this page and of the pages after it (`Next-Page`)."""
    found: list[dict[str, Any]] = []
    following: str | None = url
    while following:
        page, headers = _json(name, following)
        try:
            found += [entry for entry in page["data"] if isinstance(entry, dict)]
        except (TypeError, KeyError) as error:
            raise ModelNameError(f"{name}: {url} returns no list under 'data'") from error
        following = headers.get("Next-Page")
    return found


def _json(name: str, url: str) -> tuple[Any, HTTPMessage]:
    try:
        with urlopen(Request(url, headers=_HEADERS), timeout=_TIMEOUT_S) as response:
            return json.load(response), response.headers
    except ValueError as error:
        raise ModelNameError(f"{name}: {url} does not return JSON: {error}") from error
    except (OSError, HTTPException) as error:
        raise _unreachable(name, url, error) from error


def size_of(name: str, urls: Sequence[str]) -> int:
    """Size in bytes of the file at the first URL that answers; 0 if the server does not give it.
    Raises ModelNameError if none answers."""
    *_, last = urls
    for url in urls:
        try:
            request = Request(url, headers=_HEADERS, method="HEAD")
            with urlopen(request, timeout=_TIMEOUT_S) as response:
                return int(response.headers.get("Content-Length") or 0)
        except (OSError, HTTPException) as error:
            if url == last:
                raise _unreachable(name, url, error) from error
    return 0


def missing_bytes(name: str, files: Sequence[RemoteFile]) -> int:
    """Bytes of files that are still to be downloaded."""
    here = downloads_folder(name)
    found = sum(_size(here / file.name) + _size(_part(here, file)) for file in files)
    return max(0, sum(file.size for file in files) - found)


def downloaded(name: str, files: Sequence[RemoteFile]) -> list[Path]:
    """Download files into the cache's folder of downloads; returns them in order.

    Raises ModelNameError for a file that cannot be downloaded, or whose hash is wrong.
    """
    folder = downloads_folder(name)
    with locked(f"{name} download"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return [_downloaded(name, file, folder) for file in files]
        except OSError as error:
            raise cannot_write(error.filename or folder, error) from error


def _downloaded(name: str, file: RemoteFile, folder: Path) -> Path:
    path, part = folder / file.name, _part(folder, file)
    if path.is_file() and file.sha256 in (None, file_hash(path)):
        return path
    begun = _size(part) > 0
    _fill(name, file, part)
    if file.sha256 and begun and file_hash(part) != file.sha256:
        part.unlink()  # the download may have been started when the URL had another file
        _fill(name, file, part)
    if file.sha256:
        check_hash(name, file.urls[0], part, file.sha256)
    os.replace(part, path)
    return path


def check_hash(name: str, source: str, path: Path, sha256: str) -> None:
    """Compare a downloaded file with the hash that its publisher, or a user, gives for it.

    If they differ, deletes the file, or the file that a link leads to, and raises ModelNameError.
    `source` is the file's URL or its name at the publisher, for the message.
    """
    found = file_hash(path)
    if found != sha256:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ModelNameError(
            f"{name}: the sha256 of {source} must be {sha256[:12]}..., but is {found[:12]}...; the "
            "file was changed or damaged and is not used: check the hash, or try again later"
        )


def _fill(name: str, file: RemoteFile, part: Path) -> None:
    """Download the rest of a file from the first URL that provides it."""
    progress = ProgressLine(file.size // 1000, f"kB of {file.name}", _size(part) // 1000)
    reasons = []
    for url in file.urls:
        reason = _follow(url, part, progress)
        if not reason:
            progress.finish()
            return
        reasons.append(f"{url} cannot be downloaded: {reason}")
    raise ModelNameError(
        f"{name}: {'; '.join(reasons)}; the same command continues where this one stopped"
    )


def _follow(url: str, part: Path, progress: ProgressLine) -> str:
    """Write the rest of a file from one URL, which is asked again as long as data arrive. Returns
    the reason why the file is incomplete, or an empty text."""
    tries = _TRIES
    while True:
        before = _size(part)
        try:
            if _append(url, part, progress):
                return ""
            reason = "the connection was closed before the end"
        except HTTPError as error:
            return f"its server answered {error.code} {error.reason}"
        except (HTTPException, URLError, ConnectionError, TimeoutError, SSLError) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        tries = _TRIES if _size(part) > before else tries - 1
        if not tries:
            return reason
        time.sleep(_WAIT_S)


def _append(url: str, part: Path, progress: ProgressLine) -> bool:
    """Append the data that a server sends for the rest of a file. Returns whether the file is
    complete."""
    start = _size(part)
    asked = {"Range": f"bytes={start}-"} if start else {}
    try:
        response = urlopen(Request(url, headers=_HEADERS | asked), timeout=_TIMEOUT_S)
    except HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return True  # it was complete; the hash shows whether it is right
        raise
    with response:
        goes_on = response.status == HTTPStatus.PARTIAL_CONTENT
        length = response.headers.get("Content-Length")
        written = 0
        with part.open("ab" if goes_on else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                written += len(chunk)
                progress.add(written // 1000 - (written - len(chunk)) // 1000)
    return length is None or written == int(length)


def _part(folder: Path, file: RemoteFile) -> Path:
    return folder / f"{file.name}.part"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _unreachable(name: str, url: str, error: Exception) -> ModelNameError:
    if isinstance(error, HTTPError):
        return ModelNameError(
            f"{name}: {url} answered {error.code} {error.reason}; check the name, or try again "
            "later"
        )
    return ModelNameError(
        f"{name}: {url} cannot be reached ({getattr(error, 'reason', error)}), and the model was "
        "not pulled before; connect to the network, or give a folder instead"
    )
