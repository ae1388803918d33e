"""Bundles whose weights cannot be taken back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from export.bundles.checkpoint import recover_checkpoint
from export.errors import ExportError
from serving.bundle.folder import parse_manifest, write_manifest

SHIPPED = Path(__file__).resolve().parents[4] / "models" / "macaron-de-en"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"target": "cuda", "precision": "fp32"}, "with target 'cpu', got 'cuda'; give the bundle"),
        ({"recipe": {"imported": {"from": "opus"}}}, "its manifest has no recipe of this project"),
        ({"recipe": {"model": {"flavour": 3}}}, "its recipe cannot be read: "),
    ],
)
def test_what_was_not_made_of_a_run_for_the_cpu_is_refused(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(SHIPPED, bundle)
    write_manifest(bundle, parse_manifest(bundle).model_copy(update=changed))
    with pytest.raises(ExportError, match=words):
        recover_checkpoint(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()
