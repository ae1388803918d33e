"""Webhooks: signed, sent again where they are not taken, and never sent inward."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest

from serving.errors import RequestError
from serving.server.http.settings import Settings
from serving.server.work.batches import webhooks
from serving.server.work.batches.webhooks import (
    UndeliveredError,
    Webhook,
    WebhookSender,
    check_webhook,
    send,
    webhook_job,
)
from serving.store.records.job import KeptJob
from serving.store.store import Store
from tests.unit.serving.echo import EchoTranslator, served, wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ALLOWED = Settings(webhook_hosts="127.0.0.1")


class Receiver:
    """A server that keeps what it gets, and answers with each of `statuses`, then with 200."""

    def __init__(self) -> None:
        self.statuses: list[int | str] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append((dict(self.headers), body))
                status = outer.statuses.pop(0) if outer.statuses else 200
                if status == "never":
                    time.sleep(3)
                    return
                if status == "drip":
                    with contextlib.suppress(OSError):
                        for byte in b"HTTP/1.1 200 OK\r\n" * 20:
                            self.wfile.write(bytes([byte]))
                            time.sleep(0.1)
                    return
                self.send_response(int(status))
                self.send_header("Location", f"{outer.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://localhost:3000/", "http://[::1]/", "http://0.0.0.0/"),
        *("http://169.254.169.254/latest", "http://10.0.0.1/", "http://192.168.1.1:80/x"),
        *("http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/"),
        *("http://2130706433/", "http://0x7f.1/", "http://[fe80::1%25lo]/", "http://224.0.0.1/"),
        *("http://[fec0::1]/", "http://[64:ff9b:1::7f00:1]/", "http://[::7f00:1]/", "http://[::1"),
        *("ftp://8.8.8.8/", "http://", "file:///etc/passwd", "http://me:you@8.8.8.8/", "x"),
        *("http://8.8.8.8:99999/", "http://8.8.8.8/\r\nX: y", "http://8.8.8.8/" + "a" * 2000),
    ],
)
def test_nothing_is_sent_inward_or_to_what_is_no_address(url: str) -> None:
    with pytest.raises(RequestError, match=r"webhook\.url"):
        check_webhook(Webhook(url, SECRET), Settings())


def test_what_leads_outward_is_taken_and_a_secret_has_to_be_one() -> None:
    check_webhook(Webhook("https://8.8.8.8/x?y=z", SECRET), Settings())
    check_webhook(Webhook("https://[2001:4860:4860::8888]/", SECRET), Settings())
    check_webhook(Webhook("http://127.0.0.1/", "any words will do"), ALLOWED)
    with pytest.raises(RequestError, match="webhook cannot be used"):
        check_webhook(Webhook("https://8.8.8.8/", "whsec_no base64"), Settings())


def test_a_name_that_leads_inward_later_is_refused_then(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UndeliveredError, match="own network"):
        send(Webhook(receiver.url, SECRET), "evt", b"{}", Settings())
    assert receiver.got == []


@pytest.mark.parametrize("answer", ["never", "drip", 301, 302, 307, 400, 500])
def test_what_is_not_taken_ends_soon_and_no_redirect_is_followed(
    receiver: Receiver, answer: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_LONGEST_S", 0.3)
    receiver.statuses.append(answer)
    begin = time.monotonic()
    with pytest.raises(UndeliveredError):
        send(Webhook(receiver.url, SECRET), "evt", b"{}", ALLOWED)
    assert time.monotonic() - begin < 2
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("failures", "state", "times", "kept_s"),
    [(2, "done", 3, 3600), (9, "failed", 3, 3600), (0, "expired", 0, -1)],
)
def test_a_webhook_is_sent_three_times_at_most_and_not_when_its_time_is_over(
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
    state: str,
    times: int,
    kept_s: float,
) -> None:
    monkeypatch.setattr(webhooks, "LEASE_S", 0.2)
    monkeypatch.setattr(webhooks, "_LOOK_S", 0.05)
    receiver.statuses = [503] * failures
    store = Store(f"sqlite:///{tmp_path / 'store.db'}", tmp_path)
    job = webhook_job(Webhook(receiver.url, SECRET), "me", "batch.completed", {"id": "batch_1"})
    job = replace(job, deadline=time.time() + kept_s)
    store.jobs.add(job, 1, 10)

    def kept() -> KeptJob:
        found = store.jobs.get("me", job.id)
        assert found is not None
        return found

    async def work() -> None:
        sending = asyncio.create_task(WebhookSender(store, ALLOWED).run())
        async with asyncio.timeout(20):
            while kept().ended is None:
                await asyncio.sleep(0.02)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    asyncio.run(work())
    assert (kept().state, len(receiver.got)) == (state, times)
    assert {head["webhook-id"] for head, _ in receiver.got} <= {job.id}
    store.close()


def test_the_end_of_a_batch_is_reported_and_openais_client_knows_the_signature(
    receiver: Receiver, tmp_path: Path
) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path / 'store.db'}", webhook_hosts="127.0.0.1")  # type: ignore[arg-type]
    with served(EchoTranslator(), settings=settings) as (http, _):
        client = openai.OpenAI(
            base_url="http://testserver/v1", api_key="none", http_client=http, max_retries=0
        )
        create = _creating(client)
        with pytest.raises(openai.BadRequestError, match="own network"):
            create({"url": "http://localhost/", "secret": SECRET})
        with pytest.raises(openai.BadRequestError, match=r"webhook\.secret"):
            create({"url": receiver.url, "secret": "short"})
        batch = create({"url": f"{receiver.url}/told?me", "secret": SECRET})
        assert SECRET not in batch.to_json()
        wait_until(lambda: bool(receiver.got))
        head, body = receiver.got[0]
        event: Any = client.webhooks.unwrap(body.decode(), head, secret=SECRET)
        assert (event.type, event.data.id) == ("batch.completed", batch.id)
        assert client.batches.retrieve(batch.id).status == "completed"
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(body.decode() + " ", head, secret=SECRET)


def _creating(client: openai.OpenAI) -> Callable[[dict[str, str]], Any]:
    line = {
        "custom_id": "a",
        "method": "POST",
        "url": "/translate",
        "body": {"q": "Ja", "source": "de", "target": "en"},
    }
    file = client.files.create(file=io.BytesIO(json.dumps(line).encode()), purpose="batch")
    endpoint: Any = "/translate"
    return lambda webhook: client.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,
        completion_window="24h",
        extra_body={"webhook": webhook},
    )
