"""Files by URLs: whole and as their hashes say, or not at all."""

from __future__ import annotations

import hashlib

import pytest

from serving.errors import ModelNameError
from serving.hub.cache import downloads_folder
from serving.hub.fetching import downloads
from serving.hub.fetching.downloads import (
    RemoteFile,
    downloaded,
    missing_bytes,
    read_json,
    read_pages,
)
from tests.toy.hub import ToyHub

NAME = "toy:de-en"
CONTENT = bytes(range(256)) * 4000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "_WAIT_S", 0)


def remote(hub: ToyHub, content: bytes = CONTENT, *mirrors: str) -> RemoteFile:
    hub.plain["/file.bin"] = content
    urls = (*mirrors, f"{hub.url}/file.bin")
    return RemoteFile("file.bin", urls, len(content), hashlib.sha256(content).hexdigest())


def test_a_file_is_downloaded_once(hub: ToyHub) -> None:
    file = remote(hub)
    assert missing_bytes(NAME, [file]) == len(CONTENT)
    (path,) = downloaded(NAME, [file])
    assert path.read_bytes() == CONTENT
    assert downloaded(NAME, [file]) == [path]
    assert hub.downloads() == ["file.bin"]
    assert missing_bytes(NAME, [file]) == 0


def test_a_connection_that_closes_early_is_opened_again(hub: ToyHub) -> None:
    hub.cut["/file.bin"] = 300_000
    (path,) = downloaded(NAME, [remote(hub)])
    assert path.read_bytes() == CONTENT
    assert hub.asked == ["GET /file.bin", "GET /file.bin bytes=300000-"]


def test_a_later_try_goes_on_where_an_earlier_one_stopped(hub: ToyHub) -> None:
    file, folder = remote(hub), downloads_folder(NAME)
    folder.mkdir(parents=True)
    (folder / "file.bin.part").write_bytes(CONTENT[:500_000])
    assert missing_bytes(NAME, [file]) == len(CONTENT) - 500_000
    (path,) = downloaded(NAME, [file])
    assert path.read_bytes() == CONTENT
    assert hub.asked == ["GET /file.bin bytes=500000-"]


@pytest.mark.parametrize("begun", [b"another file", b"x" * len(CONTENT), b"x" * 2_000_000])
def test_what_was_begun_of_another_file_is_begun_anew(hub: ToyHub, begun: bytes) -> None:
    file, folder = remote(hub), downloads_folder(NAME)
    folder.mkdir(parents=True)
    (folder / "file.bin.part").write_bytes(begun)
    (path,) = downloaded(NAME, [file])
    assert path.read_bytes() == CONTENT


def test_an_earlier_version_of_a_file_is_not_taken_for_it(hub: ToyHub) -> None:
    downloaded(NAME, [remote(hub, b"the first version")])
    (path,) = downloaded(NAME, [remote(hub)])
    assert path.read_bytes() == CONTENT


def test_a_file_with_another_hash_is_refused_and_deleted(hub: ToyHub) -> None:
    file = remote(hub)
    hub.plain["/file.bin"] = b"changed" + CONTENT[7:]
    with pytest.raises(ModelNameError) as error:
        downloaded(NAME, [file])
    assert str(error.value).startswith(f"{NAME}: the sha256 of {hub.url}/file.bin must be ")
    assert f"must be {str(file.sha256)[:12]}" in str(error.value)
    assert list(downloads_folder(NAME).iterdir()) == []


def test_where_one_url_fails_the_next_is_asked(hub: ToyHub) -> None:
    file = remote(hub, CONTENT, f"{hub.url}/gone.bin", "http://127.0.0.1:9/file.bin")
    (path,) = downloaded(NAME, [file])
    assert path.read_bytes() == CONTENT


def test_a_file_that_cannot_be_had_is_reported_with_each_reason(hub: ToyHub) -> None:
    urls = (f"{hub.url}/gone.bin", "http://127.0.0.1:9/file.bin")
    with pytest.raises(ModelNameError) as error:
        downloaded(NAME, [RemoteFile("file.bin", urls, 10, None)])
    assert "/gone.bin cannot be downloaded: its server answered 404" in str(error.value)
    assert "9/file.bin cannot be downloaded: [Errno 111] Connection refused" in str(error.value)


def test_a_list_comes_in_pages(hub: ToyHub) -> None:
    hub.plain["/records"] = b'{"data": [{"a": 1}, "no object"]}'
    hub.plain["/more"] = b'{"data": [{"a": 2}]}'
    hub.following["/records"] = "/more"
    assert read_pages(NAME, f"{hub.url}/records") == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"<html>", "does not return JSON"), (b"[]", "returns no list under 'data'")],
)
def test_a_list_that_is_none_is_reported(hub: ToyHub, content: bytes, said: str) -> None:
    hub.plain["/records"] = content
    with pytest.raises(ModelNameError, match=said):
        read_pages(NAME, f"{hub.url}/records")


def test_without_a_network_that_is_said() -> None:
    with pytest.raises(ModelNameError, match=r"http://127\.0\.0\.1:9/ cannot be reached"):
        read_json(NAME, "http://127.0.0.1:9/")
