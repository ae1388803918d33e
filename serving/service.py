"""The BentoML service: starts and ends the models and hands every request to the app.

`bentoml serve` at the repository root finds it through bentofile.yaml.
"""

from __future__ import annotations

import os

# BentoML reports usage to its makers unless this is set before it looks.
os.environ.setdefault("BENTOML_DO_NOT_TRACK", "True")

import bentoml
from _bentoml_impl.server import serving as bentoml_serving
from bentoml._internal.utils.analytics.usage_stats import do_not_track
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.server.hosting import TIMEOUT_MARGIN_S
from serving.server.http.settings import BENTOMLS_OWN
from serving.server.http.slow_clients import time_connections
from serving.server.lifetime import Lifetime
from serving.server.supervisor import WORKER, prepare
from serving.server.worker import SETTINGS, app, start_early

# The command line has looked before it imported this module, and keeps that value.
do_not_track.cache_clear()

start_early()
time_connections(SETTINGS.client_timeout_s)


class _PublicRoutes:
    """Hands every request to the app, and leaves the start and end of the server to BentoML.

    An app mounted in the usual way comes after BentoML's own /livez and /readyz, and BentoML
    answers in plain text for paths without a route.
    """

    def __init__(self, bentoml_app: ASGIApp) -> None:
        self._bentoml_app = bentoml_app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self._bentoml_app if scope["type"] == "lifespan" else app()
        await chosen(scope, receive, send)


class _Macaron:
    """Fast translation with batched beam search."""

    def __init__(self) -> None:
        self._lifetime = Lifetime()

    @bentoml.on_deployment  # type: ignore[untyped-decorator]
    @staticmethod
    def check() -> None:
        """Refuse to serve if a setting or bundle is bad: once, before any worker starts."""
        prepare()
        if not any(map(os.environ.get, BENTOMLS_OWN)):
            bentoml_serving._SERVICE_WORKER_SCRIPT = WORKER  # it reads this after it has checked

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """Begin to load the models."""
        await self._lifetime.start()

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """Finish the requests that were accepted."""
        await self._lifetime.stop()


MacaronService = bentoml.service(
    name="macaron",
    workers=SETTINGS.workers,
    logging={"access": {"enabled": False}},  # http.access_log writes a line of its own
    # Its labels contain raw paths, so a scanner would fill the memory.
    metrics={"enabled": False},
    # Our own deadlines come first; this one also ends a body that never arrives.
    traffic={"timeout": SETTINGS.max_timeout_s + TIMEOUT_MARGIN_S},
)(_Macaron)
MacaronService.add_asgi_middleware(_PublicRoutes)
