"""Names and ids of stored data of any kind."""

from __future__ import annotations

import re

from serving.errors import RequestError, TooLongError

MOST_NAME_CHARS = 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def checked_name(name: str) -> str:
    """Check a name that a user gives, and return it. Raises RequestError if it is blank or contains
    control characters, and TooLongError if it is too long."""
    if len(name) > MOST_NAME_CHARS:
        raise TooLongError(
            f"name must have at most {MOST_NAME_CHARS} characters, got {len(name)}",
            parameter="name",
        )
    if not name.strip() or _CONTROL.search(name):
        raise RequestError(
            f"name must be text without line ends and control characters, got {name!r}",
            parameter="name",
        )
    return name


def is_id(id: str) -> bool:
    """Whether a text has the form of an id, a UUID; the database is not asked for anything else."""
    return len(id) == 36 and id.isascii() and id.isprintable()
