"""Paths as the routes know them, however a client or a proxy has written them."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_SLASHES = re.compile(r"//+")


class CleanPath:
    """ASGI middleware that takes off what stands before the path of a route: the scheme and host of
    an absolute target (as clients send them to a proxy), the prefix below which a proxy has put the
    server, and slashes that follow one another."""

    def __init__(self, app: ASGIApp, prefix: str = "") -> None:
        """`prefix` is empty, or begins with a slash and ends without one."""
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = self._cleaned(scope["path"])
            if path != scope["path"]:
                scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)

    def _cleaned(self, path: str) -> str:
        path = _SLASHES.sub("/", _ABSOLUTE.sub("", path, count=1)) or "/"
        if self._prefix and (path == self._prefix or path.startswith(self._prefix + "/")):
            path = path.removeprefix(self._prefix) or "/"
        return path
