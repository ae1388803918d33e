"""Models by name, from a small hub to translations."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from export.__main__ import main
from export.importing.bundle import recognise
from export.importing.by_name import named_source
from export.importing.model import NOTHING_DECLARED
from serving import Translator
from tests.toy.checkpoints import write_opus
from tests.toy.hub import (
    ToyHub,
    environment,
    import_here,
    publish_packages,
    publish_students,
    toy_hub,
    use,
)
from tests.toy.marian_files import write_student
from tests.unit.export.importing.toolkits.spec_files import arrays, spec_tensors, write_spec
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

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
    assert "pickles (pytorch_model.bin): only tensors are read" in capsys.readouterr().err
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


def test_a_student_of_firefox_is_read(hub: ToyHub, tmp_path: Path) -> None:
    write_student(tmp_path / "student")
    publish_students(hub, ("de", "en", "1.0", tmp_path / "student"))
    with named_source("firefox:de-en") as source:
        reader = recognise(source.path)
        imported = reader.read(source.path, NOTHING_DECLARED)
    assert reader.family == "marian-nmt"
    assert (imported.languages.source, imported.languages.target) == (("de",), ("en",))
    assert imported.shortlist is not None
    assert source.origin is not None
    assert source.origin.startswith("firefox:de-en, 1.0-")


def test_a_package_of_argos_is_read(hub: ToyHub, tmp_path: Path) -> None:
    folder = tmp_path / "translate-de_en-1_0"
    (folder / "model").mkdir(parents=True)
    written = ["<unk>", "<s>", "</s>", "▁haus", "▁a"]
    write_spec(folder / "model" / "model.bin", arrays(spec_tensors(len(written), None)))
    (folder / "model" / "shared_vocabulary.json").write_text(json.dumps(written))
    (folder / "model" / "config.json").write_text("{}")
    write_pieces(folder / "sentencepiece.model")
    (folder / "metadata.json").write_text('{"from_code": "de", "to_code": "en"}')
    archive = Path(shutil.make_archive(str(tmp_path / "package"), "zip", tmp_path, folder.name))
    publish_packages(hub, ("de", "en", "1.0", archive.read_bytes()))
    with named_source("argos:de-en") as source:
        reader = recognise(source.path)
        imported = reader.read(source.path, NOTHING_DECLARED)
    assert reader.family == "ctranslate2"
    assert (imported.languages.source, imported.languages.target) == (("de",), ("en",))


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
