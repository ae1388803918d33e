"""Models by URL and hash."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from serving import Classifier
from serving.errors import ModelNameError
from serving.hub.cache import downloads_folder, entries
from serving.hub.pull import bundle_folder
from tests.toy.hub import ToyHub

INTENTS = Path(__file__).resolve().parents[5] / "models" / "intents"


def archived(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return content.getvalue()


def test_a_bundle_in_an_archive_is_used_as_it_is(hub: ToyHub) -> None:
    content = hub.plain["/intents.tar.gz"] = archived(INTENTS)
    name = f"{hub.url}/intents.tar.gz#sha256={hashlib.sha256(content).hexdigest()}"
    assert Classifier(name, threads=1).manifest.name == "intents"
    asked = len(hub.asked)
    assert bundle_folder(name).name == "intents"
    assert len(hub.asked) == asked
    assert not downloads_folder(name).exists()


def test_an_archive_with_another_hash_is_refused(hub: ToyHub) -> None:
    hub.plain["/intents.tar.gz"] = b"something else"
    with pytest.raises(ModelNameError, match="must be 000000000000"):
        bundle_folder(f"{hub.url}/intents.tar.gz#sha256={'0' * 64}")
    assert entries() == []


def test_what_is_no_bundle_is_imported_of_what_was_downloaded(
    hub: ToyHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = hub.plain["/model.gguf"] = b"GGUF"
    name = f"{hub.url}/model.gguf#sha256={hashlib.sha256(content).hexdigest()}"
    asked: list[str] = []

    def make(source: str, bundle: Path, _: str) -> None:
        asked.append(source)
        assert [file.name for file in downloads_folder(source).iterdir()] == ["model.gguf"]
        bundle.mkdir(parents=True)

    monkeypatch.setattr("serving.hub.pull.import_bundle", make)
    assert bundle_folder(name).name == "model"
    assert asked == [name]


def test_a_server_without_the_file_is_reported(hub: ToyHub) -> None:
    with pytest.raises(ModelNameError, match=r"/gone\.zip answered 404"):
        bundle_folder(f"{hub.url}/gone.zip#sha256={'0' * 64}")
