"""Packages of Argos Translate, found by its index. ARGOS_PACKAGE_INDEX names another index, as it
does for Argos Translate itself."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serving.errors import ModelNameError
from serving.hub.cache import downloads_folder
from serving.hub.fetching.archives import unpacked
from serving.hub.fetching.downloads import RemoteFile, downloaded, missing_bytes, read_json, size_of
from serving.hub.names import ArgosName
from serving.hub.publishers.published import Published, listed_pairs, whole

_INDEX = "https://raw.githubusercontent.com/argosopentech/argospm-index/main/"


def look(name: ArgosName) -> Published:
    """Look up the newest package of a pair.

    Raises ModelNameError if the index cannot be read, or has no such pair.
    """
    label = str(name)
    index = f"{os.environ.get('ARGOS_PACKAGE_INDEX', '').strip() or _INDEX}index.json"
    listed = read_json(label, index)
    if not isinstance(listed, list):
        raise ModelNameError(f"{name}: {index} returns no list of packages")
    entry = _newest(name, [each for each in listed if isinstance(each, dict)], index)
    urls = tuple(str(link) for link in entry.get("links", ()) if str(link).startswith("http"))
    version = str(entry.get("package_version", ""))
    if not urls:
        raise ModelNameError(f"{name}: {index} has no link to it that begins with http")
    key = hashlib.sha256(f"{version} {urls[0]}".encode()).hexdigest()
    file = RemoteFile(f"{key[:12]}.argosmodel", urls, size_of(label, urls), name.sha256)
    return Published(
        name,
        name.sha256 or f"{version}-{key}",
        None,
        urlsplit(urls[0]).netloc,
        file.size,
        missing_bytes(label, [file]),
        downloads_folder(label),
        whole,
        partial(_fetch, label, file),
        remark=""
        if name.sha256
        else "the index has no hash; append #sha256=HASH to the name to check one",
    )


def _pair(entry: dict[str, Any]) -> str:
    return f"{entry.get('from_code')}-{entry.get('to_code')}"


def _newest(name: ArgosName, entries: Sequence[dict[str, Any]], index: str) -> dict[str, Any]:
    found = [entry for entry in entries if _pair(entry) == name.pair]
    if not found:
        source, _, target = name.pair.partition("-")
        near = {
            _pair(entry)
            for entry in entries
            if entry.get("from_code") == source or entry.get("to_code") == target
        }
        pairs = listed_pairs(near, map(_pair, entries))
        raise ModelNameError(f"{name}: {index} has no such pair; {pairs}")
    return max(found, key=_version)


def _version(entry: dict[str, Any]) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", str(entry.get("package_version", "")))]


def _fetch(name: str, file: RemoteFile, folder: Path) -> Path:
    (path,) = downloaded(name, [file])
    return unpacked(name, path, folder)
