"""Checkpoints: whole or not at all, restored to the bit, refused where they do not fit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.unit.training.tiny import TINY, randomised
from training.errors import CheckpointError, StorageError
from training.loop.optim import build_optimizer
from training.models import build_network
from training.recipe.config import OptimConfig
from training.runs import checkpoint
from training.runs.checkpoint import (
    OPTIMIZER,
    STATE,
    WEIGHTS,
    average_checkpoints,
    find_checkpoint,
    generator_states,
    list_checkpoints,
    load_checkpoint,
    load_weights,
    read_state,
    recover_checkpoint,
    restore_generators,
    save_checkpoint,
    save_weights,
    write_atomically,
)


def trained(steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    optimizer = build_optimizer(model, OptimConfig(peak_lr=0.1))
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_weights_moments_and_random_numbers_come_back_to_the_bit(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_checkpoint(tmp_path / "one", model, optimizer, {"step": 3})
    step(model, optimizer)
    expected, drawn = model.state_dict(), torch.rand(4)

    torch.manual_seed(99)
    other, other_optimizer = trained(steps=1)
    assert load_checkpoint(tmp_path / "one", other, other_optimizer) == {"step": 3}
    step(other, other_optimizer)  # with the same random input
    for name, value in other.state_dict().items():
        assert torch.equal(value, expected[name]), name
    assert torch.equal(torch.rand(4), drawn)


def test_random_numbers_are_those_of_the_device_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []
    states = {torch.device("cuda", number): torch.tensor([number]) for number in range(2)}

    def state_of(device: torch.device) -> torch.Tensor:
        asked.append(device)
        return states[device]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", state_of)
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device: states.update({device: state})
    )
    model, optimizer = trained()
    save_checkpoint(tmp_path / "one", model, optimizer, {})
    load_checkpoint(tmp_path / "one", model, optimizer)
    assert asked == []  # on the CPU nothing begins to use a GPU
    second = torch.device("cuda", 1)
    found = generator_states(second)
    assert found["generator.cuda"].tolist() == [1]
    states[second] = torch.tensor([9])
    restore_generators(found, second)
    assert [state.tolist() for state in states.values()] == [[0], [1]]


def test_a_checkpoint_before_the_first_step_can_be_resumed(tmp_path: Path) -> None:
    model, optimizer = trained(steps=0)
    save_checkpoint(tmp_path / "zero", model, optimizer, {})
    load_checkpoint(tmp_path / "zero", model, optimizer)
    step(model, optimizer)


@pytest.mark.parametrize("broken", [WEIGHTS, OPTIMIZER])
def test_a_save_that_fails_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    model, optimizer = trained()
    save_checkpoint(tmp_path / "best", model, optimizer, {"step": 1})
    before = load_file(tmp_path / "best" / WEIGHTS)

    def fail(tensors: dict[str, torch.Tensor], path: Path) -> None:
        save_file(tensors, path)
        if path.name == broken:
            raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    step(model, optimizer)
    with pytest.raises(StorageError, match="best: cannot be written: disk full"):
        save_checkpoint(tmp_path / "best", model, optimizer, {"step": 2})
    assert read_state(tmp_path / "best") == {"step": 1}
    assert load_file(tmp_path / "best" / WEIGHTS)["0.weight"].equal(before["0.weight"])
    monkeypatch.undo()
    save_checkpoint(tmp_path / "best", model, optimizer, {"step": 2})
    assert read_state(tmp_path / "best") == {"step": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_kill_between_the_two_renames_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = trained()
    best = tmp_path / "best"
    save_checkpoint(best, model, optimizer, {"step": 1})
    renames = []

    def die(source: Path, target: Path) -> None:
        if renames:
            raise KeyboardInterrupt
        renames.append(Path(source).rename(target))

    monkeypatch.setattr(checkpoint.os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(best, model, optimizer, {"step": 2})
    monkeypatch.undo()
    assert not best.exists()
    recover_checkpoint(best)
    assert read_state(best) == {"step": 1}
    recover_checkpoint(best)  # nothing to do
    recover_checkpoint(tmp_path / "averaged")
    assert [path.name for path in tmp_path.iterdir() if path.name == "averaged"] == []


def test_files_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, b"one")
    monkeypatch.setattr(checkpoint.os, "fsync", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_atomically(path, b"two")
    assert path.read_bytes() == b"one"


def test_weights_of_another_model_are_named(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_checkpoint(tmp_path / "one", model, optimizer, {})
    wider = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    with pytest.raises(CheckpointError, match=r"0\.weight is \[4, 3\], the model's is \[5, 3\]"):
        load_weights(tmp_path / "one", wider)
    with pytest.raises(CheckpointError, match=r"weight is missing.* 0\.bias is unknown"):
        load_weights(tmp_path / "one", nn.Linear(3, 4))
    with pytest.raises(CheckpointError, match="and 3 more"):
        load_weights(tmp_path / "one", nn.Linear(3, 4))


@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER, STATE])
@pytest.mark.parametrize("content", [None, b"", b"not what it should be"])
def test_a_missing_or_broken_file_is_named(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    model, optimizer = trained()
    save_checkpoint(tmp_path / "one", model, optimizer, {})
    (tmp_path / "one" / name).unlink()
    if content is not None:
        (tmp_path / "one" / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        load_checkpoint(tmp_path / "one", model, optimizer)


def weights(folder: Path, **tensors: torch.Tensor) -> Path:
    save_weights(folder, tensors, {"folder": folder.name})
    return folder


def test_the_average_is_the_mean(tmp_path: Path) -> None:
    torch.manual_seed(0)
    values = torch.randn(3, 4, 5) * torch.tensor([1.0, 1e-3, 1e3])[:, None, None]
    folders = [weights(tmp_path / str(n), w=value) for n, value in enumerate(values)]
    mean = average_checkpoints(folders)["w"]
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, values.double().mean(0).float(), rtol=0, atol=0)
    assert torch.equal(average_checkpoints(folders[:1])["w"], values[0])


def test_only_checkpoints_of_one_model_are_averaged(tmp_path: Path) -> None:
    one = weights(tmp_path / "one", w=torch.zeros(2))
    for name, other in (
        ("shape", weights(tmp_path / "two", w=torch.zeros(3))),
        ("name", weights(tmp_path / "three", v=torch.zeros(2))),
    ):
        with pytest.raises(CheckpointError, match="differ in name or shape"):
            average_checkpoints([one, other])
        assert name
    with pytest.raises(CheckpointError, match="at least one"):
        average_checkpoints([])


def test_a_run_offers_its_averaged_then_best_then_last_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        find_checkpoint(tmp_path)
    tensor = torch.zeros(1)
    steps = [weights(tmp_path / "checkpoints" / f"step_{n:08d}", w=tensor) for n in (90, 100, 20)]
    assert list_checkpoints(tmp_path) == [steps[2], steps[0], steps[1]]
    assert find_checkpoint(tmp_path) == steps[1]
    best = weights(tmp_path / "best", w=tensor)
    assert find_checkpoint(tmp_path) == best
    averaged = weights(tmp_path / "averaged", w=tensor)
    assert find_checkpoint(tmp_path) == averaged
    assert find_checkpoint(steps[0]) == steps[0]
    shutil.rmtree(averaged)
    assert find_checkpoint(tmp_path) == best


def test_the_state_is_json_that_keeps_every_bit(tmp_path: Path) -> None:
    state = {"best_loss": 0.1 + 0.2, "window": {"loss": 1 / 3, "labels": 7}}
    model, optimizer = trained()
    save_checkpoint(tmp_path / "one", model, optimizer, state)
    assert json.loads((tmp_path / "one" / STATE).read_text()) == state
    assert load_checkpoint(tmp_path / "one", model, optimizer) == state


def test_weights_of_other_layers_are_distinguished_by_their_numbers(tmp_path: Path) -> None:
    model = randomised(replace(TINY, num_encoder_layers=4))
    weights = {n: v for n, v in model.state_dict().items() if not n.startswith("encoder.1.")}
    save_weights(tmp_path / "some", weights, {})
    with pytest.raises(CheckpointError, match=r"encoder has the layers 0, 2, 3, the model's are 0"):
        load_weights(tmp_path / "some", build_network(model.config))
    with pytest.raises(CheckpointError, match=r"decoder has the layers 0, 1, the .* encoder has"):
        load_weights(
            tmp_path / "some",
            build_network(replace(model.config, num_encoder_layers=2, num_decoder_layers=1)),
        )
