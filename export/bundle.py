"""A checkpoint to a bundle: graphs, tokenizer, parity, quality, manifest; whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from export.calibration import calibrate_translation
from export.errors import ExportError
from export.exclusion import keep_exact_translation
from export.folder import commit, new_folder, package_versions
from export.graphs import TOKENIZER_FILE, choose_activations, write_graphs
from export.parity import DevSet, check, compare_shortlist, measure
from export.quantize import quantized_twin
from export.shortlist import read_shortlist
from serving.bundle.manifest import (
    Activations,
    Languages,
    Manifest,
    Quality,
    read_manifest,
    write_manifest,
)
from serving.queue.limits import BatchLimits
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.ids import EOS_ID
from serving.threads import default_threads
from serving.translation.translator import Translator
from training.config import recipe_to_dict
from training.corpus import read_pairs
from training.quality import measure_quality
from training.run import VALIDATION_SOURCE, VALIDATION_TARGET, load_trained
from training.stepper import TorchStepper

logger = logging.getLogger(__name__)

_TEST_CACHE_BYTES = 16 * 2**30
"""A bound that no test sentence reaches: what a search takes is far below what it may take."""
_CALIBRATED_SENTENCES = 64
SEARCH_DEFAULTS = {"beam_size": 5, "length_penalty": 1.0, "eos_in_length": True}


@dataclass(frozen=True)
class TextPair:
    """Two line-aligned files, plain or .gz, under a name."""

    name: str
    source: Path
    reference: Path


def validation_text(checkpoint: Path) -> TextPair | None:
    """The held-out text of the run that a checkpoint folder belongs to, if it kept any."""
    for folder in (checkpoint, checkpoint.parent, checkpoint.parent.parent):
        pair = TextPair("validation", folder / VALIDATION_SOURCE, folder / VALIDATION_TARGET)
        if pair.source.is_file() and pair.reference.is_file():
            return pair
    return None


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

    It is compared with the checkpoint on `dev` (default: the run's validation pairs) and scored on
    `tests`. With `shortlist` it can choose from shortlists, for which the run's training text is
    read. Raises ExportError (ParityError) without leaving anything behind.
    """
    activations = choose_activations(precision, target, activations)
    if out.exists() and not force:
        raise ExportError(f"{out} exists already; give --force to replace it")
    trained = load_trained(path)
    dev = dev or validation_text(trained.checkpoint)
    if dev is None:
        raise ExportError(
            f"{path}: its run holds no validation text to compare on; give --dev SOURCE REFERENCE"
        )
    dev_set = _read(dev)
    with new_folder(out) as folder:
        twin = quantized_twin(trained.model) if precision == "int8" else trained.model
        # The end of the text; its beginning is what the logits are compared on.
        encoded = trained.tokenizer.encode_batch(dev_set.sources[-_CALIBRATED_SENTENCES:])
        sources = [[*ids, EOS_ID] for ids in encoded]
        ranges = calibrate_translation(twin, sources) if activations == "static" else None
        exact: frozenset[bytes] = frozenset()
        if precision == "int8":
            exact = keep_exact_translation(trained.model, twin, sources)
        manifest = write_graphs(
            trained.model,
            folder,
            name=out.name,
            precision=precision,
            ranges=ranges,
            exact=exact,
            shortlist=read_shortlist(trained.recipe, trained.tokenizer) if shortlist else None,
        )
        (folder / TOKENIZER_FILE).write_bytes(trained.tokenizer.serialized())
        bundle = OnnxStepper(folder, manifest, default_threads())
        steppers = (TorchStepper(trained.model), TorchStepper(twin), bundle)
        parity = measure(*steppers, trained.tokenizer, dev_set)
        logger.info("parity on %s: %s", dev.name, parity.to_dict())
        check(parity, manifest.decoder_kind, precision)
        found = {"data": dev.name, **parity.to_dict(), "fp32_products": len(exact)}
        if shortlist:
            chooser = ShortlistStepper(folder, manifest, default_threads(), encoder=bundle.encoder)
            found["shortlist"] = compare_shortlist(bundle, chooser, trained.tokenizer, dev_set)
        recipe = trained.recipe
        manifest = manifest.model_copy(
            update={
                "languages": Languages(
                    source=(recipe.data.source_language,), target=(recipe.data.target_language,)
                ),
                "search": SEARCH_DEFAULTS,
                "parity": found,
                "priority": priority,
                "attribution": recipe.data.attribution,
                "recipe": recipe_to_dict(recipe),
                "versions": package_versions(),
                "commit": commit(),
            }
        )
        write_manifest(folder, manifest)
        if tests:
            limits = BatchLimits(max_cache_bytes=_TEST_CACHE_BYTES)
            translator = Translator(folder, workers=default_threads(), limits=limits)
            quality = [score for test in tests for score in _scores(translator, test)]
            manifest = manifest.model_copy(update={"quality": tuple(quality)})
            write_manifest(folder, manifest)
    return read_manifest(out)


def _scores(translator: Translator, test: TextPair) -> Iterator[Quality]:
    text = _read(test)
    translations = [result.text for result in translator.translate(text.sources)]
    search = translator.default_options
    note = f"{len(translations)} sentences, beam {search.beam_size}"
    quality = measure_quality(translations, text.references)
    for metric, value, signature in (
        ("BLEU", quality.bleu, quality.bleu_signature),
        ("chrF2", quality.chrf, quality.chrf_signature),
    ):
        logger.info("%s: %s %.2f", test.name, metric, value)
        yield Quality(
            data=test.name, metric=metric, value=round(value, 2), signature=signature, note=note
        )


def _read(files: TextPair) -> DevSet:
    pairs = read_pairs(files.source, files.reference)
    return DevSet([source for source, _ in pairs], [reference for _, reference in pairs])
