"""The replicas of deploy/: behind its proxy two servers are as one, also when one of them dies."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepl
import httpx
import psutil
import pytest
import yaml

from bench.systems.processes.http_server import free_port
from tests.days import today
from tests.stores import fresh_database
from tests.system.conftest import MODELS
from tests.system.proxy import NGINX, running_nginx
from tests.system.server import PAIR, ROOT, Server, command, environment, started
from tests.unit.serving.echo import wait_until

pytestmark = pytest.mark.slow

ADMIN = "an-admin-key-of-the-tests"
PARAGRAPHS, LINES, TEXTS = 300, 30, 16
KNOWN_S = 2.5
"""After which a server knows what another one has counted."""
GREETING = "Guten Morgen!"


@dataclass(frozen=True)
class Replicas:
    """Two servers and the address of their proxy."""

    url: str
    servers: list[Server]

    def asking(self, key: str) -> httpx.Client:
        """A client with a key; the proxy sends what it asks to one server or the other."""
        return httpx.Client(base_url=self.url, headers={"X-API-Key": key}, timeout=60)


@contextmanager
def running_replicas(store: str, folder: Path) -> Iterator[Replicas]:
    """The servers of compose.replicas.yaml with its settings, but for addresses, and its proxy."""
    composed = yaml.safe_load((ROOT / "deploy/compose.replicas.yaml").read_text())["services"]
    own = {
        "MACARON_STORE": store,
        "MACARON_ADMIN_KEY": ADMIN,
        "MACARON_FILES": str(folder / "files"),
        "MACARON_DOCUMENTS": str(folder / "documents"),
    }
    settings = {**composed["macaron-1"]["environment"]}
    settings |= {name: value for name, value in own.items() if name in settings}
    shutil.copytree(MODELS / "macaron-de-en", folder / "bundles/macaron-de-en")
    site, port = (ROOT / "deploy/nginx.replicas.conf").read_text(), free_port()
    site = site.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    with ExitStack() as stack:
        starting = []
        for name in ("macaron-1", "macaron-2"):
            own_port, scratch = free_port(), folder / name
            scratch.mkdir()
            site = site.replace(f"{name}:3000", f"127.0.0.1:{own_port}")
            words = [*command(own_port)[:-1], "--timeout-keep-alive", "75", "."]
            env = environment(folder / "bundles", scratch, **settings)
            starting.append(started(words, own_port, ROOT, env, scratch / "log.txt"))
        with ThreadPoolExecutor() as pool:
            servers = list(pool.map(stack.enter_context, starting))
        (folder / "nginx").mkdir()
        url = f"http://127.0.0.1:{port}"
        stack.enter_context(running_nginx(site, folder / "nginx", f"{url}/readyz"))
        replicas = Replicas(url, servers)
        yield replicas
        replicas.servers[1].kill()  # its end would wait for its drain


def made_key(replicas: Replicas, **limits: int) -> str:
    with replicas.asking(ADMIN) as admin:
        answer = admin.post("/admin/keys", json=limits)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["key"])


def posted(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


@dataclass(frozen=True)
class Kept:
    """What both servers keep to: a key with a glossary and a memory, and one that is used up."""

    key: str
    glossary: str
    memory: str
    spent: str
    """Of which all characters of the month are used up."""


def keep(replicas: Replicas) -> Kept:
    """Make what is kept, each by whichever server the proxy picks, and use up two keys:
    the month of one, the minute of the other."""
    today(600)  # what is used up stays so until the last test
    key = made_key(replicas)
    with replicas.asking(key) as client:
        terms = {"source": "de", "target": "en", "entries": "Haus\tmansion"}
        glossary = posted(client, "/glossaries", name="ours", dictionaries=[terms])["id"]
        segments = [{"source": "Seite 3 von 10.", "target": "Sheet 3 out of 10."}]
        memory = posted(client, "/memories", name="ours", segments=segments, **PAIR)["id"]
    month = made_key(replicas, characters_a_month=4 * len(GREETING))
    minute = made_key(replicas, requests_a_minute=4)
    for spent in (month, minute):
        with replicas.asking(spent) as client:
            for _ in range(4):
                posted(client, "/translate", q=GREETING, **PAIR)
    time.sleep(KNOWN_S)
    with replicas.asking(minute) as client:
        for _ in range(4):
            refused = client.post("/translate", json={"q": GREETING, **PAIR})
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    return Kept(key, glossary, memory, month)


def check_kept(replicas: Replicas, kept: Kept) -> None:
    """Whatever server answers, it knows all of it."""
    with replicas.asking(kept.key) as client:
        for _ in range(4):
            found = posted(
                client, "/translate", q="Das Haus ist rot.", glossary_id=kept.glossary, **PAIR
            )
            assert "mansion" in found["translatedText"]
            found = posted(client, "/translate", q="Seite 7 von 12.", memory_id=kept.memory, **PAIR)
            assert found["translatedText"] == "Sheet 7 out of 12."
    with replicas.asking(kept.spent) as client:
        for _ in range(4):
            refused = client.post("/translate", json={"q": GREETING, **PAIR})
            assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
            usage = client.get("/v2/usage").json()
            assert usage["character_count"] == usage["character_limit"] == 4 * len(GREETING)


def check_documents(replicas: Replicas, key: str) -> None:
    """A document that is sent in any of the three ways is known to both servers."""
    output = io.BytesIO()
    deepl.DeepLClient(key, server_url=replicas.url).translate_document(
        GREETING.encode(), output, source_lang="DE", target_lang="EN-US", filename="a.txt"
    )
    assert b"morning" in output.getvalue()
    sent = {"file": ("a.txt", GREETING.encode())}
    with replicas.asking("") as nobody:
        answer = nobody.post("/translate_file", files=sent, data={**PAIR, "api_key": key})
        for _ in range(4):
            assert "morning" in nobody.get(answer.json()["translatedFileUrl"]).text
    with replicas.asking(key) as asking:
        id = send_document(asking, GREETING)
        wait_for_document(asking, id)
        for _ in range(4):
            assert "morning" in asking.get(f"/documents/{id}/result").text


def send_document(client: httpx.Client, text: str) -> str:
    answer = client.post("/documents", files={"file": ("a.txt", text.encode())}, data=PAIR)
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def wait_for_document(client: httpx.Client, id: str) -> None:
    wait_until(lambda: client.get(f"/documents/{id}").json()["state"] == "done", 60)


def sentence(house: int, windows: int) -> str:
    return f"Haus {house} hat {windows} große Fenster."


def send_batch(client: httpx.Client) -> str:
    lines = b"\n".join(
        json.dumps(
            {
                "custom_id": f"n{number}",
                "method": "POST",
                "url": "/translate",
                "body": {"q": [sentence(number + 100, n + 20) for n in range(TEXTS)], **PAIR},
            }
        ).encode()
        for number in range(LINES)
    )
    sent = client.post("/v1/files", files={"file": ("in.jsonl", lines)}, data={"purpose": "batch"})
    assert sent.is_success, sent.text
    return str(
        posted(
            client,
            "/v1/batches",
            input_file_id=sent.json()["id"],
            endpoint="/translate",
            completion_window="24h",
        )["id"]
    )


def state_of(client: httpx.Client, batch: str) -> Any:
    answer = client.get(f"/v1/batches/{batch}")
    assert answer.is_success, answer.text
    return answer.json()


def translates_a_document(server: Server) -> bool:
    """Whether one of its processes holds the lock of a document."""
    return any(Path(file.path).name == "lock" for p in server.processes() for file in files_of(p))


def files_of(process: psutil.Process) -> list[Any]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(process.open_files())
    return []


def check_documents_end(client: httpx.Client, documents: dict[str, int]) -> None:
    """Each ends with every paragraph once and in order; it has the number that is given for it."""
    for id, each in documents.items():
        wait_for_document(client, id)
        numbers = numbers_of(client.get(f"/documents/{id}/result").text.splitlines())
        assert numbers == [[number, each] for number in range(PARAGRAPHS)]


def check_batches_end(client: httpx.Client, batches: list[str]) -> None:
    """Each ends with every line once and in order."""
    wait_until(lambda: all(state_of(client, id)["status"] == "completed" for id in batches), 120)
    for id in batches:
        batch = state_of(client, id)
        assert batch["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
        output = client.get(f"/v1/files/{batch['output_file_id']}/content").text
        lines = [json.loads(line) for line in output.splitlines()]
        assert [line["custom_id"] for line in lines] == [f"n{number}" for number in range(LINES)]
        for number, line in enumerate(lines):
            texts = line["response"]["body"]["translatedText"]
            assert numbers_of(texts) == [[number + 100, text + 20] for text in range(TEXTS)]


def numbers_of(texts: list[str]) -> list[list[int]]:
    return [[int(number) for number in re.findall(r"\d+", text)] for text in texts]


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_every_promise_holds_behind_the_proxy_and_when_a_server_is_killed(
    postgresql: str | None, tmp_path: Path
) -> None:
    if postgresql is None:
        pytest.skip("needs the programs of PostgreSQL")
    with running_replicas(fresh_database(postgresql), tmp_path) as replicas:
        kept = keep(replicas)
        with replicas.asking(kept.key) as client:
            # Two of each, so that whichever server dies has one of them.
            batches = [send_batch(client) for _ in range(2)]
            documents = {
                send_document(client, "\n".join(sentence(n, x) for n in range(PARAGRAPHS))): x
                for x in (31, 32)
            }
            wait_until(
                lambda: (
                    all(translates_a_document(server) for server in replicas.servers)
                    and all(state_of(client, id)["request_counts"]["completed"] for id in batches)
                ),
                60,
            )
            replicas.servers[0].kill()
            check_kept(replicas, kept)
            check_documents(replicas, kept.key)
            assert sorted(state_of(client, id)["status"] for id in batches)[-1] == "in_progress"
            check_documents_end(client, documents)
            check_batches_end(client, batches)
        assert made_key(replicas)
