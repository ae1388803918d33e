"""Jobs and files as records; who only reads them needs no database's library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_ATTEMPTS = 3
"""How often a job is begun that comes no further because its server ends; then it may be why."""

JobState = Literal["waiting", "running", "done", "failed", "cancelled", "expired"]


@dataclass(frozen=True, kw_only=True)
class KeptJob:
    """Work that outlives the request that asked for it; times are seconds since 1970."""

    id: str
    owner: str
    """Short name of the key that asked for it; empty on a server without keys."""
    kind: str
    """What is to be done, such as `batch`."""
    wishes: str
    """How, as JSON."""
    created: float
    deadline: float
    """When it has to have ended."""
    state: JobState = "waiting"
    claim: str = ""
    """Tells who runs it, and one claim from the next; empty where nobody does."""
    attempts: int = 0
    """How often it was begun since it last came further."""
    started: float | None = None
    cancelling: float | None = None
    """When it was cancelled."""
    ended: float | None = None
    expires: float | None = None
    """When it is removed; None until it has ended."""
    done: int = 0
    failed: int = 0
    """Parts that are done, and that have failed, of `total`."""
    total: int = 0
    """Parts; 0 until that is known."""
    result: str = ""
    """What came of it, or why it has failed, as JSON."""

    @property
    def given_up(self) -> bool:
        """Whether it was begun too often: whoever claims it has nothing to do but to end it."""
        return self.attempts > MAX_ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class KeptFile:
    """A file whose content lies in the folder of files, under its id."""

    id: str
    owner: str
    purpose: str
    """`batch` for one that was sent, `batch_output` for one that came of a batch."""
    name: str
    size: int
    """Bytes."""
    created: float
    expires: float
    """When it is removed."""
