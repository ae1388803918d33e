"""The routes of the playground: static files, and a policy that keeps them to this server."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_WEB = Path(__file__).parents[2] / "web"
_NO_CACHE = {"Cache-Control": "no-cache"}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    **_NO_CACHE,
}


def page_routes() -> list[Route | Mount]:
    """The routes of the page at `/`, and of its files below `/web`; they are open to all."""
    return [Route("/", _page), Mount("/web", _Files(directory=_WEB))]


async def _page(_: Request) -> Response:
    return FileResponse(_WEB / "index.html", headers=_PAGE_HEADERS)


class _Files(StaticFiles):
    """Files that a browser requests again each time, so that those of two versions are not
    mixed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_NO_CACHE)
        return response
