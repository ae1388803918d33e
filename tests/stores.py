"""Stores for tests: an SQLite file, and a PostgreSQL server of the test run.

The server needs the programs of PostgreSQL (`apt-get install postgresql`); without them, tests that
use it are skipped.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.systems.processes.http_server import free_port

_numbers = itertools.count()


class PostgreSQL:
    """A server with its own folder."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._pg_ctl, self._folder, self._data = programs / "pg_ctl", folder, folder / "data"
        self._port = free_port()
        self.url = f"postgresql://macaron@127.0.0.1:{self._port}/postgres"
        _run(programs / "initdb", "-D", self._data, "-U", "macaron", "-A", "trust", "--no-sync")

    def start(self) -> None:
        """Start the server, also after it was stopped."""
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = self._folder / "log"
        _run(self._pg_ctl, "-D", self._data, "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        """Stop it as a crash does."""
        _run(self._pg_ctl, "-D", self._data, "-m", "immediate", "stop")


@contextmanager
def running_postgresql() -> Iterator[str | None]:
    """The URL of a server that runs within the block; None if it cannot be started."""
    with stoppable_postgresql() as server:
        yield None if server is None else server.url


@contextmanager
def stoppable_postgresql() -> Iterator[PostgreSQL | None]:
    """The server itself, which may be stopped and started within the block; it must run at the
    end."""
    programs = _programs()
    if programs is None:
        yield None
        return
    # Not below pytest's folders: a socket's path is short, and the server's user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="macaron-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server = PostgreSQL(programs, folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(server: str) -> str:
    """The URL of an empty database on a server of `running_postgresql`.

    It is a schema of its own: a whole database is a copy of 300 files, which takes longer to make
    and to remove than most tests run.
    """
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server}?options=-csearch_path%3D{name}"


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    path = shutil.which("initdb")
    return Path(path).parent if path else None


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    if os.geteuid() == 0:  # PostgreSQL does not run as root
        words = ["runuser", "-u", "postgres", "--", *words]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/"
    )
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        raise RuntimeError(f"{words[-1]}: {done.stdout.decode(errors='replace')}")
