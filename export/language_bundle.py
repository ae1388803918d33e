"""A language model's checkpoint to a bundle: graph, vocabulary, parity, perplexity, manifest."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from export.arithmetic import Arithmetic, choose_language_arithmetic
from export.card import finish
from export.figures import language_figure
from export.folder import check_free, new_folder, tell_origin
from export.gates import (
    check_tests,
    compare_in_reference,
    compare_rounded_language,
    language_figures,
    on_cpu,
    told,
)
from export.graphs import choose_activations, write_language_graphs
from export.language_parity import check_language, measure_language
from export.reference_run import SENTENCES
from export.texts import Text, compared_windows, fitting_windows, validation_text
from serving.bundle.manifest import (
    Activations,
    Manifest,
    Quality,
    TokenizerFiles,
    read_manifest,
)
from serving.runtime.device import runs_on_cpu
from serving.runtime.language_stepper import LanguageStepper
from serving.threads import default_threads
from training.models import CausalLanguageModel
from training.perplexity import Window
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

    int8 and fp16 are fitted to `text` (default: the run's validation text), the bundle is compared
    with the checkpoint on it, and its rolling perplexity is measured on `tests`, all on the CPU.
    Raises ExportError (ParityError) without leaving anything behind.
    """
    activations = choose_activations(precision, target, activations)
    check_tests(precision, len(tests))
    check_free(out, force=force)
    trained = load_language_model(path)
    text = text or validation_text(trained.checkpoint)
    # What is wrong with a file should show before the work.
    read = [(test, test.read(trained.recipe.data)) for test in tests]
    windows = compared_windows(trained, text)
    fitted = fitting_windows(precision, text, windows)
    with new_folder(out) as folder:
        arithmetic = choose_language_arithmetic(trained.model, fitted, precision, activations)
        manifest = write_language_graphs(
            trained.model,
            folder,
            name=out.name,
            precision=precision,
            target=target,
            ranges=arithmetic.ranges,
            exact=arithmetic.exact,
        )
        tokenizer = _write_vocabulary(trained, folder)
        found: dict[str, Any] = {"data": text.file.name}
        quality: tuple[Quality, ...] = ()
        if runs_on_cpu(precision):
            stepper = LanguageStepper(folder, on_cpu(manifest), default_threads())
            parity = measure_language(trained.model, arithmetic.twin, stepper, windows)
            logger.info("parity on %s: %s", text.file.name, parity)
            check_language(parity, precision)
            found |= {**language_figures(parity), "fp32_products": len(arithmetic.exact)}
            quality = tuple(language_figure(trained, stepper, *test) for test in read)
        found |= _compare_further(trained.model, arithmetic, folder, manifest, windows)
        manifest = manifest.model_copy(
            update={
                "tokenizer": tokenizer,
                "search": GENERATION_DEFAULTS,
                "parity": found,
                "quality": quality,
                "priority": priority,
            }
        )
        finish(folder, tell_origin(manifest, trained.recipe))
    return read_manifest(out)


def _compare_further(
    model: CausalLanguageModel,
    arithmetic: Arithmetic[CausalLanguageModel],
    folder: Path,
    manifest: Manifest,
    windows: list[Window],
) -> dict[str, Any]:
    """What the manifest says of parity besides the graphs in a session: of a GPU's bundle."""
    first = [window.tokens.tolist() for window in windows[:SENTENCES]]
    no_sources: list[list[int]] = [[] for _ in first]
    return {
        **compare_rounded_language(model, arithmetic.twin, manifest.precision, windows),
        **compare_in_reference(arithmetic.twin, folder, manifest, no_sources, first),
        **arithmetic.report,
        **told(manifest),
    }


def _write_vocabulary(trained: TrainedLanguageModel, folder: Path) -> TokenizerFiles:
    """Write the list of words or the SentencePiece model; returns the manifest's part on it."""
    words = trained.recipe.tokenizer.kind == "words"
    file = VOCABULARY_FILE if words else TOKENIZER_FILE
    (folder / file).write_bytes(trained.tokenizer.serialized())
    return TokenizerFiles(
        kind="words" if words else "sentencepiece", source_file=file, target_file=file
    )
