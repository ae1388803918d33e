"""Language models as subjects of an export, and those of this project's runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.arithmetic.choice import Arithmetic, Fitting
from export.arithmetic.exclusion import Changes
from export.bundles.figures import language_figure
from export.bundles.folder import origin_fields
from export.bundles.subject import Form, Found
from export.comparison.language import (
    MAX_PERPLEXITY_CHANGE,
    check_language,
    measure_language,
    twin_parity,
    window_logits,
)
from export.gates.gpu import compare_in_reference, compare_rounded, on_cpu
from export.gates.reference_run import SENTENCES
from export.graphs.writing import write_language_graphs
from export.texts.texts import (
    DocumentReader,
    DocumentsFile,
    Texts,
    compared_windows,
    fitting_windows,
    validation_text,
)
from serving.bundle.manifest import Manifest, Quality, TokenizerFiles
from serving.runtime.device import runs_on_cpu
from serving.runtime.language_stepper import LanguageStepper
from serving.threads import default_threads
from training.models import CausalLanguageModel
from training.results.perplexity import Window, score_windows
from training.runs.folder import TOKENIZER_FILE, VOCABULARY_FILE, load_language_model

logger = logging.getLogger(__name__)

GENERATION_DEFAULTS = {"max_length": 64, "temperature": 1.0}


@dataclass(frozen=True)
class LanguageSubject:
    """A language model to export, from any source."""

    model: CausalLanguageModel
    reader: DocumentReader
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]
    text_name: str
    windows: list[Window]
    """Windows for the comparison."""
    fitted: list[Window]
    """Windows to which int8 and fp16 are fitted."""
    tests: tuple[tuple[DocumentsFile, list[str]], ...] = ()
    """Texts to score."""
    max_positions: int | None = None
    """Longest prompt and output together, in tokens; None if the length is open."""

    def fitting(self) -> Fitting[CausalLanguageModel]:
        """The fitting on windows of a text. The change is the relative change of perplexity; for
        small changes this equals the change of its logarithm."""
        return Fitting(
            run=lambda model: [window_logits(model, window) for window in self.fitted],
            changes=lambda twin: _loss_changes(self.model, twin, self.fitted),
            limit=MAX_PERPLEXITY_CHANGE["int8"] / 2,
            run_batches=lambda model: score_windows(model, self.fitted),
            rounds_weights=True,
        )

    def write_graphs(
        self, arithmetic: Arithmetic[CausalLanguageModel], folder: Path, name: str, form: Form
    ) -> Manifest:
        """Write the step."""
        return write_language_graphs(
            arithmetic.model,
            folder,
            name=name,
            precision=form.precision,
            target=form.target,
            products=arithmetic.products,
            max_positions=self.max_positions,
        )

    def compare(
        self, arithmetic: Arithmetic[CausalLanguageModel], folder: Path, manifest: Manifest
    ) -> Found:
        """Compare step logits and perplexity of checkpoint and graph; score the test texts."""
        twin, precision = arithmetic.twin, manifest.precision
        found: dict[str, Any] = {}
        quality: tuple[Quality, ...] = ()
        if runs_on_cpu(precision):
            stepper = LanguageStepper(folder, on_cpu(manifest), default_threads())
            parity = measure_language(self.model, twin, stepper, self.windows)
            logger.info("parity on %s: %s", self.text_name, parity)
            check_language(parity, precision)
            found = {**parity.to_dict(), "fp32_products": len(arithmetic.products.exact)}
            quality = tuple(language_figure(self.reader, stepper, *test) for test in self.tests)
        found |= compare_rounded(precision, lambda: self._compare_twin(twin, precision))
        first = [window.tokens.tolist() for window in self.windows[:SENTENCES]]
        no_sources: list[list[int]] = [[] for _ in first]
        found |= compare_in_reference(twin, folder, manifest, no_sources, first)
        return found, quality

    def _compare_twin(self, twin: CausalLanguageModel, precision: str) -> dict[str, Any]:
        parity = twin_parity(self.model, twin, self.windows)
        check_language(parity, precision)
        return parity.to_dict()


def _loss_changes(
    model: CausalLanguageModel, twin: CausalLanguageModel, windows: list[Window]
) -> Changes:
    own, tokens = _losses(model, windows), sum(window.scored for window in windows)

    def changes() -> NDArray[np.float64]:
        return (_losses(twin, windows) - own) / tokens

    return changes


def _losses(model: CausalLanguageModel, windows: list[Window]) -> NDArray[np.float64]:
    """Loss of each window, in nats."""
    return np.array([score_windows(model, [window]) for window in windows])


def trained_language_model(path: Path, form: Form, texts: Texts) -> LanguageSubject:
    """The language model of a run, compared on its validation text unless another one is given."""
    trained = load_language_model(path)
    data = trained.recipe.data
    text = (
        DocumentsFile("--text", texts.text) if texts.text else validation_text(trained.checkpoint)
    )
    # Errors in files should show before the work.
    tests = tuple((test, test.read(data)) for test in texts.test_texts)
    reader = DocumentReader.of(trained)
    windows = compared_windows(reader, text.file, text.read(data))
    fitted = fitting_windows(form.precision, text.file, windows)
    words = trained.recipe.tokenizer.kind == "words"
    file = VOCABULARY_FILE if words else TOKENIZER_FILE
    tokenizer = TokenizerFiles(
        kind="words" if words else "sentencepiece", source_file=file, target_file=file
    )
    return LanguageSubject(
        trained.model,
        reader,
        {file: trained.tokenizer.serialized()},
        {
            "tokenizer": tokenizer,
            "search": GENERATION_DEFAULTS,
            **origin_fields(trained.recipe),
        },
        text.file.name,
        windows,
        fitted,
        tests,
    )
