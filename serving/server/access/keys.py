"""The API keys and the admin key that are set by the settings."""

from __future__ import annotations

import hmac
import re

from serving.errors import SettingsError
from serving.server.http.settings import Settings, variable
from serving.store.records.key import digest_of

_LEAST_LENGTH = 8
_LEAST_ADMIN_LENGTH = 16


class Keys:
    """The keys of the settings, stored as digests."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError for an unreadable file, a key that is too short, and an admin key
        that is one of the others."""
        keys = re.split(r"[\s,]+", settings.api_keys.get_secret_value())
        if settings.api_keys_file is not None:
            keys += _read(settings)
        self._digests = [digest_of(key) for key in dict.fromkeys(keys) if key]
        if any(0 < len(key) < _LEAST_LENGTH for key in keys):
            raise SettingsError(
                f"{variable('api_keys')} must hold keys of at least {_LEAST_LENGTH} characters, "
                "got a shorter one"
            )
        self.admin = self._admin_digest(settings)
        """The digest of the admin key; None if there is none."""

    def _admin_digest(self, settings: Settings) -> bytes | None:
        key = settings.admin_key.get_secret_value()
        if not key:
            return None
        if len(key) < _LEAST_ADMIN_LENGTH:
            raise SettingsError(
                f"{variable('admin_key')} must have at least {_LEAST_ADMIN_LENGTH} characters, got "
                f"{len(key)}; `openssl rand -hex 24` makes one"
            )
        if self.owner(digest_of(key)):
            raise SettingsError(
                f"{variable('admin_key')} must be a key of its own, got one of "
                f"{variable('api_keys')}"
            )
        return digest_of(key)

    @property
    def owners(self) -> list[str]:
        """Short names of all keys."""
        return [digest.hex()[:8] for digest in self._digests]

    def owner(self, digest: bytes) -> str:
        """Short name of the key with a digest, which reveals nothing about the key; empty if it is
        unknown."""
        found = ""
        for known in self._digests:  # all of them, so that the time does not depend on the match
            if hmac.compare_digest(known, digest):
                found = known.hex()[:8]
        return found


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
