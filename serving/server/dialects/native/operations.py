"""The native routes for those who operate the server: limits, probes, metrics, OpenAPI."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response

from serving.server.api.dialect import DialectRoute
from serving.server.dialects.native.wire import Limit, Limits, Status
from serving.server.http.access_log import RequestContext
from serving.server.http.gate import KeyRule
from serving.server.http.settings import Settings, variable
from serving.server.http.wire import JSON, json_response
from serving.server.work.backend import Backend


def operation_routes(backend: Backend) -> list[DialectRoute]:
    """The routes; all but the limits are open, so that machines can ask without a key."""
    operations = _Operations(backend)
    return [
        DialectRoute("/limits", operations.limits),
        DialectRoute("/livez", operations.alive, key=KeyRule.NONE),
        DialectRoute("/readyz", operations.ready, key=KeyRule.NONE),
        DialectRoute("/metrics", operations.metrics, key=KeyRule.NONE),
        DialectRoute("/openapi.json", operations.openapi, key=KeyRule.NONE),
    ]


class _Operations:
    """Answers probes, scrapes, and questions about the server itself."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def limits(self, _: Request, __: RequestContext) -> Response:
        """List every setting that is a number, with the variable that sets it."""
        return json_response(
            Limits(
                limits=[
                    Limit(
                        name=name,
                        value=getattr(self._backend.settings, name),
                        variable=variable(name),
                        description=field.description or "",
                    )
                    for name, field in Settings.model_fields.items()
                    if field.annotation in (int, float)
                ]
            )
        )

    async def alive(self, _: Request, __: RequestContext) -> Response:
        """Tell that the process answers, whatever state the models are in."""
        return json_response(Status(status="alive"))

    async def ready(self, _: Request, __: RequestContext) -> Response:
        """Tell that requests should be sent here; raises NotReadyError where they should not."""
        self._backend.registry.check_ready()
        return json_response(Status(status="ready"))

    async def metrics(self, _: Request, __: RequestContext) -> Response:
        """Answer with the metrics of HTTP, of the models and of the process."""
        text = self._backend.metrics.text() + self._backend.registry.metrics.text()
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def openapi(self, _: Request, __: RequestContext) -> Response:
        """Answer with the OpenAPI document of this server."""
        return Response(self._backend.document(), media_type=JSON)
