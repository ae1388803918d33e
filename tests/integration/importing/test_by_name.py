"""Models by name, from a small hub to translations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from export.__main__ import main
from serving import Translator
from tests.toy.checkpoints import write_opus
from tests.toy.hub import ToyHub, environment, import_here, toy_hub, use

ROOT = Path(__file__).resolve().parents[3]
NAME = "Helsinki-NLP/opus-mt-de-en"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MarianMT as OPUS-MT publishes them: its weights are a pickle."""
    folder = tmp_path_factory.mktemp("checkpoint")
    model = write_opus(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "tf_model.h5").write_bytes(b"0" * 1000)
    return folder


@pytest.fixture
def hub(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyHub]:
    with toy_hub() as server:
        server.add(NAME, checkpoint)
        use(server, tmp_path, monkeypatch)
        yield server


@pytest.mark.usefixtures("traced_once")
def test_a_name_is_all_that_a_translator_needs(
    hub: ToyHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("serving.hub.pull.import_bundle", import_here)
    translator = Translator(NAME, threads=1)
    commit = hub.repositories[NAME].commit
    assert translator.manifest.name == "opus-mt-de-en"
    assert f"Imported from {NAME}@{commit}: MarianMT" in translator.manifest.attribution
    assert translator.manifest.attribution.endswith("Licence of the weights: cc-by-4.0.")
    assert "pickles (pytorch_model.bin): tensors alone are read" in capsys.readouterr().err
    assert "tf_model.h5" not in hub.downloads()
    asked = len(hub.asked)
    again = Translator(NAME, threads=1)
    assert again.translate("ein Haus")[0].text == translator.translate("ein Haus")[0].text
    assert len(hub.asked) == asked


def test_a_pickle_that_holds_more_than_tensors_is_not_executed(
    hub: ToyHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"x": Path("nothing")}, tmp_path / "pickle")
    hub.repositories[NAME].files["pytorch_model.bin"] = (tmp_path / "pickle").read_bytes()
    assert main(["import", NAME, str(tmp_path / "out")]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: {NAME}/pytorch_model.bin: damaged, or holds more than tensors")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_imports_in_a_process_of_its_own(hub: ToyHub, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "macaron", "translate", NAME],
        cwd=ROOT,
        env={**os.environ, **environment(hub, tmp_path)},
        input="ein Haus\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "precision auto chose int8: " in done.stderr
