"""When a request is tried again, and what an error of the server says."""

from __future__ import annotations

import random
from dataclasses import dataclass

import httpx

from macaron.client.errors import ApiError

_AGAIN = (429, 502, 503)
"""Too many requests; a proxy without a server behind it; a full queue, a start or an end. A request
that took too long (504) is not sent again: it would take as long."""
_REFUSED = (429, 503)
_FIRST_S = 0.25
_LONGEST_S = 30.0


@dataclass(frozen=True)
class Retries:
    """How often a request is tried again, and how long is waited before."""

    most: int
    """Tries after the first one."""

    def wait_s(
        self, tried: int, error: ApiError | None, *, repeatable: bool = True
    ) -> float | None:
        """Seconds until the next try, after `tried` ones of which the last ended with this error of
        the server, or was cut off (None); None where there is no next one.

        As long as the server says, up to half a minute; else twice as long each time, with some
        chance in it, so that clients that were refused together do not come back together. What is
        not `repeatable` is sent again only where the server itself has refused it.
        """
        if not repeatable and (error is None or error.status not in _REFUSED):
            return None
        if tried > self.most or (error is not None and error.status not in _AGAIN):
            return None
        if error is not None and error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= _LONGEST_S else None
        return float(min(_FIRST_S * 2 ** (tried - 1), _LONGEST_S) * random.uniform(0.5, 1.0))


def api_error(response: httpx.Response) -> ApiError:
    """What an answer that is not 2xx says; its body has to be read."""
    try:
        body = response.json()
        told = body["error"] if isinstance(body["error"], dict) else body  # as OpenAI has it
        message, code = str(told.get("message") or told["error"]), str(told.get("code") or "")
        if hint := body.get("hint"):
            message = f"{message}; {hint}"
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code = response.text.strip()[:500] or response.reason_phrase, ""
    try:
        after = float(response.headers.get("retry-after", ""))
    except ValueError:  # not there, or a date, which no server of ours sends
        after = None
    return ApiError(
        message,
        status=response.status_code,
        code=code,
        request_id=response.headers.get("x-request-id", ""),
        retry_after_s=after,
    )


def headers(api_key: str | None) -> dict[str, str]:
    """The head of every request."""
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}
