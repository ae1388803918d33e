"""Draws pictures of first pages with LibreOffice, if it is installed: one at a time, in a temporary
profile, without macros and without linked files, within limits of time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

from serving.documents.raw.writing import write_whole
from serving.errors import OverloadedError

FORMATS = frozenset(("docx", "pptx", "xlsx", "odt", "odp", "ods"))
"""Kinds of files with pages."""
_TIMEOUT_S = 60.0
_MOST_WAITING = 4
"""Largest number of requests that wait for a picture."""
_RETRY_S = 10.0
_BOUNDED = 'ulimit -v 4194304; ulimit -t 60; exec "$@"'
"""Shell command that limits the memory, in KiB, and the processor time, in seconds, of another
command."""
_SETTING = (
    '<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="{}" '
    'oor:op="fuse"><value>{}</value></prop></item>'
)
_PROFILE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<oor:items xmlns:oor="http://openoffice.org/2001/registry">'
    + _SETTING.format("BlockUntrustedRefererLinks", "true")
    + _SETTING.format("DisableMacrosExecution", "true")
    + _SETTING.format("MacroSecurityLevel", "3")
    + "</oor:items>"
)


class Pictures:
    """Draws documents. Its methods belong to the event loop."""

    def __init__(self) -> None:
        self._office = shutil.which("soffice")
        self._one, self._waiting = asyncio.Lock(), 0

    def can_draw(self, format: str) -> bool:
        """Whether documents of this kind can be drawn."""
        return self._office is not None and format in FORMATS

    async def draw(self, file: Path, format: str, picture: Path) -> bool:
        """Write the picture of a document's first page as PNG, unless it exists; returns whether it
        exists now. For a document that cannot be drawn the file is empty, and it is not tried
        again. Raises OverloadedError if many requests wait."""
        if not picture.exists():
            if self._waiting >= _MOST_WAITING:
                error = OverloadedError("too many pictures are being drawn; try again later")
                error.retry_after_s = _RETRY_S
                raise error
            self._waiting += 1
            try:
                async with self._one:
                    if not picture.exists():
                        await self._draw(file, format, picture)
            finally:
                self._waiting -= 1
        return picture.exists() and picture.stat().st_size > 0

    async def _draw(self, file: Path, format: str, picture: Path) -> None:
        folder = await asyncio.to_thread(_profile)
        try:
            drawn = await self._drawn(file, format, folder)
            with contextlib.suppress(OSError):  # deleted meanwhile, or a full disk
                await asyncio.to_thread(write_whole, picture, drawn)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _drawn(self, file: Path, format: str, folder: Path) -> bytes:
        """A picture of a document as PNG; empty if it cannot be drawn."""
        assert self._office
        source = folder / f"page.{format}"
        source.symlink_to(file.resolve())
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", _BOUNDED, "sh", self._office),
            f"-env:UserInstallation=file://{folder}/profile",
            *("--headless", "--norestore", "--convert-to", "png", "--outdir", str(folder)),
            str(source),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            await asyncio.wait_for(process.wait(), _TIMEOUT_S)
        except TimeoutError:
            return b""
        finally:
            # Including its children, because it is a script that starts other programs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        drawn = source.with_suffix(".png")
        return await asyncio.to_thread(drawn.read_bytes) if drawn.exists() else b""


def _profile() -> Path:
    """A new folder with a profile for LibreOffice."""
    folder = Path(tempfile.mkdtemp(prefix="macaron-picture-"))
    user = folder / "profile/user"
    user.mkdir(parents=True)
    (user / "registrymodifications.xcu").write_text(_PROFILE, encoding="utf-8")
    return folder
