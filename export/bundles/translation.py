"""Translation models as subjects of an export, and those of this project's runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.arithmetic.activation_ranges import search_from
from export.arithmetic.choice import Arithmetic, Fitting
from export.arithmetic.exclusion import Changes
from export.arithmetic.quantize import jittered
from export.bundles.figures import translation_figures
from export.bundles.folder import origin_fields
from export.bundles.subject import Form, Found
from export.comparison.translation import (
    MAX_LOG_PROB_CHANGE,
    check,
    compare_shortlist,
    measure,
    measure_noise,
    search_all,
    total_log_probs,
)
from export.errors import ExportError
from export.gates.gpu import compare_in_reference, compare_rounded, on_cpu
from export.gates.reference_run import SENTENCES
from export.graphs.shortlist import read_shortlist
from export.graphs.writing import TOKENIZER_FILE, check_shortlist, write_graphs
from export.texts.dev_set import DevSet
from export.texts.texts import Texts, fitting_sentences, validation_pair
from export.texts.vocabulary import Vocabulary
from serving.bundle.folder import write_manifest
from serving.bundle.languages import Languages
from serving.bundle.manifest import Manifest, Quality
from serving.bundle.shortlist import Shortlist
from serving.runtime.device import runs_on_cpu
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.sentence import Sentence
from serving.search.options import MAX_STEPS, SearchOptions
from serving.search.stepper import Stepper
from serving.threads import default_threads
from training.decoding.stepper import TorchStepper
from training.errors import ConfigError
from training.models import TranslationModel
from training.recipe.config import DataConfig
from training.results.evaluation import prefix_between
from training.runs.checkpoint import find_checkpoint
from training.runs.folder import Trained, load_trained

logger = logging.getLogger(__name__)

SEARCH_DEFAULTS = {"beam_size": 5, "length_penalty": 1.0, "eos_in_length": True}


@dataclass(frozen=True)
class ComparedText:
    """The text on which a bundle is compared, under a name, and texts on which it is scored."""

    name: str
    dev: DevSet
    fitting: list[int]
    """Numbers of the sentences to which int8 and fp16 are fitted."""
    tests: tuple[tuple[str, DevSet], ...] = ()


@dataclass(frozen=True)
class TranslationSubject:
    """A translation model to make a bundle of, wherever its weights come from."""

    model: TranslationModel
    vocabulary: Vocabulary
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]
    text: ComparedText
    max_source: int = MAX_STEPS
    shortlist: Shortlist | None = None

    @property
    def text_name(self) -> str:
        """The name of the text on which the bundle is compared."""
        return self.text.name

    @cached_property
    def outputs(self) -> list[tuple[int, ...]]:
        """The checkpoint's own outputs for each sentence that bundles are compared on, searched
        without the loop guard."""
        options = SearchOptions(loop_guard=False)
        return search_all(
            TorchStepper(self.model), self.text.dev.sentences(self.vocabulary, options)
        )

    def fitting(self) -> Fitting[TranslationModel]:
        """The fitting on beam searches of sentences. The change is that of the log-probability of
        the checkpoint's own outputs, in nats per token."""
        sentences = self.text.dev.sentences(self.vocabulary, SearchOptions())
        fitted = [sentences[number] for number in self.text.fitting]

        def changes(twin: TranslationModel) -> Changes:
            outputs = [self.outputs[number] for number in self.text.fitting]
            return log_prob_changes(self.model, twin, fitted, outputs)

        return Fitting(
            run=lambda model: search_from(model, fitted),
            changes=changes,
            limit=MAX_LOG_PROB_CHANGE / 2,
        )

    def write_graphs(
        self, arithmetic: Arithmetic[TranslationModel], folder: Path, name: str, form: Form
    ) -> Manifest:
        """Write the graphs of encoder and step, and the graph that chooses from a shortlist."""
        return write_graphs(
            arithmetic.model,
            folder,
            name=name,
            precision=form.precision,
            target=form.target,
            products=arithmetic.products,
            shortlist=self.shortlist,
            max_source=self.max_source,
        )

    def compare(
        self, arithmetic: Arithmetic[TranslationModel], folder: Path, manifest: Manifest
    ) -> Found:
        """Whole searches with the checkpoint and the graphs; BLEU and chrF of the tests."""
        twin, dev, vocabulary = arithmetic.twin, self.text.dev, self.vocabulary
        found = self._compare_graphs(arithmetic, folder, manifest)
        found |= compare_rounded(manifest.precision, lambda: self._compare_twin(twin, manifest))
        sources = [s.source for s in dev.sentences(vocabulary, SearchOptions())[:SENTENCES]]
        targets = vocabulary.target.encode_batch((dev.references or dev.sources)[:SENTENCES])
        found |= compare_in_reference(twin, folder, manifest, sources, targets)
        quality: tuple[Quality, ...] = ()
        if self.text.tests:
            write_manifest(folder, on_cpu(manifest))  # for now: scoring needs a bundle
            quality = translation_figures(folder, self.text.tests)
        return found, quality

    def _compare_twin(self, twin: TranslationModel, manifest: Manifest) -> dict[str, Any]:
        """Whole searches of both models in PyTorch."""
        checkpoint, stepper = TorchStepper(self.model), TorchStepper(twin)
        parity = measure(checkpoint, stepper, stepper, self.vocabulary, self.text.dev, self.outputs)
        check(parity, manifest.decoder_kind, manifest.precision)
        return parity.to_dict()

    def _compare_graphs(
        self, arithmetic: Arithmetic[TranslationModel], folder: Path, manifest: Manifest
    ) -> dict[str, Any]:
        if not runs_on_cpu(manifest.precision):
            return {}
        dev, vocabulary = self.text.dev, self.vocabulary
        bundle = OnnxStepper(folder, on_cpu(manifest), default_threads())
        checkpoint = TorchStepper(self.model)
        if arithmetic.twin is self.model:
            twin, outputs = checkpoint, None  # the comparison of logits finds them
        else:
            twin, outputs = TorchStepper(arithmetic.twin), self.outputs
        parity = measure(checkpoint, twin, bundle, vocabulary, dev, outputs)
        if manifest.precision == "int8":

            def noisy(seed: int) -> Stepper:
                return TorchStepper(jittered(arithmetic.twin, seed))

            kind = manifest.decoder_kind
            parity = measure_noise(parity, kind, twin, bundle, noisy, vocabulary, dev)
        logger.info("parity with the checkpoint: %s", parity.to_dict())
        check(parity, manifest.decoder_kind, manifest.precision)
        found = {**parity.to_dict(), "fp32_products": len(arithmetic.products.exact)}
        if manifest.shortlist is not None:
            chooser = ShortlistStepper(folder, manifest, default_threads(), encoder=bundle.encoder)
            found["shortlist"] = compare_shortlist(bundle, chooser, vocabulary, dev)
        return found


def log_prob_changes(
    model: TranslationModel,
    twin: TranslationModel,
    sentences: list[Sentence],
    outputs: list[tuple[int, ...]],
) -> Changes:
    """Measure how a twin changes the log-probability of `outputs`, the model's own, in nats per
    token."""
    checkpoint, stepper = TorchStepper(model), TorchStepper(twin)
    own = total_log_probs(checkpoint, sentences, outputs)
    tokens = sum(len(output) + 1 for output in outputs)

    def changes() -> NDArray[np.float64]:
        return (total_log_probs(stepper, sentences, outputs) - own) / tokens

    return changes


def trained_translation(
    path: Path, form: Form, texts: Texts, *, shortlist: bool
) -> TranslationSubject:
    """A run's translation model, compared on its validation pairs unless others are given; with
    `shortlist` the run's training text is read, from which shortlists are learnt."""
    if shortlist:
        check_shortlist(form.target)
    # An error in a file should show before the work.
    test_sets = [(test.name, test.read()) for test in texts.tests]
    pair = texts.dev or validation_pair(find_checkpoint(path))
    dev = pair.read()
    fitting = fitting_sentences(form.precision, form.activations, pair.source, dev)
    trained = load_trained(path)
    tests = tuple((name, _with_tags(trained, text, name)) for name, text in test_sets)
    return TranslationSubject(
        trained.model,
        Vocabulary.of(trained.tokenizer),
        {TOKENIZER_FILE: trained.tokenizer.serialized()},
        {
            "languages": _languages(trained.recipe.data),
            "search": SEARCH_DEFAULTS,
            **origin_fields(trained.recipe),
        },
        ComparedText(pair.name, _with_tags(trained, dev, pair.name), fitting, tests),
        shortlist=read_shortlist(trained.recipe, trained.tokenizer) if shortlist else None,
    )


def _with_tags(trained: Trained, text: DevSet, name: str) -> DevSet:
    """A text with the ids that name the target language of each pair; raises ExportError if that
    is not clear."""
    data = trained.recipe.data
    if not data.is_multilingual or text.languages is None:
        return text
    prefixes = {}
    for given in dict.fromkeys(text.languages):
        try:
            prefixes[given] = prefix_between(trained, *given)
        except ConfigError as error:
            there = ", ".join(" to ".join(direction) for direction in data.directions)
            raise ExportError(
                f"{name}: the model translates {there}, and which of these the text is must "
                "be given: name a test as --test-direction FROM TO; leave --dev out, then the "
                "run's own pairs are compared on"
            ) from error
    return replace(text, prefixes=[prefixes[given] for given in text.languages])


def _languages(data: DataConfig) -> Languages:
    """The languages of a recipe, as a manifest has them."""
    if not data.is_multilingual:
        return Languages(source=(data.source_language,), target=(data.target_language,))
    return Languages(
        source=tuple(dict.fromkeys(source for source, _ in data.directions)),
        target=tuple(data.language_tags),
        pairs=data.directions,
        tags=data.language_tags,
    )
