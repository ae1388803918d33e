"""Runs of models with the options of the papers: some updates, resumed to the bit, and scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.toy.recipe import write_toy_recipe
from training.__main__ import main
from training.loop.trainer import train
from training.recipe.config import load_recipe
from training.runs.folder import load_trained

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = {
    "weighted": ["model.block=weighted", "optim.branch_frozen_steps=2"],
    "halting": ["model.share_layers=true", "model.halting=true", "model.num_encoder_layers=2"],
    "relative": ["model.positions=relative", "model.block=attention_ffn_attention"],
    "rotary": ["model.positions=rotary", "loop.activation_checkpointing=true"],
    "layers and heads": [
        "model.num_encoder_layers=3",
        "model.encoder_layerdrop=0.5",
        "model.head_dropout=0.3",
        "model.head_dropout_schedule=v",
    ],
}
SHORT = ["loop.max_steps=8", "loop.checkpoint_every=4", "loop.validate_every=8"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_recipe(tmp_path_factory.mktemp("toy"), pairs=80)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_run_with_an_option_is_resumed_to_the_bit(
    recipe: Path, tmp_path: Path, options: list[str]
) -> None:
    loaded = load_recipe(str(recipe), [*SHORT, "loop.bleu_sentences=2", *options])
    train(loaded, tmp_path / "whole")
    train(loaded, tmp_path / "parts", stop_after=4)
    train(loaded, tmp_path / "parts")
    whole, parts = (
        load_trained(tmp_path / run / "checkpoints" / "step_00000008").model.state_dict()
        for run in ("whole", "parts")
    )
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


def test_weights_of_branches_stay_in_the_last_updates(recipe: Path, tmp_path: Path) -> None:
    loaded = load_recipe(str(recipe), [*SHORT, "loop.bleu_sentences=0", *OPTIONS["weighted"]])
    train(loaded, tmp_path / "run", stop_after=6)
    train(loaded, tmp_path / "run")
    before, after = (
        load_trained(tmp_path / "run" / "checkpoints" / f"step_0000000{step}").model.state_dict()
        for step in (6, 8)
    )
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert not any("kappa" in name or "alpha" in name for name in moved)
    assert any("ffns" in name for name in moved)


def test_evaluate_gives_bleu_as_papers_have_it(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train(load_recipe(str(recipe), [*SHORT, "loop.bleu_sentences=0"]), run)
    text = [str(run / f"validation.{side}") for side in ("source", "target")]
    command = ["evaluate", str(run), *text, "--beam-size", "1"]
    capsys.readouterr()
    assert main([*command, "--bleu", "multi_bleu_lc,compound_split", "--tokenized"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert 0.0 <= scores["multi_bleu_lc"] <= 100.0
    assert scores["compound_split_signature"].endswith("tokens:own")
    assert "multi_bleu" not in scores
    assert main([*command, "--bleu", "multi-bleu"]) == 1
    assert "--bleu must be names of ['multi_bleu'" in capsys.readouterr().err
    assert main([*command, "--tokenized"]) == 1
    assert "--tokenized belongs to --bleu" in capsys.readouterr().err
