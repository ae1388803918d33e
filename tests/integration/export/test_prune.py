"""A run with LayerDrop, pruned by its command, trained on, exported and asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from export.bundles.run import export_run
from export.bundles.subject import Form
from serving import Translator
from tests.toy.recipe import write_toy_recipe
from training.__main__ import main
from training.loop.trainer import train
from training.recipe.config import load_recipe
from training.runs.folder import load_trained

pytestmark = pytest.mark.usefixtures("one_thread")

OVERRIDES = [
    "model.num_encoder_layers=4",
    "model.num_decoder_layers=3",
    "model.encoder_layerdrop=0.4",
    "model.decoder_layerdrop=0.2",
    "model.learns_layerdrop=true",
    "model.head_dropout=0.2",
    "model.head_dropout_schedule=v",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers")
    recipe = load_recipe(str(write_toy_recipe(folder, pairs=120)), OVERRIDES)
    train(recipe, folder / "run")
    return folder / "run"


def pruned(
    run: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[str, object]:
    capsys.readouterr()
    assert main(["prune", str(run), str(out), *options]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.slow
def test_a_pruned_run_trains_on_exports_and_serves(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "half"
    result = pruned(run, out, capsys, "--encoder-layers", "2")
    assert (result["encoder_layers"], result["decoder_layers"]) == ([0, 2], None)
    whole, half = load_trained(run), load_trained(out)
    assert half.recipe.model.num_encoder_layers == 2
    assert half.recipe.model.encoder_layerdrop == 0.0
    assert half.recipe.model.decoder_layerdrop == 0.2
    decoder = whole.model.get_submodule("decoder").state_dict()
    for name, value in half.model.get_submodule("decoder").state_dict().items():
        assert torch.equal(value, decoder[name])
    assert sum(p.numel() for p in half.model.parameters()) == result["parameters"]
    assert main(["prune", str(run), str(out), "--encoder-layers", "2"]) == 1
    assert "--force" in capsys.readouterr().err
    recipe = load_recipe(str(out / "config.yaml"), ["loop.max_steps=6", "optim.warmup_steps=2"])
    assert train(recipe, out).name == "step_00000006"
    export_run(out, tmp_path / "bundle", Form("fp32"))
    assert len(Translator(tmp_path / "bundle").translate(["ein Hund", "das Haus"])) == 2


def test_layers_are_chosen_as_the_method_says(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = pruned(run, tmp_path / "a", capsys, "--keep-encoder", "0,3", "--decoder-layers", "2")
    assert (listed["encoder_layers"], listed["decoder_layers"]) == ([0, 3], [0, 1])
    options = ["--encoder-layers", "3", "--decoder-layers", "2"]
    learnt = pruned(run, tmp_path / "b", capsys, *options, "--method", "learnt")
    weights = load_trained(run).model.state_dict()
    for side, count in (("encoder", 3), ("decoder", 2)):
        best = weights[f"{side}.keep_logits"].argsort(descending=True)[:count]
        assert learnt[f"{side}_layers"] == sorted(best.tolist())
    options = ["--encoder-layers", "3", "--method", "search", "--sentences", "10"]
    searched = pruned(run, tmp_path / "c", capsys, *options)
    assert len(searched["encoder_layers"]) == 3  # type: ignore[arg-type]
    assert searched["decoder_layers"] is None


def test_a_search_finds_the_combination_of_the_lowest_loss(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: dict[tuple[int, ...], float] = {}

    def validate(model: torch.nn.Module, *_: object) -> dict[str, float]:
        weights = model.state_dict()
        whole = load_trained(run).model.state_dict()
        name = "self_attention.in_proj.weight"
        numbers = tuple(
            next(n for n in range(4) if torch.equal(value, whole[f"encoder.{n}.{name}"]))
            for key, value in weights.items()
            if key.startswith("encoder.") and key.endswith(name)
        )
        losses[numbers] = float((numbers[0] - 1) ** 2 + (numbers[1] - 3) ** 2)
        return {"loss": losses[numbers]}

    monkeypatch.setattr("training.derive.pruning.validate", validate)
    options = ["--encoder-layers", "2", "--method", "search"]
    assert pruned(run, tmp_path / "out", capsys, *options)["encoder_layers"] == [1, 3]
    assert len(losses) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--encoder-layers, --decoder-layers, --keep-encoder or --keep-decoder"),
        (["--encoder-layers", "5"], "--encoder-layers must be 1 to 4, got 5"),
        (["--keep-decoder", "0,3"], r"--keep-decoder must name layers of 0 to 2"),
        (["--keep-encoder", "1,0"], "ascending order, got [1, 0]"),
        (["--keep-encoder", "0", "--encoder-layers", "1"], "--keep-encoder and --encoder-layers"),
    ],
)
def test_what_cannot_be_pruned_is_reported(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    assert main(["prune", str(run), str(tmp_path / "out"), *options]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_pruned_into_itself(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(run.rglob("*"))
    for out in (run, run.parent, run / "checkpoints"):
        assert main(["prune", str(run), str(out), "--keep-encoder", "0", "--force"]) == 1
        assert "which is read, and would be deleted" in capsys.readouterr().err
    assert sorted(run.rglob("*")) == before
