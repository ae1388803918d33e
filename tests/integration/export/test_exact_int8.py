"""Int8 products of bundles are exact on any processor, with native kernels or without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from export.graphs.probe import probe_model
from serving.bundle.folder import read_manifest
from serving.errors import BundleError
from serving.runtime import ort
from tests.integration.demo import MODELS

BUNDLE = MODELS / "macaron-de-en"


@pytest.mark.parametrize("native", [True, False])
def test_products_of_a_bundle_are_exact(
    native: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not native:
        monkeypatch.setattr(ort, "native_library", lambda: None)
    ort.check_int8(BUNDLE, read_manifest(BUNDLE))
    assert not capfd.readouterr().err  # ONNX Runtime warns of an option that is set twice


def test_a_bundle_is_refused_where_they_are_not(tmp_path: Path) -> None:
    model = probe_model()
    (wanted,) = (each for each in model.graph.initializer if each.name == "wanted_value")
    changed = numpy_helper.to_array(wanted) + np.eye(8, 64, dtype=np.float32)
    wanted.CopyFrom(numpy_helper.from_array(changed, "wanted_value"))
    manifest = read_manifest(BUNDLE)
    assert manifest.probe_file is not None
    (tmp_path / manifest.probe_file).write_bytes(model.SerializeToString())
    with pytest.raises(BundleError, match="not exact on this processor"):
        ort.check_int8(tmp_path, manifest)
