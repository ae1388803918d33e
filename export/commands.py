"""The verbs of `python -m export`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from export.bundle import TextPair, export_bundle
from serving.bundle import Manifest, read_manifest
from serving.translator import Translator


def bundle(options: argparse.Namespace) -> int:
    """Export a checkpoint."""
    dev = TextPair("dev", *map(Path, options.dev)) if options.dev else None
    tests = tuple(TextPair(name, Path(a), Path(b)) for name, a, b in options.test)
    manifest = export_bundle(
        options.checkpoint,
        options.out,
        precision=options.precision,
        target=options.target,
        dev=dev,
        tests=tests,
        force=options.force,
    )
    _print(options.out, manifest)
    return 0


def verify(options: argparse.Namespace) -> int:
    """Check a bundle's hashes, load it and translate with it."""
    manifest = read_manifest(options.bundle)
    Translator(options.bundle).translate("Test.")
    _print(options.bundle, manifest)
    return 0


def _print(folder: Path, manifest: Manifest) -> None:
    report = {
        "bundle": str(folder),
        "family": manifest.family,
        "precision": manifest.precision,
        "bytes": sum((folder / name).stat().st_size for name in manifest.files),
        "parity": manifest.parity,
        "quality": {f"{q.data} {q.metric}": q.value for q in manifest.quality},
    }
    print(json.dumps(report, indent=1, ensure_ascii=False))
