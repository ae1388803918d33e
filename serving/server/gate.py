"""Who is let in: API keys and rates, for every dialect."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import ServingError, UnauthorizedError
from serving.server.context import RequestContext, context_of
from serving.server.keys import KeyRule, Keys, presented_key
from serving.server.rates import RateLimit
from serving.server.settings import Settings


class Gatekeeper:
    """Knows the keys, and counts what each client has asked for in the last minute."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError where the API keys cannot be used."""
        self.keys = Keys(settings)
        self._requests = RateLimit(
            "requests", "max_requests_per_minute", settings.max_requests_per_minute
        )
        self._characters = RateLimit(
            "characters", "max_chars_per_minute", settings.max_chars_per_minute
        )

    def admit(self, context: RequestContext, presented: str | None) -> None:
        """Let a request in by its key, or by its address where the server asks for none.

        One that is in already stays in: the key in the head counts alone. Raises UnauthorizedError
        for a key that is missing or unknown, RateLimitedError where the client has asked for too
        many requests.
        """
        if context.client:
            return
        if self.keys.required:
            context.client = context.key = self.keys.identify(presented)
        else:
            context.client = context.address
        self._requests.charge(context.client, 1)

    def charge(self, context: RequestContext, characters: int) -> None:
        """Count characters that are to be decoded; raises RateLimitedError where they are too many
        for a minute, and UnauthorizedError for a request that has not been let in."""
        if not context.client:
            raise UnauthorizedError("an API key is needed")
        self._characters.charge(context.client, characters)


class Gate:
    """ASGI middleware that asks for the key in the head of a request, and counts requests."""

    def __init__(
        self,
        app: ASGIApp,
        gatekeeper: Gatekeeper,
        rule: Callable[[str], KeyRule],
        refuse: Callable[[Scope, ServingError], Response],
    ) -> None:
        """`rule` says of a path what it asks for; `refuse` makes the answer to a request that is
        not let in."""
        self._app, self._gatekeeper, self._rule, self._refuse = app, gatekeeper, rule, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (rule := self._rule(scope["path"])) is not KeyRule.NONE:
            try:
                self._check_head(scope, rule)
            except ServingError as error:
                await self._refuse(scope, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check_head(self, scope: Scope, rule: KeyRule) -> None:
        presented = presented_key(Headers(scope=scope))
        may_follow = rule is KeyRule.HEAD_OR_BODY and scope["method"] == "POST"
        if presented is not None or not self._gatekeeper.keys.required or not may_follow:
            self._gatekeeper.admit(context_of(scope), presented)
