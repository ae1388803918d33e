"""Files by their URLs and hashes: an archive of a model or of a bundle, or a single file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from serving.hub.cache import downloads_folder
from serving.hub.fetching.archives import unpacked
from serving.hub.fetching.downloads import RemoteFile, downloaded, missing_bytes, size_of
from serving.hub.names import UrlName
from serving.hub.publishers.published import Published, whole


def look(name: UrlName) -> Published:
    """Look up the file at a URL. Whether it is a bundle is only known after the download.

    Raises ModelNameError if its server does not answer.
    """
    label = str(name)
    file = RemoteFile(name.file, (name.url,), size_of(label, (name.url,)), name.sha256)
    return Published(
        name,
        name.sha256,
        None,
        urlsplit(name.url).netloc,
        file.size,
        missing_bytes(label, [file]),
        downloads_folder(label),
        whole,
        partial(_fetch, label, file),
        is_bundle=None,
    )


def _fetch(name: str, file: RemoteFile, folder: Path) -> Path:
    (path,) = downloaded(name, [file])
    return unpacked(name, path, folder)
