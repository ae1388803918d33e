"""Atomic checkpoints: safetensors for tensors, JSON for the rest, one folder per step."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training.errors import BrokenCheckpointError, CheckpointError, StorageError, reason_of

WEIGHTS, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_TRAINED = "trained."


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name in its folder and rename it.

    Raises StorageError on failure; then nothing is left behind.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, ordinary_mode())  # mkstemp makes the file private
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def remove(path: Path) -> None:
    """Remove a file if it exists; raises StorageError if that is not permitted."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> StorageError:
    """The message of a failed write."""
    return StorageError(
        f"{path}: cannot be written: {reason_of(error)}; earlier files are intact: make room or "
        "give access, then run the same command again"
    )


def ordinary_mode(most: int = 0o666) -> int:
    """The permissions of an ordinary new file of this process, or, for 0o777, of a folder."""
    mask = os.umask(0)
    os.umask(mask)
    return most & ~mask


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    averaged: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights, optimiser and random generators, atomically.

    If there are `averaged` weights, they become the checkpoint's weights, which every reader uses;
    the weights in training are stored with the optimiser's tensors.
    """
    with new_folder(folder) as temporary:
        weights = {name: value.contiguous() for name, value in model.state_dict().items()}
        tensors = _optimizer_tensors(optimizer) | generator_states(_device_of(model))
        if averaged is not None:
            tensors |= {_TRAINED + name: value for name, value in weights.items()}
            weights = dict(averaged)
        save_file(weights, temporary / WEIGHTS)
        save_file(tensors, temporary / OPTIMIZER)
        (temporary / STATE).write_text(json.dumps(state, indent=1) + "\n")


def save_weights(folder: Path, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write a checkpoint with only weights and a note of their origin."""
    with new_folder(folder) as temporary:
        save_file(weights, temporary / WEIGHTS)
        (temporary / STATE).write_text(json.dumps(state, indent=1) + "\n")


def load_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    averaged: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Restore weights, optimiser and random generators; returns the saved state.

    `averaged` receives the checkpoint's weights. The model receives the weights in training, which
    are the same unless the run keeps an average.

    Raises BrokenCheckpointError if a file is missing or broken, and CheckpointError if it does not
    fit the model.
    """
    tensors, state = _read_tensors(folder / OPTIMIZER), read_state(folder)
    load_weights(folder, model)
    for name, value in (averaged or {}).items():
        value.copy_(model.state_dict()[name])
    trained = {
        name.removeprefix(_TRAINED): value
        for name, value in tensors.items()
        if name.startswith(_TRAINED)
    }
    if trained:
        load_fitting(folder, trained, model)
    restore_generators(tensors, _device_of(model))
    named = optimizer.state_dict()
    named["state"] = {
        index: {
            key.split(".", 2)[2]: value
            for key, value in tensors.items()
            if key.startswith(f"optimizer.{index}.")
        }
        for index in range(sum(len(g["params"]) for g in named["param_groups"]))
    }
    optimizer.load_state_dict(named)
    return state


def load_weights(folder: Path, model: nn.Module) -> None:
    """Restore only the weights.

    Raises CheckpointError if names or shapes do not fit the model.
    """
    load_fitting(folder, read_weights(folder), model)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint by name; raises BrokenCheckpointError if they are broken."""
    return _read_tensors(folder / WEIGHTS)


def load_fitting(folder: Path, weights: dict[str, Tensor], model: nn.Module) -> None:
    """Load weights, which were read in `folder`, into a model.

    Raises CheckpointError if names or shapes do not fit the model.
    """
    expected = model.state_dict()
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - weights.keys())]
    wrong += [f"{name} is unknown" for name in sorted(weights.keys() - expected.keys())]
    wrong += [
        f"{name} is {list(weights[name].shape)}, the model's is {list(value.shape)}"
        for name, value in expected.items()
        if name in weights and weights[name].shape != value.shape
    ]
    wrong = _wrong_layers(weights.keys(), expected.keys()) + wrong
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(
            f"{folder}: weights do not fit the recipe's model: {'; '.join(wrong[:3])}{more}"
        )
    model.load_state_dict(weights)


def _wrong_layers(found: Iterable[str], expected: Iterable[str]) -> list[str]:
    """The message for a different set of layers, as of a pruned model."""
    layers = [_layers_of(names) for names in (found, expected)]
    return [
        f"{stack} has the layers {_numbers(layers[0].get(stack))}, the model's are "
        f"{_numbers(layers[1].get(stack))} (give the recipe of the run, or prune it again)"
        for stack in sorted({*layers[0], *layers[1]})
        if layers[0].get(stack) != layers[1].get(stack)
    ]


def _layers_of(names: Iterable[str]) -> dict[str, set[int]]:
    """The layer numbers of each stack of a model."""
    layers: dict[str, set[int]] = {}
    for name in names:
        stack, _, rest = name.partition(".")
        number = rest.partition(".")[0]
        if number.isdigit():
            layers.setdefault(stack, set()).add(int(number))
    return layers


def _numbers(layers: set[int] | None) -> str:
    return ", ".join(map(str, sorted(layers or ()))) or "none"


def read_state(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint besides tensors.

    Raises BrokenCheckpointError if it is missing or broken.
    """
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_text())
    except (OSError, ValueError) as error:
        raise BrokenCheckpointError(
            f"{folder / STATE}: cannot be read: {reason_of(error)}"
        ) from error
    if not isinstance(state, dict):
        raise BrokenCheckpointError(f"{folder / STATE}: cannot be read: it holds no JSON object")
    return state


def list_checkpoints(run: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step_*"))


def find_checkpoint(path: Path) -> Path:
    """A checkpoint folder: the path itself, or a run's averaged, best or last checkpoint.

    Raises CheckpointError if there is none.
    """
    if (path / WEIGHTS).is_file():
        return path
    for candidate in (path / "averaged", path / "best", *reversed(list_checkpoints(path))):
        if (candidate / WEIGHTS).is_file():
            return candidate
    message = f"{path}: no checkpoint ({WEIGHTS}); give a run or checkpoint folder"
    if (path / "manifest.json").is_file():
        message = (
            f"{path}: a bundle; make a run of it: `python -m macaron export checkpoint {path} RUN`"
        )
    raise CheckpointError(message)


def average_checkpoints(folders: list[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, summed in fp64.

    Raises CheckpointError for an empty list or checkpoints of different models.
    """
    if not folders:
        raise CheckpointError("averaging needs at least one checkpoint, got none")
    total: dict[str, Tensor] = {}
    for folder in folders:
        weights = _read_tensors(folder / WEIGHTS)
        if total and {k: v.shape for k, v in weights.items()} != {
            k: v.shape for k, v in total.items()
        }:
            raise CheckpointError(f"{folder}: weights differ in name or shape from {folders[0]}")
        for name, value in weights.items():
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(folders)).float() for name, value in total.items()}


def recover_checkpoint(folder: Path) -> None:
    """Restore a checkpoint whose replacement was killed between its two renames."""
    replaced = _replaced(folder)
    if replaced.is_dir() and not folder.exists():
        os.replace(replaced, folder)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` when the block ends without an error.

    Raises StorageError if it cannot be written; then nothing is left behind.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _replace_folder(temporary, folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):
            raise cannot_write(folder, error) from error
        raise


def _replace_folder(temporary: Path, folder: Path) -> None:
    for path in (*temporary.iterdir(), temporary):  # a rename must not overtake the data
        if path.is_file():
            path.chmod(ordinary_mode())  # safetensors makes its files private
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    # A folder that holds files cannot be replaced by one rename, so a kill between the two leaves
    # the old one under another name, from which `recover_checkpoint` restores it.
    shutil.rmtree(_replaced(folder), ignore_errors=True)
    if folder.exists():
        os.replace(folder, _replaced(folder))
    os.replace(temporary, folder)
    shutil.rmtree(_replaced(folder), ignore_errors=True)


def _replaced(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BrokenCheckpointError(f"{path}: cannot be read: {reason_of(error)}") from error


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimizer.{index}.{key}": torch.as_tensor(value).contiguous()
        for index, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
    }


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the random generators of the CPU and of a device, under the names of
    checkpoints."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the states of `generator_states`."""
    torch.set_rng_state(tensors["generator.cpu"])
    if "generator.cuda" in tensors and device.type == "cuda":
        torch.cuda.set_rng_state(tensors["generator.cuda"], device)


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
