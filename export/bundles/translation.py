"""A checkpoint to a bundle: graphs, tokenizer, parity, quality, manifest; whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from export.arithmetic.choice import Arithmetic, choose_translation_arithmetic
from export.arithmetic.quantize import jittered
from export.bundles.card import finish
from export.bundles.figures import translation_figures
from export.bundles.folder import check_free, new_folder, tell_makers, told_origin
from export.comparison.translation import check, compare_shortlist, measure, measure_noise
from export.errors import ExportError
from export.gates.gpu import check_tests, compare_in_reference, compare_rounded, on_cpu, told
from export.gates.reference_run import SENTENCES
from export.graphs.shortlist import read_shortlist
from export.graphs.writing import TOKENIZER_FILE, check_shortlist, choose_activations, write_graphs
from export.texts.dev_set import DevSet
from export.texts.texts import TextPair, fitting_sentences, validation_pair
from export.texts.vocabulary import Vocabulary
from serving.bundle.folder import read_manifest, write_manifest
from serving.bundle.languages import Languages
from serving.bundle.manifest import Activations, Manifest, Quality
from serving.bundle.shortlist import Shortlist
from serving.runtime.device import runs_on_cpu
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.options import MAX_STEPS, SearchOptions
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
class Form:
    """What a bundle is to be: its arithmetic, for which machine, and its rank among others."""

    precision: str
    target: str
    activations: Activations
    priority: int = 0


@dataclass(frozen=True)
class ExportedModel:
    """A translation model to make a bundle of, wherever its weights come from."""

    model: TranslationModel
    vocabulary: Vocabulary
    files: Mapping[str, bytes]
    """The files of its tokenizers, by name."""
    facts: Mapping[str, Any]
    """Fields of the manifest that tell of tokenizers, languages, search and origin."""
    max_source: int = MAX_STEPS


@dataclass(frozen=True)
class ComparedText:
    """The text on which a bundle is compared, under a name, and texts on which it is scored."""

    name: str
    dev: DevSet
    fitting: list[int]
    """Numbers of the sentences to which int8 and fp16 are fitted."""
    tests: tuple[tuple[str, DevSet], ...] = ()


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

    int8 and fp16 are fitted to `dev` (default: the run's validation pairs), the bundle is compared
    with the checkpoint on it, and scored on `tests`, all on the CPU. With `shortlist` it can choose
    from shortlists, for which the run's training text is read. Raises ExportError (ParityError)
    without leaving anything behind.
    """
    activations = choose_activations(precision, target, activations)
    if shortlist:
        check_shortlist(target)
    check_tests(precision, len(tests))
    check_free(out, force=force)
    # What is wrong with a file should show before the work.
    test_sets = [(test.name, test.read()) for test in tests]
    dev = dev or validation_pair(find_checkpoint(path))
    dev_set = dev.read()
    fitting = fitting_sentences(precision, activations, dev.source, dev_set)
    trained = load_trained(path)
    text = ComparedText(
        dev.name,
        _told(trained, dev_set, dev.name),
        fitting,
        tuple((name, _told(trained, text, name)) for name, text in test_sets),
    )
    return write_bundle(
        _exported(trained),
        out,
        Form(precision, target, activations, priority),
        text,
        shortlist=read_shortlist(trained.recipe, trained.tokenizer) if shortlist else None,
    )


def write_bundle(
    exported: ExportedModel,
    out: Path,
    form: Form,
    text: ComparedText,
    *,
    shortlist: Shortlist | None = None,
) -> Manifest:
    """Write the bundle `out` of a model, fitted to, compared on and scored on `text`; raises
    ExportError (ParityError) without leaving anything behind."""
    model, precision = exported.model, form.precision
    with new_folder(out) as folder:
        sentences = text.dev.sentences(exported.vocabulary, SearchOptions())
        fitting = [sentences[number] for number in text.fitting]
        arithmetic = choose_translation_arithmetic(model, fitting, precision, form.activations)
        manifest = write_graphs(
            model,
            folder,
            name=out.name,
            precision=precision,
            target=form.target,
            products=arithmetic.products,
            shortlist=shortlist,
            max_source=exported.max_source,
        )
        for name, content in exported.files.items():
            (folder / name).write_bytes(content)
        manifest = manifest.model_copy(update={**exported.facts, "priority": form.priority})
        parity = _compare(exported, arithmetic, folder, manifest, text.dev)
        manifest = manifest.model_copy(update={"parity": {"data": text.name, **parity}})
        manifest = tell_makers(manifest)
        quality: tuple[Quality, ...] = ()
        if text.tests:
            write_manifest(folder, on_cpu(manifest))
            quality = translation_figures(folder, text.tests)
        finish(folder, manifest.model_copy(update={"quality": quality}))
    return read_manifest(out)


def _exported(trained: Trained) -> ExportedModel:
    return ExportedModel(
        trained.model,
        Vocabulary.of(trained.tokenizer),
        {TOKENIZER_FILE: trained.tokenizer.serialized()},
        {
            "languages": _languages(trained.recipe.data),
            "search": SEARCH_DEFAULTS,
            **told_origin(trained.recipe),
        },
    )


def _told(trained: Trained, text: DevSet, name: str) -> DevSet:
    """A text with the ids that tell the model the target language of each pair; raises ExportError
    where that is not clear."""
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
                "be told: give a test as --test-direction FROM TO; leave --dev out, then the run's "
                "own pairs are compared on"
            ) from error
    return replace(text, prefixes=[prefixes[given] for given in text.languages])


def _languages(data: DataConfig) -> Languages:
    """What a manifest tells of the languages of a recipe."""
    if not data.is_multilingual:
        return Languages(source=(data.source_language,), target=(data.target_language,))
    return Languages(
        source=tuple(dict.fromkeys(source for source, _ in data.directions)),
        target=tuple(data.language_tags),
        pairs=data.directions,
        tags=data.language_tags,
    )


def _compare(
    exported: ExportedModel,
    arithmetic: Arithmetic[TranslationModel],
    folder: Path,
    manifest: Manifest,
    dev: DevSet,
) -> dict[str, Any]:
    """What the manifest says of parity; raises ParityError where a bundle is not good enough."""
    found: dict[str, Any] = {}
    model, vocabulary = exported.model, exported.vocabulary
    if runs_on_cpu(manifest.precision):
        bundle = OnnxStepper(folder, on_cpu(manifest), default_threads())
        checkpoint, twin = TorchStepper(model), TorchStepper(arithmetic.twin)
        parity = measure(checkpoint, twin, bundle, vocabulary, dev)
        if manifest.precision == "int8":
            kind, noisy = manifest.decoder_kind, lambda: TorchStepper(jittered(arithmetic.twin))
            parity = measure_noise(parity, kind, twin, noisy, vocabulary, dev)
        logger.info("parity with the checkpoint: %s", parity.to_dict())
        check(parity, manifest.decoder_kind, manifest.precision)
        found = {**parity.to_dict(), "fp32_products": len(arithmetic.products.exact)}
        if manifest.shortlist is not None:
            chooser = ShortlistStepper(folder, manifest, default_threads(), encoder=bundle.encoder)
            found["shortlist"] = compare_shortlist(bundle, chooser, vocabulary, dev)
    found |= compare_rounded(model, arithmetic.twin, manifest.precision, vocabulary, dev)
    sources = [s.source for s in dev.sentences(vocabulary, SearchOptions())[:SENTENCES]]
    targets = vocabulary.target.encode_batch((dev.references or dev.sources)[:SENTENCES])
    found |= compare_in_reference(arithmetic.twin, folder, manifest, sources, targets)
    return {**found, **arithmetic.report, **told(manifest)}
