"""Who is let in: API keys and rates, for every dialect.

Where keys are read from, where a request may carry one and how they are compared; and what each
client has asked for, so that none asks for more than it may in a minute.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import RateLimitedError, ServingError, SettingsError, UnauthorizedError
from serving.server.http.access_log import RequestContext, context_of
from serving.server.http.settings import Settings, variable

_LEAST_LENGTH = 8
MOST_CLIENTS = 10_000
"""Clients remembered; the one not seen for longest is forgotten, and begins anew."""


class KeyRule(enum.Enum):
    """Where a route looks for the API key, on a server that asks for keys."""

    NONE = enum.auto()
    """Open to all, and not counted: probes, scrapes, and what a page needs before its user has
    typed a key."""
    HEAD = enum.auto()
    """In the head of the request."""
    HEAD_OR_BODY = enum.auto()
    """In the head, or in the body of a POST: the endpoint hands it to `Gatekeeper.admit` before it
    does anything else."""
    HEAD_OR_QUERY = enum.auto()
    """In the head, or in the query, whatever the method: the endpoint hands it on likewise."""


class Keys:
    """The keys that open this server; where there are none, no request needs one.

    Only their digests are held.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError for a file that cannot be read and for a key that is too short."""
        keys = re.split(r"[\s,]+", settings.api_keys.get_secret_value())
        if settings.api_keys_file is not None:
            keys += _read(settings)
        # Digests are of one length, so that comparing them tells nothing of the keys'.
        self._digests = [_digest(key) for key in dict.fromkeys(keys) if key]
        if any(0 < len(key) < _LEAST_LENGTH for key in keys):
            raise SettingsError(
                f"{variable('api_keys')} must hold keys of at least {_LEAST_LENGTH} characters, "
                "got a shorter one"
            )

    @property
    def required(self) -> bool:
        """Whether requests need a key, which is so where there are any."""
        return bool(self._digests)

    def identify(self, presented: str | None) -> str:
        """A short name for the key, which tells nothing of it; raises UnauthorizedError."""
        if presented is None:
            raise UnauthorizedError(
                "an API key is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            )
        found, digest = "", _digest(presented)
        for known in self._digests:  # all of them, so that the time does not tell which
            if hmac.compare_digest(known, digest):
                found = known.hex()[:8]
        if not found:
            raise UnauthorizedError("the API key is not known to this server")
        return found


class RateLimit:
    """A bucket for each client, which holds as much as a minute allows and fills up steadily.

    A request is let in while the bucket is not empty, and then takes all that it costs: one that
    costs more than a whole bucket leaves a debt, so that it is served late rather than never.
    """

    def __init__(
        self,
        unit: str,
        setting: str,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`unit` is what is counted, in the plural; `setting` is the field of the settings that
        holds the limit; `per_minute` of 0 is no limit."""
        self._unit, self._setting, self._per_minute = unit, setting, per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each held, and when; the client seen last is at the end."""

    def charge(self, client: str, cost: int) -> None:
        """Take `cost` from a client's bucket; raises RateLimitedError, with the time to wait, where
        it is empty."""
        if not self._per_minute:
            return
        now, pace = self._clock(), self._per_minute / 60
        held, when = self._buckets.pop(client, (float(self._per_minute), now))
        held = min(held + (now - when) * pace, float(self._per_minute))
        empty = held < min(1, cost)
        self._buckets[client] = held - (0 if empty else cost), now
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if empty:
            error = RateLimitedError(
                f"a client may ask for at most {self._per_minute} {self._unit} in a minute "
                f"({variable(self._setting)}); try again later"
            )
            error.retry_after_s = (1 - held) / pace
            raise error


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
        schemes: Sequence[str],
        rule: Callable[[str], KeyRule],
        refuse: Callable[[Scope, ServingError], Response],
    ) -> None:
        """`schemes` are those of the header Authorization that carry a key, in small letters;
        `rule` says of a path what it asks for; `refuse` makes the answer to a request that is not
        let in."""
        self._app, self._gatekeeper, self._rule, self._refuse = app, gatekeeper, rule, refuse
        self._schemes = schemes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (rule := self._rule(scope["path"])) is not KeyRule.NONE:
            try:
                self._check_head(scope, rule)
            except ServingError as error:
                await self._refuse(scope, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check_head(self, scope: Scope, rule: KeyRule) -> None:
        presented = presented_key(Headers(scope=scope), self._schemes)
        in_body = rule is KeyRule.HEAD_OR_BODY and scope["method"] == "POST"
        may_follow = in_body or rule is KeyRule.HEAD_OR_QUERY
        if presented is not None or not self._gatekeeper.keys.required or not may_follow:
            self._gatekeeper.admit(context_of(scope), presented)


def admit_by_body(gatekeeper: Gatekeeper, context: RequestContext, key: str | None) -> None:
    """Let a request in with the key from its body; where that is wrong, the status is 403, as the
    clients that send it there know it, and not 401."""
    try:
        gatekeeper.admit(context, key or None)
    except UnauthorizedError as error:
        if key:
            error.status, error.parameter = HTTPStatus.FORBIDDEN, "api_key"
        raise


def presented_key(headers: Headers, schemes: Sequence[str]) -> str | None:
    """The key that a request carries in its head, if any, behind one of these schemes or alone."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() in schemes and credentials.strip():
        return credentials.strip()
    return headers.get("x-api-key") or None


def _read(settings: Settings) -> list[str]:
    assert settings.api_keys_file is not None
    try:
        lines = settings.api_keys_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SettingsError(
            f"{variable('api_keys_file')} = {settings.api_keys_file} cannot be read ({reason})"
        ) from error
    keys = [line.partition("#")[0].strip() for line in lines]
    if not any(keys):
        raise SettingsError(
            f"{variable('api_keys_file')} = {settings.api_keys_file} must hold a key, one a line, "
            "got none"
        )
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
