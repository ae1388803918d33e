"""Records of jobs and files; reading them needs no database library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_ATTEMPTS = 3
"""Number of attempts without progress before a job is given up, because it may be what crashes its
server."""

JobState = Literal["waiting", "running", "done", "failed", "cancelled", "expired"]


@dataclass(frozen=True, kw_only=True)
class KeptJob:
    """Work that outlives its request; times are seconds since 1970."""

    id: str
    owner: str
    """Short name of the key that created it; empty on a server without keys."""
    kind: str
    """Kind of work, such as `batch`."""
    wishes: str
    """Parameters, as JSON."""
    created: float
    deadline: float
    """Time by which it must end."""
    state: JobState = "waiting"
    claim: str = ""
    """Identifies the runner and its claim; empty if nobody runs the job."""
    attempts: int = 0
    """Number of attempts since the last progress."""
    started: float | None = None
    cancelling: float | None = None
    """Time of cancellation."""
    ended: float | None = None
    expires: float | None = None
    """Time of deletion; None until it has ended."""
    done: int = 0
    failed: int = 0
    """Number of parts that are done, or have failed, out of `total`."""
    total: int = 0
    """Number of parts; 0 until it is known."""
    result: str = ""
    """Result, or the reason of a failure, as JSON."""

    @property
    def given_up(self) -> bool:
        """Whether it was attempted too often: a runner that claims it should only end it."""
        return self.attempts > MAX_ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class KeptFile:
    """A file; its content lies in the folder of files under its id."""

    id: str
    owner: str
    purpose: str
    """`batch` for an uploaded file, `batch_output` for the result of a batch."""
    name: str
    size: int
    """Size in bytes."""
    created: float
    expires: float
    """Time of deletion."""
