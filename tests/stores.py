"""Stores for tests: an SQLite file, and a PostgreSQL server of the test run's own.

The server needs the programs of PostgreSQL (`apt-get install postgresql`); where they are not
there, tests against it are skipped.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_numbers = itertools.count()


@contextmanager
def running_postgresql() -> Iterator[str | None]:
    """The URL of a server that runs while the context does; None where it cannot be started."""
    programs = _programs()
    if programs is None:
        yield None
        return
    # Not below pytest's folders: a socket's path is short, and the server's user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="macaron-pg-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        data, port = folder / "data", _free_port()
        _run(programs / "initdb", "-D", data, "-U", "macaron", "-A", "trust", "--no-sync")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = folder / "log"
        _run(programs / "pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "start")
        try:
            yield f"postgresql://macaron@127.0.0.1:{port}/postgres"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(server: str) -> str:
    """The URL of an empty database on a server that `running_postgresql` gave."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.rpartition("/")[0] + "/" + name


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


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
