"""Jobs in the database: added once, claimed by one server at a time, resumed if that server
ends."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    and_,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from serving.errors import QuotaExceededError
from serving.store.database import METADATA, Database, now
from serving.store.records.job import MAX_ATTEMPTS, JobState, KeptJob

_GIVEN_UP_S = 86_400.0
"""Seconds for which a job that was given up stays visible."""
_LAST = 50
"""Number of an owner's latest jobs that are searched for the owner's last turn."""

_JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("wishes", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("deadline", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("claim", String(64), nullable=False),
    Column("lease", Float, nullable=False),  # of a waiting job: time of its last turn
    Column("attempts", Integer, nullable=False),
    Column("started", Float),
    Column("cancelling", Float),
    Column("ended", Float),
    Column("expires", Float),
    Column("done", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("result", Text, nullable=False),
    Index("jobs_by_state", "state", "created"),
    Index("jobs_by_owner", "owner", "kind", "created"),
    Index("jobs_by_end", "expires"),
)
_FIELDS = [_JOBS.c[field.name] for field in fields(KeptJob)]
_UNENDED = _JOBS.c.state.in_(("waiting", "running"))


class JobQueue:
    """The job queue of one database; safe for several threads and several servers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: KeptJob, most: int, most_kept: int) -> None:
        """Store a new job. Raises QuotaExceededError if its owner has `most` unfinished jobs of
        this kind, or `most_kept` jobs including finished ones."""
        alike = (_JOBS.c.owner == job.owner, _JOBS.c.kind == job.kind)
        count = select(func.count()).where(*alike)
        last = select(_JOBS.c.lease).where(*alike).order_by(_JOBS.c.created.desc()).limit(_LAST)
        with self._database.writing() as connection:
            self._database.alone(connection, _JOBS.name, job.owner)
            if connection.execute(count.where(_UNENDED)).scalar_one() >= most:
                raise QuotaExceededError(
                    f"at most {most} jobs of a key may wait; try again when one has ended"
                )
            if connection.execute(count).scalar_one() >= most_kept:
                raise QuotaExceededError(
                    f"at most {most_kept} jobs of a key are kept; try again when a finished one "
                    "has expired"
                )
            # The owner's turn does not move forward because earlier jobs have ended.
            turn = max(connection.execute(last).scalars(), default=0.0)
            connection.execute(insert(_JOBS).values(lease=turn, **asdict(job)))

    def get(self, owner: str, id: str) -> KeptJob | None:
        """The job with this id, if it belongs to the owner; otherwise None."""
        with self._database.reading() as connection:
            return _one(connection, owner, id)

    def page(self, owner: str, kind: str, after: str | None, most: int) -> list[KeptJob]:
        """At most `most` jobs of an owner and a kind, newest first, starting behind the job
        `after`; an empty list if there is no such job."""
        query = select(*_FIELDS).where(_JOBS.c.owner == owner, _JOBS.c.kind == kind)
        with self._database.reading() as connection:
            if after is not None:
                last = _one(connection, owner, after)
                if last is None:
                    return []
                same = and_(_JOBS.c.created == last.created, _JOBS.c.id < last.id)
                query = query.where(or_(_JOBS.c.created < last.created, same))
            query = query.order_by(_JOBS.c.created.desc(), _JOBS.c.id.desc()).limit(most)
            return [KeptJob(**row) for row in connection.execute(query).mappings()]

    def claim(self, kind: str, lease_s: float) -> KeptJob | None:
        """Claim a waiting job, or a running one whose lease has expired, for `lease_s` seconds.
        Returns None if there is no such job.

        Owners take turns, and so do the jobs of an owner: the owner whose last turn is longest ago
        comes first; of the owner's jobs, the one whose last turn is longest ago, then the oldest.

        After MAX_ATTEMPTS attempts without progress a job is `given_up`. It is claimed once more,
        so that it can be ended; if that attempt does not finish either, the job fails.
        """
        moment = now()
        free = _is_free(moment, lease_s)
        turn = (
            select(_JOBS.c.owner)
            .where(_JOBS.c.kind == kind, _UNENDED)
            .group_by(_JOBS.c.owner)
            .having(func.max(case((free, 1), else_=0)) == 1)
            .order_by(func.max(_JOBS.c.lease), func.min(_JOBS.c.created), _JOBS.c.owner)
            .limit(1)
        )
        with self._database.reading() as connection:  # a search without result blocks no writer
            owner = connection.execute(turn).scalar_one_or_none()
        if owner is None:
            return None
        next = (
            select(*_FIELDS)
            .where(_JOBS.c.kind == kind, free)
            # Another owner's job only if other servers have just taken all of this owner's.
            .order_by(_JOBS.c.owner != owner, _JOBS.c.lease, _JOBS.c.created, _JOBS.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)  # on SQLite there is one writer at a time
        )
        with self._database.writing() as connection:
            while (row := connection.execute(next).mappings().first()) is not None:
                if row["attempts"] > MAX_ATTEMPTS:
                    _give_up(connection, row["id"], moment)
                    continue
                values = {
                    "state": "running",
                    "claim": secrets.token_hex(16),
                    "attempts": row["attempts"] + 1,
                    "started": row["started"] or moment,
                }
                change = update(_JOBS).where(_JOBS.c.id == row["id"])
                connection.execute(change.values(lease=moment + lease_s, **values))
                return KeptJob(**{**row, **values})
        return None

    def is_waiting(self, kind: str, lease_s: float) -> bool:
        """Whether there is a job of this kind that can be claimed for `lease_s` seconds."""
        free = select(_JOBS.c.id).where(_JOBS.c.kind == kind, _is_free(now(), lease_s)).limit(1)
        with self._database.reading() as connection:
            return connection.execute(free).first() is not None

    def beat(
        self, job: KeptJob, lease_s: float, done: int, failed: int, total: int
    ) -> KeptJob | None:
        """Renew the lease of a running job and store its progress. Returns the job as stored, which
        may have been cancelled; None if the claim is no longer valid."""
        values = {"attempts": _attempts(done + failed), "done": done, "failed": failed}
        renewed = _of_claim(job).values(values).values(total=total, lease=now() + lease_s)
        with self._database.writing() as connection:
            if not connection.execute(renewed).rowcount:
                return None
            return _one(connection, job.owner, job.id)

    def finish(
        self,
        job: KeptJob,
        state: JobState,
        result: str,
        keep_s: float,
        then: KeptJob | None = None,
    ) -> bool:
        """Store the end of a job and its result, which is kept for `keep_s` seconds, and add the
        follow-up job `then`. Returns False, and stores nothing, if the claim is no longer valid."""
        moment = now()
        values = {
            "state": state,
            "claim": "",
            "ended": moment,
            "expires": moment + keep_s,
            "result": result,
            "done": job.done,
            "failed": job.failed,
            "total": job.total,
        }
        with self._database.writing() as connection:
            if not connection.execute(_of_claim(job).values(values)).rowcount:
                return False
            if then is not None:
                connection.execute(insert(_JOBS).values(lease=0.0, **asdict(then)))
            return True

    def give_back(self, job: KeptJob, done: int, failed: int, total: int) -> bool:
        """Release a job so that another server can continue it, and store its progress; this does
        not count as an attempt. Returns False if the claim is no longer valid."""
        values = {"attempts": _attempts(done + failed) - 1, "done": done, "failed": failed}
        back = _of_claim(job).values(values).values(total=total, state="waiting", claim="")
        with self._database.writing() as connection:
            return bool(connection.execute(back).rowcount)

    def cancel(self, owner: str, id: str, keep_s: float) -> KeptJob | None:
        """Cancel a job that has not ended. Returns the job as stored, or None as `get` does.

        A job that was never started ends at once and is kept for `keep_s` seconds. The runner of a
        started job sees the cancellation at its next beat or claim.
        """
        moment = now()
        mine = update(_JOBS).where(_JOBS.c.id == id, _JOBS.c.owner == owner)
        never = mine.where(_JOBS.c.state == "waiting", _JOBS.c.started.is_(None))
        ended = {"state": "cancelled", "ended": moment, "expires": moment + keep_s}
        begun = mine.where(_UNENDED, _JOBS.c.cancelling.is_(None))
        with self._database.writing() as connection:
            if not connection.execute(never.values(cancelling=moment, **ended)).rowcount:
                connection.execute(begun.values(cancelling=moment))
            return _one(connection, owner, id)

    def unended(self, ids: Collection[str]) -> frozenset[str]:
        """The ids that belong to unfinished jobs of any owner; `ids` may be a few hundred."""
        with self._database.reading() as connection:
            found = connection.execute(select(_JOBS.c.id).where(_JOBS.c.id.in_(ids), _UNENDED))
            return frozenset(found.scalars())

    def remove_expired(self) -> list[str]:
        """Delete expired jobs; returns their ids."""
        over = delete(_JOBS).where(_JOBS.c.expires < now()).returning(_JOBS.c.id)
        with self._database.writing() as connection:
            return list(connection.execute(over).scalars())


def _is_free(moment: float, lease_s: float) -> ColumnElement[bool]:
    """Whether a job can be claimed. A lease too far in the future comes from a wrong clock, since a
    live runner would have corrected it."""
    over = or_(_JOBS.c.lease < moment, _JOBS.c.lease > moment + 2 * abs(lease_s))
    orphaned = and_(_JOBS.c.state == "running", over)
    return or_(_JOBS.c.state == "waiting", orphaned)


def _attempts(ended: int) -> Any:
    """The number of attempts of a job of which so much has ended: one that came further has one."""
    return case((_JOBS.c.done + _JOBS.c.failed < ended, 1), else_=_JOBS.c.attempts)


def _of_claim(job: KeptJob) -> Any:
    """An UPDATE that applies only while the claim is valid."""
    return update(_JOBS).where(_JOBS.c.id == job.id, _JOBS.c.claim == job.claim)


def _one(connection: Connection, owner: str, id: str) -> KeptJob | None:
    query = select(*_FIELDS).where(_JOBS.c.id == id, _JOBS.c.owner == owner)
    row = connection.execute(query).mappings().first()
    return None if row is None else KeptJob(**row)


def _give_up(connection: Connection, id: str, moment: float) -> None:
    values = {
        "state": "failed",
        "claim": "",
        "ended": moment,
        "expires": moment + _GIVEN_UP_S,
        "result": "",
    }
    connection.execute(update(_JOBS).where(_JOBS.c.id == id).values(values))
