"""Imports models by name while the server runs, one at a time.

A separate process does the work, as for `macaron pull`, with the same checks: it reports licence,
size and disk space first, reads only the tensors of pickles, and never runs code of a repository.
The bundle stays in the cache, the folder of bundles gets a link to it, and every worker reloads.
The progress is in a file, for the other workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Literal

from filelock import FileLock, Timeout

from serving import hub
from serving.bundle.folder import parse_manifest
from serving.bundle.manifest import Manifest
from serving.errors import (
    BundleError,
    ImportingError,
    ModelNameError,
    NoImportsError,
    RequestError,
    SettingsError,
)
from serving.folders import cache_folder
from serving.hub.importing import PLACE
from serving.hub.names import named, slug
from serving.progress import Transcript
from serving.server.http.settings import Settings, variable
from serving.server.models.manifests import read_manifests
from serving.server.models.registry import Registry
from serving.text.characters import check_text

_LINES = 30
_LOOK_S = 0.5
"""Seconds between updates of the state, and between checks whether to stop."""
_END_S = 10.0
_ERROR = "error: "

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportReport:
    """Progress of the last import."""

    state: Literal["none", "running", "done", "failed", "stopped"] = "none"
    name: str = ""
    lines: tuple[str, ...] = ()
    """The last lines of the import's output."""
    model: str | None = None
    """The name of the served model."""
    error: str | None = None


class Imports:
    """Imports models into the bundle folder of one server."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings
        key = hashlib.sha256(str(settings.bundles.resolve()).encode()).hexdigest()[:16]
        self._place = cache_folder(os.environ) / "imports" / key
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def start(self, name: str) -> ImportReport:
        """Start an import; returns at once.

        Raises NoImportsError if the settings allow none, RequestError for an invalid name,
        ImportingError while another model is imported, and SettingsError if a folder cannot be
        written.
        """
        self._check_allowed()
        self._registry.check_ready()
        check_text(name, "name")
        try:
            named(name)
        except ModelNameError as error:
            raise RequestError(str(error), parameter="name") from error
        if not os.access(self._settings.bundles, os.W_OK):
            raise SettingsError(
                f"{self._settings.bundles} cannot be written, and an import puts a link to its "
                f"bundle there; give access, or name another folder with {variable('bundles')}"
            )
        lock = self._locked()
        report = ImportReport("running", name)
        self._stop_file.unlink(missing_ok=True)
        self._write(report)
        self._thread = threading.Thread(target=self._run, args=(report, lock), name="import")
        self._thread.start()
        return report

    def report(self) -> ImportReport:
        """Progress of the last import; raises NoImportsError."""
        self._check_allowed()
        report = self._read()
        if report.state != "running":
            return report
        try:
            lock = self._locked(0)
        except ImportingError:
            return report
        last = self._read()  # it may have ended meanwhile; no other can start before the release
        lock.release()
        if last.state != "running":
            return last
        why = "the server has ended meanwhile; import it again, and it continues where it stopped"
        return replace(last, state="failed", error=why)

    def stop(self) -> ImportReport:
        """Request the running import to stop; raises NoImportsError."""
        report = self.report()
        if report.state == "running":
            self._stop_file.touch()
        return report

    def close(self) -> None:
        """Stop the import that this process has started."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_END_S + 5)

    def _check_allowed(self) -> None:
        if not self._settings.model_imports:
            raise NoImportsError(
                "this server imports no models over HTTP; its operator can set "
                f"{variable('model_imports')}=on"
            )

    def _locked(self, timeout: float = 0.2) -> FileLock:
        """Acquire the lock of the only import; raises ImportingError and SettingsError."""
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._place / "lock", thread_local=False)
            lock.acquire(timeout=timeout)
        except Timeout:
            raise ImportingError(
                f"{self._read().name} is being imported, and only one model is imported at a "
                "time; wait for it, or stop it with DELETE /admin/imports"
            ) from None
        except OSError as error:
            raise SettingsError(
                f"{error.filename or self._place}: {error.strerror or error}; MACARON_CACHE names "
                "another place"
            ) from error
        return lock

    @property
    def _stop_file(self) -> Path:
        return self._place / "stop"

    def _read(self) -> ImportReport:
        try:
            tree = json.loads((self._place / "state.json").read_text(encoding="utf-8"))
            return ImportReport(**{**tree, "lines": tuple(tree["lines"])})
        except (OSError, ValueError, TypeError, KeyError):
            return ImportReport()

    def _write(self, report: ImportReport) -> None:
        draft = self._place / ".state.json"
        with contextlib.suppress(OSError):  # a full disk; the import itself reports it
            draft.write_text(json.dumps(asdict(report)), encoding="utf-8")
            os.replace(draft, self._place / "state.json")

    def _run(self, report: ImportReport, lock: FileLock) -> None:
        try:
            report = self._imported(report)
        except (BundleError, OSError) as error:
            report = replace(report, state="failed", error=str(error))
        except Exception:
            logger.exception("unexpected error while a model was imported")
            report = replace(
                report, state="failed", error="unexpected error; the server's log says why"
            )
        finally:
            self._write(report)
            lock.release()
        logger.info("import of %s: %s %s", report.name, report.state, report.error or "")

    def _imported(self, report: ImportReport) -> ImportReport:
        """Run an import; raises BundleError for a bundle that cannot be served."""
        process = subprocess.Popen(
            _command(report.name),
            cwd=PLACE,
            env={**os.environ, "TQDM_POSITION": "-1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            transcript = Transcript(_LINES)
            reading = threading.Thread(target=_feed, args=(process.stderr, transcript), daemon=True)
            reading.start()
            stopped = self._follow(process, transcript, report)
            reading.join(_END_S)
            bundle = process.stdout.read().decode().strip()
        lines = tuple(line for line in transcript.lines if not line.startswith(_ERROR))
        errors = [line for line in transcript.lines if line.startswith(_ERROR)]
        report = replace(report, lines=lines)
        if stopped:
            return replace(report, state="stopped")
        if process.returncode:
            why = errors[-1].removeprefix(_ERROR) if errors else "its process has failed"
            return replace(report, state="failed", error=why)
        self._write(report)
        return replace(report, state="done", model=self._serve(report.name, Path(bundle)))

    def _follow(
        self, process: subprocess.Popen[bytes], transcript: Transcript, now: ImportReport
    ) -> bool:
        """Record the progress of an import until it ends; returns whether it was stopped."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                return False
            if self._ending.is_set() or self._stop_file.exists():
                _end(process)
                return True
            if transcript.lines != list(now.lines):
                now = replace(now, lines=tuple(transcript.lines))
                self._write(now)

    def _serve(self, name: str, bundle: Path) -> str:
        """Link the bundle into the bundle folder and serve it; returns the model's name. Raises
        BundleError if it cannot be served; then nothing changes."""
        manifest = parse_manifest(bundle)
        link = self._settings.bundles / slug(name)
        for folder, other in read_manifests(self._settings).items():
            if other.name == manifest.name and folder != link:
                raise BundleError(
                    f"{name}: it is imported, and a model called {manifest.name!r} is served "
                    f"already, from {folder}; remove that one, then import this one again"
                )
        before = link.readlink() if link.is_symlink() else None
        _link(link, bundle)
        self._registry.reload()
        if not self._serves(manifest):
            _link(link, before)
            self._registry.reload()
            raise BundleError(f"{name}: was imported but cannot be served; the log says why")
        if self._settings.workers > 1:
            os.kill(os.getppid(), signal.SIGHUP)  # which passes it on to all workers
        return manifest.name

    def _serves(self, manifest: Manifest) -> bool:
        registry = self._registry
        every = (*registry.translators, *registry.language_models, *registry.encoders)
        return any(model.manifest == manifest for model in every)


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", hub.__name__, name]


def _link(link: Path, bundle: Path | None) -> None:
    """Create, replace or remove a link; raises OSError, also if a folder is in its place."""
    link.unlink(missing_ok=True)
    if bundle is not None:
        link.symlink_to(bundle, target_is_directory=True)


def _feed(pipe: IO[bytes], transcript: Transcript) -> None:
    while chunk := pipe.read1(1 << 16):  # type: ignore[attr-defined]
        transcript.feed(chunk)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        else:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            return
