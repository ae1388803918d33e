"""`python -m bench language` and `attention` on tiny sizes: whole runs, their tables, agreement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.subjects.job import id_token
from bench.subjects.language_models import (
    convert_language_model,
    random_language_model,
    random_prompts,
)
from bench.subjects.models import save_model
from bench.systems.pytorch.eager_language import load_eager
from export.graphs.writing import write_language_graphs
from serving.runtime.language_stepper import LanguageStepper
from serving.search.sampling.batch import GenerationBatch, SampledOutput
from serving.search.sampling.drawing import Uniforms
from serving.search.sampling_options import GenerationOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]


def rows(out: str) -> list[list[str]]:
    lines = [line for line in out.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_all_systems_write_the_same_tokens(tmp_path: Path) -> None:
    import ctranslate2

    model = random_language_model("lm_tiny", "full", 1)
    prompts = random_prompts(model.config.vocab_size, 7, 3)
    save_model(model, tmp_path / "eager")
    eager = load_eager(tmp_path / "eager")(prompts, 20, 1)
    vocabulary = [id_token(i) for i in range(model.config.vocab_size)]
    convert_language_model(model, vocabulary, tmp_path / "peer", "float32")
    peer = ctranslate2.Generator(str(tmp_path / "peer"), compute_type="float32").generate_batch(
        [[id_token(i) for i in prompt] for prompt in prompts],
        beam_size=1,
        sampling_topk=1,
        max_length=20,
        include_prompt_in_result=False,
    )
    (tmp_path / "onnx").mkdir()
    manifest = write_language_graphs(model, tmp_path / "onnx", name="tiny", precision="fp32")
    batch = GenerationBatch(LanguageStepper(tmp_path / "onnx", manifest, 1))
    greedy = GenerationOptions(temperature=0.0)
    outputs = [SampledOutput(n, prompt, greedy, Uniforms(1, n)) for n, prompt in enumerate(prompts)]
    batch.add(outputs)
    for _ in range(20):
        batch.step()
    batch.close()
    ours = [output.tokens for output in outputs]
    assert ours == eager
    assert [[id_token(i) for i in tokens] for tokens in ours] == [r.sequences[0] for r in peer]
    assert len({tuple(tokens) for tokens in ours}) == 7


def test_the_comparison_has_a_row_for_each_system(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["language", "--shape", "lm_tiny", "--batch", "1,3", "--top-k", "1,4"]
    assert main([*command, "--repetitions", "1", "--threads", "1", "--busy"]) == 0
    found = rows(capsys.readouterr().out)
    assert len(found) == 4 * 5
    assert {(row[0], row[1]) for row in found} == {
        (batch, top_k) for batch in ("1", "3") for top_k in ("greedy", "4")
    }
    speeds = [[float(cell) for cell in row[-2:]] for row in found]
    assert np.isfinite(speeds).all()
    assert speeds[0][0] == speeds[4][1] == 1.0


def test_long_contexts_and_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["language", "--shape", "lm_tiny", "--threads", "1", "--repetitions", "1", "--busy"]
    assert main([*short, "--batch", "2", "--context", "200"]) == 0
    found = rows(capsys.readouterr().out)
    assert [row[0] for row in found] == ["full", "dilated", "dilated_memory", "cascade"]
    assert all(float(row[3]) > 0 for row in found)
    assert all(float(found[0][4]) >= float(row[4]) for row in found)
    assert main([*short, "--steps", "1200"]) == 0
    first, last = rows(capsys.readouterr().out)
    assert (first[0], last[0]) == ("1,000", "1,200")
    assert first[3] == last[3]


def test_one_attention(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "attention --length 256 --repetitions 1 --threads 1 --busy"
    assert main(arguments.split()) == 0
    found = rows(capsys.readouterr().out)
    assert len(found) == 6
    assert all(float(row[2].partition(" ")[0]) > 0 for row in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "lm_huge"], "--shape must be one of"),
        (["--shape", "joint_fast_tiny"], "--shape must be one of"),
        (["--context", "9", "--steps", "9"], "give one of them"),
        (["--device", "cuda", "--steps", "9"], "leave out --device cuda"),
        (["--top-k", "0"], "--top-k must be numbers in [1, 64]"),
    ],
)
def test_bad_arguments(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["language", *arguments]) == 1
    assert message in capsys.readouterr().err
