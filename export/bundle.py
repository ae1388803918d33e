"""A checkpoint to a bundle: graphs, tokenizer, parity, quality, manifest; whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.activation_ranges import measure_translation_ranges
from export.card import finish
from export.exclusion import keep_exact_translation
from export.figures import translation_figures
from export.folder import check_free, new_folder, tell_origin
from export.graphs import TOKENIZER_FILE, choose_activations, write_graphs
from export.parity import DevSet, check, compare_shortlist, measure
from export.quantize import StaticRange, quantized_twin
from export.shortlist import read_shortlist
from export.texts import TextPair, fitting_sentences, validation_pair
from serving.bundle.manifest import (
    Activations,
    Languages,
    Manifest,
    read_manifest,
    write_manifest,
)
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.ids import EOS_ID
from serving.threads import default_threads
from training.checkpoint import find_checkpoint
from training.models import TranslationModel
from training.run import Trained, load_trained
from training.stepper import TorchStepper

logger = logging.getLogger(__name__)

SEARCH_DEFAULTS = {"beam_size": 5, "length_penalty": 1.0, "eos_in_length": True}


def export_bundle(
    path: Path,
    out: Path,
    *,
    precision: str,
    target: str,
    activations: Activations | None = None,
    shortlist: bool = False,
    priority: int = 0,
    dev: TextPair | None = None,
    tests: tuple[TextPair, ...] = (),
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of a checkpoint.

    int8 is fitted to `dev` (default: the run's validation pairs), the bundle is compared with the
    checkpoint on it, and scored on `tests`. With `shortlist` it can choose from shortlists, for
    which the run's training text is read. Raises ExportError (ParityError) without leaving anything
    behind.
    """
    activations = choose_activations(precision, target, activations)
    check_free(out, force=force)
    # What is wrong with a file should show before the work.
    test_sets = [(test.name, test.read()) for test in tests]
    dev = dev or validation_pair(find_checkpoint(path))
    dev_set = dev.read()
    fitted = fitting_sentences(dev, dev_set) if precision == "int8" else []
    trained = load_trained(path)
    with new_folder(out) as folder:
        arithmetic = _choose_arithmetic(trained, fitted, precision, activations)
        manifest = write_graphs(
            trained.model,
            folder,
            name=out.name,
            precision=precision,
            ranges=arithmetic.ranges,
            exact=arithmetic.exact,
            shortlist=read_shortlist(trained.recipe, trained.tokenizer) if shortlist else None,
        )
        (folder / TOKENIZER_FILE).write_bytes(trained.tokenizer.serialized())
        parity = _compare(trained, arithmetic, folder, manifest, dev_set)
        data = trained.recipe.data
        languages = Languages(source=(data.source_language,), target=(data.target_language,))
        update = {"languages": languages, "search": SEARCH_DEFAULTS, "priority": priority}
        manifest = manifest.model_copy(update={**update, "parity": {"data": dev.name, **parity}})
        manifest = tell_origin(manifest, trained.recipe)
        write_manifest(folder, manifest)
        quality = translation_figures(folder, test_sets) if test_sets else ()
        finish(folder, manifest.model_copy(update={"quality": quality}))
    return read_manifest(out)


@dataclass(frozen=True)
class _Arithmetic:
    """What a precision comes to for one model."""

    twin: TranslationModel
    """Computes in PyTorch what the bundle will; for fp32 it is the checkpoint's own model."""
    ranges: Mapping[bytes, StaticRange] | None
    """Of products with static activations, None where no product has them."""
    exact: frozenset[bytes]
    """Products that stay fp32 in an int8 bundle."""


def _choose_arithmetic(
    trained: Trained, sentences: list[str], precision: str, activations: Activations
) -> _Arithmetic:
    """Quantise a twin and fit it to the sentences."""
    sources = [[*ids, EOS_ID] for ids in trained.tokenizer.encode_batch(sentences)]
    twin = quantized_twin(trained.model) if precision == "int8" else trained.model
    ranges = measure_translation_ranges(twin, sources) if activations == "static" else None
    exact: frozenset[bytes] = frozenset()
    if precision == "int8":
        exact = keep_exact_translation(trained.model, twin, sources)
    return _Arithmetic(twin, ranges, exact)


def _compare(
    trained: Trained, arithmetic: _Arithmetic, folder: Path, manifest: Manifest, dev: DevSet
) -> dict[str, Any]:
    """What the manifest says of parity; raises ParityError where a bundle is not good enough."""
    bundle = OnnxStepper(folder, manifest, default_threads())
    checkpoint, twin = TorchStepper(trained.model), TorchStepper(arithmetic.twin)
    parity = measure(checkpoint, twin, bundle, trained.tokenizer, dev)
    logger.info("parity with the checkpoint: %s", parity.to_dict())
    check(parity, manifest.decoder_kind, manifest.precision)
    found = {**parity.to_dict(), "fp32_products": len(arithmetic.exact)}
    if manifest.shortlist is not None:
        chooser = ShortlistStepper(folder, manifest, default_threads(), encoder=bundle.encoder)
        found["shortlist"] = compare_shortlist(bundle, chooser, trained.tokenizer, dev)
    return found
