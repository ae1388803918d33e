"""Files and batches in an object store, over S3 and in fsspec's memory: put, given, deleted, gone
on with by another server, swept; and one that is away."""

from __future__ import annotations

import asyncio
import io
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from serving.errors import SettingsError, StoreUnavailableError
from serving.server.access.gate import Gatekeeper
from serving.server.http.access_log import RequestContext
from serving.server.http.settings import Settings
from serving.server.http.wire import error_response
from serving.server.work.batches import answers as answers_module
from serving.server.work.batches import bucket as bucket_module
from serving.server.work.batches import worker as worker_module
from serving.server.work.batches.bucket import FileBucket, files_at
from serving.server.work.batches.folder import FileFolder
from serving.server.work.batches.records import KIND, BatchWishes, result_of, written
from serving.server.work.batches.worker import BatchWorker
from serving.store.records.job import KeptFile, KeptJob
from serving.store.store import Store
from tests.object_store import ObjectStore, running_object_store
from tests.unit.serving.echo import EchoTranslator, served

LINES = 40


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A server of S3, which clients of it find."""
    with running_object_store() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
        fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture(params=["s3", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "s3":
        request.getfixturevalue("objects")
    return f"{request.param}://files/{uuid.uuid4().hex}"


def bucket_at(url: str) -> FileBucket:
    bucket = files_at(url)
    assert isinstance(bucket, FileBucket)
    return bucket


def left(url: str) -> list[str]:
    """The names of all that lies there."""
    files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    found: list[str] = files.find(root)
    return [name.removeprefix(root.rstrip("/")) for name in found]


def test_a_content_is_put_whole_or_not_given_and_deleted(url: str) -> None:
    bucket, id = bucket_at(url), f"file-{'0' * 32}"
    content = b"a line\n" * 300_000
    bucket.keep(id, io.BytesIO(content))

    def broken() -> Iterator[bytes]:
        yield b"begun"
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        bucket.write(f"file-{'1' * 32}", broken())
    assert left(url) == [f"/{id}"]
    file = bucket.opened(id)
    bucket.remove(id)
    bucket.remove(id)  # once more
    with file:
        assert file.read() == content
    with pytest.raises(FileNotFoundError):
        bucket.opened(id)


def test_what_belongs_to_nothing_is_swept_once_it_is_old(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, kept, lost = bucket_at(url), f"file-{'0' * 32}", f"file-{'1' * 32}"
    for name in (kept, lost, "somebody-elses"):
        bucket.write(name, [b"x"])
    for job in ("batch_on", "batch_over"):
        answers = bucket.answers(job, "claim", 1)
        answers.add(0, b"{}", good=True)
        answers.share()
        answers.close()
    before = left(url)
    bucket.sweep(lambda _: [], lambda _: [])
    assert left(url) == before
    monkeypatch.setattr(bucket_module, "YOUNG_S", -10.0)
    bucket.sweep(lambda _: [kept], lambda _: ["batch_on"])
    progress = [name for name in before if name.startswith("/progress/batch_on/")]
    assert left(url) == sorted([f"/{kept}", "/somebody-elses", *progress])


def put_batch(store: Store, bucket: FileBucket) -> None:
    lines = (
        {"custom_id": f"n{n}", "method": "POST", "url": "/x", "body": {"number": n}}
        for n in range(LINES)
    )
    bucket.write("file-in", (json.dumps(line).encode() + b"\n" for line in lines))
    moment = time.time()
    fields = {"owner": "", "created": moment}
    file = KeptFile(
        id="file-in", purpose="batch", name="in", size=1, expires=moment + 3600, **fields
    )
    store.files.put(file)
    wishes = written(BatchWishes(endpoint="/x", input_file="file-in"))
    job = KeptJob(id="batch_1", kind=KIND, wishes=wishes, deadline=moment + 3600, **fields)
    store.jobs.add(job, 10, 10)


def found(store: Store) -> KeptJob:
    job = store.jobs.get("", "batch_1")
    assert job is not None
    return job


def test_another_server_goes_on_and_an_object_store_that_is_away_is_waited_for(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_BEAT_S", "_LOOK_S"):
        monkeypatch.setattr(worker_module, name, 0.05)
    monkeypatch.setattr(answers_module, "_SHARE_S", 0.0)
    url = f"s3://files/{uuid.uuid4().hex}"
    store = Store(f"sqlite:///{tmp_path / 'store.db'}", tmp_path)
    put_batch(store, bucket_at(url))
    seen: list[int] = []

    async def answered(request: Request, _: RequestContext) -> Response:
        number = (await request.json())["number"]
        seen.append(number)
        if number in range(20, 28) and seen.count(number) == 1:
            await asyncio.Event().wait()  # until the first server ends
        if number == 30:
            objects.away = True
        return Response(json.dumps({"got": number}))

    def server() -> BatchWorker:
        own = Settings()
        return BatchWorker(
            store,
            bucket_at(url),
            own,
            Gatekeeper(own),
            {"/x": answered},
            lambda _, error: error_response(error),
        )

    async def work() -> None:
        first = server()
        first.start()
        while len(seen) < 28:
            await asyncio.sleep(0.01)
        await first.close()
        assert (found(store).state, found(store).attempts) == ("waiting", 0)
        second = server()
        second.start()
        async with asyncio.timeout(60):
            while found(store).done < LINES:  # though the object store is away
                await asyncio.sleep(0.02)
            objects.away = False
            while found(store).ended is None or any("progress" in name for name in left(url)):
                await asyncio.sleep(0.05)
        await second.close()

    asyncio.run(work())
    job = found(store)
    assert (job.state, job.done, job.failed) == ("done", LINES, 0)
    with bucket_at(url).opened(str(result_of(job).output_file)) as file:
        got = [json.loads(line)["response"]["body"]["got"] for line in file]
    assert got == list(range(LINES))
    assert len(seen) == LINES + 8  # those that were in flight when the first ended
    assert set(left(url)) == {"/file-in", f"/{result_of(job).output_file}"}
    store.close()


def test_files_are_sent_and_fetched_and_an_object_store_that_is_away_is_503(
    objects: ObjectStore, tmp_path: Path
) -> None:
    own = Settings(store=f"sqlite:///{tmp_path / 'store.db'}", files="s3://files/some/where")
    form: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": ("a.jsonl", b"{}\n")}}
    with served(EchoTranslator(), settings=own) as (http, _):
        id = http.post("/v1/files", **form).json()["id"]
        assert list(objects.objects) == [f"some/where/{id}"]
        content = http.get(f"/v1/files/{id}/content")
        assert (content.content, content.headers["content-length"]) == (b"{}\n", "3")
        objects.away = True
        for answer in (http.post("/v1/files", **form), http.get(f"/v1/files/{id}/content")):
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
            assert "SlowDown" not in answer.text
        objects.away = False
        assert http.delete(f"/v1/files/{id}").json()["deleted"]
        assert objects.objects == {}
        assert http.get("/v1/files").json()["data"] == []


def test_a_place_that_nothing_is_known_of_is_refused_and_a_folder_is_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="MACARON_FILES must be a folder, or a URL"):
        files_at("what://files")
    for place in (tmp_path, f"file://{tmp_path}"):
        folder = files_at(place)
        assert isinstance(folder, FileFolder)
        folder.write("file-x", [b"x"])
        assert (tmp_path / "file-x").read_bytes() == b"x"
    with pytest.raises(StoreUnavailableError):
        bucket_at("http://127.0.0.1:9/files").opened("file-x")
