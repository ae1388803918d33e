"""Traffic of what a store keeps: keys, glossaries, memories, documents, batches with webhooks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.system.faults import Footprint, footprint, seconds_until, worker_pids
from tests.system.server import PAIR, Server

ADMIN_KEY = "an-admin-key-of-the-soak"
BATCH_LINES = 10
ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass
class KeptTraffic:
    """What came of it."""

    statuses: Counter[int] = field(default_factory=Counter)
    unlike: list[str] = field(default_factory=list)
    """What was not as it should have been."""
    batches: int = 0
    webhooks: int = 0
    """Batches whose end was told."""
    characters: int = 0
    """That were sent with one key."""
    counted: int = 0
    """That the server tells of it."""
    prints: list[Footprint] = field(default_factory=list)


class _Told(ThreadingHTTPServer):
    """Takes webhooks."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Webhook)
        self.ids: Counter[str] = Counter()


class _Webhook(BaseHTTPRequestHandler):
    server: _Told

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.ids[event["data"]["id"]] += 1
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def _told() -> Iterator[_Told]:
    server = _Told()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def kept_traffic(server: Server, rounds: int) -> KeptTraffic:
    """So many rounds, of which each makes one of everything, uses it and deletes it. The server has
    a store, ADMIN_KEY, and 127.0.0.1 among its hosts for webhooks."""
    found = KeptTraffic()
    with _told() as told, httpx.Client(base_url=server.url, timeout=120) as client:
        asking = _Asking(client, found, new_key(client, "counted"))
        for number in range(rounds):
            if number % max(1, rounds // 20) == 0:
                found.prints.append(footprint(server, number))
            asking.glossary(number)
            asking.memory(number)
            asking.document(number)
            asking.passing_key(number)
            if number % 5 == 0:
                asking.batch(number, f"http://127.0.0.1:{told.server_port}/told")
        end = time.monotonic() + 30
        while len(told.ids) < found.batches and time.monotonic() < end:
            time.sleep(0.2)
        found.webhooks = sum(count == 1 for count in told.ids.values())
        usage = client.get("/v2/usage", headers=asking.head).json()
        found.counted = usage["character_count"]
    return found


def new_key(client: httpx.Client, label: str) -> str:
    """A key with this label, of a server with ADMIN_KEY."""
    head = {"Authorization": f"DeepL-Auth-Key {ADMIN_KEY}"}
    made = client.post("/v2/admin/developer-keys", json={"label": label}, headers=head).json()
    return str(made["key"])


@dataclass(frozen=True)
class BatchKill:
    """What came of killing the worker that does a batch."""

    lines: int
    done: int
    """Answers that came of it."""
    twice: int
    """Lines that have more than one."""
    state: str
    seconds: float
    """From the kill to the end."""


def kill_in_batch(server: Server, lines: int) -> BatchKill:
    """SIGKILL the only worker in the middle of a batch; the next one goes on."""
    with httpx.Client(base_url=server.url, timeout=120) as client:
        head = {"Authorization": f"Bearer {new_key(client, 'batch')}"}
        path = begun(client, head, [f"Haus {line} ist rot." for line in range(lines)])
        counts = lambda: client.get(path, headers=head).json()["request_counts"]  # noqa: E731
        seconds_until(lambda: counts()["completed"] > 5, 60)
        os.kill(worker_pids(server)[0], signal.SIGKILL)
        begin = time.monotonic()

        def status() -> str:
            try:
                return str(client.get(path, headers=head).json()["status"])
            except (httpx.TransportError, KeyError, ValueError):  # it starts anew
                return ""

        seconds_until(lambda: status() in ENDED, 600)
        seconds = time.monotonic() - begin
        batch = client.get(path, headers=head).json()
        ids = answered(client, head, batch)
        twice = sum(count > 1 for count in ids.values())
        return BatchKill(lines, len(ids), twice, batch["status"], seconds)


def answered(client: httpx.Client, head: dict[str, str], batch: dict[str, Any]) -> Counter[str]:
    """How many answers each line of a batch has that has ended."""
    content = client.get(f"/v1/files/{batch['output_file_id']}/content", headers=head).text
    return Counter(json.loads(line)["custom_id"] for line in content.splitlines())


def begun(client: httpx.Client, head: dict[str, str], texts: list[str], **wishes: Any) -> str:
    """The path of a batch of texts that was begun."""
    lines = (
        {"custom_id": text, "method": "POST", "url": "/translate", "body": {"q": text, **PAIR}}
        for text in texts
    )
    file = ("in.jsonl", "\n".join(map(json.dumps, lines)).encode())
    form: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": file}}
    input_id = client.post("/v1/files", headers=head, **form).json()["id"]
    body = {
        "input_file_id": input_id,
        "endpoint": "/translate",
        "completion_window": "24h",
        **wishes,
    }
    return f"/v1/batches/{client.post('/v1/batches', headers=head, json=body).json()['id']}"


class _Asking:
    """Asks with a key, and notes what came of it."""

    def __init__(self, client: httpx.Client, found: KeptTraffic, key: str) -> None:
        self._client, self._found = client, found
        self.head = {"Authorization": f"DeepL-Auth-Key {key}"}
        self._other = {"Authorization": f"Bearer {new_key(client, 'others')}"}
        """Of what is counted otherwise than by what a request holds."""

    def ask(self, method: str, path: str, head: dict[str, str], **given: Any) -> httpx.Response:
        answer = self._client.request(method, path, headers=head, **given)
        self._found.statuses[answer.status_code] += 1
        return answer

    def translated(self, q: str, **fields: str) -> Any:
        body = {"q": q, **PAIR, **fields}
        answer = self.ask("POST", "/translate", self.head, json=body)
        self._found.characters += len(q) * (answer.status_code == 200)
        return answer.json()

    def glossary(self, number: int) -> None:
        entries = [{"source": "Haus", "target": f"impeller {number}"}]
        body = {"name": f"g{number}", "dictionaries": [{**PAIR, "entries": entries}]}
        id = self.ask("POST", "/glossaries", self.head, json=body).json()["id"]
        text = self.translated("Das Haus ist rot.", glossary_id=id).get("translatedText", "")
        if str(number) not in text:
            self._found.unlike.append(f"glossary: {text}")
        self.ask("DELETE", f"/glossaries/{id}", self.head)

    def memory(self, number: int) -> None:
        segments = [{"source": f"Seite {number} ist leer.", "target": f"Page {number} is blank."}]
        body = {"name": f"m{number}", **PAIR, "segments": segments}
        id = self.ask("POST", "/memories", self._other, json=body).json()["id"]
        body = {"q": segments[0]["source"], **PAIR, "memory_id": id}
        answer = self.ask("POST", "/translate", self._other, json=body).json()
        if answer.get("translatedText") != segments[0]["target"]:
            self._found.unlike.append(f"memory: {answer}")
        self.ask("DELETE", f"/memories/{id}", self._other)

    def document(self, number: int) -> None:
        given = {"files": {"file": (f"{number}.txt", f"Das ist Haus {number}.".encode())}}
        form = {"target": "en", "source": "de"}
        answer = self.ask("POST", "/documents", self._other, data=form, **given)
        path, end = f"/documents/{answer.json()['id']}", time.monotonic() + 60
        while (state := self.ask("GET", path, self._other).json()["state"]) != "done":
            if state == "failed" or time.monotonic() > end:
                self._found.unlike.append(f"document: {state}")
                break
            time.sleep(0.05)
        else:
            self.ask("GET", f"{path}/result", self._other)
        self.ask("DELETE", path, self._other)

    def passing_key(self, number: int) -> None:
        """A key that is made, used, and refused once it is disabled."""
        admin = {"Authorization": f"DeepL-Auth-Key {ADMIN_KEY}"}
        body = {"label": f"k{number}"}
        made = self.ask("POST", "/v2/admin/developer-keys", admin, json=body).json()
        head, asked = {"Authorization": f"Bearer {made['key']}"}, {"q": "Ja.", **PAIR}
        self.ask("POST", "/translate", head, json=asked)
        ended = {"key_id": made["key_id"]}
        self.ask("PUT", "/v2/admin/developer-keys/deactivate", admin, json=ended)
        refused = self._client.post("/translate", json=asked, headers=head).status_code
        if refused not in (401, 403):
            self._found.unlike.append(f"key: {refused}")

    def batch(self, number: int, url: str) -> None:
        texts = [f"Zeile {line} von {number}." for line in range(BATCH_LINES)]
        webhook = {"url": url, "secret": "a-secret-of-the-soak"}
        path = begun(self._client, self.head, texts, webhook=webhook)
        end = time.monotonic() + 120
        while (batch := self.ask("GET", path, self.head).json())["status"] not in ENDED:
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        if (batch["status"], batch["request_counts"]["completed"]) != ("completed", BATCH_LINES):
            self._found.unlike.append(f"batch: {batch}")
        self._found.batches += 1
        self._found.characters += sum(map(len, texts))
        ids = [batch[f"{kind}_file_id"] for kind in ("input", "output", "error")]
        for id in filter(None, ids):
            self.ask("DELETE", f"/v1/files/{id}", self.head)
