"""What manifests say of engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serving.bundle.engines import EngineFile
from serving.bundle.folder import file_hash, read_manifest, write_manifest
from serving.bundle.manifest import Manifest
from tests.unit.serving.bundle.test_manifest import TREE

ENGINE: dict[str, Any] = {
    "file": "step-64.engine",
    "graph": "step.onnx",
    "capacity": 64,
    "library": "tensorrt",
    "version": "11.4.0",
    "gpu": "NVIDIA H100 80GB HBM3",
    "compute_capability": "9.0",
    "precision": "fp16",
    "profile": {"B": (1, 8, 32), "Q": (1, 5, 64)},
    "bytes": 10,
    "build_seconds": 1.5,
    "sha256": "0" * 64,
}


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ({"B": 1, "Q": 1, "C": 64}, True),
        ({"B": 32, "Q": 64, "C": 64, "S": 900}, True),
        ({"B": 33, "Q": 5, "C": 64}, False),
        ({"B": 0, "Q": 5, "C": 64}, False),
        ({"B": 8, "Q": 5, "C": 72}, False),
    ],
)
def test_an_engine_takes_the_sizes_of_its_profile_at_its_capacity(
    sizes: dict[str, int], taken: bool
) -> None:
    assert EngineFile.model_validate(ENGINE).takes(sizes) is taken


def test_an_encoders_engine_has_no_capacity() -> None:
    engine = EngineFile.model_validate(ENGINE | {"capacity": None, "profile": {"S": (8, 32, 64)}})
    assert engine.takes({"B": 3, "S": 64})
    assert not engine.takes({"B": 3, "S": 72})


@pytest.mark.parametrize("name", ["../step.engine", "a/step.engine", "..", "/step.engine"])
def test_an_engine_lies_in_the_bundle(name: str) -> None:
    with pytest.raises(ValidationError, match="the plain name of a file in the bundle"):
        EngineFile.model_validate(ENGINE | {"file": name})


def test_the_hash_of_an_engine_is_its_own_and_a_damaged_one_is_no_reason_to_refuse_the_bundle(
    tmp_path: Path,
) -> None:
    for name in ("encoder.onnx", "step.onnx", "t.model", "step-64.engine"):
        (tmp_path / name).write_bytes(f"the bytes of {name}".encode())
    engine = EngineFile.model_validate(ENGINE | {"sha256": file_hash(tmp_path / "step-64.engine")})
    manifest = Manifest.model_validate(TREE | {"target": "cuda"})
    write_manifest(tmp_path, manifest.model_copy(update={"engines": (engine,)}))
    (tmp_path / "step-64.engine").write_bytes(b"damaged")
    found = read_manifest(tmp_path)
    assert found.engines == (engine,)
    assert "step-64.engine" not in found.files
    assert "step.onnx" in found.files
