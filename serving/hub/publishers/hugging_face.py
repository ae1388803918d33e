"""Repositories on the hub of Hugging Face, by its own library: its cache, tokens (HF_TOKEN),
mirrors (HF_ENDPOINT) and offline mode (HF_HUB_OFFLINE)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_cached_repo_tree,
    hf_hub_download,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    CachedRepoTreeNotFoundError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.hf_api import ModelInfo

from serving.bundle.folder import MANIFEST
from serving.errors import ModelNameError
from serving.hub.cache import names
from serving.hub.fetching.downloads import check_hash
from serving.hub.names import HubName, nearest
from serving.hub.publishers.published import Published, linked
from serving.hub.publishers.selection import Selection, select

_NO_ACCESS = (401, 403)


def look(name: HubName) -> Published:
    """Look up the present content of a repository; without a network, what was downloaded of it
    before.

    Raises ModelNameError for a repository that does not exist, that this user may not read, or that
    contains no model.
    """
    with _reported(name):
        resolved = HfApi().resolve_revision(name.repository, revision=name.revision).resolved
        listing = _listing(name, resolved)
        sizes = listing.sizes
        bundle = _bundle_files(name, resolved) if MANIFEST in sizes else None
        listed = tuple(file for file in bundle or () if file in sizes)
        chosen = select(name, list(sizes)) if bundle is None else Selection((), listed)
    files = (*chosen.first, *chosen.rest)
    repository = _Repository(name, resolved, listing.hashes)
    return Published(
        name,
        resolved,
        listing.licence,
        constants.ENDPOINT,
        sum(sizes.get(file, 0) for file in files),
        sum(sizes.get(file, 0) for file in files if not repository.has(file)),
        Path(constants.HF_HUB_CACHE),
        partial(repository.fetch, chosen.first),
        partial(repository.fetch_whole, files),
        bundle is not None,
        chosen.remark,
    )


class _Repository:
    """A repository at one commit, with the sha256 of the files for which the hub gives one."""

    def __init__(self, name: HubName, commit: str, hashes: Mapping[str, str]) -> None:
        self._name, self._commit, self._hashes = name, commit, hashes

    def has(self, file: str) -> bool:
        """Whether a file has been downloaded."""
        found = try_to_load_from_cache(self._name.repository, file, revision=self._commit)
        return isinstance(found, str)

    def fetch(self, files: Sequence[str], folder: Path) -> None:
        """Download files into the library's cache, check their hashes, and put links to them into a
        folder."""
        if not files:
            return
        with _reported(self._name):
            place = Path(
                snapshot_download(
                    self._name.repository, revision=self._commit, allow_patterns=list(files)
                )
            )
        for file in files:
            if file in self._hashes:
                check_hash(str(self._name), file, place / file, self._hashes[file])
        linked([(file, place / file) for file in files], folder)

    def fetch_whole(self, files: Sequence[str], folder: Path) -> Path:
        """Download all files of a model. Returns the file that the name names, or the folder."""
        self.fetch(files, folder)
        gguf = [file for file in files if file.endswith(".gguf")]
        return folder / gguf[0] if gguf else folder


class _Listing(NamedTuple):
    """The hub's description of a repository, without its files."""

    sizes: Mapping[str, int]
    """Size of each file in bytes."""
    hashes: Mapping[str, str]
    """The sha256 of each file in Git LFS, where the weights are; the hub gives none for other
    files."""
    licence: str | None


def _listing(name: HubName, commit: str) -> _Listing:
    """Ask the hub; without a network, use its answer at the time of the download."""
    try:
        info = HfApi().model_info(name.repository, revision=commit, files_metadata=True)
    except (httpx2.TransportError, OfflineModeIsEnabled):
        cached = get_cached_repo_tree(name.repository, revision=commit)
        hashes = {file.path: file.lfs.sha256 for file in cached if file.lfs}
        return _Listing({file.path: file.size for file in cached}, hashes, None)
    files = info.siblings or []
    hashes = {file.rfilename: file.lfs.sha256 for file in files if file.lfs}
    return _Listing({file.rfilename: file.size or 0 for file in files}, hashes, _licence(info))


def _licence(info: ModelInfo) -> str | None:
    card = info.card_data
    named = [card.get("license_name"), card.get("license")] if card else []
    tags = [tag.removeprefix("license:") for tag in info.tags or [] if tag.startswith("license:")]
    found = next((each for each in (*named, *tags) if each), None)
    return ", ".join(found) if isinstance(found, list) else found


def _bundle_files(name: HubName, commit: str) -> tuple[str, ...] | None:
    """The files of a repository that is a bundle of this project; None if it is not one."""
    path = hf_hub_download(name.repository, MANIFEST, revision=commit)
    try:
        tree = json.loads(Path(path).read_text(encoding="utf-8"))
        if "format_version" not in tree or "task" not in tree:
            return None
        listed = [str(file) for file in tree["files"]]
        engines = [str(engine["file"]) for engine in tree.get("engines", ())]
    except (ValueError, TypeError, KeyError):
        return None
    return (MANIFEST, "README.md", *listed, *engines)


@contextmanager
def _reported(name: HubName) -> Iterator[None]:
    """Convert the library's errors to ModelNameError with one line that says what to do."""
    hub = constants.ENDPOINT
    try:
        yield
    except GatedRepoError as error:
        raise ModelNameError(
            f"{name}: is gated; accept its terms at {hub}/{name.repository}, then log in with "
            "`hf auth login`, or set HF_TOKEN to your token"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNameError(
            f"{name}: there is no such folder here, and no such model on {hub}, or it is private; "
            f"check the spelling, or log in with `hf auth login`{nearest(str(name), names())}"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelNameError(
            f"{name}: {name.repository} has no revision {name.revision!r}; name a branch, a tag or "
            "a commit of it, or leave out @"
        ) from error
    except HFValidationError as error:
        raise ModelNameError(f"{name}: is not a model name: {error}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = "check your token (HF_TOKEN)" if status in _NO_ACCESS else "try again later"
        raise ModelNameError(
            f"{name}: {hub} answered {status}: "
            f"{error.server_message or error.response.reason_phrase}; {advice}"
        ) from error
    except (  # some of these are OSErrors, too
        CachedRepoTreeNotFoundError,
        EntryNotFoundError,
        OfflineModeIsEnabled,
        RevisionResolutionError,
        httpx2.TransportError,
    ) as error:
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "no network connection"
        raise ModelNameError(
            f"{name}: {hub} cannot be reached ({why}), and the model is not in the cache; connect "
            "to the network, set HF_ENDPOINT to a mirror, or give a folder instead"
            f"{nearest(str(name), names())}"
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise ModelNameError(
                f"{name}: {error.filename or constants.HF_HUB_CACHE}: {error.strerror}; HF_HOME "
                "can name another folder for downloads"
            ) from error
        raise ModelNameError(
            f"{name}: the download was cut off or damaged; the same command continues it"
        ) from error
