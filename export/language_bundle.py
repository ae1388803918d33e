"""A language model's checkpoint to a bundle: graph, vocabulary, parity, perplexity, manifest."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from export.activation_ranges import measure_language_ranges
from export.card import finish
from export.exclusion import keep_exact_language
from export.figures import language_figure
from export.folder import check_free, new_folder, tell_origin
from export.graphs import choose_activations, write_language_graphs
from export.language_parity import check_language, measure_language
from export.quantize import quantized_twin
from export.texts import Text, compared_windows, fitting_windows, validation_text
from serving.bundle.manifest import (
    Activations,
    Manifest,
    TokenizerFiles,
    read_manifest,
)
from serving.runtime.language_stepper import LanguageStepper
from serving.threads import default_threads
from training.run import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    TrainedLanguageModel,
    load_language_model,
)

logger = logging.getLogger(__name__)

GENERATION_DEFAULTS = {"max_length": 64, "temperature": 1.0}


def export_language_bundle(
    path: Path,
    out: Path,
    *,
    precision: str,
    target: str,
    activations: Activations | None = None,
    priority: int = 0,
    text: Text | None = None,
    tests: tuple[Text, ...] = (),
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of a language model's checkpoint.

    int8 is fitted to `text` (default: the run's validation text), the bundle is compared with the
    checkpoint on it, and its rolling perplexity is measured on `tests`. Raises ExportError
    (ParityError) without leaving anything behind.
    """
    activations = choose_activations(precision, target, activations)
    check_free(out, force=force)
    trained = load_language_model(path)
    text = text or validation_text(trained.checkpoint)
    # What is wrong with a file should show before the work.
    read = [(test, test.read(trained.recipe.data)) for test in tests]
    windows = compared_windows(trained, text)
    int8 = precision == "int8"
    fitted = fitting_windows(text, windows) if int8 else []
    with new_folder(out) as folder:
        twin = quantized_twin(trained.model) if int8 else trained.model
        ranges = measure_language_ranges(twin, fitted) if activations == "static" else None
        exact = keep_exact_language(trained.model, twin, fitted) if int8 else frozenset()
        manifest = write_language_graphs(
            trained.model, folder, name=out.name, precision=precision, ranges=ranges, exact=exact
        )
        tokenizer = _write_vocabulary(trained, folder)
        stepper = LanguageStepper(folder, manifest, default_threads())
        parity = measure_language(trained.model, twin, stepper, windows)
        logger.info("parity on %s: %s", text.file.name, parity)
        check_language(parity, precision)
        found = {k: float(f"{v:.5g}") for k, v in dataclasses.asdict(parity).items()}
        quality = tuple(language_figure(trained, stepper, *test) for test in read)
        manifest = manifest.model_copy(
            update={
                "tokenizer": tokenizer,
                "search": GENERATION_DEFAULTS,
                "parity": {"data": text.file.name, **found, "fp32_products": len(exact)},
                "quality": quality,
                "priority": priority,
            }
        )
        finish(folder, tell_origin(manifest, trained.recipe))
    return read_manifest(out)


def _write_vocabulary(trained: TrainedLanguageModel, folder: Path) -> TokenizerFiles:
    """Write the list of words or the SentencePiece model; returns the manifest's part on it."""
    words = trained.recipe.tokenizer.kind == "words"
    file = VOCABULARY_FILE if words else TOKENIZER_FILE
    (folder / file).write_bytes(trained.tokenizer.serialized())
    return TokenizerFiles(
        kind="words" if words else "sentencepiece", source_file=file, target_file=file
    )
