"""Jobs: asked for once, claimed by one server at a time, and gone on with where one has ended."""

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
"""How long it can be seen that a job was given up."""
_LAST = 50
"""Jobs of an owner by which it is told when the last turn of that was."""

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
    Column("lease", Float, nullable=False),  # of one that waits: of the last turn
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
    """The jobs of one database; safe to use from several threads, and from several servers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job: KeptJob, most: int, most_kept: int) -> None:
        """Keep a new job; raises QuotaExceededError where so many of its owner and kind have not
        ended, or so many are there with those that have."""
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
                    f"at most {most_kept} jobs of a key are kept; try again when the time of one "
                    "that has ended is over"
                )
            # The turn of its owner is no earlier because the jobs before this one have ended.
            turn = max(connection.execute(last).scalars(), default=0.0)
            connection.execute(insert(_JOBS).values(lease=turn, **asdict(job)))

    def get(self, owner: str, id: str) -> KeptJob | None:
        """The job of that id, where it is this owner's."""
        with self._database.reading() as connection:
            return _one(connection, owner, id)

    def page(self, owner: str, kind: str, after: str | None, most: int) -> list[KeptJob]:
        """At most so many jobs of an owner and a kind, the newest first, of those that stand behind
        the one `after`; none where there is no such one."""
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
        """A job of a kind that waits, or one whose runner has not told of itself within its lease;
        from here on it is the caller's, for so many seconds. None where there is none.

        Owners take turns, and the jobs of one do: it is that of the owner who has had none for
        longest, and of its jobs that of which the same is true, or the oldest.

        One that was begun MAX_ATTEMPTS times and came no further is `given_up`: it is given once
        more, to be ended, and has failed where that does not come to an end either.
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
        with self._database.reading() as connection:  # whoever looks in vain holds up no writer
            owner = connection.execute(turn).scalar_one_or_none()
        if owner is None:
            return None
        next = (
            select(*_FIELDS)
            .where(_JOBS.c.kind == kind, free)
            # Of another owner only where others have just taken all of this one.
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
        """Whether there is a job of a kind to be claimed for so many seconds."""
        free = select(_JOBS.c.id).where(_JOBS.c.kind == kind, _is_free(now(), lease_s)).limit(1)
        with self._database.reading() as connection:
            return connection.execute(free).first() is not None

    def beat(
        self, job: KeptJob, lease_s: float, done: int, failed: int, total: int
    ) -> KeptJob | None:
        """Tell that the runner of a job is alive, and how far it is; gives the job as it stands,
        which may have been cancelled. None where it is not the runner's any more."""
        further = _JOBS.c.done + _JOBS.c.failed < done + failed
        values = {
            "lease": now() + lease_s,
            "attempts": case((further, 1), else_=_JOBS.c.attempts),
            "done": done,
            "failed": failed,
            "total": total,
        }
        with self._database.writing() as connection:
            if not connection.execute(_of_claim(job).values(values)).rowcount:
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
        """Note how a job has ended and what came of it, which stays for so many seconds, and keep
        another one that follows it; False, and nothing of both, where the job is not the runner's
        any more."""
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

    def give_back(self, job: KeptJob) -> bool:
        """Let another one go on with a job, which does not count as an attempt; False as with
        `finish`."""
        back = _of_claim(job).values(state="waiting", claim="", attempts=_JOBS.c.attempts - 1)
        with self._database.writing() as connection:
            return bool(connection.execute(back).rowcount)

    def cancel(self, owner: str, id: str, keep_s: float) -> KeptJob | None:
        """Have a job end, where it has not; gives it as it stands, or None as `get` does.

        One that was never begun ends at once, and is kept for so many seconds; whoever runs
        another, or claims it, sees that it is cancelled.
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
        """Those of at most some hundred ids that are jobs which have not ended, whoever's."""
        with self._database.reading() as connection:
            found = connection.execute(select(_JOBS.c.id).where(_JOBS.c.id.in_(ids), _UNENDED))
            return frozenset(found.scalars())

    def remove_expired(self) -> list[str]:
        """Remove the jobs whose time is over; gives their ids."""
        over = delete(_JOBS).where(_JOBS.c.expires < now()).returning(_JOBS.c.id)
        with self._database.writing() as connection:
            return list(connection.execute(over).scalars())


def _is_free(moment: float, lease_s: float) -> ColumnElement[bool]:
    """Whether a job may be claimed. A lease that ends later than any is one of a clock that was
    wrong, whose runner would have put it right."""
    over = or_(_JOBS.c.lease < moment, _JOBS.c.lease > moment + 2 * abs(lease_s))
    orphaned = and_(_JOBS.c.state == "running", over)
    return or_(_JOBS.c.state == "waiting", orphaned)


def _of_claim(job: KeptJob) -> Any:
    """An update of a job that is still its runner's."""
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
