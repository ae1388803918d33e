"""Retries of requests, and the parsing of a server's errors."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeVar

import httpx

from macaron.client.calls import RemoteCall
from macaron.client.errors import ApiError

T = TypeVar("T")

_AGAIN = (429, 502, 503)
"""Too many requests; a proxy without a server; a full queue, or a server that starts or stops. A
timeout (504) is not retried: it would take as long again."""
_REFUSED = (429, 503)
_FIRST_S = 0.25
_LONGEST_S = 30.0


@dataclass(frozen=True)
class Retries:
    """Number of retries of a request, and the seconds to wait before each."""

    most: int
    """Number of attempts after the first one."""

    def wait_s(
        self, tried: int, error: ApiError | None, *, repeatable: bool = True
    ) -> float | None:
        """Seconds until the next attempt after `tried` ones, or None if there is none. The last one
        ended with this error of the server, or with a lost connection (None).

        Waits as long as the server asks, up to half a minute. Otherwise the time doubles with each
        attempt, with a random factor, so that clients do not return all at once. A request that is
        not `repeatable` is sent again only if the server itself refused it.
        """
        if not repeatable and (error is None or error.status not in _REFUSED):
            return None
        if tried > self.most or (error is not None and error.status not in _AGAIN):
            return None
        if error is not None and error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= _LONGEST_S else None
        return float(min(_FIRST_S * 2 ** (tried - 1), _LONGEST_S) * random.uniform(0.5, 1.0))


def api_error(response: httpx.Response) -> ApiError:
    """Parse an error answer; its body must have been read."""
    try:
        body = response.json()
        error = body["error"] if isinstance(body["error"], dict) else body  # as OpenAI has it
        message, code = str(error.get("message") or error["error"]), str(error.get("code") or "")
        if hint := body.get("hint"):
            message = f"{message}; {hint}"
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code = response.text.strip()[:500] or response.reason_phrase, ""
    try:
        after = float(response.headers.get("retry-after", ""))
    except ValueError:  # missing, or a date, which our server never sends
        after = None
    return ApiError(
        message,
        status=response.status_code,
        code=code,
        request_id=response.headers.get("x-request-id", ""),
        retry_after_s=after,
    )


def read_answer(call: RemoteCall[T], response: httpx.Response) -> T:
    """What an answer says; its body must have been read. Raises ApiError for the answer of another
    server than Macaron, or of a proxy's own page."""
    try:
        if call.answer == "json":
            return call.read(response.json())
        return call.read(response.content if call.answer == "bytes" else None)
    except (ValueError, KeyError, TypeError) as error:
        raise ApiError(
            f"{response.url} does not answer as a Macaron server does, got "
            f"{response.text.strip()[:100]!r}; check the address",
            status=response.status_code,
        ) from error


def headers(api_key: str | None) -> dict[str, str]:
    """The headers of every request."""
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}
