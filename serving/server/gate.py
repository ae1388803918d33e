"""Who is let in: keys and rates, for every dialect."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import ServingError, UnauthorizedError
from serving.server.keys import Keys, presented_key
from serving.server.rates import RateLimit
from serving.server.record import CURRENT
from serving.server.settings import Settings

_OPEN = ("/", "/livez", "/readyz", "/health", "/metrics", "/openapi.json", "/spec", "/languages")
_OPEN_BELOW = ("/web/", "/frontend/")
"""Probes, scrapes and what the page needs before its user has typed a key."""
_KEY_IN_BODY = ("/translate", "/detect", "/v2/")
"""Paths of dialects whose clients may carry the key in the body."""


class _Visit:
    """One request before the gate."""

    def __init__(self, gate: Gate, address: str) -> None:
        self._gate, self._address = gate, address
        self._client = ""

    def admit(self, presented: str | None) -> None:
        if self._client:  # the key in the head has been taken
            return
        if self._gate.keys.required:
            self._client = self._gate.keys.identify(presented)
            if record := CURRENT.get():
                record.client = self._client
        else:
            self._client = self._address
        self._gate.requests.charge(self._client, 1)

    def charge(self, characters: int) -> None:
        if not self._client:  # a handler has forgotten to ask for the key in the body
            raise UnauthorizedError("an API key is needed")
        self._gate.characters.charge(self._client, characters)


_VISIT: ContextVar[_Visit | None] = ContextVar("visit", default=None)


def check_key(presented: str | None) -> None:
    """Let the request in with a key from its body; a key in its head has been checked before and
    counts alone. Raises UnauthorizedError or RateLimitedError."""
    if visit := _VISIT.get():
        visit.admit(presented)


def charge(characters: int) -> None:
    """Count characters that are to be decoded; raises RateLimitedError."""
    if visit := _VISIT.get():
        visit.charge(characters)


class Gate:
    """Asks for the key in the head, and counts requests."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keys: Keys,
        refuse: Callable[[str, ServingError], Response],
    ) -> None:
        """`refuse` makes the answer, of a path and an error."""
        self._app, self.keys, self._refuse = app, keys, refuse
        self.requests = RateLimit(
            "requests", "max_requests_per_minute", settings.max_requests_per_minute
        )
        self.characters = RateLimit(
            "characters", "max_chars_per_minute", settings.max_chars_per_minute
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or path in _OPEN or path.startswith(_OPEN_BELOW):
            await self._app(scope, receive, send)
            return
        visit = _Visit(self, (scope.get("client") or ("unknown",))[0])
        presented = presented_key(Headers(scope=scope))
        may_follow = scope["method"] == "POST" and path.startswith(_KEY_IN_BODY)
        try:
            if presented is not None or not self.keys.required or not may_follow:
                visit.admit(presented)
        except ServingError as error:
            await self._refuse(path, error)(scope, receive, send)
            return
        before = _VISIT.set(visit)
        try:
            await self._app(scope, receive, send)
        finally:
            _VISIT.reset(before)
