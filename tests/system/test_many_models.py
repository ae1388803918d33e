"""Many models on one machine: what they take, and when they are loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.system.faults import samples, seconds_until
from tests.system.server import ROOT, Server, running

pytestmark = pytest.mark.slow

MIB = 2**20
SOURCE = ROOT / "models" / "macaron-en-de"
FOUR = ("macaron-de-en", "macaron-en-de", "joint-fast-de-en", "lm-cascade")
"""Demo bundles of 50 MB together."""


def held_mib(server: Server) -> float:
    """Memory of the server and all its children; what they share counts once.

    A language is detected first: the tables for that, 27 MiB, are loaded after the models, when the
    server answers already, and would be in one measurement and not in the other.
    """
    answer = httpx.post(f"{server.url}/detect", json={"q": "Guten Morgen"}, timeout=60)
    assert answer.status_code == 200, answer.text
    process = psutil.Process(server.process.pid)
    found = 0
    for each in (process, *process.children(recursive=True)):
        lines = Path(f"/proc/{each.pid}/smaps_rollup").read_text().splitlines()
        found += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found / 1024


def copied(folder: Path, count: int) -> Path:
    """Four demo bundles, and further ones."""
    for demo in FOUR:
        (folder / demo).symlink_to(ROOT / "models" / demo)
    for number in range(count):
        copy = shutil.copytree(SOURCE, folder / f"copy-{number}")
        manifest = json.loads((copy / "manifest.json").read_text())
        (copy / "manifest.json").write_text(json.dumps({**manifest, "name": copy.name}))
    return folder


def cards(server: Server) -> dict[str, dict[str, Any]]:
    """Those of the translation models, by name."""
    found = httpx.get(f"{server.url}/models", timeout=60).json()["models"]
    return {card["name"]: card for card in found if card["task"] == "translate"}


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux 4.14")
def test_models_share_processes_and_memory(tmp_path: Path) -> None:
    found = []
    for count in (0, 4):
        folder = tmp_path / str(count)
        (folder / "bundles").mkdir(parents=True)
        bundles = copied(folder / "bundles", count)
        with running(bundles, folder, MACARON_THREADS="2") as server:
            found.append(held_mib(server))
    # Measured: 291, and 23.3 for 11.3: the table of pieces is laid out once more, each of the two
    # processes that decode writes some of its own, and the process that answers indexes the
    # dictionary (1.8).
    assert found[0] <= 400
    size = sum(file.stat().st_size for file in SOURCE.iterdir())
    assert (found[1] - found[0]) / 4 <= 2.3 * size / MIB, found


def test_models_are_loaded_when_they_are_asked_for_and_leave_for_others(tmp_path: Path) -> None:
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    copied(bundles, 1)
    room = {"MACARON_LOAD": "use", "MACARON_MAX_MODEL_BYTES": str(25 * MIB)}
    with running(bundles, tmp_path, **room) as server:
        assert not any(card["loaded"] for card in cards(server).values())
        for name in ("macaron-en-de", "copy-0", "joint-fast-de-en", "macaron-en-de"):
            pair = {"source": cards(server)[name]["source"][0]}
            pair["target"] = cards(server)[name]["target"][0]
            body = {"q": "Berlin", "model": name, **pair}
            answer = httpx.post(f"{server.url}/translate", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            assert cards(server)[name]["loaded"]
        assert not cards(server)["copy-0"]["loaded"]
        assert sum(card["loaded"] for card in cards(server).values()) == 2
        assert samples(server)["macaron_model_loaded,model=macaron-en-de"] == 1
        held = "macaron_decoder_resident_bytes"
        seconds_until(lambda: samples(server)[held] < 150 * MIB, 10)
        assert samples(server)[held] > 20 * MIB
