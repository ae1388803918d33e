"""Makes a checkpoint of one's own bundle: weights that training can start from.

The bundle does not record which constant of its graphs holds which parameter. It is found by
exporting a model of the same sizes with random parameters, and searching for each parameter in
these graphs: as it is, transposed, or times a factor that was folded into it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from export.bundles.folder import check_apart, check_free, new_folder
from export.errors import ExportError
from export.graphs.writing import write_graphs, write_language_graphs
from serving.arrays import Floats
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from training.errors import ConfigError
from training.models import (
    CausalLanguageModel,
    TranslationModel,
    build_network,
)
from training.recipe.config import VOCABULARIES, Recipe, recipe_from_dict, recipe_to_dict
from training.runs.checkpoint import save_weights

_Model = TranslationModel | CausalLanguageModel

_MOST_FACTORS = 3
"""Most factors of one constant: queries, keys and values may each have their own."""
_FEW = 2 * _MOST_FACTORS
_EQUAL = 1e-4
"""Relative tolerance; a product of two fp32 numbers is far more accurate."""


@dataclass(frozen=True)
class _Place:
    """Place of a parameter in a bundle's graphs."""

    file: str
    name: str
    transposed: bool
    factor: Floats
    """Factor of the stored values: one number, or one for each column."""


def recover_checkpoint(bundle: Path, out: Path, *, force: bool = False) -> Recipe:
    """Write the weights of a bundle, with its recipe and vocabulary, as a run folder `out`.

    For an int8 bundle these are the values that it computes with: levels times scales. Returns the
    recipe. Raises ExportError, and leaves nothing behind, if the bundle was not made from a run of
    this project, is for a GPU, or has weights that are not found.
    """
    check_apart(out, [bundle])
    manifest = read_manifest(bundle)
    recipe = _recipe(bundle, manifest)
    check_free(out, force=force)
    network = build_network(recipe.model)
    assert isinstance(network, TranslationModel | CausalLanguageModel)
    _draw(network)
    weights = network.state_dict() | _read(bundle, _places(bundle, network))
    vocabulary = (bundle / manifest.tokenizer.source_file).read_bytes()
    with new_folder(out) as folder:
        origin = {"recovered_from": manifest.name, "recipe": recipe_to_dict(recipe)}
        save_weights(folder / "best", weights, origin)
        (folder / VOCABULARIES[recipe.tokenizer.kind]).write_bytes(vocabulary)
    return recipe


def _recipe(bundle: Path, manifest: Manifest) -> Recipe:
    if manifest.task not in ("translate", "generate"):
        raise ExportError(
            f"{bundle}: the weights of a model of task {manifest.task!r} cannot be taken back; "
            "begin with the run that it was made of"
        )
    if manifest.target != "cpu":
        raise ExportError(
            f"{bundle}: weights are taken back from bundles with target 'cpu', got "
            f"{manifest.target!r}; give the bundle for the CPU"
        )
    if "model" not in manifest.recipe:
        raise ExportError(
            f"{bundle}: its manifest has no recipe of ours; an imported model's weights are in its "
            "source"
        )
    try:
        return recipe_from_dict(manifest.recipe)
    except ConfigError as error:
        raise ExportError(f"{bundle}: its recipe cannot be read: {error}") from error


def _draw(network: _Model) -> None:
    """Give each parameter unique values."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            drawn = torch.rand(parameter.shape, generator=generator) + 0.5
            signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
            parameter.copy_(drawn * signs)


def _places(bundle: Path, network: _Model) -> dict[str, _Place]:
    """The place of each parameter; raises ExportError if one is not found."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder)
        if isinstance(network, CausalLanguageModel):
            written = write_language_graphs(network, drawn, name="drawn", precision="fp32")
        else:
            written = write_graphs(network, drawn, name="drawn", precision="fp32")
        files = [graph.file for graph in (written.encoder, written.step) if graph is not None]
        constants = {file: _constants(drawn / file) for file in files}
        found = {}
        for name, parameter in network.named_parameters():
            value = parameter.detach().numpy()
            place = next(_find(value, constants), None)
            if place is None:
                raise ExportError(
                    f"{bundle}: its graphs do not hold {name} as it was trained; begin with the "
                    "run that it was made of"
                )
            found[name] = place
    return found


def _constants(file: Path) -> dict[str, Floats]:
    """The constants of a graph by name, including those in shared files."""
    graph = onnx.load(file).graph
    return {each.name: numpy_helper.to_array(each) for each in graph.initializer}


def _find(value: Floats, constants: dict[str, dict[str, Floats]]) -> Iterator[_Place]:
    for file, named in constants.items():
        for name, constant in named.items():
            for transposed in (False, True) if value.ndim == 2 else (False,):
                factor = _factor(constant, value.T if transposed else value)
                if factor is not None:
                    yield _Place(file, name, transposed, factor)


def _factor(constant: Floats, value: Floats) -> Floats | None:
    """The factor of `value` in a constant; None if the constant is another parameter."""
    if constant.shape != value.shape or constant.dtype != np.float32:
        return None
    factor = constant[:1] / value[:1] if value.ndim == 2 else constant / value
    if value.size <= _FEW:  # with so few values, any other numbers would be multiples of them
        return np.ones_like(constant) if np.array_equal(constant, value) else None
    if len(np.unique(np.round(np.log(np.abs(factor)), 3))) > _MOST_FACTORS:
        return None
    return factor if np.allclose(value * factor, constant, rtol=_EQUAL, atol=0.0) else None


def _read(bundle: Path, places: dict[str, _Place]) -> dict[str, Tensor]:
    """The parameters with the values in a bundle's graphs."""
    graphs = {file: _constants(bundle / file) for file in {p.file for p in places.values()}}
    return {
        name: torch.from_numpy(_value(bundle, graphs[place.file], place))
        for name, place in places.items()
    }


def _value(bundle: Path, constants: dict[str, Floats], place: _Place) -> Floats:
    name = place.name
    if name in constants:
        scaled = constants[name]
    elif f"{name}_s8" in constants:
        scaled = constants[f"{name}_s8"] * constants[f"{name}_scale"]
    else:
        raise ExportError(
            f"{bundle / place.file}: has no {name}, so another version of this program made it; "
            "use that version, or begin with the run that it was made of"
        )
    value = (scaled / place.factor).astype(np.float32)
    return np.ascontiguousarray(value.T if place.transposed else value)
