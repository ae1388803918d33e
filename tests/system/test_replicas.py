"""Several servers with one PostgreSQL: batches and files are shared; one that dies costs none."""

from __future__ import annotations

import io
import json
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import openai
import psycopg
import pytest

from tests.object_store import running_object_store
from tests.stores import fresh_database
from tests.system.conftest import MODELS
from tests.system.server import Server, running
from tests.unit.serving.echo import wait_until

pytestmark = pytest.mark.slow

LINES, TEXTS = 60, 16
TAKEN_OVER_S = 60.0
"""After which another server goes on with the batch of one that has died."""


def client_of(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


def lines() -> bytes:
    made = (
        {
            "custom_id": f"n{number}",
            "method": "POST",
            "url": "/translate",
            "body": {
                "q": [f"Haus {number} hat {text + 2} große Fenster." for text in range(TEXTS)],
                "source": "de",
                "target": "en",
            },
        }
        for number in range(LINES)
    )
    return b"\n".join(json.dumps(line).encode() for line in made)


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_a_batch_whose_server_is_killed_is_ended_by_another(
    place: str, postgresql: str | None, tmp_path: Path
) -> None:
    if postgresql is None:
        pytest.skip("needs the programs of PostgreSQL")
    bundles = tmp_path / "bundles"
    shutil.copytree(MODELS / "macaron-de-en", bundles / "macaron-de-en")
    store = fresh_database(postgresql)
    settings = {"MACARON_STORE": store, "MACARON_FILES": str(tmp_path / "files")}
    with ExitStack() as stack:
        if place == "s3":
            objects = stack.enter_context(running_object_store())
            settings |= {**objects.environment, "MACARON_FILES": "s3://files/macaron"}
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        first, second = (
            stack.enter_context(running(bundles, tmp_path / name, **settings))
            for name in ("one", "two")
        )
        with client_of(first) as client:
            file = client.files.create(file=("in.jsonl", io.BytesIO(lines())), purpose="batch")
            id = client.batches.create(
                input_file_id=file.id, endpoint="/translate", completion_window="24h"
            ).id
        # The server that was asked has begun it at once; the other looks every two seconds.
        wait_until(lambda: _done(store, id) >= 5, 60)
        first.kill()
        before, killed = _done(store, id), time.monotonic()
        assert before < LINES
        client = stack.enter_context(client_of(second))
        assert client.files.content(file.id).read() == lines()
        assert client.batches.retrieve(id).status == "in_progress"
        wait_until(lambda: client.batches.retrieve(id).status == "completed", 240)
        assert time.monotonic() - killed >= TAKEN_OVER_S / 2
        batch = client.batches.retrieve(id)
        assert batch.request_counts is not None
        assert batch.request_counts.to_dict() == {"total": LINES, "completed": LINES, "failed": 0}
        assert batch.error_file_id is None
        got = [
            json.loads(x) for x in client.files.content(str(batch.output_file_id)).text.splitlines()
        ]
        assert [each["custom_id"] for each in got] == [f"n{number}" for number in range(LINES)]
        for number, each in enumerate(got):
            texts = each["response"]["body"]["translatedText"]
            assert len(texts) == TEXTS
            assert all(str(number) in text for text in texts)
        client.files.delete(file.id)
        client.files.delete(str(batch.output_file_id))
        if place == "s3":
            assert objects.objects == {}
        else:
            assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []


def _done(store: str, id: str) -> int:
    """Lines of a batch that are answered, as its server has told."""
    with psycopg.connect(store) as connection:
        row = connection.execute("SELECT done FROM jobs WHERE id = %s", (id,)).fetchone()
    assert row is not None
    return int(row[0])
