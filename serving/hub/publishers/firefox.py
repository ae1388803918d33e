"""Students that Mozilla publishes for Firefox: the records of the collection `translations-models`
of its Remote Settings, and their attachments.

MACARON_FIREFOX_URL names another server of Remote Settings than Mozilla's.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from serving.errors import ModelNameError
from serving.hub.cache import downloads_folder
from serving.hub.fetching.downloads import (
    RemoteFile,
    downloaded,
    missing_bytes,
    read_json,
    read_pages,
)
from serving.hub.names import FirefoxName
from serving.hub.publishers.published import Published, linked, listed_pairs, whole

_SERVER = "https://firefox.settings.services.mozilla.com/v1"
_RECORDS = "buckets/main/collections/translations-models/records"
_NEEDED = ("model", "lex", "vocab", "srcvocab", "trgvocab")
"""Types of files that a student consists of. Models that estimate a translation's quality are left
out."""
_RELEASE = re.compile(r"[\d.]+")


def look(name: FirefoxName) -> Published:
    """Look up the newest release of a pair, or the newest pre-release if there is none.

    Raises ModelNameError if the list cannot be read, or has no such pair.
    """
    label = str(name)
    server = (os.environ.get("MACARON_FIREFOX_URL", "").strip() or _SERVER).rstrip("/")
    records = read_pages(label, f"{server}/{_RECORDS}")
    newest = _newest(name, [record for record in records if _pair(record) == name.pair], records)
    base = read_json(label, f"{server}/")
    try:
        place = str(base["capabilities"]["attachments"]["base_url"])
        files = [_file(record, place) for record in newest]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelNameError(f"{name}: {server} returns {error} in an unknown form") from error
    hashes = "".join(str(file.sha256) for file in files)
    return Published(
        name,
        f"{newest[0]['version']}-{hashlib.sha256(hashes.encode()).hexdigest()}",
        None,
        server,
        sum(file.size for file in files),
        missing_bytes(label, files),
        downloads_folder(label),
        whole,
        partial(_fetch, label, files),
    )


def _pair(record: dict[str, Any]) -> str:
    return f"{record.get('fromLang')}-{record.get('toLang')}"


def _newest(
    name: FirefoxName, found: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The records of the newest version of a pair, in a fixed order."""
    needed = [record for record in found if record.get("fileType") in _NEEDED]
    models = [str(record["version"]) for record in needed if record["fileType"] == "model"]
    if not models:
        near = {_pair(record) for record in records if _is_near(record, name.pair)}
        raise ModelNameError(
            f"{name}: Mozilla's list has no such pair; {listed_pairs(near, map(_pair, records))}"
        )
    version = max(models, key=_rank)
    chosen = [record for record in needed if record["version"] == version]
    return sorted(chosen, key=lambda record: _NEEDED.index(record["fileType"]))


def _is_near(record: dict[str, Any], pair: str) -> bool:
    source, target = str(record.get("fromLang")), str(record.get("toLang"))
    return pair.startswith(f"{source}-") or pair.endswith(f"-{target}")


def _rank(version: str) -> tuple[bool, list[int]]:
    """Sort key of versions: releases come after their pre-releases (`2.0a1`), and numbers are
    compared as numbers."""
    return bool(_RELEASE.fullmatch(version)), [int(part) for part in re.findall(r"\d+", version)]


def _file(record: dict[str, Any], place: str) -> RemoteFile:
    attachment = record["attachment"]
    url = f"{place.rstrip('/')}/{str(attachment['location']).lstrip('/')}"
    called = Path(str(record["name"])).name
    return RemoteFile(called, (url,), int(attachment["size"]), str(attachment["hash"]).lower())


def _fetch(name: str, files: Sequence[RemoteFile], folder: Path) -> Path:
    paths = downloaded(name, files)
    linked([(path.name, path) for path in paths], folder)
    return folder
