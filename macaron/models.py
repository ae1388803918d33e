"""`macaron pull` and `macaron models`: download, list and remove models of the cache."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress

from serving.bundle.folder import parse_manifest
from serving.errors import BundleError
from serving.hub.cache import AUTO, Entry, entries, models_folder, names, remove
from serving.hub.names import FORMS, named, nearest
from serving.hub.pull import pull
from serving.hub.tell import size_text, tell

_SHOWN = 12
"""Shown digits of a revision."""
_PRECISIONS = (AUTO, "fp32", "int8")
"""The precisions of an import for the CPU."""


def main_pull(arguments: list[str], prog: str) -> int:
    """Download the current release of each named model into the cache; prints the bundle
    folders."""
    options = pull_parser(prog).parse_args(arguments)
    try:
        for name in [named(given) for given in options.names]:  # all are read before the first
            print(pull(name, options.precision).bundle, flush=True)
    except BundleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with what was downloaded", file=sys.stderr)
        return 130
    return 0


def main_models(arguments: list[str], prog: str) -> int:
    """List the models of the cache, or remove some."""
    options = models_parser(prog).parse_args(arguments)
    try:
        return _remove(options.names) if options.verb == "rm" else _list(as_json=options.json)
    except BundleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def pull_parser(prog: str) -> argparse.ArgumentParser:
    """Arguments of `macaron pull`."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Download models by name, and import them into the cache. What is there in "
        "the revision that is published now stays as it is.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=FORMS)
    parser.add_argument(
        "--precision",
        choices=_PRECISIONS,
        default=AUTO,
        help="fp32, int8, or auto (default): the smallest that loses little enough",
    )
    return parser


def models_parser(prog: str) -> argparse.ArgumentParser:
    """Arguments of `macaron models`."""
    parser = argparse.ArgumentParser(
        prog=prog, description="The models in the cache, which MACARON_CACHE names."
    )
    parser.add_argument("--json", action="store_true", help="a JSON object a line, with the folder")
    verbs = parser.add_subparsers(dest="verb")
    removing = verbs.add_parser("rm", help="remove models, of all revisions and precisions")
    removing.add_argument("names", nargs="+", metavar="NAME", help="as the list has it")
    return parser


def _list(*, as_json: bool) -> int:
    found = entries()
    if as_json:
        for entry in found:
            print(json.dumps(_description(entry), ensure_ascii=False))
        return 0
    if not found:
        tell(f"no models in {models_folder()}; `macaron pull NAME` brings one")
        return 0
    heads = ("NAME", "REVISION", "KIND", "PRECISION", "SIZE", "LICENCE", "PULLED")
    rows = [heads, *(_row(_description(entry)) for entry in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


def _description(entry: Entry) -> dict[str, str | int | None]:
    """The description of a model; an unreadable bundle is marked as damaged."""
    kind, precision = "damaged", entry.note.precision
    with suppress(BundleError):
        manifest = parse_manifest(entry.bundle)
        kind, precision = f"{manifest.task}, {manifest.family}", str(manifest.precision)
    return {
        "name": entry.note.name,
        "revision": entry.note.revision,
        "kind": kind,
        "precision": precision,
        "bytes": entry.size(),
        "licence": entry.note.licence,
        "pulled": entry.note.added,
        "bundle": str(entry.bundle),
    }


def _row(described: dict[str, str | int | None]) -> tuple[str, ...]:
    return (
        str(described["name"]),
        str(described["revision"])[:_SHOWN],
        str(described["kind"]),
        str(described["precision"]),
        size_text(int(described["bytes"] or 0)),
        str(described["licence"] or "unknown"),
        str(described["pulled"])[:10],
    )


def _remove(given: Sequence[str]) -> int:
    """Remove each; returns 1 if one of them did not exist."""
    missing = 0
    for name in given:
        gone = remove(name)
        if not gone:
            print(
                f"error: {name}: is not in the cache{nearest(name, names())}; `macaron models` "
                "lists what is",
                file=sys.stderr,
            )
            missing = 1
        for entry in gone:
            print(entry.bundle)
    return missing
