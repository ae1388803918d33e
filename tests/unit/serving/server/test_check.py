"""What is looked at before a server starts: nothing that has to be loaded."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.bundle.folder import file_hash
from serving.errors import BundleError, ServingError, SettingsError, StoreUnavailableError
from serving.server.check import check
from serving.server.http.settings import Settings

SHIPPED = Path(__file__).resolve().parents[4] / "models/macaron-de-en"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one bundle."""
    shutil.copytree(SHIPPED, tmp_path / "models/macaron-de-en")
    return tmp_path / "models"


def test_nothing_is_loaded(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A graph that no library reads, with the hash that the manifest names.
    bundle = models / "macaron-de-en"
    (bundle / "step.onnx").write_bytes(b"no graph")
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"]["step.onnx"] = file_hash(bundle / "step.onnx")
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    check(Settings(bundles=models))


def damaged(bundle: Path) -> None:
    with (bundle / "step.onnx").open("ab") as file:
        file.write(b"x")


def unread(bundle: Path) -> None:
    (bundle / "manifest.json").write_text("{")


def twice(bundle: Path) -> None:
    shutil.copytree(bundle, bundle.with_name("other"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damaged, "step.onnx: sha256 is"),
        (unread, "manifest.json"),
        (twice, "another bundle is named"),
        (shutil.rmtree, "contains no bundle"),
    ],
)
def test_a_bundle_that_is_bad_is_refused(
    models: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(models / "macaron-de-en")
    with pytest.raises(BundleError, match=message):
        check(Settings(bundles=models))


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"max_beam_size": 1}, SettingsError, "MACARON_MAX_BEAM_SIZE must be at least"),
        ({"api_keys": "short"}, SettingsError, "MACARON_API_KEYS must hold keys of at least"),
        ({"admin_key": "short"}, SettingsError, "MACARON_ADMIN_KEY must have at least 16"),
        ({"store": "mysql://there"}, SettingsError, "MACARON_STORE must be"),
        (
            {"store": "sqlite:////nowhere/at/all"},
            StoreUnavailableError,
            "MACARON_STORE: the store does not answer",
        ),
        ({"documents": __file__}, SettingsError, "MACARON_DOCUMENTS must be a folder that this"),
        ({"documents": "/proc/there"}, SettingsError, "got /proc/there"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(
    models: Path, settings: dict[str, object], kind: type[ServingError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        check(Settings.model_validate({"bundles": models, **settings}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MACARON_DEVICE", "tpu"),
        ("MACARON_NATIVE_KERNELS", "0"),
        ("MACARON_CUDA_GRAPHS", "yes"),
        ("MACARON_CUDA_STREAMS", "0"),
    ],
)
def test_variables_of_the_runtime_are_read_before_anything_listens(
    models: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"{name} must be .*, got '{value}'"):
        check(Settings(bundles=models))


def test_a_folder_of_documents_is_made_and_left_empty(models: Path, tmp_path: Path) -> None:
    check(Settings(bundles=models, documents=tmp_path / "of/documents"))
    assert list((tmp_path / "of/documents").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [(__file__, "MACARON_FILES must be a folder that this"), ("no://there", "fsspec knows")],
)
def test_files_of_batches_must_have_a_place(
    models: Path, tmp_path: Path, files: str, message: str
) -> None:
    settings = {"bundles": models, "store": f"sqlite:///{tmp_path / 'store.db'}", "files": files}
    with pytest.raises(SettingsError, match=message):
        check(Settings.model_validate(settings))
