"""The long run of the fault suite: `make soak` prints its table of promises and what was found.

`python -m tests.soak --write` puts the table into docs/how-to/operations.md, and its data into
docs/measurements. `--scale 0.1` does a tenth of everything.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.machine.processor import cpu_name, cpuinfo
from bench.reports.measurement import MeasuredTable, Measurement, rendered, write
from bench.reports.report import versions
from bench.reports.tables import MEASUREMENTS
from export.bundles.folder import commit
from tests.stores import PostgreSQL, fresh_database, stoppable_postgresql
from tests.system import faults, kept_faults
from tests.system.kept_traffic import ADMIN_KEY, kept_traffic, kill_in_batch
from tests.system.server import ROOT, Server, running

DOCUMENT = ROOT / "docs/how-to/operations.md"
COMMAND = "python -m tests.soak"
BEGIN, END = f"<!-- run: {COMMAND} -->", "<!-- end -->"
COLUMNS = ("Fault", "Found", "Promise", "Kept")
CLIENT_TIMEOUT_S = 5.0
OVERLOAD_P95_S = 8.0
"""Largest 95th percentile of latency under overload in seconds: requests predicted to end within
MACARON_MAX_WAIT_S, 5 seconds, are answered within this time."""
QUIET_LOAD = 0.5
"""Load average per core above which other work disturbs the measurement."""


@dataclass(frozen=True)
class Row:
    """One row of the table: a fault, the finding, the promise, and whether it was kept."""

    fault: str
    found: str
    promise: str
    kept: bool


def overload(server: Server, scale: float) -> Row:
    """Send five times as many requests as the server can answer."""
    seconds = 60 * scale
    idle = faults.latency(server, 20)
    capacity = faults.capacity(server, max(5.0, 10 * scale))
    found = faults.overload(server, 5 * capacity, seconds)
    back = faults.seconds_to_recover(server, idle)
    p95 = found.percentile(95)
    kept = set(found.statuses) <= {200, 429, 503} and not found.without_retry_after
    return Row(
        f"Overload: {5 * capacity:.0f} requests/s for {seconds:.0f} s, 5x the capacity",
        f"{_counts(found.statuses)}; p95 of the accepted {p95:.1f} s; idle latency back after "
        f"{back:.1f} s; lost {found.lost}",
        f"only 503 with Retry-After; p95 <= {OVERLOAD_P95_S:.0f} s; back within 2 s",
        kept and p95 <= OVERLOAD_P95_S and back <= 2 and not found.lost,
    )


def killed_clients(server: Server, scale: float) -> Row:
    """Clients that leave in the middle."""
    count = int(100 * scale)
    before = faults.total(faults.samples(server), "macaron_cancelled_requests_total")
    faults.kill_clients(server, count)
    begin = time.monotonic()
    faults.seconds_until(lambda: faults.held(server) == 0, 60)
    seconds = time.monotonic() - begin
    after = faults.total(faults.samples(server), "macaron_cancelled_requests_total")
    return Row(
        f"{count} clients killed in the middle, half of them reading streams",
        f"{after - before:.0f} cancelled; rows and queue empty after {seconds:.2f} s",
        "all cancelled, nothing held after 2 s",
        after - before == count and seconds <= 2,
    )


def malformed(server: Server, scale: float) -> Row:
    """Noise in place of HTTP and JSON."""
    count = int(5000 * scale)
    found = faults.fuzz(server, count)
    bad = [status for status in found if status.startswith("5") or status == "hang"]
    alive = server.ask("Hallo").status_code == 200
    return Row(f"{count} malformed requests", _counts(found), "no 5xx, no hang", alive and not bad)


def paths(server: Server, scale: float) -> Row:
    """A scanner."""
    count = int(1000 * scale)
    grown = faults.random_paths(server, count)
    return Row(
        f"{count} random paths",
        f"{grown} new samples at /metrics",
        "none",
        grown == 0,
    )


def slow(server: Server, scale: float) -> Row:
    """Slow-loris, and readers that stop."""
    count, streams = int(150 * scale), max(1, int(8 * scale))
    begin = time.monotonic()
    found = faults.slow_clients(server, count, 60.0)
    seconds = time.monotonic() - begin
    faults.unread_streams(server, streams)
    return Row(
        f"{count} heads and bodies that never end; {streams} streams never read",
        f"{_counts(found)} within {seconds:.1f} s; streams given up, nothing held",
        f"given up after {CLIENT_TIMEOUT_S:.0f} s (MACARON_CLIENT_TIMEOUT_S), no hang",
        set(found) == {"closed", "408"} and seconds <= CLIENT_TIMEOUT_S + 5,
    )


def mixed(server: Server, scale: float) -> Row:
    """Mix all kinds of requests for a long time."""
    count = int(20_000 * scale) // 20 * 20
    prints = faults.mixed_traffic(server, count, count // 20)
    slope, warm, last = faults.rss_slope(prints), prints[len(prints) // 2], prints[-1]
    return Row(
        f"{count} mixed requests (translations, completions, streams, errors, clients that leave)",
        f"memory (shared pages count in each process) {warm.rss_mb:.0f} -> {last.rss_mb:.0f} MB "
        f"over the second half, {slope:+.2f} MB a thousand; threads {warm.threads} -> "
        f"{last.threads}; descriptors {warm.descriptors} -> {last.descriptors}",
        "< 2 MB a thousand requests, or 5 MB in all; threads and descriptors constant",
        (slope < 2 or last.rss_mb - warm.rss_mb < 5)
        and abs(last.threads - warm.threads) <= 2
        and abs(last.descriptors - warm.descriptors) <= 2,
    )


def kept(server: Server, scale: float) -> Row:
    """Create, use and delete the things that a store keeps."""
    rounds = max(20, int(600 * scale))
    found = kept_traffic(server, rounds)
    warm, last = found.prints[len(found.prints) // 2], found.prints[-1]
    asked = sum(found.statuses.values())
    good = set(found.statuses) <= {200, 201, 202, 204}
    return Row(
        f"{asked} requests with a store: {rounds} glossaries, memories, documents and keys, "
        f"{found.batches} batches with webhooks",
        f"{_counts(found.statuses)}; {len(found.unlike)} answers unlike what was kept; "
        f"{found.webhooks} webhooks, once each; {found.counted} of {found.characters} characters "
        f"counted; memory {warm.rss_mb:.0f} -> {last.rss_mb:.0f} MB over the second half; "
        f"descriptors {warm.descriptors} -> {last.descriptors}",
        "all answered by what is kept; one webhook a batch; usage exact; descriptors constant",
        good
        and not found.unlike
        and found.webhooks == found.batches
        and found.counted == found.characters
        and abs(last.descriptors - warm.descriptors) <= 4,
    )


def batch_death(server: Server, scale: float) -> Row:
    """SIGKILL of the worker that does a batch."""
    found = kill_in_batch(server, max(200, int(1000 * scale)))
    return Row(
        f"SIGKILL of the worker in a batch of {found.lines} lines",
        f"{found.done} lines answered, {found.twice} of them twice; {found.state} "
        f"{found.seconds:.0f} s later",
        "another goes on after 60 s, each line is answered once",
        found.done == found.lines and not found.twice and found.state == "completed",
    )


def hostile(server: Server, scale: float) -> Row:
    """Content that is made to do harm."""
    count, megabytes = max(6, int(200 * scale)), max(5, int(100 * scale))
    found = kept_faults.hostile_content(server, count, megabytes)
    return _survived(
        f"SQL in {2 * count} names; {count} TMX with entity bombs; {megabytes} MB of CSV",
        found,
        "names are kept as they are; 400 and 413; memory stays",
    )


def failing_webhooks(server: Server, scale: float) -> Row:
    """Name receivers of webhooks that do not work."""
    count = max(2, int(6 * scale))
    return _survived(
        f"{count} webhooks that are never answered, {count} sent on inward, {count} good ones",
        kept_faults.failing_webhooks(server, count),
        "batches end; the good ones are told; nothing goes inward",
    )


def ending_keys(server: Server, scale: float) -> Row:
    """Keys that are deleted while they are used."""
    count = max(8, int(80 * scale))
    return _survived(
        f"{count} keys deleted while a request of theirs is decoded",
        kept_faults.ending_keys(server, count),
        "an answer or 401; refused afterwards",
    )


def many_glossaries(server: Server, scale: float, store: str) -> Row:
    """A store that is full."""
    count = int(100_000 * scale)
    return _survived(
        f"{count} glossaries in the store",
        kept_faults.many_glossaries(server, store, count),
        "translation as fast as before; lists and new ones within 0.5 s",
    )


def shared_batches(servers: Sequence[Server], scale: float) -> Row:
    """Let two servers of a store process the same batches."""
    count, lines = max(2, int(12 * scale)), 20
    return _survived(
        f"{count} batches of {lines} lines that two servers of a store try to claim",
        kept_faults.shared_batches(servers, count, lines),
        "each line is answered and counted once",
    )


def store_that_goes(server: Server, scale: float, store: PostgreSQL) -> Row:
    """A store that goes away and comes back."""
    rounds = max(1, int(5 * scale))
    return _survived(
        f"PostgreSQL stopped and started again under 4 clients, {rounds}x",
        kept_faults.store_that_goes(server, store, rounds),
        "translation goes on; what needs the store is 503 with Retry-After; usage exact",
    )


def full_disk(server: Server, scale: float, disk: Path) -> Row:
    """A disk without room."""
    rounds = max(1, int(5 * scale))
    return _survived(
        f"the disk of the store filled, {rounds}x",
        kept_faults.full_disk(server, disk, rounds),
        "translation goes on; what would be kept is 503 with Retry-After; usage exact",
    )


def interrupted_migrations(scale: float, postgresql: str) -> Row:
    """SIGKILL of a process that brings a store up to date."""
    count = max(3, int(30 * scale))
    with tempfile.TemporaryDirectory() as folder:
        files = [f"sqlite:///{folder}/{number}.db" for number in range(count)]
        schemas = [fresh_database(postgresql) for _ in range(count)]
        found = kept_faults.interrupted_migrations([*files, *schemas], Path(folder))
    return _survived(
        f"{2 * count} migrations of SQLite and PostgreSQL killed at some moment",
        found,
        "the next process goes on, and nothing is missing",
    )


def jumping_clock(server: Server, scale: float, clock: Path) -> Row:
    """A clock that jumps."""
    lines = max(300, int(1000 * scale))
    return _survived(
        f"the clock of two workers jumps by two hours and back in a batch of {lines} lines",
        kept_faults.jumping_clock(server, clock, lines),
        "requests are answered; each line once",
    )


def _survived(fault: str, found: kept_faults.Survived, promise: str) -> Row:
    """The row of a fault of stored things; errors go to stderr."""
    for wrong in found.wrong[:20]:
        print(f"wrong: {wrong}", file=sys.stderr)
    said = f"{_counts(found.statuses)}; {found.said}"
    if found.wrong:
        said += f"; {len(found.wrong)} not as promised"
    return Row(fault, said, promise, not found.wrong)


def worker_death(server: Server, scale: float) -> Row:
    """SIGKILL of one of two workers."""
    found = faults.kill_one(server, faults.worker_pids, max(15.0, 60 * scale))
    return Row(
        f"SIGKILL of one of two workers under {found.clients} clients",
        f"{found.lost} of {found.asked} requests lost, {found.refused} refused; two workers again "
        f"after {found.seconds_to_replace:.1f} s",
        "only its own requests fail; it is replaced",
        found.lost <= found.clients,
    )


def decoder_death(server: Server, scale: float) -> Row:
    """SIGKILL of a decoding process."""
    found = faults.kill_one(server, faults.decoder_pids, max(15.0, 60 * scale))
    return Row(
        f"SIGKILL of a decoding process under {found.clients} clients",
        f"{found.refused} of {found.asked} requests refused, {found.lost} lost; replaced "
        f"after {found.seconds_to_replace:.1f} s",
        "only its own requests fail; it is replaced",
        found.refused <= found.clients and not found.lost,
    )


def _counts(found: Counter[int] | Counter[str]) -> str:
    return ", ".join(f"{status}: {count}" for status, count in sorted(found.items()))


ONE_WORKER = (overload, killed_clients, malformed, paths, slow, mixed, decoder_death)
WITH_STORE = (kept, batch_death, hostile, failing_webhooks, ending_keys)
KEPT = {"MACARON_ADMIN_KEY": ADMIN_KEY, "MACARON_WEBHOOK_HOSTS": "127.0.0.1"}
"""Settings of a server with a store."""


@contextmanager
def served(bundles: Path, **settings: str) -> Iterator[Server]:
    """A server with bundles, its log thrown away at the end."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(bundles, Path(scratch), **settings) as server,
    ):
        yield server


def measured(rows: list[Row], scale: float, load: float) -> Measurement:
    """The run as data; `load` is the load average at its start."""
    cores = os.cpu_count() or 1
    busy = "" if load <= QUIET_LOAD * cores else ", shared with other work"
    cells = [(r.fault, r.found, r.promise, "yes" if r.kept else "**no**") for r in rows]
    return Measurement(
        COMMAND,
        datetime.now(UTC).date().isoformat(),
        commit() or "none",
        COMMAND + ("" if scale == 1 else f" --scale {scale:g}"),
        f"One thread for each model; load average {load:.1f} at the start{busy}.",
        (f"{cpu_name(cpuinfo())}, {cores} cores ({cores} used).",),
        ", ".join(f"{name} {number}" for name, number in versions().items()) + ".",
        (MeasuredTable(COLUMNS, "|---|---|---|---|", tuple(cells)),),
    )


def show(found: Measurement) -> None:
    """Write the data, and put its rendering between the marks in the document."""
    write(found, MEASUREMENTS)
    document = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n{rendered(found)}\n{END}{after}"
    DOCUMENT.write_text(text, encoding="utf-8")


def run(bundles: Path, scale: float, postgresql: PostgreSQL) -> Iterator[Row]:
    """All rows as they come."""
    with served(bundles, MACARON_CLIENT_TIMEOUT_S=str(CLIENT_TIMEOUT_S)) as server:
        for test in ONE_WORKER:
            yield test(server, scale)
    with served(bundles, MACARON_WORKERS="2") as server:
        faults.seconds_until(lambda: len(faults.worker_pids(server)) == 2, 60)
        yield worker_death(server, scale)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        only = folder / "bundles"
        only.mkdir()
        (only / "macaron-de-en").symlink_to((bundles / "macaron-de-en").resolve())
        store = f"sqlite:///{folder}/store.db"
        with served(only, **KEPT, MACARON_STORE=store) as server:
            for test in WITH_STORE:
                yield test(server, scale)
            yield many_glossaries(server, scale, store)
        yield from _with_postgresql(only, scale, postgresql, folder)
        yield from _with_small_disk(only, scale, folder)
        yield from _with_own_clock(only, scale, folder)


def _with_postgresql(
    bundles: Path, scale: float, postgresql: PostgreSQL, folder: Path
) -> Iterator[Row]:
    files, url = str(folder / "files"), fresh_database(postgresql.url)
    shared = {**KEPT, "MACARON_STORE": url, "MACARON_FILES": files}
    with served(bundles, **shared) as server:
        with served(bundles, **shared) as other:
            yield shared_batches((server, other), scale)
        yield store_that_goes(server, scale, postgresql)
    yield interrupted_migrations(scale, postgresql.url)


def _with_small_disk(bundles: Path, scale: float, folder: Path) -> Iterator[Row]:
    disk = folder / "disk"
    disk.mkdir()
    with kept_faults.small_disk(disk, 16) as mounted:
        if not mounted:
            print("left out: a full disk, for nothing can be mounted here")
            return
        with served(bundles, **KEPT, MACARON_STORE=f"sqlite:///{disk}/store.db") as server:
            yield full_disk(server, scale, disk)


def _with_own_clock(bundles: Path, scale: float, folder: Path) -> Iterator[Row]:
    (folder / "sitecustomize.py").write_text(kept_faults.CLOCK)
    clock, store = folder / "clock", f"sqlite:///{folder}/clock.db"
    own = {"PYTHONPATH": str(folder), "SOAK_CLOCK": str(clock)}
    with served(bundles, **KEPT, **own, MACARON_STORE=store, MACARON_WORKERS="2") as server:
        faults.seconds_until(lambda: len(faults.worker_pids(server)) == 2, 60)
        yield jumping_clock(server, scale, clock)


def main() -> None:
    """Run everything; the exit status shows whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=Path, default=ROOT / "models")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--write", action="store_true", help="into docs/how-to/operations.md")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rows: list[Row] = []
    with stoppable_postgresql() as postgresql:
        if postgresql is None:
            parser.exit(1, "it needs PostgreSQL's programs: apt-get install postgresql\n")
        for row in run(arguments.bundles, arguments.scale, postgresql):
            rows.append(row)
            print(f"{'kept  ' if row.kept else 'BROKEN'} {row.fault}: {row.found}", flush=True)
    found = measured(rows, arguments.scale, load)
    print(f"\n{rendered(found)}")
    if arguments.write:
        show(found)
    sys.exit(0 if all(row.kept for row in rows) else 1)


if __name__ == "__main__":
    main()
