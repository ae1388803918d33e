"""Faults of what a store keeps, in adjustable numbers: hostile content, receivers and keys that go,
stores and disks that fail, clocks that jump."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from sqlalchemy import text

from serving.store.records.glossary import GlossaryLimits, NewDictionary
from serving.store.store import Store
from tests.stores import PostgreSQL
from tests.system.faults import HEAVY, footprint, seconds_until, some_text
from tests.system.kept_traffic import ADMIN_KEY, ENDED, answered, begun, new_key
from tests.system.server import PAIR, Server

ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
SQL = (
    "'; DROP TABLE glossaries; --",
    '" OR "1"="1',
    "x') ON CONFLICT DO NOTHING; --",
    "%_\\%",
    "Robert'); DELETE FROM jobs WHERE ('1'='1",
    "${jndi:ldap://x}",
)
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a "lol">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise("abcdefghij"))
    + '<!ENTITY file SYSTEM "file:///etc/passwd">]><tmx><header srclang="de"/><body><tu>'
    '<tuv xml:lang="de"><seg>&j;</seg></tuv><tuv xml:lang="en"><seg>&file;</seg></tuv></tu>'
    "</body></tmx>"
)
ENTRIES = [{"source": "Haus", "target": "impeller"}]
DICTIONARIES = [{**PAIR, "entries": ENTRIES}]
CLOCK = """import os, time
_time, _time_ns = time.time, time.time_ns
def _ahead_s():
    try:
        with open(os.environ["SOAK_CLOCK"]) as file:
            return float(file.read() or 0)
    except OSError:
        return 0.0
time.time = lambda: _time() + _ahead_s()
time.time_ns = lambda: _time_ns() + int(_ahead_s() * 1e9)
"""
"""A `sitecustomize` of Python: the clock of every process is ahead by the seconds in a file."""


@dataclass
class Survived:
    """What came of a fault."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What was not as promised."""
    said: str = ""
    """What was measured, in words."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def ask(self, client: httpx.Client, method: str, path: str, **given: Any) -> httpx.Response:
        """Send a request and note its status; anything but an answer or a refusal is wrong."""
        answer = client.request(method, path, **given)
        with self._lock:
            self.statuses[str(answer.status_code)] += 1
        if answer.status_code >= 500:
            self.wrong.append(f"{method} {path[:80]}: {answer.status_code} {answer.text[:200]}")
        return answer

    def expect(self, good: bool, what: str) -> None:
        """Note what is wrong unless it is good."""
        if not good:
            self.wrong.append(what)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@contextlib.contextmanager
def asking(server: Server, head: dict[str, str] | None = None) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=head, timeout=120) as client:
        yield client


def hostile_content(server: Server, count: int, megabytes: int) -> Survived:
    """SQL in names, so many megabytes of CSV, and TMX whose entities grow without end."""
    found = Survived()
    with asking(server) as admin, asking(server, bearer(new_key(admin, SQL[0]))) as client:
        for number in range(count):
            _kept_by_name(found, client, SQL[number % len(SQL)])
        body = {"name": "bombed", **PAIR, "segments": []}
        memory = found.ask(client, "POST", "/memories", json=body).json()["id"]
        for _ in range(count):
            files = {"file": ("m.tmx", BOMB.encode())}
            answer = found.ask(client, "POST", f"/memories/{memory}/tmx", files=files)
            found.expect(answer.status_code == 400, f"bomb: {answer.status_code}")
        found.ask(client, "DELETE", f"/memories/{memory}")
        before = footprint(server, 0)
        seconds = _flood(found, client, megabytes)
        grown = footprint(server, 0).rss_mb - before.rss_mb
        left = found.ask(client, "GET", "/glossaries").json()["glossaries"]
        found.expect(left == [], f"left: {left}")
    found.expect(grown < 50, f"memory grew by {grown:.0f} MB")
    found.said = f"{megabytes} MB of CSV refused after {seconds:.1f} s, memory {grown:+.0f} MB"
    return found


def _kept_by_name(found: Survived, client: httpx.Client, name: str) -> None:
    """Keep a glossary and a file of this name, and find them again, and nothing else by it."""
    body = {"name": name, "dictionaries": DICTIONARIES}
    id = found.ask(client, "POST", "/glossaries", json=body).json()["id"]
    kept = found.ask(client, "GET", f"/glossaries/{id}").json()
    found.expect(kept["name"] == name, f"{name}: {kept}")
    by_name = found.ask(client, "GET", f"/glossaries/{quote(name, safe='')}")
    found.expect(by_name.status_code == 404, f"by the name {name}: {by_name.status_code}")
    given = {"data": {"purpose": "batch"}, "files": {"file": (name, b"{}")}}
    sent = found.ask(client, "POST", "/v1/files", **given).json()
    found.ask(client, "GET", "/v1/files", params={"after": name})
    found.ask(client, "DELETE", f"/v1/files/{sent['id']}")
    found.ask(client, "DELETE", f"/glossaries/{id}")


def _flood(found: Survived, client: httpx.Client, megabytes: int) -> float:
    """A dictionary of so many megabytes of CSV, in parts; gives the seconds to its refusal."""
    line = "Haus,house\n" * (2**20 // 11)

    def parts() -> Iterator[bytes]:
        head = {"name": "flood", "source_lang": "de", "target_lang": "en", "entries_format": "csv"}
        yield json.dumps(head)[:-1].encode() + b', "entries": "'
        for _ in range(megabytes):
            yield json.dumps(line)[1:-1].encode()
        yield b'"}'

    begin = time.monotonic()
    try:
        answer = client.post(
            "/v2/glossaries", content=parts(), headers={"Content-Type": "application/json"}
        )
        found.statuses[str(answer.status_code)] += 1
        found.expect(answer.status_code == 413, f"flood: {answer.status_code}")
    except httpx.TransportError:  # it was closed before all was sent
        found.statuses["closed"] += 1
    return time.monotonic() - begin


class _Receiver(ThreadingHTTPServer):
    """Takes webhooks: tells those that come on /told, never answers on /silent, and sends those on
    /moved elsewhere."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Delivery)
        self.paths: Counter[str] = Counter()
        self.ended = threading.Event()


class _Delivery(BaseHTTPRequestHandler):
    server: _Receiver

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths[self.path] += 1
        if self.path == "/silent":
            self.server.ended.wait()
            return
        self.send_response(307 if self.path == "/moved" else 204)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/inward")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


def failing_webhooks(server: Server, count: int) -> Survived:
    """So many batches whose webhooks are never answered, as many whose receiver sends them inward,
    and as many with a good one. 127.0.0.1 is among the server's hosts for webhooks."""
    found, receiver = Survived(), _Receiver()
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with asking(server) as admin, asking(server, bearer(new_key(admin, "webhooks"))) as client:
        inward = {"url": "http://169.254.169.254/latest", "secret": "a-secret-of-the-soak"}
        refused = client.post("/v1/batches", json={**_WISHES, "webhook": inward}).status_code
        found.expect(refused == 400, f"a webhook inward: {refused}")
        paths = []
        for number in range(count):
            for kind in ("silent", "moved", "told"):
                url = f"http://127.0.0.1:{receiver.server_port}/{kind}"
                webhook = {"url": url, "secret": "a-secret-of-the-soak"}
                paths.append(begun(client, {}, [f"{kind} {number}"], webhook=webhook))
        for path in paths:
            batch = _ended(client, path, 120)
            found.statuses[batch["status"]] += 1
            found.expect(batch["status"] == "completed", f"batch: {batch}")
        begin = time.monotonic()
        # Four are sent at once, and one that is never answered takes ten seconds.
        limit = begin + 30 + 10 * count
        while min(receiver.paths[f"/{kind}"] for kind in ("silent", "moved", "told")) < count:
            if time.monotonic() > limit:
                found.wrong.append(f"delivered: {dict(receiver.paths)}")
                break
            time.sleep(0.1)
        seconds = time.monotonic() - begin
        found.expect(receiver.paths["/inward"] == 0, f"followed: {dict(receiver.paths)}")
    receiver.ended.set()
    receiver.shutdown()
    receiver.server_close()
    found.said = f"{receiver.paths['/told']} good ones told within {seconds:.0f} s, 0 sent inward"
    return found


_WISHES = {"input_file_id": "file-x", "endpoint": "/translate", "completion_window": "24h"}


def ending_keys(server: Server, count: int) -> Survived:
    """Keys that are deleted while a request of theirs is decoded."""
    found, rng = Survived(), random.Random(1)
    with asking(server) as admin, ThreadPoolExecutor(8) as pool:

        def one(text: str) -> None:
            made = admin.post("/admin/keys", json={"label": "ends"}, headers=ADMIN).json()
            with asking(server, bearer(made["key"])) as client:
                body = {"q": text, **PAIR, "options": HEAVY}
                running = threading.Thread(
                    target=lambda: found.ask(client, "POST", "/translate", json=body)
                )
                running.start()
                time.sleep(rng.random() * 0.2)
                path = f"/admin/keys/{made['id']}"
                gone = admin.delete(path, headers=ADMIN).status_code
                found.expect(gone == 204, f"deleted: {gone}")
                running.join()
                time.sleep(1.5)  # a worker asks for a key that it knows every second
                after = client.post("/translate", json={"q": "Ja.", **PAIR}).status_code
                # 429 after many keys that are no keys any more.
                found.expect(after in (401, 403, 429), f"afterwards: {after}")

        list(pool.map(one, [some_text(rng, 20) for _ in range(count)]))
    good = sum(found.statuses[status] for status in ("200", "401", "403"))
    found.expect(good == count, f"answers: {dict(found.statuses)}")
    found.said = "refused afterwards"
    return found


def many_glossaries(server: Server, store: str, count: int) -> Survived:
    """So many glossaries of a hundred owners in the server's store, and one key's among them."""
    found = Survived()
    with asking(server) as admin, asking(server, bearer(new_key(admin, "many"))) as client:
        body = {"name": "own", "dictionaries": DICTIONARIES}
        own = found.ask(client, "POST", "/glossaries", json=body).json()["id"]
        before = _median_s(lambda: _with_glossary(found, client, own))
        _fill(store, count)
        after = _median_s(lambda: _with_glossary(found, client, own))
        listed = _median_s(lambda: found.ask(client, "GET", "/glossaries"))
        made = _median_s(lambda: found.ask(client, "POST", "/glossaries", json=body))
    found.expect(after < 2 * before + 0.05, f"{before:.3f} s before, {after:.3f} s after")
    found.expect(max(listed, made) < 0.5, f"listed in {listed:.3f} s, made in {made:.3f} s")
    found.said = (
        f"translation with one {before * 1000:.0f} ms before, {after * 1000:.0f} ms after; listed "
        f"in {listed * 1000:.0f} ms, made in {made * 1000:.0f} ms"
    )
    return found


def _fill(url: str, count: int) -> None:
    """Put so many glossaries into a store, past its checks, which would take minutes."""
    store = Store(url, Path.cwd())
    try:
        for start in range(0, count, 10_000):
            numbers = range(start, min(count, start + 10_000))
            rows = [
                {"id": str(uuid.uuid4()), "owner": f"owner{n % 100}", "n": n, "name": f"g{n}"}
                for n in numbers
            ]
            with store.database.writing() as connection:
                connection.execute(
                    text(
                        "INSERT INTO glossaries (id, owner, created, name) "
                        "VALUES (:id, :owner, :n, :name)"
                    ),
                    rows,
                )
                connection.execute(
                    text(
                        "INSERT INTO glossary_dictionaries (glossary_id, source, target, version, "
                        "entry_count, entries) VALUES (:id, 'de', 'en', '1', 1, 'Haus	home')"
                    ),
                    rows,
                )
    finally:
        store.close()


def _with_glossary(found: Survived, client: httpx.Client, id: str) -> None:
    body = {"q": f"Das Haus {random.random()} ist rot.", **PAIR, "glossary_id": id}
    answer = found.ask(client, "POST", "/translate", json=body).json()
    found.expect("impeller" in answer.get("translatedText", ""), f"glossary: {answer}")


def shared_batches(servers: Sequence[Server], count: int, lines: int) -> Survived:
    """So many batches, one after the other, which all servers of a store try to claim."""
    found = Survived()
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(asking(servers[0]))
        head = bearer(new_key(admin, "shared"))
        clients = [stack.enter_context(asking(server, head)) for server in servers]
        for number in range(count):
            texts = [f"Zeile {line} von {number}." for line in range(lines)]
            path = begun(clients[number % len(clients)], head, texts)
            batch = _ended(clients[0], path, 120)
            found.statuses[batch["status"]] += 1
            once = answered(clients[0], head, batch)
            found.expect(set(once) == set(texts), f"batch {number}: {batch}")
            found.expect(set(once.values()) == {1}, f"batch {number}: {once.most_common(1)}")
        sent = sum(len(f"Zeile {line} von {n}.") for n in range(count) for line in range(lines))
        counted = _counted(clients[0], sent)
        found.expect(counted == sent, f"counted {counted} of {sent}")
    found.said = f"{count * lines} lines answered once, {counted} of {sent} characters counted"
    return found


def store_that_goes(server: Server, store: PostgreSQL, rounds: int) -> Survived:
    """Clients translate all the time, while the store is stopped and started again."""
    found, translated, away = Survived(), Survived(), Counter[str]()
    ended = threading.Event()
    with asking(server) as admin, asking(server, bearer(new_key(admin, "away"))) as client:
        body = {"name": "g", "dictionaries": DICTIONARIES}

        def translate(number: int) -> None:
            rng = random.Random(number)
            while not ended.is_set():
                translated.ask(
                    client, "POST", "/translate", json={"q": some_text(rng, 2)[:12], **PAIR}
                )

        translated.ask(client, "POST", "/translate", json={"q": "x" * 12, **PAIR})
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(translate, number) for number in range(4)]
            for _ in range(rounds):
                time.sleep(0.5)
                store.stop()
                for _ in range(3):
                    answer = client.post("/glossaries", json=body)
                    away[str(answer.status_code)] += 1
                    found.expect("Retry-After" in answer.headers, f"away: {answer.text}")
                store.start()
                seconds_until(lambda: client.post("/glossaries", json=body).is_success, 60)
            ended.set()
            for each in running:
                each.result()
        sent = 12 * translated.statuses["200"]
        counted = _counted(client, sent)
    found.expect(set(away) == {"503"}, f"away: {dict(away)}")
    found.expect(counted == sent, f"counted {counted} of {sent}")
    found.wrong += translated.wrong
    found.statuses = translated.statuses
    found.said = (
        f"translations meanwhile; {away['503']} requests that need the store refused; {counted} of "
        f"{sent} characters counted"
    )
    return found


def full_disk(server: Server, disk: Path, rounds: int) -> Survived:
    """The disk of the server's store is filled and freed again, so many times."""
    found, filler = Survived(), disk / "filler"
    refused = 0
    with asking(server) as admin, asking(server, bearer(new_key(admin, "disk"))) as client:
        file: dict[str, Any] = {
            "data": {"purpose": "batch"},
            "files": {"file": ("a", b"x" * 10**6)},
        }
        for _ in range(rounds):
            with filler.open("wb", buffering=0) as full, contextlib.suppress(OSError):
                while True:
                    full.write(b"x" * 4096)
            for _ in range(3):
                found.ask(client, "POST", "/translate", json={"q": "Hallo", **PAIR})
                answer = client.post("/v1/files", **file)
                refused += answer.status_code == 503
                found.expect("Retry-After" in answer.headers, f"full: {answer.status_code}")
            filler.unlink()
            seconds_until(lambda: client.post("/v1/files", **file).is_success, 60)
            for each in client.get("/v1/files").json()["data"]:
                client.delete(f"/v1/files/{each['id']}")
        counted = _counted(client, 15 * rounds)
    found.expect(set(found.statuses) == {"200"}, f"translations: {dict(found.statuses)}")
    found.expect(counted == 15 * rounds, f"counted {counted} of {15 * rounds}")
    found.said = f"translations meanwhile; {refused} files refused with Retry-After"
    return found


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Whether a file system of this size could be mounted in the folder; it is removed at the
    end."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def interrupted_migrations(urls: Sequence[str], folder: Path) -> Survived:
    """A process that brings each of these empty databases up to date is killed at some moment,
    but for the first, which shows how long it takes; another one goes on."""
    found, rng, most = Survived(), random.Random(1), 60.0
    forked = multiprocessing.get_context("fork")
    for url in urls:
        process = forked.Process(target=lambda url=url: Store(url, folder).close())
        begin = time.monotonic()
        process.start()
        process.join(most * rng.random() if found.statuses else most)
        most = min(most, time.monotonic() - begin) if not found.statuses else most
        found.statuses["killed" if process.is_alive() else "done"] += 1
        process.kill()
        process.join()
        try:
            store = Store(url, folder)
            made = store.glossaries.create(
                "me", "g", [NewDictionary("de", "en", {"a": "b"})], GlossaryLimits(1, 1, 9)
            )
            found.expect(store.glossaries.get("me", made.id).name == "g", f"{url}: {made}")
            store.close()
        except Exception as error:
            found.wrong.append(f"{url}: {error!r}")
    found.said = "each brought up to date by the next process"
    return found


def jumping_clock(server: Server, clock: Path, lines: int) -> Survived:
    """The clock of a server's workers jumps two hours ahead and back again while they do a
    batch; `clock` is the file of CLOCK."""
    found, jumps, hours = Survived(), 0, 2
    with asking(server) as admin, asking(server, bearer(new_key(admin, "clock"))) as client:
        texts = [f"Zeile {line} hat {line} Worte." for line in range(lines)]
        path, end = begun(client, {}, texts), time.monotonic() + 300
        while (batch := client.get(path).json())["status"] not in ENDED:
            ahead = jumps % 2 == 0
            clock.write_text(str(3600 * hours * ahead))
            jumps += 1
            form: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": ("a", b"{}")}}
            file = found.ask(client, "POST", "/v1/files", **form).json()
            jumped_s = file["created_at"] - time.time()
            found.expect((jumped_s > 3600) == ahead, f"the clock is ahead by {jumped_s} s")
            found.ask(client, "POST", "/translate", json={"q": "Hallo.", **PAIR})
            time.sleep(2)
            if time.monotonic() > end:
                break
        clock.write_text("0")
        once = answered(client, {}, batch) if batch["status"] in ENDED else Counter[str]()
    found.expect(set(once) == set(texts), f"{len(once)} lines, {batch}")
    found.expect(set(once.values()) == {1}, f"{once.most_common(1)}")
    found.said = f"{jumps} jumps; {len(once)} lines answered once; the batch {batch['status']}"
    return found


def _ended(client: httpx.Client, path: str, limit: float) -> dict[str, Any]:
    """A batch at its end, or after so many seconds."""
    end = time.monotonic() + limit
    while True:
        batch: dict[str, Any] = client.get(path).json()
        if batch["status"] in ENDED or time.monotonic() > end:
            return batch
        time.sleep(0.1)


def _counted(client: httpx.Client, sent: int) -> int:
    """The characters that the server has counted, once they are as many, or after a while."""
    end = time.monotonic() + 30
    while True:
        answer = client.get("/v2/usage")
        counted = int(answer.json()["character_count"]) if answer.is_success else -1
        if counted == sent or time.monotonic() > end:
            return counted
        time.sleep(0.5)


def _median_s(act: Callable[[], object], times: int = 9) -> float:
    found = []
    for _ in range(times):
        begin = time.monotonic()
        act()
        found.append(time.monotonic() - begin)
    return sorted(found)[times // 2]
