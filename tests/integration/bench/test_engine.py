"""`python -m bench engine` as a whole, on models too small to tell anything of speed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.__main__ import main
from bench.subjects.scenarios import COMPARISONS, OUR_SHORTLIST, PEER_SHORTLIST
from tests.conftest import TinyModel
from tests.toy.recipe import write_toy_recipe
from training.loop.trainer import train
from training.models import PRESETS, JointConfig, ModelConfig
from training.recipe.config import load_recipe

pytestmark = pytest.mark.usefixtures("traced_once")

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind in the tiny shapes: export takes its time for every layer, and the bench works
    alike with any number."""
    for name in ("transformer_tiny", "joint_fast_tiny"):
        small = replace(PRESETS[name], num_encoder_layers=1, num_decoder_layers=1)
        monkeypatch.setitem(PRESETS, name, small)


@pytest.mark.slow
@pytest.mark.usefixtures("one_layer")
@pytest.mark.parametrize(
    ("shape", "kind", "beams", "repetitions"),
    [("tiny", "cross", [1, 2], 2), ("joint-tiny", "joint", [2], 1)],
)
def test_random_weights(
    shape: str,
    kind: str,
    beams: list[int],
    repetitions: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    comparison = COMPARISONS[kind, "cpu"]
    systems, rival = [s.name for s in comparison.systems], comparison.rival
    record_file = tmp_path / "new" / "record.json"
    options = f"--shape {shape} --random-weights 3 --repetitions {repetitions}"
    options += " --batch 3 --threads 1"
    options += f" --beam {','.join(map(str, reversed(beams)))} --busy"
    if kind == "cross":
        options += " --shortlist"
        systems += [OUR_SHORTLIST.name, PEER_SHORTLIST.name]
    status = main(["engine", *options.split(), "--json", str(record_file)])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert "in use before the run" in out
    assert "--busy" in out.splitlines()[0]
    assert f"repetition {repetitions}" in err
    assert "error" not in err

    lines = out.splitlines()
    assert lines[0].startswith(f"`python -m bench engine --shape {shape} --random-weights 3 ")
    rows = [line.split(" | ") for line in lines if line.startswith("| ")]
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == 2 + len(beams) * len(systems)
    assert f"Same outputs as {rival.engine} {rival.precision}, beam 2: " in out
    assert "Matrix products of this engine, int8, batch 3, beam 2, 1 x 1: alone " in out
    assert "Peak cache slots a sentence after 100 steps, beam 5: " in out

    record = json.loads(record_file.read_text())
    assert record["forced_length"] == 25
    looked = record["machine"]["others"], record["machine"]["others_after"]
    assert record["machine"]["busy"] is (max(looked) > 0.1)
    assert len(record["rows"]) == len(beams) * len(systems)
    for row in record["rows"]:
        assert len(row["ms_per_sentence"]) == repetitions
        assert row["best_setting"] is True  # one thread leaves one setting
        assert row["tokens_per_second"] == pytest.approx(25e3 / row["ms_per_sentence_median"])
        assert 10 < row["peak_memory_bytes"] / 2**20 < 2000
        assert row["bleu"] is None
        assert row["speed_over"].keys() == {s.name for s in comparison.beside}
        assert row["speed_over"].get(row["system"], 1.0) == 1.0
    for agreement in record["agreement"]:
        assert agreement["sentences"] == 64
        assert agreement["identical"] + agreement["ties"] >= 63
    assert [entry["steps"] for entry in record["slots"]] == [25, 50, 100]
    for entry in record["slots"]:
        assert 0 < entry["cache_bytes"] < entry["reordered_bytes"]
    assert [entry["beam_size"] for entry in record["int8_products"]] == beams
    assert all(entry["share"] > 0 for entry in record["int8_products"])


def train_toy(folder: Path, model: ModelConfig | None = None) -> Path:
    """A run on the toy corpus (of the baseline where no model is given), its text one folder up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recipe = load_recipe(str(write_toy_recipe(folder)), ["model.block=standard"])
    train(replace(recipe, model=model or recipe.model), folder / "run")
    torch.set_num_threads(threads)
    return folder / "run"


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_toy(tmp_path_factory.mktemp("baseline"))


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = JointConfig(
        model_dim=32,
        num_heads=2,
        ffn_dim=32,
        num_encoder_layers=1,
        num_decoder_layers=1,
        vocab_size=380,
    )
    return train_toy(tmp_path_factory.mktemp("joint"), config)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cross", "joint"])
def test_a_checkpoint_with_real_sentences(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run: Path = request.getfixturevalue({"cross": "baseline", "joint": "joint"}[kind])
    for side, name in (("source", "toy.de"), ("reference", "toy.en")):
        lines = (run.parent / name).read_text().splitlines()[:40]
        (tmp_path / side).write_text("\n".join([*lines[:20], "", *lines[20:]]) + "\n")
    text = ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference")]
    options = ["--repetitions", "1", "--threads", "1", "--batch", "8", "--beam", "3", "--busy"]
    record_file = tmp_path / "record.json"
    arguments = ["--checkpoint", str(run), *text, *options, "--json", str(record_file)]
    status = main(["engine", *arguments])
    output = capsys.readouterr()
    assert status == 0, output.err
    assert "nrefs:1|case:mixed" in output.out
    record = json.loads(record_file.read_text())
    assert record["forced_length"] is None
    (agreement,) = record["agreement"]
    assert agreement["sentences"] == 40  # the blank line is left out
    assert agreement["identical"] == 40
    assert agreement["score_difference"] < 1e-4
    scores = {row["system"]: row["bleu"] for row in record["rows"]}
    assert scores.keys() == {system.name for system in COMPARISONS[kind, "cpu"].systems}
    assert len({scores[name] for name in scores if "32" in name}) == 1
    assert all(0 <= score <= 100 for score in scores.values())
    assert record["int8_products"] == []  # batches of real sentences shrink


def _errors(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["engine", *arguments]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "big"], "--shape must be one of demo, demo-6-2, demo-12-1, demo-relative, "),
        (["--batch", "1,x"], "--batch must be numbers in [1, 1024] separated by commas"),
        (["--batch", "0"], "--batch must be numbers in [1, 1024]"),
        (["--beam", "65"], "--beam must be numbers in [1, 64] separated by commas, got '65'"),
        (["--repetitions", "0"], "--repetitions must be >= 1, got 0"),
        (["--threads", "100000"], "--threads must be in [1, "),
        (["--source", "x"], "--source and --reference need --checkpoint RUN"),
        (["--checkpoint", "x"], "--checkpoint needs both --source FILE and --reference FILE"),
        (["--checkpoint", "x", "--shape", "demo"], "--checkpoint has its own shape and weights"),
        (["--json", "tests"], "--json must name a file, tests is a folder"),
        (
            ["--checkpoint", "nowhere", "--source", "x", "--reference", "y"],
            "nowhere: no checkpoint",
        ),
    ],
)
def test_bad_options_are_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert _errors(capsys, *arguments).startswith(f"error: {message}")


def test_a_macaron_run_is_refused(
    tiny_model: TinyModel, capsys: pytest.CaptureFixture[str]
) -> None:
    text = str(tiny_model.run / "validation.source")
    arguments = ["--checkpoint", str(tiny_model.run), "--source", text, "--reference", text]
    assert "block must be 'standard' for the comparison" in _errors(capsys, *arguments)


def test_a_text_without_a_line_is_refused(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blank").write_text("\n \n")
    text = str(tmp_path / "blank")
    arguments = ["--checkpoint", str(baseline), "--source", text, "--reference", text]
    assert _errors(capsys, *arguments) == f"error: {text}: every line is blank\n"


@pytest.mark.slow
def test_a_process_of_the_command_ends_with_its_status() -> None:
    command = [sys.executable, "-m", "bench", "engine", "--shape", "big"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: --shape must be one of ")


def test_help_imports_no_engine() -> None:
    code = (
        "import contextlib, io, sys\n"
        "from bench.__main__ import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['engine', '--help'])\n"
        "print(*sorted({'torch', 'onnxruntime', 'ctranslate2', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "", done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("one_layer")
@pytest.mark.parametrize("shortlist", [False, True])
def test_a_profile_has_a_row_for_each_part(
    capsys: pytest.CaptureFixture[str], *, shortlist: bool
) -> None:
    options = "--shape tiny --random-weights 3 --batch 3 --beam 2 --repetitions 2 --busy"
    assert main(["profile", *options.split(), *(["--shortlist"] if shortlist else [])]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    names = [row[0] for row in rows]
    for part in ("matrix products", "attention", "rounding to int8", "choosing candidates"):
        assert f"step graph: {part}" in names
    assert {"encoder", "moves of cache slots", "search and bookkeeping"} <= set(names)
    times = {row[0]: float(row[2]) for row in rows}
    assert names[-1] == "a whole step"
    assert sum(times.values()) - times["a whole step"] == pytest.approx(
        times["a whole step"], abs=0.02
    )
    assert all(times[name] > 0 for name in names if name != "moves of cache slots")


@pytest.mark.slow
def test_materials_are_made_once_and_belong_to_one_model(
    one_layer: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["engine", "--shape", "tiny", "--materials", str(tmp_path / "kept")]
    assert main(["engine", "--shape", "tiny", "--prepare"]) == 1
    assert "--prepare needs --materials DIR" in capsys.readouterr().err
    assert main([*command, "--prepare"]) == 0
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.onnx")}
    assert len(made) >= 4  # encoder and step, of fp32 and int8
    (tmp_path / "kept" / "bundle.part").mkdir()
    options = ["--batch", "2", "--beam", "1", "--repetitions", "1", "--threads", "1", "--busy"]
    assert main([*command, *options]) == 0
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert re.search(r"batch 2, beam 1: .* ms a sentence", capsys.readouterr().err)
    assert main([*command, "--random-weights", "2", "--prepare"]) == 1
    assert "--materials must name a folder of one model" in capsys.readouterr().err
