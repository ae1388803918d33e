"""Files and batches by OpenAI's own client: sent, answered beside requests, fetched, refused."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Batch
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from serving.server.work.batches import desk
from tests.unit.serving.echo import EchoTranslator, served, several, wait_until

KEY, OTHER = "first-key-1234", "second-key-1234"
TEXTS = {"q": "Hallo", "source": "de", "target": "en"}


def settings(folder: Path, **others: Any) -> Settings:
    fields = {"api_keys": f"{KEY} {OTHER}", "store": f"sqlite:///{folder / 'store.db'}"}
    return Settings(**(fields | others))


@pytest.fixture
def http(tmp_path: Path) -> Iterator[TestClient]:
    """A server with two keys and a store."""
    with served(EchoTranslator(), settings=settings(tmp_path, max_file_bytes=20_000)) as (http, _):
        yield http


@pytest.fixture
def client(http: TestClient) -> openai.OpenAI:
    return asking(http, KEY)


def asking(http: TestClient, key: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url="http://testserver/v1", api_key=key, http_client=http, max_retries=0
    )


def line(number: int, body: Mapping[str, Any] = TEXTS, **others: Any) -> dict[str, Any]:
    fields = {"custom_id": f"n{number}", "method": "POST", "url": "/translate", "body": body}
    return fields | others


def sent(client: openai.OpenAI, lines: Sequence[object] | bytes, name: str = "in.jsonl") -> str:
    content = (
        lines if isinstance(lines, bytes) else b"\n".join(json.dumps(x).encode() for x in lines)
    )
    return client.files.create(file=(name, io.BytesIO(content)), purpose="batch").id


def begun(client: openai.OpenAI, lines: Sequence[object] | bytes, **others: Any) -> Batch:
    fields = {"endpoint": "/translate", "completion_window": "24h", **others}
    return client.batches.create(input_file_id=sent(client, lines), **fields)


def ended(client: openai.OpenAI, id: str) -> Batch:
    found: list[Batch] = []

    def has_ended() -> bool:
        found.append(client.batches.retrieve(id))
        return found[-1].status in ("completed", "failed", "cancelled", "expired")

    wait_until(has_ended)
    return found[-1]


def content(client: openai.OpenAI, id: str | None) -> list[Any]:
    assert id is not None
    return [json.loads(each) for each in client.files.content(id).text.splitlines()]


def test_lines_are_answered_as_requests_are(client: openai.OpenAI, http: TestClient) -> None:
    wrong = {"q": "Hallo", "source": "de", "target": "zz"}
    lines = [line(1), line(2, wrong), line(3, {**TEXTS, "q": ["Ja", "Nein"]})]
    batch = begun(client, lines, metadata={"for": "me"})
    assert (batch.object, batch.endpoint, batch.status) == ("batch", "/translate", "validating")
    batch = ended(client, batch.id)
    assert batch.status == "completed"
    assert batch.metadata == {"for": "me"}
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 2, "failed": 1}
    assert batch.created_at <= (batch.in_progress_at or 0) <= (batch.completed_at or 0)
    assert batch.expires_at == batch.created_at + 24 * 3600
    good, [bad] = content(client, batch.output_file_id), content(client, batch.error_file_id)
    assert [each["custom_id"] for each in good] == ["n1", "n3"]
    head = {"Authorization": f"Bearer {KEY}"}
    for each, body in zip(good, (TEXTS, {**TEXTS, "q": ["Ja", "Nein"]}), strict=True):
        assert (each["error"], each["response"]["status_code"]) == (None, 200)
        asked = http.post("/translate", json=body, headers=head).json()
        assert each["response"]["body"].keys() == asked.keys()
        assert each["response"]["body"]["translatedText"] == asked["translatedText"]
    refused = http.post("/translate", json=wrong, headers=head)
    assert (bad["custom_id"], bad["response"]["status_code"]) == ("n2", refused.status_code)
    assert bad["response"]["body"] == refused.json()
    output = client.files.retrieve(str(batch.output_file_id))
    assert (output.purpose, output.filename) == ("batch_output", f"{batch.id}_output.jsonl")


def test_files_are_listed_by_pages_and_deleted(client: openai.OpenAI) -> None:
    ids = [sent(client, [line(n)], f"../{n}.jsonl") for n in range(3)]
    listed = client.files.list(limit=2)
    assert [file.id for file in listed.data] == [ids[2], ids[1]]
    assert [file.id for file in client.files.list(limit=2)] == ids[::-1]  # every page
    assert [file.id for file in client.files.list(order="asc", purpose="batch")] == ids
    file = client.files.retrieve(ids[0])
    assert (file.filename, file.status, file.object) == ("0.jsonl", "processed", "file")
    assert file.bytes == len(client.files.content(file.id).read())
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError, match="there is no file"):
        client.files.content(file.id)
    kept = client.files.create(
        file=b"{}", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert kept.expires_at == kept.created_at + 3600


def test_nothing_of_one_key_is_found_with_another(client: openai.OpenAI, http: TestClient) -> None:
    batch = begun(client, [line(1)])
    other, file = asking(http, OTHER), batch.input_file_id
    for ask in (
        lambda: other.files.retrieve(file),
        lambda: other.files.content(file),
        lambda: other.files.delete(file),
        lambda: other.batches.retrieve(batch.id),
        lambda: other.batches.cancel(batch.id),
        lambda: other.batches.create(
            input_file_id=file, endpoint="/v1/completions", completion_window="24h"
        ),
        lambda: other.files.content(str(ended(client, batch.id).output_file_id)),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()
    assert (list(other.files.list()), list(other.batches.list())) == ([], [])
    assert [each.id for each in client.batches.list(limit=1)] == [batch.id]


BROKEN: list[tuple[bytes, list[tuple[str, int | None]]]] = [
    (b"", [("empty_file", None)]),
    (b"\n \n", [("empty_file", None)]),
    (b"{\n[]\n" + b"[" * 5000, [("invalid_json_line", n) for n in (1, 2, 3)]),
    (b'{"custom_id": "\\ud800"}', [("invalid_json_line", 1)]),
    (b"\xff", [("invalid_json_line", 1)]),
    (b"{}\n" * 200, [("invalid_custom_id", n + 1) for n in range(50)]),
    (json.dumps(line(1, method="GET")).encode(), [("invalid_method", 1)]),
    (json.dumps(line(1, url="/v1/completions")).encode(), [("invalid_url", 1)]),
    (json.dumps(line(1, body=[])).encode(), [("invalid_body", 1)]),
    (json.dumps(line(1, {"stream": True})).encode(), [("invalid_body", 1)]),
    (b"\n".join([json.dumps(line(1)).encode()] * 2), [("duplicate_custom_id", 2)]),
]


def test_a_batch_with_bad_lines_fails_before_the_first_is_answered(client: openai.OpenAI) -> None:
    batches = [begun(client, lines) for lines, _ in BROKEN]
    for batch, (_, wanted) in zip(batches, BROKEN, strict=True):
        failed = ended(client, batch.id)
        assert failed.status == "failed"
        assert failed.output_file_id is failed.error_file_id is None
        assert failed.errors is not None
        assert [(each.code, each.line) for each in failed.errors.data or []] == wanted


@pytest.mark.parametrize(
    ("wishes", "status", "message"),
    [
        ({"endpoint": "/v1/responses"}, 400, "endpoint must be one of"),
        ({"completion_window": "1h"}, 400, "completion_window must be '24h'"),
        ({"input_file_id": "file-none"}, 404, "there is no file 'file-none'"),
        ({"input_file_id": "a\0"}, 400, "NUL"),
        ({"metadata": {"a": "b" * 600}}, 400, "metadata must have"),
        ({"metadata": {str(n): "" for n in range(17)}}, 400, "at most 16 items"),
    ],
)
def test_what_no_batch_can_be_is_refused(
    client: openai.OpenAI, wishes: dict[str, Any], status: int, message: str
) -> None:
    fields = {"endpoint": "/translate", "completion_window": "24h", "input_file_id": "", **wishes}
    with pytest.raises(openai.APIStatusError, match=message) as refused:
        client.batches.create(**fields)
    assert refused.value.status_code == status
    assert list(client.batches.list()) == []


def test_limits_are_reported_with_their_settings(tmp_path: Path) -> None:
    limits = {"max_files": 3, "max_batches": 1, "max_batch_lines": 2, "max_file_bytes": 2000}
    echo = EchoTranslator()
    with served(echo, settings=settings(tmp_path, **limits)) as (http, _):
        client = asking(http, KEY)
        with pytest.raises(openai.APIStatusError, match="MACARON_MAX_FILE_BYTES"):
            sent(client, b"x" * 2001)
        with pytest.raises(openai.BadRequestError, match="purpose must be 'batch'"):
            client.files.create(file=b"{}", purpose="fine-tune")
        failed = ended(client, begun(client, [line(n) for n in range(3)]).id)
        assert failed.errors is not None
        assert "MACARON_MAX_BATCH_LINES" in str((failed.errors.data or [])[0].message)
        echo.stepper.gate.clear()
        begun(client, [line(1)])
        with pytest.raises(openai.RateLimitError, match="at most 1 jobs"):
            begun(client, [line(1)])
        refused, taken = list(client.files.list(purpose="batch"))[:2]
        kept_s = [int(file.expires_at or 0) - file.created_at for file in (refused, taken)]
        assert kept_s[0] < kept_s[1]  # what is refused keeps no file for longer
        with pytest.raises(openai.RateLimitError, match="at most 3 files"):
            sent(client, [line(1)])
        echo.stepper.gate.set()
        kept = [path for path in (tmp_path / "store.db-files").iterdir() if path.is_file()]
        assert len(kept) <= 4  # what was refused left nothing


def test_a_batch_is_cancelled_and_what_is_answered_stays(tmp_path: Path) -> None:
    echo = EchoTranslator()
    with served(echo, settings=settings(tmp_path)) as (http, _):
        client = asking(http, KEY)
        echo.stepper.gate.clear()
        running = begun(client, [line(n, {**TEXTS, "q": f"Hallo {n}"}) for n in range(40)])
        waiting = begun(client, [line(1)])
        wait_until(lambda: client.batches.retrieve(running.id).status == "in_progress")
        assert client.batches.cancel(waiting.id).status == "cancelled"
        assert client.batches.cancel(waiting.id).status == "cancelled"  # once more
        assert client.batches.cancel(running.id).status in ("cancelling", "cancelled")
        batch = ended(client, running.id)
        assert batch.status == "cancelled"
        assert batch.cancelled_at is not None
        assert {each["error"]["code"] for each in content(client, batch.error_file_id)} == {
            "batch_cancelled"
        }
        echo.stepper.gate.set()
        done = ended(client, begun(client, [line(1)]).id)
        with pytest.raises(openai.BadRequestError, match="has ended already"):
            client.batches.cancel(done.id)


def test_what_is_not_done_within_the_window_has_expired(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "WINDOW_S", -1.0)
    batch = ended(client, begun(client, [line(n) for n in range(3)]).id)
    assert (batch.status, batch.output_file_id) == ("expired", None)
    assert batch.request_counts is not None
    assert batch.request_counts.failed == 3
    errors = content(client, batch.error_file_id)
    assert [each["error"]["code"] for each in errors] == ["batch_expired"] * 3
    assert all(each["response"] is None for each in errors)


def test_clients_that_wait_come_between(tmp_path: Path) -> None:
    """While somebody asks, one line at a time is answered; the batch ends all the same."""
    with served(EchoTranslator(), settings=settings(tmp_path)) as (http, _):
        client = asking(http, KEY)
        head = {"Authorization": f"Bearer {KEY}"}
        lines = [line(n, {**TEXTS, "q": f"Satz {n}"}) for n in range(12)]
        id = begun(client, lines).id
        took = []
        while client.batches.retrieve(id).status != "completed":
            begin = time.monotonic()
            assert http.post("/translate", json=TEXTS, headers=head).status_code == 200
            took.append(time.monotonic() - begin)
        assert len(content(client, client.batches.retrieve(id).output_file_id)) == 12
        assert sorted(took)[len(took) // 2] < 1.0


def test_usage_is_that_of_the_key(client: openai.OpenAI, http: TestClient) -> None:
    head = {"Authorization": f"DeepL-Auth-Key {KEY}"}
    before = http.get("/v2/usage", headers=head).json()["character_count"]
    ended(client, begun(client, [line(n) for n in range(4)]).id)
    assert http.get("/v2/usage", headers=head).json()["character_count"] - before == 4 * 5


def test_without_a_store_lists_are_empty_and_all_else_says_what_is_missing() -> None:
    with served(EchoTranslator(), settings=Settings()) as (http, _):
        client = asking(http, "none")
        assert (list(client.files.list()), list(client.batches.list())) == ([], [])
        with pytest.raises(openai.APIStatusError, match="MACARON_STORE=sqlite") as refused:
            sent(client, [line(1)])
        assert refused.value.status_code == 501
        with pytest.raises(openai.APIStatusError, match="MACARON_STORE"):
            client.batches.create(
                input_file_id="f", endpoint="/v1/completions", completion_window="24h"
            )


def test_a_line_of_many_texts_leaves_room_for_clients_and_is_answered_as_a_request_is(
    tmp_path: Path,
) -> None:
    echo = EchoTranslator()
    own = settings(tmp_path)
    with served(echo, settings=own) as (http, registry):
        scheduler = registry.translators[0].scheduler
        client, head = asking(http, KEY), {"Authorization": f"Bearer {KEY}"}
        body = {**TEXTS, "q": [f"Nr. {number}" for number in range(40)]}
        assert http.post("/translate", json=TEXTS, headers=head).status_code == 200
        echo.stepper.gate.clear()
        batch = begun(client, [line(1, body)])
        wait_until(lambda: scheduler.num_held > 0)
        time.sleep(0.2)
        assert scheduler.queue_depth + scheduler.num_held == 1
        echo.stepper.gate.set()
        deepest = 0
        while client.batches.retrieve(batch.id).status not in ("completed", "failed"):
            assert http.post("/translate", json=TEXTS, headers=head).status_code == 200
            deepest = max(deepest, scheduler.queue_depth + scheduler.num_held)
        assert deepest <= 2  # one of the batch, and one that has just been answered
        [found] = content(client, client.batches.retrieve(batch.id).output_file_id)
        asked = http.post("/translate", json=body, headers=head).json()
    assert found["response"]["body"]["translatedText"] == asked["translatedText"]


def test_a_line_of_texts_in_several_languages_is_answered_as_a_request_is(tmp_path: Path) -> None:
    """Its texts take two models' routes, and all of them are kept back for clients that wait."""
    many = EchoTranslator(languages=several("en-de", "fr-en"))
    texts = ["Je ne sais pas où il habite.", "I have no time today, my friend.", "Où est la gare ?"]
    body = {"q": texts, "source": "auto", "target": "de"}
    with served(many, settings=settings(tmp_path)) as (http, _):
        client, head = asking(http, KEY), {"Authorization": f"Bearer {KEY}"}
        batch = ended(client, begun(client, [line(1, body)]).id)
        [found] = content(client, batch.output_file_id)
        asked = http.post("/translate", json=body, headers=head).json()
    assert found["response"]["body"]["translatedText"] == asked["translatedText"]
    assert [each["language"] for each in asked["detectedLanguage"]] == ["fr", "en", "fr"]
