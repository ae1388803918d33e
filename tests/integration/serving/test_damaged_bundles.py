"""Bundles that are damaged in many ways: `python -m serving` refuses them in a line or two, or
works; there is no traceback, no signal and no hang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SHARE = 23
"""One of so many damages is tried, in turn."""


@pytest.mark.slow
def test_a_damaged_bundle_is_refused_in_a_line_or_works(tmp_path: Path) -> None:
    words = ["-m", "tests.integration.serving.damaged_bundles", tmp_path / "found", str(SHARE)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=900)
    found = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    wrong = []
    for each in found:
        label = f"{each['bundle']}: {each['label']}"
        if each.get("status") == 0:
            if each["noticed"]:
                wrong.append(f"{label}: not noticed")
            continue
        lines = each.get("err", "").strip().splitlines()
        if each.get("status") != 1 or len(lines) > 2 or not lines[-1].startswith("error: "):
            wrong.append(f"{label}: {each.get('signal')} {lines[-1:]}")
    assert not wrong, "\n".join(wrong)
    assert all(each["status"] == 0 for each in found if each["label"] == "whole")
    assert sum(each["status"] == 1 for each in found) > 0.7 * len(found)
