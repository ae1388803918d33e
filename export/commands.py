"""The verbs of `python -m export`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from export.bundles.checkpoint import recover_checkpoint
from export.bundles.language import export_language_bundle
from export.bundles.probability import calibrate_probability
from export.bundles.trained_encoder import export_encoder_bundle
from export.bundles.translation import export_bundle
from export.bundles.trial import try_bundle
from export.engines.engine import check_engines, export_engines
from export.errors import ExportError
from export.importing.bundle import import_bundle
from export.importing.encoder_bundle import write_foreign_encoder
from export.importing.model import LanguageChoice
from export.importing.vocabularies.languages import split_codes
from export.texts.texts import Text, TextPair
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from training.recipe.config import FineTuningRecipe, LanguageRecipe, PretrainingRecipe
from training.runs.checkpoint import find_checkpoint
from training.runs.folder import read_run_recipe


def bundle(options: argparse.Namespace) -> int:
    """Export a checkpoint, of whichever kind of model its run is; prints a report as JSON."""
    recipe = read_run_recipe(find_checkpoint(options.checkpoint))
    if isinstance(recipe, LanguageRecipe):
        return _language_bundle(options)
    if isinstance(recipe, PretrainingRecipe | FineTuningRecipe):
        return _encoder_bundle(options)
    if options.text or options.test_text:
        raise ExportError("--text and --test-text belong to language models; use --dev and --test")
    dev, tests = _pairs(options)
    manifest = export_bundle(
        options.checkpoint,
        options.out,
        precision=options.precision,
        target=options.target,
        activations=options.activations,
        shortlist=options.shortlist,
        priority=options.priority,
        dev=dev,
        tests=tests,
        force=options.force,
    )
    _print(options.out, manifest)
    return 0


def import_model(options: argparse.Namespace) -> int:
    """Make a bundle of another project's checkpoint; prints a report as JSON."""
    if options.dev and options.text:
        raise ExportError("--dev and --text are both the text to compare on; give one of them")
    dev, tests = _pairs(options)
    choice = LanguageChoice(split_codes("--from", options.from_), split_codes("--to", options.to))
    manifest = import_bundle(
        options.source,
        options.out,
        precision=options.precision,
        target=options.target,
        activations=options.activations,
        family=options.family,
        choice=choice,
        licence=options.licence,
        priority=options.priority,
        dev=dev or options.text,
        tests=tests,
        force=options.force,
    )
    _print(options.out, manifest)
    return 0


def _pairs(options: argparse.Namespace) -> tuple[TextPair | None, tuple[TextPair, ...]]:
    """The text to compare on, if one is given, and the test texts."""
    dev = TextPair("dev", Path(options.dev[0]), Path(options.dev[1])) if options.dev else None
    tests = tuple(TextPair(name, Path(a), Path(b)) for name, a, b in options.test)
    tests += tuple(
        TextPair(name, Path(a), Path(b), (source, target))
        for source, target, name, a, b in options.test_direction
    )
    _check_names("--test", [test.name for test in tests])
    return dev, tests


def _language_bundle(options: argparse.Namespace) -> int:
    if options.shortlist:
        raise ExportError("--shortlist belongs to translation: a language model has no source")
    if options.dev or options.test or options.test_direction:
        raise ExportError("--dev and --test belong to translation; use --text and --test-text")
    _check_names("--test-text", [name for name, _ in options.test_text])
    manifest = export_language_bundle(
        options.checkpoint,
        options.out,
        precision=options.precision,
        target=options.target,
        activations=options.activations,
        priority=options.priority,
        text=Text("--text", options.text) if options.text else None,
        tests=tuple(Text(name, Path(file)) for name, file in options.test_text),
        force=options.force,
    )
    _print(options.out, manifest)
    return 0


def _encoder_bundle(options: argparse.Namespace) -> int:
    """Refuses what an encoder has no use for."""
    others = {
        "--shortlist": options.shortlist,
        "--dev": options.dev,
        "--test": options.test,
        "--test-direction": options.test_direction,
        "--test-text": options.test_text,
    }
    given = [name for name, value in others.items() if value]
    if given:
        raise ExportError(
            f"{given[0]} is not for an encoder, which is compared on its run's validation lines or "
            "on --text TABLE"
        )
    if options.target != "cpu":
        raise ExportError(f"--target of an encoder must be cpu, got {options.target!r}")
    manifest = export_encoder_bundle(
        options.checkpoint,
        options.out,
        precision=options.precision,
        activations=options.activations,
        priority=options.priority,
        dev=options.text,
        force=options.force,
    )
    _print(options.out, manifest)
    return 0


def import_encoder(options: argparse.Namespace) -> int:
    """Make a bundle of a foreign encoder; prints a report as JSON."""
    manifest = write_foreign_encoder(
        options.source,
        options.out,
        text=options.text,
        precision=options.precision,
        activations=options.activations,
        pooling=options.pooling,
        task=options.task,
        attribution=options.attribution,
        priority=options.priority,
        force=options.force,
    )
    _print(options.out, manifest)
    return 0


def _check_names(option: str, names: Sequence[str]) -> None:
    """Raise ExportError where two texts have one name, under which only one could be told of."""
    for name in names:
        if names.count(name) > 1:
            raise ExportError(f"{option} names must differ, got {name!r} twice; rename one")


def engine(options: argparse.Namespace) -> int:
    """Build engines of a bundle for CUDA; prints a report as JSON."""
    manifest = export_engines(
        options.bundle,
        options.out,
        profile=options.profile,
        library=options.library,
        timing_cache=options.timing_cache,
        force=options.force,
    )
    told = ("file", "bytes", "build_seconds")
    engines = [each.model_dump(include=set(told)) for each in manifest.engines]
    report = {"bundle": str(options.out), "precision": manifest.precision, "engines": engines}
    print(json.dumps(report, indent=1))
    return 0


def calibrate(options: argparse.Namespace) -> int:
    """Fit a bundle's probabilities of a good translation; prints the curve as JSON."""
    data = options.data or options.source.name
    languages = options.source_language, options.target_language
    manifest = calibrate_probability(
        options.bundle, options.source, options.reference, data, languages
    )
    assert manifest.calibration is not None
    print(manifest.calibration.model_dump_json(indent=1))
    return 0


def checkpoint(options: argparse.Namespace) -> int:
    """Take a bundle's weights back as a run that training can begin with; prints what it is."""
    recipe = recover_checkpoint(options.bundle, options.out, force=options.force)
    report = {"run": str(options.out), "recipe": recipe.name, "begins_with": str(options.bundle)}
    print(json.dumps(report, indent=1))
    return 0


def verify(options: argparse.Namespace) -> int:
    """Check a bundle's hashes, load it and decode with it; tells what that takes of memory."""
    manifest = read_manifest(options.bundle)
    check_engines(options.bundle, manifest)
    _print(options.bundle, manifest, {"resident_bytes": try_bundle(options.bundle)})
    return 0


def _print(folder: Path, manifest: Manifest, more: Mapping[str, int] | None = None) -> None:
    files = [*manifest.files, *(engine.file for engine in manifest.engines)]
    report = {
        "bundle": str(folder),
        "family": manifest.family,
        "precision": manifest.precision,
        "bytes": sum((folder / name).stat().st_size for name in files),
        **(more or {}),
        "parity": manifest.parity,
        "quality": {f"{q.data} {q.metric}": q.value for q in manifest.quality},
    }
    print(json.dumps(report, indent=1, ensure_ascii=False))


VERBS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "bundle": bundle,
    "import": import_model,
    "import-encoder": import_encoder,
    "engine": engine,
    "calibrate": calibrate,
    "checkpoint": checkpoint,
    "verify": verify,
}
