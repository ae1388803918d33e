"""A small server that implements the part of Hugging Face's hub API that downloads need, and also
serves plain files."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

from serving.runtime.kernels import native_library

TOKEN = "hf_toy"
"""The token of one who has accepted the terms of every gated model."""
IN_LFS = (".bin", ".gguf", ".onnx", ".pt", ".safetensors")
"""Ends of files that are in Git LFS, for which the hub gives a sha256."""


@dataclass
class Repository:
    """One model of the hub."""

    files: dict[str, bytes]
    licence: str | None = "cc-by-4.0"
    gated: bool = False
    """Files are for those alone whose token is TOKEN."""

    @property
    def commit(self) -> str:
        digest = hashlib.sha1()
        for name, content in sorted(self.files.items()):
            digest.update(name.encode() + content)
        return digest.hexdigest()


@dataclass
class ToyHub:
    """The server's content, and the requests it received."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    plain: dict[str, bytes] = field(default_factory=dict)
    """Other files by path."""
    following: dict[str, str] = field(default_factory=dict)
    """Pages of a list: by path, the path of the next page."""
    cut: dict[str, int] = field(default_factory=dict)
    """By the end of a path: the connection is closed once after this many bytes."""
    damaged: set[str] = field(default_factory=set)
    """Ends of paths whose files come with another last byte than they have."""
    asked: list[str] = field(default_factory=list)
    """Method and path of each request, and its range if it has one."""

    def add(self, name: str, folder: Path, **told: object) -> Repository:
        """Add a model with the files of a folder."""
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        self.repositories[name] = Repository(files, **told)  # type: ignore[arg-type]
        return self.repositories[name]

    def downloads(self) -> list[str]:
        """The downloaded files in order."""
        marks = [entry.split() for entry in self.asked]
        paths = [mark[1] for mark in marks if mark[0] == "GET"]
        files = [path for path in paths if "/resolve/" in path or path in self.plain]
        return [path.rpartition("/")[2] for path in files]


def publish_students(hub: ToyHub, *students: tuple[str, str, str, Path]) -> None:
    """Make the hub Mozilla's Remote Settings with these students: source, target, version and
    folder."""
    types = {"vocab": "vocab", "lex": "lex", "model": "model", "quality": "qualityModel"}
    records = []
    for source, target, version, folder in students:
        for path in sorted(folder.glob("*.*")):
            kind = types.get(path.name.partition(".")[0])
            if kind is None:
                continue
            place = f"models/{version}/{path.name}"
            content = hub.plain[f"/cdn/{place}"] = path.read_bytes()
            attachment = {
                "hash": hashlib.sha256(content).hexdigest(),
                "size": len(content),
                "filename": path.name,
                "location": place,
            }
            told = {"name": path.name, "fileType": kind, "version": version}
            pair = {"fromLang": source, "toLang": target}
            records.append({**told, **pair, "attachment": attachment})
    base = {"capabilities": {"attachments": {"base_url": f"{hub.url}/cdn/"}}}
    hub.plain["/v1/"] = json.dumps(base).encode()
    listed = "/v1/buckets/main/collections/translations-models/records"
    hub.plain[listed] = json.dumps({"data": records}).encode()


def publish_packages(hub: ToyHub, *packages: tuple[str, str, str, bytes]) -> None:
    """Make the hub Argos' index with these packages: source, target, version and content."""
    entries = []
    for source, target, version, content in packages:
        path = f"/argos/translate-{source}_{target}-{version}.argosmodel"
        hub.plain[path] = content
        links = [f"{hub.url}{path}", "ipfs://Qm"]
        codes = {"from_code": source, "to_code": target}
        entries.append({"package_version": version, **codes, "links": links})
    hub.plain["/argos/index.json"] = json.dumps(entries).encode()


def environment(hub: ToyHub, folder: Path) -> dict[str, str]:
    """Variables that point a process at this hub only, with all caches in a folder. The native
    kernels are there already: compiling them takes longer than most of what is tested."""
    _share_kernels(folder / "cache")
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "MACARON_CACHE": str(folder / "cache"),
        "MACARON_FIREFOX_URL": f"{hub.url}/v1",
        "ARGOS_PACKAGE_INDEX": f"{hub.url}/argos/",
        "NO_PROXY": "127.0.0.1",
    }


def _share_kernels(cache: Path) -> None:
    """Put those of this process into another cache, under the name by which they are known there,
    too."""
    library = native_library()
    if library is not None and not (cache / library.name).exists():
        cache.mkdir(parents=True, exist_ok=True)
        (cache / library.name).symlink_to(library)


def use(hub: ToyHub, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Point this process at this hub only, with all caches in a folder."""
    for name, value in environment(hub, folder).items():
        patch.setenv(name, value)
    patch.setattr(constants, "ENDPOINT", hub.url)
    template = "{repo_id}/resolve/{revision}/{filename}"
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{template}")
    patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hf" / "hub"))
    patch.setattr(constants, "HF_HUB_DISABLE_XET", True)


def import_here(source: str, bundle: Path, precision: str) -> None:
    """Import in this process, where traced graphs are remembered, instead of a process of its
    own."""
    from export.__main__ import main

    assert main(["import", source, str(bundle), "--precision", precision, "--force"]) == 0


@contextmanager
def toy_hub() -> Iterator[ToyHub]:
    """A running server."""
    hub = ToyHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: ToyHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing: pytest shows failures."""

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(" ".join([self.command, path, self.headers.get("Range", "")]).strip())
            parts = path.strip("/").split("/")
            if path in hub.plain:
                following = hub.following.get(path)
                more = {"Next-Page": hub.url + following} if following else {}
                self._send_file(path, hub.plain[path], more)
            elif parts[:2] == ["api", "models"] and len(parts) >= 4:
                self._send_listing("/".join(parts[2:4]), parts[4:])
            elif len(parts) > 4 and parts[2] == "resolve":
                self._send_of("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
            else:
                self._send(404, b"")

        def _found(self, name: str, revision: str | None) -> Repository | None:
            """The repository; None after an error was sent."""
            found = hub.repositories.get(name)
            if found is None:
                self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
            elif revision not in (None, "main", found.commit):
                self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
                return None
            return found

        def _send_listing(self, name: str, rest: list[str]) -> None:
            revision = "/".join(rest[1:]) or None
            found = self._found(name, revision)
            if found is None:
                return
            if rest[:1] == ["tree"]:
                tree = [
                    {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
                    | _lfs(path, content, "oid")
                    for path, content in found.files.items()
                ]
                self._send_json(tree)
                return
            listed = [
                {"rfilename": path, "size": len(content), "blobId": _oid(content)}
                | _lfs(path, content, "sha256")
                for path, content in found.files.items()
            ]
            tags = [f"license:{found.licence}"] if found.licence else []
            info = {"id": name, "sha": found.commit, "siblings": listed, "tags": tags}
            self._send_json({**info, "gated": "manual" if found.gated else False})

        def _send_of(self, name: str, revision: str, file: str) -> None:
            found = self._found(name, revision)
            if found is None:
                return
            if found.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._send(403, b"", {"X-Error-Code": "GatedRepo"})
            elif file not in found.files:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            else:
                content = found.files[file]
                tag = _sha256(content) if file.endswith(IN_LFS) else _oid(content)
                tags = {"ETag": f'"{tag}"', "X-Repo-Commit": found.commit}
                if any(file.endswith(end) for end in hub.damaged):
                    content = content[:-1] + bytes([content[-1] ^ 1])
                self._send_file(self.path, content, tags)

        def _send_file(self, path: str, content: bytes, headers: dict[str, str]) -> None:
            asked, status, start = self.headers.get("Range"), 200, 0
            if asked is not None and asked.startswith("bytes="):
                start, status = int(asked.removeprefix("bytes=").partition("-")[0]), 206
                of = f"bytes {start}-{len(content) - 1}/{len(content)}"
                headers = {**headers, "Content-Range": of}
            cut = next((end for end in hub.cut if path.endswith(end)), None)
            if self.command == "GET" and cut is not None:
                self._send(status, content[start:], headers, most=hub.cut.pop(cut))
            else:
                self._send(status, content[start:], headers)

        def _send_json(self, tree: object) -> None:
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})

        def _send(
            self,
            status: int,
            content: bytes,
            headers: dict[str, str] | None = None,
            most: int | None = None,
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[:most])
            if most is not None:
                self.close_connection = True

    return Handler


def _lfs(path: str, content: bytes, digest: str) -> dict[str, object]:
    """What a listing says of a file that is in Git LFS; `digest` is its name for the sha256."""
    if not path.endswith(IN_LFS):
        return {}
    return {"lfs": {digest: _sha256(content), "size": len(content), "pointerSize": 130}}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
