"""A language model's checkpoint to a bundle: graph, vocabulary, parity, perplexity, manifest."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.arithmetic.choice import Arithmetic, choose_language_arithmetic
from export.bundles.card import finish
from export.bundles.figures import language_figure
from export.bundles.folder import check_free, new_folder, tell_makers, told_origin
from export.bundles.translation import Form
from export.comparison.language import check_language, measure_language
from export.gates.gpu import (
    check_tests,
    compare_in_reference,
    compare_rounded_language,
    language_figures,
    on_cpu,
    told,
)
from export.gates.reference_run import SENTENCES
from export.graphs.writing import choose_activations, write_language_graphs
from export.texts.texts import (
    DocumentReader,
    Text,
    compared_windows,
    fitting_windows,
    validation_text,
)
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Activations, Manifest, Quality, TokenizerFiles
from serving.runtime.device import runs_on_cpu
from serving.runtime.language_stepper import LanguageStepper
from serving.threads import default_threads
from training.models import CausalLanguageModel
from training.results.perplexity import Window
from training.runs.folder import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    TrainedLanguageModel,
    load_language_model,
)

logger = logging.getLogger(__name__)

GENERATION_DEFAULTS = {"max_length": 64, "temperature": 1.0}


@dataclass(frozen=True)
class ExportedLanguageModel:
    """A language model to make a bundle of, wherever its weights come from."""

    model: CausalLanguageModel
    reader: DocumentReader
    files: Mapping[str, bytes]
    """The files of its vocabulary, by name."""
    facts: Mapping[str, Any]
    """Fields of the manifest that tell of vocabulary and origin."""
    max_positions: int | None = None
    """Tokens of prompt and output together; None where length is open."""


@dataclass(frozen=True)
class ComparedDocuments:
    """The text on which a bundle is compared, under a name, and texts on which it is scored."""

    name: str
    windows: list[Window]
    fitting: list[Window]
    """To which int8 and fp16 are fitted."""
    tests: tuple[tuple[Text, list[str]], ...] = ()


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
    read = tuple((test, test.read(trained.recipe.data)) for test in tests)
    reader = DocumentReader.of(trained)
    windows = compared_windows(reader, text.file, text.read(trained.recipe.data))
    fitting = fitting_windows(precision, text.file, windows)
    tokenizer, files = _vocabulary(trained)
    facts = {"tokenizer": tokenizer, **told_origin(trained.recipe)}
    return write_language_bundle(
        ExportedLanguageModel(trained.model, reader, files, facts),
        out,
        Form(precision, target, activations, priority),
        ComparedDocuments(text.file.name, windows, fitting, read),
    )


def write_language_bundle(
    exported: ExportedLanguageModel, out: Path, form: Form, text: ComparedDocuments
) -> Manifest:
    """Write the bundle `out` of a model, fitted to, compared on and scored on `text`; raises
    ExportError (ParityError) without leaving anything behind."""
    model, precision = exported.model, form.precision
    with new_folder(out) as folder:
        arithmetic = choose_language_arithmetic(model, text.fitting, precision, form.activations)
        manifest = write_language_graphs(
            model if arithmetic.rounded is None else arithmetic.rounded,
            folder,
            name=out.name,
            precision=precision,
            target=form.target,
            products=arithmetic.products,
            max_positions=exported.max_positions,
        )
        for name, content in exported.files.items():
            (folder / name).write_bytes(content)
        found: dict[str, Any] = {"data": text.name}
        quality: tuple[Quality, ...] = ()
        if runs_on_cpu(precision):
            stepper = LanguageStepper(folder, on_cpu(manifest), default_threads())
            parity = measure_language(model, arithmetic.twin, stepper, text.windows)
            logger.info("parity on %s: %s", text.name, parity)
            check_language(parity, precision)
            found |= {**language_figures(parity), "fp32_products": len(arithmetic.products.exact)}
            quality = tuple(language_figure(exported.reader, stepper, *test) for test in text.tests)
        found |= _compare_further(model, arithmetic, folder, manifest, text.windows)
        update = {"search": GENERATION_DEFAULTS, **exported.facts}
        update |= {"parity": found, "quality": quality, "priority": form.priority}
        finish(folder, tell_makers(manifest.model_copy(update=update)))
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


def _vocabulary(trained: TrainedLanguageModel) -> tuple[TokenizerFiles, dict[str, bytes]]:
    """The list of words or the SentencePiece model, and the manifest's part on it."""
    words = trained.recipe.tokenizer.kind == "words"
    file = VOCABULARY_FILE if words else TOKENIZER_FILE
    files = TokenizerFiles(
        kind="words" if words else "sentencepiece", source_file=file, target_file=file
    )
    return files, {file: trained.tokenizer.serialized()}
