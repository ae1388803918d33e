"""Models by name against a small hub: what is downloaded, kept, refused and gone on with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from serving import Classifier
from serving.errors import HashMismatchError, ModelNameError, install_command
from serving.hub import importing
from serving.hub.cache import entries, newest, remove
from serving.hub.names import HubName, parse_name
from serving.hub.pull import _content_key, bundle_folder, pull, served_bundle
from tests.toy.hub import TOKEN, ToyHub, environment

ROOT = Path(__file__).resolve().parents[4]
INTENTS = ROOT / "models" / "intents"
NAME = HubName("toy/intents")


@pytest.fixture
def published(hub: ToyHub) -> ToyHub:
    """The hub with a bundle."""
    hub.add("toy/intents", INTENTS)
    return hub


@pytest.fixture
def imports(hub: ToyHub, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A checkpoint of which a bundle is made without an import; what was to be imported."""
    hub.add("a/checkpoint", INTENTS).files = {"config.json": b"{}", "model.safetensors": b"0"}
    asked: list[tuple[str, str]] = []

    def copy(source: str, bundle: Path, precision: str) -> None:
        asked.append((source, precision))
        time.sleep(0.2)
        shutil.copytree(INTENTS, bundle)

    monkeypatch.setattr("serving.hub.pull.import_bundle", copy)
    return asked


def test_a_bundle_is_used_as_it_is_and_then_without_the_hub(
    published: ToyHub, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier = Classifier("toy/intents", threads=1)
    assert classifier.manifest.name == "intents"
    assert "toy/intents, " in (told := capsys.readouterr().err)
    assert f": 6.0 MB, from {published.url}; licence: cc-by-4.0" in told
    asked = len(published.asked)
    Classifier("toy/intents", threads=1)
    assert len(published.asked) == asked
    (entry,) = entries()
    assert (entry.note.name, entry.note.licence) == ("toy/intents", "cc-by-4.0")
    assert entry.bundle.name == "intents"
    assert not any(file.is_symlink() for file in entry.bundle.iterdir())


def test_only_the_files_of_the_bundle_are_downloaded(published: ToyHub) -> None:
    published.repositories["toy/intents"].files["checkpoint.pt"] = b"0" * 1000
    pull(NAME)
    assert "checkpoint.pt" not in published.downloads()


def test_a_pull_takes_what_is_published_now_and_a_name_stands_for_what_came_last(
    imports: list[tuple[str, str]], hub: ToyHub
) -> None:
    name = HubName("a/checkpoint")
    first = pull(name)
    assert pull(name).bundle == first.bundle
    exact = pull(name, "fp32")
    assert bundle_folder("a/checkpoint") == exact.bundle != first.bundle
    hub.repositories["a/checkpoint"].files["config.json"] = b'{"new": 1}'
    assert bundle_folder("a/checkpoint") == exact.bundle
    third = pull(name)
    assert bundle_folder("a/checkpoint") == third.bundle
    commits = {entry.note.revision for entry in (first, third)}
    assert [precision for _, precision in imports] == ["auto", "fp32", "auto"]
    assert {source.rpartition("@")[2] for source, _ in imports} == commits
    assert len(remove("a/checkpoint")) == 3
    assert newest("a/checkpoint") is None


def test_threads_that_pull_one_model_import_it_once(imports: list[tuple[str, str]]) -> None:
    name = HubName("a/checkpoint")
    threads = [threading.Thread(target=pull, args=(name,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(imports) == 1
    assert len(entries()) == 1


def test_processes_that_pull_one_model_download_it_once(published: ToyHub, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "macaron", "pull", "toy/intents"]
    variables = {**os.environ, **environment(published, tmp_path)}
    started = [
        subprocess.Popen(command, cwd=ROOT, env=variables, stdout=-1, stderr=-1, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] != ""
    loaded = published.downloads()
    assert len(loaded) == len(set(loaded))


def test_a_download_that_is_cut_goes_on_where_it_was(
    published: ToyHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)
    published.cut["encoder.onnx"] = 1000
    pull(NAME)
    marks = [mark for mark in published.asked if "encoder.onnx" in mark and mark.startswith("GET")]
    assert [mark.rpartition(" ")[2] for mark in marks][1:] == ["bytes=1000-"]


def test_a_bundle_that_is_not_what_its_manifest_says_is_refused(published: ToyHub) -> None:
    published.repositories["toy/intents"].files["encoder.onnx"] = b"damaged"
    with pytest.raises(HashMismatchError, match="the file is damaged"):
        pull(NAME)
    assert entries() == []


def test_weights_with_another_hash_than_the_hub_gives_are_refused_and_deleted(
    published: ToyHub, tmp_path: Path
) -> None:
    published.damaged.add("encoder.onnx")
    with pytest.raises(ModelNameError) as error:
        pull(NAME)
    assert str(error.value).startswith("toy/intents: the sha256 of encoder.onnx must be ")
    assert "the file was changed or damaged and is not used" in str(error.value)
    assert "\n" not in str(error.value)
    assert entries() == []
    assert list(tmp_path.glob("hf/**/encoder.onnx")) == []
    size = len(published.repositories["toy/intents"].files["encoder.onnx"])
    blobs = [file for file in tmp_path.glob("hf/hub/*/blobs/*") if file.stat().st_size == size]
    assert blobs == []
    published.damaged.clear()
    pull(NAME)
    assert published.downloads().count("encoder.onnx") == 2


def test_a_gated_model_is_for_those_whose_token_was_accepted(
    published: ToyHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.repositories["toy/intents"].gated = True
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    with pytest.raises(ModelNameError, match="is gated; accept its terms at"):
        Classifier("toy/intents")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert Classifier("toy/intents", threads=1).manifest.name == "intents"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("no/where", "there is no such folder here, and no such model on"),
        ("toy/intents@v9", "has no revision 'v9'; name a branch, a tag or a commit"),
        ("toy/closed", "is gated; accept its terms at"),
    ],
)
def test_what_cannot_be_had_is_one_line_that_says_what_to_do(
    published: ToyHub, given: str, said: str
) -> None:
    published.add("toy/closed", INTENTS, gated=True)
    with pytest.raises(ModelNameError) as error:
        Classifier(given)
    assert str(error.value).startswith(f"{given}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_without_a_network_that_is_said(published: ToyHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelNameError, match="no network connection"):
        pull(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNameError, match="HF_HUB_OFFLINE is set"):
        pull(NAME)


def test_offline_what_was_downloaded_is_enough(
    published: ToyHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(NAME)
    remove("toy/intents")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert Classifier("toy/intents", threads=1).manifest.name == "intents"


def test_a_disk_that_is_too_small_is_reported_before_the_download(
    published: ToyHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "serving.hub.publishers.published.shutil.disk_usage",
        lambda _: SimpleNamespace(free=5_000_000),
    )
    with pytest.raises(
        ModelNameError, match=r"5\.0 MB free, but the download and its bundle need 1\d\.\d MB"
    ):
        pull(NAME)
    assert published.downloads() == ["manifest.json"]  # which says that it is a bundle


@pytest.mark.parametrize(
    ("licence", "said"),
    [
        ("cc-by-nc-4.0", "warning: its licence, cc-by-nc-4.0, forbids commercial use"),
        (None, "its publisher names no licence"),
    ],
)
def test_a_licence_that_forbids_is_a_warning(
    published: ToyHub, capsys: pytest.CaptureFixture[str], licence: str | None, said: str
) -> None:
    published.repositories["toy/intents"].licence = licence
    pull(NAME)
    assert said in capsys.readouterr().err


def test_what_an_import_needs_is_said_before_a_download(
    hub: ToyHub, imports: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "find_spec", lambda name: None if name == "torch" else name)
    with pytest.raises(ModelNameError) as error:
        Classifier("a/checkpoint")
    assert "importing it needs the Python package 'torch'" in str(error.value)
    assert str(error.value).endswith(install_command("export"))
    assert hub.downloads() == []
    assert imports == []


def test_the_reason_of_an_import_that_fails_is_the_error(
    hub: ToyHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thing").mkdir()
    with pytest.raises(ModelNameError) as error:
        served_bundle(str(tmp_path / "thing"))
    assert str(error.value).startswith(f"{tmp_path / 'thing'}: no config.json: the folder is empty")
    assert "error:" not in capsys.readouterr().err
    assert entries() == []


def test_a_name_with_a_slip_says_what_names_are(hub: ToyHub) -> None:
    with pytest.raises(ModelNameError, match="not a model name: OWNER/NAME of a hub"):
        served_bundle("opus-mt-de-en")


def test_a_misspelt_path_is_answered_with_what_is_beside_it(
    hub: ToyHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "macaron-de-en").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for given in ("models/macron-de-en", "./models/macron-de-en", "./models/macron-de-en/"):
        with pytest.raises(ModelNameError, match=r"; did you mean 'models/macaron-de-en'\?"):
            bundle_folder(given)
    for given in ("./models/other", "./nowhere/macaron-de-en"):
        with pytest.raises(ModelNameError) as error:
            bundle_folder(given)
        assert "did you mean" not in str(error.value)
    assert hub.asked == []


def test_a_path_is_never_looked_up(hub: ToyHub) -> None:
    assert bundle_folder(Path("toy/intents")) == Path("toy/intents")
    with pytest.raises(ModelNameError, match=r"^\./toy/intents: there is no such file or folder"):
        bundle_folder("./toy/intents")
    assert hub.asked == []
    assert parse_name("toy/intents") == NAME


def test_checkpoints_of_one_name_are_distinguished_by_content(tmp_path: Path) -> None:
    def key(number: int, file: str = "", **contents: str) -> str:
        folder = tmp_path / str(number) / "model"
        for name, text in contents.items():
            path = folder / name.replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return _content_key(folder / file)

    assert key(1, a_pt="x") == key(2, a_pt="x")
    assert key(1, a_pt="x") != key(3, a_pt="y")
    assert key(4, "a.pt", a_pt="x") != key(5, "a.pt", a_pt="x", d_spm="z")
    assert key(6, "a.pt", a_pt="x", b_pt="other") == key(4, "a.pt")
