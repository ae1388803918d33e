"""Admission of requests: API keys and rate limits, for every dialect.

Reads the keys, finds and compares the key of a request, and counts what each client has requested,
so that no client exceeds its rate.
"""

from __future__ import annotations

import enum
import hmac
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import (
    NoAdminError,
    RateLimitedError,
    ServingError,
    UnauthorizedError,
)
from serving.server.access.keys import Keys
from serving.server.http.access_log import CONTEXT, RequestContext
from serving.server.http.settings import Settings, variable
from serving.store.records.key import NO_LIMITS, KeyLimits, StoredKey, UsageCount, digest_of

if TYPE_CHECKING:
    from serving.server.access.accounts import Accounts
    from serving.server.access.rates import SharedRates
    from serving.server.access.usage import UsageMeter
    from serving.store.rates import StoredRates

ADMIN = "admin"
"""Name of the admin key's holder in log lines."""
_WRONG_KEYS_PER_MINUTE = 60
"""Largest number of unknown keys that an address may try in a minute, because the store is queried
for each."""
_WRONG_ADMIN_KEYS_PER_MINUTE = 10
MOST_CLIENTS = 10_000
"""Largest number of clients in memory; the one unseen for longest is dropped and starts again."""


class KeyRule(enum.Enum):
    """The place where a route looks for the API key, on a server that requires keys."""

    NONE = enum.auto()
    """No key is needed, and the request is not counted: probes, scrapes, and what a page needs
    before its user has entered a key."""
    HEAD = enum.auto()
    """The key is in the header."""
    HEAD_OR_BODY = enum.auto()
    """The key is in the header, or in the body of a POST: the endpoint passes it to
    `Gatekeeper.admit` first."""
    HEAD_OR_QUERY = enum.auto()
    """The key is in the header, or in the query (for some dialects also in the body), for any
    method: the endpoint passes it to `Gatekeeper.admit` first."""
    ADMIN = enum.auto()
    """The key is in the header, and must be the admin key."""


class RateLimit:
    """A token bucket for each client: it holds the amount of one minute and fills steadily.

    A request passes if the bucket is not empty, and then takes its whole cost. A cost above the
    capacity leaves a debt, so that such a request is delayed rather than refused forever.

    The servers of a store share these buckets, as `SharedRates` describes.
    """

    def __init__(
        self,
        unit: str,
        setting: str | None,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        stored: StoredRates | None = None,
    ) -> None:
        """`unit` is the plural noun for what is counted; `setting` is the settings field of the
        limit, if there is one; a `per_minute` of 0 sets no limit."""
        self._unit, self._setting, self._per_minute = unit, setting, per_minute
        self._clock, self._lock = clock, threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Level of each bucket, and when it was computed; the last client seen is at the end."""
        self._shared: SharedRates | None = None
        if stored is not None:
            # Imported here, because it is useless without a store.
            from serving.server.access.rates import SharedRates

            self._shared = SharedRates(unit, stored, self._learn)

    def charge(self, client: str, cost: int, own: int | None = None) -> None:
        """Take `cost` from a client's bucket; raises RateLimitedError, with the time to wait, if it
        is empty. `own` is a limit of this client that replaces the common one."""
        self._take(client, cost, min(1, cost), own)

    def give_back(self, client: str, cost: int) -> None:
        """Put back an amount that was taken without need, as far as the bucket has room."""
        with self._lock:
            if client in self._buckets:
                held, when = self._buckets[client]
                self._buckets[client] = min(held + cost, float(self._per_minute)), when
                if self._shared is not None:
                    self._shared.note(client, -cost, self._per_minute)

    def check(self, client: str) -> None:
        """Raise RateLimitedError if a client's bucket is empty; takes nothing."""
        self._take(client, 0, 1, None)

    def close(self) -> None:
        """Stop telling the other servers."""
        if self._shared is not None:
            self._shared.close()

    def _take(self, client: str, cost: int, least: int, own: int | None) -> None:
        """Take `cost` if the bucket holds at least `least`."""
        per_minute = self._per_minute if own is None else own
        if not per_minute:
            return
        pace = per_minute / 60
        with self._lock:
            now = self._clock()
            held, when = self._buckets.pop(client, (float(per_minute), now))
            held = min(held + (now - when) * pace, float(per_minute))
            empty = held < least
            self._buckets[client] = held - (0 if empty else cost), now
            if len(self._buckets) > MOST_CLIENTS:
                self._buckets.popitem(last=False)
            if self._shared is not None and not empty:
                self._shared.note(client, cost, per_minute)
        if empty:
            named = f" ({variable(self._setting)})" if self._setting and own is None else ""
            error = RateLimitedError(
                f"a client may ask for at most {per_minute} {self._unit} in a minute{named}; try "
                "again later"
            )
            error.retry_after_s = (1 - held) / pace
            raise error

    def _learn(self, client: str, missing: float, per_minute: int) -> bool:
        """Take over the amount that is missing from a client's bucket on all servers. Returns
        whether anything is missing."""
        assert self._shared is not None
        with self._lock:
            if client not in self._buckets:
                return False
            held, when = self._buckets[client]
            now, known = self._clock(), per_minute - missing - self._shared.noted(client)
            # The lower level: the store does not know what was taken while it was unavailable.
            level = min(held + (now - when) * per_minute / 60, known)
            self._buckets[client] = level, now
            return level < per_minute


class Gatekeeper:
    """Checks keys and counts the requests of each client."""

    def __init__(
        self,
        settings: Settings,
        accounts: Accounts | None = None,
        meter: UsageMeter | None = None,
        rates: StoredRates | None = None,
        *,
        required: bool = False,
    ) -> None:
        """`accounts`, `meter` and `rates` belong to the store, if there is one. If `required` is
        set, requests need a key even if the settings have none.

        Raises SettingsError if the API keys or the admin key are unusable.
        """
        self.keys = Keys(settings)
        self._accounts, self._meter = accounts, meter
        self._character_limit = settings.character_limit
        self._admin = self.keys.admin
        self.required = required or bool(self.keys.owners)
        """Whether requests need a key."""
        self._asked_at = -math.inf
        self._requests = RateLimit(
            "requests", "max_requests_per_minute", settings.max_requests_per_minute, stored=rates
        )
        self._characters = RateLimit(
            "characters", "max_chars_per_minute", settings.max_chars_per_minute, stored=rates
        )
        self._wrong_keys = RateLimit("wrong keys", None, _WRONG_KEYS_PER_MINUTE)
        self._wrong_admin_keys = RateLimit("wrong admin keys", None, _WRONG_ADMIN_KEYS_PER_MINUTE)

    async def admit(self, context: RequestContext, presented: str | None) -> None:
        """Admit a request by its key, or by its address if the server requires none.

        A request that was admitted stays so: a key in the header takes precedence. Raises
        UnauthorizedError for a missing, unknown or disabled key, RateLimitedError for too many
        requests, and StoreUnavailableError if only the store could know the key.
        """
        if context.client:
            return
        if not self.required:
            context.client = context.address
        else:
            context.key, context.limits = await self._identified(context.address, presented)
            context.client = context.key
        self._requests.charge(context.client, 1, context.limits.requests_a_minute)

    def admit_admin(self, context: RequestContext, presented: str | None) -> None:
        """Admit a request by the admin key. Raises NoAdminError if there is none, UnauthorizedError
        for another key, and RateLimitedError if an address has tried too many."""
        if self._admin is None:
            raise NoAdminError(
                "this server is not administered over HTTP; its operator can set "
                f"{variable('admin_key')}"
            )
        if presented is None:
            raise UnauthorizedError(
                "the admin key is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: "
                "KEY`"
            )
        self._wrong_admin_keys.check(context.address)
        if not hmac.compare_digest(self._admin, digest_of(presented)):
            self._wrong_admin_keys.charge(context.address, 1)
            raise UnauthorizedError("this is not the admin key of the server")
        context.client = context.key = ADMIN

    @property
    def idle_s(self) -> float:
        """Seconds since the last interactive request that decodes something."""
        return time.monotonic() - self._asked_at

    def charge(self, context: RequestContext, characters: int, task: str) -> Callable[[], None]:
        """Count characters that are to be decoded for a task. Returns a function that undoes the
        count, for texts that are not accepted.

        Raises RateLimitedError if they exceed the limit per minute, QuotaExceededError if they
        exceed the monthly limit, and UnauthorizedError for a request that was not admitted.
        """
        if not context.client:
            raise UnauthorizedError("an API key is needed")
        if not context.background:
            self._asked_at = time.monotonic()
        self._characters.charge(context.client, characters)
        before, unspend = context.counted, None

        def take_back() -> None:
            self._characters.give_back(context.client, characters)
            if unspend is not None:
                context.counted = before
                unspend()

        if self._meter is not None:
            count = UsageCount(0 if before else 1, characters)
            try:
                unspend = self._meter.spend(context.key, task, count, self._limit(context))
            except ServingError:
                take_back()
                raise
            context.counted = True
        return take_back

    async def usage(self, context: RequestContext) -> tuple[int, int] | None:
        """The characters of a request's key this month, and their limit; None if nothing is
        counted, because there is no store. Raises StoreUnavailableError."""
        if self._meter is None:
            return None
        return await run_in_threadpool(self._meter.read, context.key), self._limit(context)

    def flush(self) -> None:
        """Send the counts to the store; raises StoreUnavailableError."""
        if self._meter is not None:
            self._meter.flush()

    def forget(self, id: str) -> None:
        """Read a changed key from the store again."""
        if self._accounts is not None:
            self._accounts.forget(id)

    def close(self) -> None:
        """Send the remaining counts to the store and admit nothing more; raises
        StoreUnavailableError."""
        for rate in (self._requests, self._characters):
            rate.close()
        if self._accounts is not None:
            self._accounts.close()
        if self._meter is not None:
            self._meter.close()

    def _limit(self, context: RequestContext) -> int:
        """The characters that a key may use in a month."""
        own = context.limits.characters_a_month
        return self._character_limit if own is None else own

    async def _identified(self, address: str, presented: str | None) -> tuple[str, KeyLimits]:
        """Owner name and limits of a key."""
        if presented is None:
            raise UnauthorizedError(
                "an API key is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            )
        digest = digest_of(presented)
        if owner := self.keys.owner(digest):
            return owner, NO_LIMITS
        key = await self._stored(digest, address)
        if key is None:
            raise UnauthorizedError("the API key is not known to this server")
        if key.disabled is not None:
            raise UnauthorizedError("the API key is disabled")
        return key.id, key.limits

    async def _stored(self, digest: bytes, address: str) -> StoredKey | None:
        """The key in the store; None if it does not exist or there is no store."""
        if self._accounts is None:
            return None
        if not self._accounts.knows(digest):
            self._wrong_keys.check(address)
        key = await self._accounts.find(digest)
        if key is None:
            self._wrong_keys.charge(address, 1)
        return key


class Gate:
    """ASGI middleware that requires the key in the header, and counts requests."""

    def __init__(
        self,
        app: ASGIApp,
        gatekeeper: Gatekeeper,
        schemes: Sequence[str],
        rules: Mapping[str, KeyRule],
        others: Sequence[tuple[re.Pattern[str], KeyRule]],
        refuse: Callable[[Scope, ServingError], Response],
    ) -> None:
        """`schemes` are the schemes of the Authorization header that carry a key, in small letters.
        `rules` has the rules of fixed paths; for another path the first of the `others` that
        matches counts. `refuse` builds the answer to a refused request."""
        self._app, self._gatekeeper, self._refuse = app, gatekeeper, refuse
        self._schemes, self._rules, self._others = schemes, rules, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (rule := self._rule(scope["path"])) is not KeyRule.NONE:
            try:
                await self._check_head(scope, rule)
            except ServingError as error:
                await self._refuse(scope, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _rule(self, path: str) -> KeyRule:
        """The rule of a path; by default a key in the header."""
        if (rule := self._rules.get(path)) is not None:
            return rule
        return next((rule for pattern, rule in self._others if pattern.match(path)), KeyRule.HEAD)

    async def _check_head(self, scope: Scope, rule: KeyRule) -> None:
        presented = presented_key(Headers(scope=scope), self._schemes)
        if rule is KeyRule.ADMIN:
            self._gatekeeper.admit_admin(scope[CONTEXT], presented)
            return
        in_body = rule is KeyRule.HEAD_OR_BODY and scope["method"] == "POST"
        may_follow = in_body or rule is KeyRule.HEAD_OR_QUERY
        if presented is not None or not self._gatekeeper.required or not may_follow:
            await self._gatekeeper.admit(scope[CONTEXT], presented)


async def admit_by_body(gatekeeper: Gatekeeper, context: RequestContext, key: str | None) -> None:
    """Admit a request by the key in its body. A wrong key gets status 403 rather than 401, because
    clients that send it there expect that."""
    try:
        await gatekeeper.admit(context, key or None)
    except UnauthorizedError as error:
        if key:
            error.status, error.parameter = HTTPStatus.FORBIDDEN, "api_key"
        raise


def presented_key(headers: Headers, schemes: Sequence[str]) -> str | None:
    """The key in the header, if any, after one of these schemes or alone."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() in schemes and credentials.strip():
        return credentials.strip()
    return headers.get("x-api-key") or None
