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
        ({"store": "mysql://there"}, SettingsError, "MACARON_STORE must be"),
        ({"store": "sqlite:////nowhere/at/all"}, StoreUnavailableError, "does not answer"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(
    models: Path, settings: dict[str, object], kind: type[ServingError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        check(Settings.model_validate({"bundles": models, **settings}))
