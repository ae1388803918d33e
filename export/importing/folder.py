"""Reads a folder of Hugging Face `transformers`: options, tensors and other files, all as data.
Errors name the file and the entry."""

from __future__ import annotations

import json
import pickle
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from export.errors import ExportError
from export.importing.pointers import refuse_pointer

CONFIG = "config.json"
_SAFETENSORS, _PICKLED = "model.safetensors", "pytorch_model.bin"
_WHOLE = (_SAFETENSORS, _PICKLED)
WEIGHTS = (*_WHOLE, *(f"{name}.index.json" for name in _WHOLE))
"""Files that hold the weights, or list the files that do; a folder has one."""
_OTHERS = (".h5", ".msgpack", ".ot", ".onnx", ".ckpt", ".gguf", ".gz", ".zip")
"""Endings of weights that are quantised or packed."""
MOST = 2**24
"""Largest size or number that an option may give, far more than any model has."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises ExportError if it holds no object."""
    tree = _read_value(path)
    if not isinstance(tree, dict):
        raise ExportError(f"{path}: must be a JSON object, got {type(tree).__name__}")
    return tree


def read_optional(path: Path) -> dict[str, Any]:
    """The object in an optional JSON file; raises ExportError if it is not an object."""
    return read_json(path) if path.exists() else {}


def read_objects(path: Path) -> list[dict[str, Any]]:
    """The list of objects in a JSON file; raises ExportError for anything else."""
    trees = _read_value(path)
    if not isinstance(trees, list) or not all(isinstance(tree, dict) for tree in trees):
        raise ExportError(f"{path}: must be a list of JSON objects")
    return trees


def _read_value(path: Path) -> Any:
    refuse_pointer(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path}: not valid JSON: {error}") from error


def integer_of(where: str, value: object, *, least: int = 0, most: int = MOST) -> int:
    """The value of an option, which `where` names, as an integer in this range; raises ExportError
    for another kind of value, and for one out of range."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    above = isinstance(value, int) and value > most
    bounds = f"from {least} to {most}" if above else f">= {least}"
    raise ExportError(f"{where} must be an integer {bounds}, got {reprlib.repr(value)}")


def number_of(where: str, value: object, *, above: float | None = None) -> float:
    """The value of an option, which `where` names, as a finite number; raises ExportError for
    another kind of value, and for one that is not greater than `above`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        finite = abs(value) <= sys.float_info.max
        if finite and (above is None or value > above):
            return float(value)
    bound = "" if above is None else f" > {above:g}"
    raise ExportError(f"{where} must be a finite number{bound}, got {reprlib.repr(value)}")


def has_config(source: Path) -> bool:
    """Whether a folder has a `config.json`, which excludes other toolkits."""
    return (source / CONFIG).is_file()


class Options:
    """The options of a `config.json`. Options that were not read are an error at the end, because
    an unknown one may change what the model computes."""

    def __init__(self, path: Path, tree: dict[str, Any]) -> None:
        self.path, self._tree = path, tree
        self._seen: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an option; the default if it is missing or null."""
        self._seen.add(name)
        value = self._tree.get(name)
        return default if value is None else value

    def given(self, name: str, default: Any) -> Any:
        """The value of an option, which may be null; the default if it is missing."""
        self._seen.add(name)
        return self._tree.get(name, default)

    def integer(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = MOST
    ) -> int:
        """The value of an option that must be an integer in this range; the default if it is
        missing or null. Without a default it must be there."""
        return integer_of(f"{self.path}: {name}", self.get(name, default), least=least, most=most)

    def integer_or_none(
        self, name: str, default: int | None, *, least: int = 0, most: int = MOST
    ) -> int | None:
        """Likewise for an option whose null stands for something of its own."""
        if self.given(name, default) is None:
            return None
        return self.integer(name, default, least=least, most=most)

    def number(
        self, name: str, default: float | None = None, *, above: float | None = None
    ) -> float:
        """The value of an option that must be a finite number, greater than `above`; the default if
        it is missing or null. Without a default it must be there."""
        return number_of(f"{self.path}: {name}", self.get(name, default), above=above)

    def flag(self, name: str, default: bool) -> bool:
        """The value of an option that must be true or false; the default if it is missing or
        null."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise ExportError(
                f"{self.path}: {name} must be true or false, got {reprlib.repr(value)}"
            )
        return value

    def need(self, name: str, kind: type) -> Any:
        """The value of a required option of a type."""
        value = self.get(name)
        if type(value) is not kind:
            raise ExportError(
                f"{self.path}: {name} must be of the type {kind.__name__}, got "
                f"{'nothing' if value is None else type(value).__name__}"
            )
        return value

    def equal(self, *names: str) -> int:
        """The value of options that must be one equal integer in this project's models."""
        values = [self.integer(name) for name in names]
        if len(set(values)) > 1:
            raise ExportError(
                f"{self.path}: {' and '.join(names)} must be equal, got {values}; encoders and "
                "decoders of different sizes are not supported"
            )
        return values[0]

    def must(self, name: str, *supported: Any, default: Any = None) -> Any:
        """The value of an option that must be one of these."""
        value = self.get(name, default)
        if value not in supported:
            listed = " or ".join(map(repr, supported))
            raise ExportError(
                f"{self.path}: {name} {value!r} is not supported; it must be {listed}"
            )
        return value

    def must_be(self, value: object, *names: str) -> None:
        """Check that options have this value or are missing."""
        for name in names:
            self.must(name, value, default=value)

    def finish(self, harmless: Iterable[str]) -> None:
        """Raise ExportError for an option that was not read and is not `harmless`."""
        for name in sorted(self._tree.keys() - self._seen - set(harmless)):
            if not name.startswith("_"):
                raise ExportError(
                    f"{self.path}: the option {name!r} ({self._tree[name]!r}) is not known; "
                    f"supported: {', '.join(sorted(self._seen))}"
                )


def find_pair(
    places: Iterable[Path], pair: tuple[str, str], shared: Sequence[str]
) -> tuple[Path, Path] | None:
    """The files of source and target by name, or one file for both by one of the `shared` names, in
    the first folder that has them; None if no folder does."""
    for place in places:
        own = (place / pair[0], place / pair[1])
        if all(path.is_file() for path in own):
            return own
        for name in shared:
            if (place / name).is_file():
                return place / name, place / name
    return None


class Weights:
    """The tensors of a checkpoint by name; each must be taken once."""

    def __init__(self, path: Path, tensors: dict[str, Tensor], described_by: str = CONFIG) -> None:
        """`described_by` names the file whose options decide which tensors exist."""
        self.path, self._tensors, self._described_by = path, tensors, described_by

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an existing tensor."""
        return tuple(self._tensors[name].shape)

    def same(self, name: str, other: str) -> bool:
        """Whether two optional tensors both exist and are equal."""
        pair = self._tensors.get(name), self._tensors.get(other)
        return pair[0] is not None and pair[1] is not None and torch.equal(pair[0], pair[1])

    def renamed(self, name: Callable[[str], str | None]) -> Weights:
        """The same tensors under other names; those whose name becomes None are left out."""
        named = {name(old): tensor for old, tensor in self._tensors.items()}
        kept = {new: tensor for new, tensor in named.items() if new is not None}
        return Weights(self.path, kept, self._described_by)

    def check(self, name: str, *shape: int) -> None:
        """Raise ExportError if a tensor is missing or has another shape."""
        found = self._tensors.get(name)
        if found is None:
            raise ExportError(f"{self.path}: the tensor {name!r} is missing")
        if tuple(found.shape) != shape:
            raise ExportError(
                f"{self.path}: {name!r} must be {list(shape)} by {self._described_by}, "
                f"got {list(found.shape)}"
            )

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor of that shape in fp32; raises ExportError if it is missing or differs, or if one
        of its numbers is NaN or infinite."""
        self.check(name, *shape)
        found = self._tensors.pop(name)
        if not found.is_floating_point():
            raise ExportError(f"{self.path}: {name!r} must hold floats, got {found.dtype}")
        value = found.float()
        if value.numel() and not all(bool(each.isfinite()) for each in value.aminmax()):
            count = int((~value.isfinite()).sum())
            raise ExportError(
                f"{self.path}: {name!r} must hold finite numbers, but {count} of {value.numel()} "
                "are NaN or infinite; its training failed, or the file is damaged: take another "
                "checkpoint"
            )
        return value

    def take_one(self, names: Sequence[str], *shape: int) -> Tensor:
        """The one tensor that has several names; one of them is enough."""
        present = [name for name in names if name in self] or list(names[:1])
        first, *others = [self.take(name, *shape) for name in present]
        for name, other in zip(present[1:], others, strict=True):
            if not torch.equal(first, other):
                raise ExportError(
                    f"{self.path}: {name!r} differs from {present[0]!r}; by {self._described_by} "
                    "they share one matrix"
                )
        return first

    def drop(self, name: str) -> Tensor | None:
        """Take a tensor, if present, that the model computes here."""
        return self._tensors.pop(name, None)

    def finish(self) -> None:
        """Raise ExportError for a tensor that was not taken: an unknown layer."""
        for name, tensor in sorted(self._tensors.items()):
            raise ExportError(
                f"{self.path}: the layer {name!r} {list(tensor.shape)} is not known to this family "
                f"({len(self._tensors)} such tensors); {self._described_by} names the layers that "
                "are supported"
            )


def read_weights(folder: Path) -> Weights:
    """All tensors of a folder; raises ExportError if there are none, or if a file is damaged or
    holds anything but tensors. Nothing in it is ever executed."""
    for name in _WHOLE:
        if (folder / name).is_file():
            return Weights(folder / name, _read_file(folder / name))
        index = folder / f"{name}.index.json"
        if index.is_file():
            return Weights(index, _read_shards(index))
    for name in _WHOLE:
        shards = sorted(folder.glob(f"{Path(name).stem}-*-of-*{Path(name).suffix}"))
        if shards:
            raise ExportError(
                f"{folder / name}.index.json: is missing, which says what each of the "
                f"{len(shards)} files {shards[0].name}, ... holds; take it from where they come "
                "from"
            )
    others = sorted(path.name for path in folder.iterdir() if path.suffix in _OTHERS)
    hint = f", but {', '.join(others)}, in a form that is not read" if others else ""
    raise ExportError(
        f"{folder}: has no weights, neither {_SAFETENSORS} nor {_PICKLED}{hint}; put one of them "
        "beside the config.json, unpacked"
    )


def _read_shards(index: Path) -> dict[str, Tensor]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict):
        raise ExportError(f"{index}: weight_map must say which file holds each tensor")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(map(str, names.values()))):
        if file != Path(file).name:
            raise ExportError(f"{index}: weight_map names {file!r}, which is not a file beside it")
        if not (index.parent / file).is_file():
            raise ExportError(
                f"{index.parent / file}: is missing, a part of the weights by {index.name}; "
                "download it as well"
            )
        tensors |= _read_file(index.parent / file)
    return tensors


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        refuse_pointer(path)
        try:
            tensors: Any = load_file(path)
        except (OSError, ValueError, SafetensorError) as error:
            raise _cut_off(path, error) from error
    else:
        tensors = read_pickled(path, "save the weights as safetensors")
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise ExportError(f"{path}: must hold only tensors by name")
    return tensors


def read_pickled(path: Path, advice: str, *, allowed: Sequence[type] = ()) -> Any:
    """Reads a file of `torch.save`: tensors, numbers, texts, their lists, and objects of the
    `allowed` types, which must be without code. Raises ExportError, with the advice, for anything
    else, which is never executed."""
    refuse_pointer(path)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(list(allowed)):
            warnings.simplefilter("ignore")  # of forms of pickles, which are refused or read
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ExportError(
            f"{path}: damaged, or holds more than tensors, which would be executed and never is; "
            f"{advice}"
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise _cut_off(path, error) from error


def _cut_off(path: Path, error: Exception) -> ExportError:
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return ExportError(f"{path}: cannot be read, it may be cut off: {reason}")


def has_checkpoint_file(source: Path) -> bool:
    """Whether the source is a `.pt`, or a folder with exactly one and no `config.json`."""
    return not has_config(source) and _find_checkpoint_file(source) is not None


def checkpoint_file(source: Path) -> Path:
    """The `.pt` at the source, or the only one in it; raises ExportError if there is none."""
    found = _find_checkpoint_file(source)
    if found is None:
        raise ExportError(f"{source}: must be a checkpoint (.pt), or a folder that holds one")
    return found


def _find_checkpoint_file(source: Path) -> Path | None:
    if source.is_dir():
        files = sorted(source.glob("*.pt"))
        return files[0] if len(files) == 1 else None
    return source if source.suffix == ".pt" and source.is_file() else None
