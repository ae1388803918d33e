"""Makes a checkpoint from a bundle of this project, with whose weights training can start.

The bundle does not record which constant of its graphs holds which parameter. So a model of the
same sizes with random parameters is exported, and each parameter is searched for in these graphs:
unchanged, transposed, or multiplied by a factor that was folded into it. The bundle's graphs use
constants of a shape in the same order, whatever their names: names come from PyTorch's exporter and
change with it. Earlier versions folded fewer factors than this one. So the weights are read with
and without each factor: those that come nearest count, and they must compute the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

from export.bundles.folder import check_apart, check_free, new_folder
from export.comparison.encoder import read_all
from export.comparison.language import step_logits, window_logits
from export.comparison.translation import search_all, total_log_probs
from export.errors import ExportError
from export.graphs.writing import write_graphs, write_language_graphs, write_text_graph
from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.runtime.language_stepper import LanguageStepper
from serving.runtime.text_encoder import TextEncoder
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from serving.threads import default_threads
from training.decoding.stepper import TorchStepper
from training.errors import ConfigError
from training.models import (
    CausalLanguageModel,
    TextModel,
    TranslationModel,
    build_trainable,
)
from training.recipe.config import VOCABULARIES, Recipe, recipe_from_dict, recipe_to_dict
from training.results.perplexity import Window
from training.runs.checkpoint import save_weights

_Model = TranslationModel | CausalLanguageModel | TextModel

_MOST_FACTORS = 3
"""Largest number of factors of one constant: queries, keys and values may each have their own."""
_FEW = 2 * _MOST_FACTORS
_EQUAL = 1e-4
"""Relative tolerance; a product of two fp32 numbers is far more accurate."""
_MOST_APART = 0.1
"""Largest distance between the outputs of a bundle and those of the weights recovered from it: nats
of a mean log-probability, or for vectors a share of their size. int8 causes up to 0.04; one factor
too many or too few caused 0.36 and more."""
_CHECKED, _LENGTH = 8, 12
"""Texts of random ids on which both are compared, and the ids of each."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    """Place of a parameter in a bundle's graphs."""

    file: str
    shape: Shape
    index: int
    """The number of the constant among those of its shape, in the order in which the graph uses
    them."""
    of: int
    """The number of constants of that shape in the graph."""
    transposed: bool
    factor: Floats
    """Factor of the stored values: one number, or one for each column."""


def recover_checkpoint(bundle: Path, out: Path, *, force: bool = False) -> Recipe:
    """Write the weights of a bundle, with its recipe and vocabulary, as a run folder `out`.

    For an int8 bundle these are the values that it computes with: levels times scales. Returns the
    recipe. Raises ExportError, and leaves nothing behind, if the bundle was not made from a run of
    this project, is for a GPU, or has weights that are not found or compute something else.
    """
    check_apart(out, [bundle])
    manifest = read_manifest(bundle)
    recipe = _recipe(bundle, manifest)
    check_free(out, force=force)
    network = build_trainable(recipe.model)
    assert isinstance(network, _Model)
    _draw(network)
    weights = _weights(bundle, manifest, network.eval())
    vocabulary = (bundle / manifest.tokenizer.source_file).read_bytes()
    with new_folder(out) as folder:
        origin = {"recovered_from": manifest.name, "recipe": recipe_to_dict(recipe)}
        save_weights(folder / "best", weights, origin)
        (folder / VOCABULARIES[recipe.tokenizer.kind]).write_bytes(vocabulary)
    return recipe


def _recipe(bundle: Path, manifest: Manifest) -> Recipe:
    if manifest.target != "cpu":
        raise ExportError(
            f"{bundle}: weights are recovered from bundles with target 'cpu', got "
            f"{manifest.target!r}; give the bundle for the CPU"
        )
    if "model" not in manifest.recipe:
        raise ExportError(
            f"{bundle}: its manifest has no recipe of this project; an imported model's "
            "weights are in its source"
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


def _weights(bundle: Path, manifest: Manifest, network: _Model) -> dict[str, Tensor]:
    """The weights that come nearest to what the bundle computes. Raises ExportError if these
    compute something else."""
    places, rest = _places(bundle, manifest, network), dict(network.state_dict())
    distance, nearest, found = _distance(bundle, manifest, network), np.inf, rest
    for missing in _choices(places):
        weights = rest | _read(bundle, _without(places, missing))
        network.load_state_dict(weights)
        apart = distance()
        if apart < nearest:
            nearest, found = apart, weights
    if nearest > _MOST_APART:
        raise _other_version(
            bundle, f"the weights that are found are {nearest:.2g} off what it gives"
        )
    return found


def _choices(places: dict[str, list[_Place]]) -> Iterator[tuple[float, ...]]:
    """Factors that a bundle may lack: none, each alone, two at a time, and so on."""
    factors = {
        size
        for found in places.values()
        for place in found
        for size in np.unique(_sizes(place)).tolist()
        if size != 1.0
    }
    for count in range(len(factors) + 1):
        yield from itertools.combinations(sorted(factors), count)


def _sizes(place: _Place) -> Floats:
    """The magnitudes of a place's factors, rounded so that equal ones can be told."""
    sizes: Floats = np.abs(place.factor).round(3)
    return sizes


def _without(
    places: dict[str, list[_Place]], missing: tuple[float, ...]
) -> dict[str, list[_Place]]:
    """The same places with 1 for each of these factors."""

    def kept(place: _Place) -> Floats:
        absent = np.isin(_sizes(place), np.array(missing, np.float32))
        return np.where(absent, np.sign(place.factor), place.factor)

    return {
        name: [dataclasses.replace(place, factor=kept(place)) for place in found]
        for name, found in places.items()
    }


def _places(bundle: Path, manifest: Manifest, network: _Model) -> dict[str, list[_Place]]:
    """The places of each parameter; raises ExportError if a parameter has none.

    A table of vectors shared by input and output pieces has two places in fp32, and one of them in
    an int8 bundle.
    """
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder)
        if isinstance(network, TextModel):
            labels = manifest.reading.labels if manifest.reading is not None else ()
            written = write_text_graph(
                network, drawn, name="drawn", precision="fp32", max_length=1, labels=labels
            )
        elif isinstance(network, CausalLanguageModel):
            written = write_language_graphs(network, drawn, name="drawn", precision="fp32")
        else:
            written = write_graphs(network, drawn, name="drawn", precision="fp32")
        files = [graph.file for graph in (written.encoder, written.step) if graph is not None]
        constants = {file: _constants_by_use(drawn / file) for file in files}
        found = {}
        for name, parameter in network.named_parameters():
            value = parameter.detach().numpy()
            places = list(_find(value, constants))
            if not places:
                raise ExportError(
                    f"{bundle}: its graphs do not hold {name} as it was trained; begin with the "
                    "run that it was made from"
                )
            found[name] = places
    return found


def _constants_by_use(file: Path) -> dict[Shape, list[Floats]]:
    """The fp32 constants of a graph, and the int8 ones with their scales, by shape, in the order in
    which the graph uses them. Files that the graph shares are read too."""
    graph = onnx.load(file).graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    found: dict[Shape, list[Floats]] = {}
    for name in dict.fromkeys(name for node in graph.node for name in node.input):
        value = constants.get(name)
        if value is None or name.endswith("_scale"):
            continue
        if value.dtype == np.int8:
            value = value * constants[f"{name.removesuffix('_s8')}_scale"]
        if value.dtype == np.float32:
            found.setdefault(value.shape, []).append(value)
    return found


def _find(value: Floats, graphs: dict[str, dict[Shape, list[Floats]]]) -> Iterator[_Place]:
    for file, shapes in graphs.items():
        for transposed in (False, True) if value.ndim == 2 else (False,):
            wanted = value.T if transposed else value
            constants = shapes.get(wanted.shape, [])
            for index, constant in enumerate(constants):
                factor = _factor(constant, wanted)
                if factor is not None:
                    yield _Place(file, wanted.shape, index, len(constants), transposed, factor)


def _factor(constant: Floats, value: Floats) -> Floats | None:
    """The factor of `value` in a constant of its shape; None if the constant is another
    parameter."""
    factor = constant[:1] / value[:1] if value.ndim == 2 else constant / value
    if value.size <= _FEW:  # with so few values, any other numbers would be multiples of them
        return np.ones_like(constant) if np.array_equal(constant, value) else None
    if len(np.unique(np.round(np.log(np.abs(factor)), 3))) > _MOST_FACTORS:
        return None
    return factor if np.allclose(value * factor, constant, rtol=_EQUAL, atol=0.0) else None


def _read(bundle: Path, places: dict[str, list[_Place]]) -> dict[str, Tensor]:
    """The parameters with the values in a bundle's graphs."""
    files = {place.file for found in places.values() for place in found}
    graphs = {file: _constants_by_use(bundle / file) for file in files}
    return {name: _value(bundle, graphs, name, found) for name, found in places.items()}


def _value(
    bundle: Path, graphs: dict[str, dict[Shape, list[Floats]]], name: str, places: list[_Place]
) -> Tensor:
    """A parameter, read from the first of its places in whose shape the bundle has the same number
    of constants."""
    for place in places:
        constants = graphs[place.file].get(place.shape, [])
        if len(constants) == place.of:
            value = (constants[place.index] / place.factor).astype(np.float32)
            return torch.from_numpy(np.ascontiguousarray(value.T if place.transposed else value))
    raise _other_version(bundle, f"its graphs have other constants in place of {name}")


def _distance(bundle: Path, manifest: Manifest, network: _Model) -> Callable[[], float]:
    """A function for how far the outputs of a network are from those of its bundle, which is run
    once."""
    ids = np.random.default_rng(0).integers(4, network.config.vocab_size, (_CHECKED, _LENGTH))
    if isinstance(network, TextModel):
        return _encoder_distance(bundle, manifest, network, ids)
    if isinstance(network, CausalLanguageModel):
        return _language_model_distance(bundle, manifest, network, ids)
    return _translator_distance(bundle, manifest, network, ids)


def _encoder_distance(
    bundle: Path, manifest: Manifest, network: TextModel, ids: NDArray[np.int64]
) -> Callable[[], float]:
    texts = [EncodedText(tuple(row), (0,) * _LENGTH) for row in ids.tolist()]
    found = TextEncoder(bundle, manifest, default_threads()).run(texts)
    return lambda: float(np.abs(found - read_all(network, texts)).mean() / np.abs(found).mean())


def _language_model_distance(
    bundle: Path, manifest: Manifest, network: CausalLanguageModel, ids: NDArray[np.int64]
) -> Callable[[], float]:
    window = Window(ids.reshape(-1).astype(np.int32), 1)
    stepper = LanguageStepper(bundle, manifest, default_threads())
    found_TV = np.concatenate([each_1V.copy() for each_1V in step_logits(stepper, [window])])

    def apart() -> float:
        both = [found_TV, window_logits(network, window)]
        first_TV, second_TV = (torch.from_numpy(each).log_softmax(-1) for each in both)
        return float((first_TV - second_TV).abs().mean())

    return apart


def _translator_distance(
    bundle: Path, manifest: Manifest, network: TranslationModel, ids: NDArray[np.int64]
) -> Callable[[], float]:
    options = SearchOptions(max_length=_LENGTH, loop_guard=False)
    sentences = [Sentence([*row, EOS_ID], options) for row in ids.tolist()]
    stepper = OnnxStepper(bundle, manifest, default_threads())
    outputs = search_all(stepper, sentences)
    total = total_log_probs(stepper, sentences, outputs)
    tokens = sum(len(output) + 1 for output in outputs)

    def apart() -> float:
        other = total_log_probs(TorchStepper(network), sentences, outputs)
        return float(np.abs(total - other).sum() / tokens)

    return apart


def _other_version(bundle: Path, what: str) -> ExportError:
    return ExportError(
        f"{bundle}: {what}, so another version of this program made it; use that version, or begin "
        "with the run that it was made from"
    )
