"""API keys: where they are read from, where a request may carry one, and how they are compared."""

from __future__ import annotations

import enum
import hashlib
import hmac
import re

from starlette.datastructures import Headers

from serving.errors import SettingsError, UnauthorizedError
from serving.server.settings import Settings, variable

_SCHEMES = ("bearer", "deepl-auth-key")
_LEAST_LENGTH = 8


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


def presented_key(headers: Headers) -> str | None:
    """The key that a request carries in its head, if any."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() in _SCHEMES and credentials.strip():
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
