"""The verbs of `python -m export`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from export import progress
from export.bundles.checkpoint import recover_checkpoint
from export.bundles.dictionary import add_dictionary
from export.bundles.phrases import add_phrases
from export.bundles.probability import calibrate_probability
from export.bundles.run import export_run
from export.bundles.subject import Form
from export.bundles.trial import try_bundle
from export.engines.engine import check_engines, export_engines
from export.errors import ExportError
from export.graphs.writing import choose_activations
from export.importing.bundle import import_bundle
from export.importing.by_name import named_source
from export.importing.model import Declared, LanguageChoice
from export.importing.vocabularies.languages import split_codes
from export.texts.texts import DocumentsFile, TextPair, Texts
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.hub.cache import AUTO


def bundle(options: argparse.Namespace) -> int:
    """Export a checkpoint of any kind of model; prints a report as JSON."""
    tests = tuple(DocumentsFile(name, Path(file)) for name, file in options.test_text)
    _check_names("--test-text", [test.name for test in tests])
    manifest = export_run(
        options.checkpoint,
        options.out,
        _form(options),
        replace(_texts(options), test_texts=tests),
        shortlist=options.shortlist,
        force=options.force,
    )
    _print(options.out, manifest)
    return 0


def import_model(options: argparse.Namespace) -> int:
    """Import another project's checkpoint as a bundle; prints a report as JSON."""
    if options.dev and options.text:
        raise ExportError("--dev and --text are both the text to compare on; give one of them")
    codes = LanguageChoice(split_codes("--from", options.from_), split_codes("--to", options.to))
    form = _form(options)
    if form.precision != AUTO:  # known to be wrong before anything is downloaded
        choose_activations(form.precision, form.target, form.activations)
    with progress.shown(), named_source(options.source, options.family) as source:
        declared = Declared(
            options.family,
            codes,
            options.licence,
            options.pooling,
            options.attribution,
            source.origin,
        )
        manifest = import_bundle(
            source.path,
            options.out,
            form,
            replace(_texts(options), task=options.task),
            declared,
            force=options.force,
        )
    _print(options.out, manifest)
    return 0


def _form(options: argparse.Namespace) -> Form:
    return Form(options.precision, options.target, options.activations, options.priority)


def _texts(options: argparse.Namespace) -> Texts:
    """The texts that `bundle` and `import` have in common."""
    dev = TextPair("dev", Path(options.dev[0]), Path(options.dev[1])) if options.dev else None
    tests = tuple(TextPair(name, Path(a), Path(b)) for name, a, b in options.test)
    tests += tuple(
        TextPair(name, Path(a), Path(b), (source, target))
        for source, target, name, a, b in options.test_direction
    )
    _check_names("--test", [test.name for test in tests])
    return Texts(dev, options.text, tests)


def _check_names(option: str, names: Sequence[str]) -> None:
    """Raise ExportError if two texts share a name: a report could hold only one of them."""
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
    fields = ("file", "bytes", "build_seconds")
    engines = [each.model_dump(include=set(fields)) for each in manifest.engines]
    report = {"bundle": str(options.out), "precision": manifest.precision, "engines": engines}
    print(json.dumps(report, indent=1))
    return 0


def calibrate(options: argparse.Namespace) -> int:
    """Fit the probability that a translation is good; prints the curve as JSON."""
    data = options.data or options.source.name
    languages = options.source_language, options.target_language
    manifest = calibrate_probability(
        options.bundle, options.source, options.reference, data, languages
    )
    assert manifest.calibration is not None
    print(manifest.calibration.model_dump_json(indent=1))
    return 0


def phrases(options: argparse.Namespace) -> int:
    """Give a bundle set phrases; prints how many it has."""
    return _add_list(options, add_phrases, "phrases")


def dictionary(options: argparse.Namespace) -> int:
    """Give a bundle a dictionary; prints how many words it has."""
    return _add_list(options, add_dictionary, "words")


def _add_list(
    options: argparse.Namespace, add: Callable[[Path, Path, Sequence[str]], int], name: str
) -> int:
    languages = [code.strip() for code in options.languages.split(",")]
    count = add(options.bundle, options.file, languages)
    print(json.dumps({"bundle": str(options.bundle), name: count}, indent=1))
    return 0


def checkpoint(options: argparse.Namespace) -> int:
    """Make a run from a bundle's weights, for training to start from; prints the new run."""
    recipe = recover_checkpoint(options.bundle, options.out, force=options.force)
    report = {"run": str(options.out), "recipe": recipe.name, "begins_with": str(options.bundle)}
    print(json.dumps(report, indent=1))
    return 0


def verify(options: argparse.Namespace) -> int:
    """Check a bundle's hashes, load it and decode with it; prints the memory that takes."""
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
    "engine": engine,
    "calibrate": calibrate,
    "phrases": phrases,
    "dictionary": dictionary,
    "checkpoint": checkpoint,
    "verify": verify,
}
