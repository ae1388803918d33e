"""Reads, checks and writes the manifest of a bundle folder and the hashes of its files.

This is the only module that reads or writes a manifest.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from pathlib import Path

from pydantic import ValidationError

from serving.bundle.manifest import CARD, DECODED, Manifest, check_shortlist
from serving.errors import BundleError, FormatVersionError, HashMismatchError, InvalidOptionError
from serving.search.ids import OWN_IDS
from serving.search.options import parse_options
from serving.search.sampling_options import parse_generation_options

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


def read_manifest(folder: Path) -> Manifest:
    """Read and check a bundle's manifest and the hash of every file it lists.

    Raises BundleError (FormatVersionError, HashMismatchError) with one line that names both sides.
    """
    manifest = parse_manifest(folder)
    _check_files(folder, manifest)
    return manifest


def parse_manifest(folder: Path) -> Manifest:
    """Read and check a bundle's manifest alone; raises BundleError as `read_manifest` does."""
    path = folder / MANIFEST
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BundleError(f"{folder}: no readable {MANIFEST} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path}: not valid JSON ({error})") from error
    version = tree.get("format_version") if isinstance(tree, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BundleError(
            f"{path}: format_version must be an integer from 1 on, got {reprlib.repr(version)}"
        )
    if version > FORMAT_VERSION:
        raise FormatVersionError(
            f"{folder}: bundle format {version} is newer than this runtime reads "
            f"({FORMAT_VERSION}); upgrade serving or export again"
        )
    if isinstance(tree.get("shortlist"), dict) and "lexicon" not in tree["shortlist"]:
        raise BundleError(f"{path}: its shortlists have an earlier form; export it again")
    try:
        manifest = Manifest.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        got = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
        raise BundleError(" ".join(f"{path}: {where}: {first['msg']}{got}".split())) from error
    if manifest.task in DECODED:
        _check_decoding(path, manifest)
    else:
        _check_reading(path, manifest)
    return manifest


def _check_decoding(path: Path, manifest: Manifest) -> None:
    """Raise BundleError if a bundle lacks something that decoding needs, or if its manifest says
    something that cannot be true of it."""
    sizes = manifest.sizes
    if manifest.step is None or manifest.special_ids is None or not sizes.num_decoder_layers:
        raise BundleError(
            f"{path}: a bundle for {manifest.task!r} needs step, special_ids and decoder layers"
        )
    try:
        if manifest.task == "generate":
            parse_generation_options(manifest.search)
        else:
            check_shortlist(parse_options(manifest.search), manifest)
    except InvalidOptionError as error:
        raise BundleError(f"{path}: search: {error}") from error
    if sizes.alignment_layer is not None and sizes.alignment_layer >= sizes.num_decoder_layers:
        raise BundleError(
            f"{path}: sizes.alignment_layer must be below {sizes.num_decoder_layers}, the number "
            f"of decoder layers, got {sizes.alignment_layer}"
        )
    ids = manifest.special_ids
    if manifest.task == "translate" and ids.eos in (ids.pad, ids.unk):
        raise BundleError(f"{path}: special_ids must have eos neither pad nor unk, got {vars(ids)}")
    if ids != OWN_IDS and manifest.tokenizer.kind in ("sentencepiece", "words"):
        raise BundleError(
            f"{path}: special_ids must be {vars(OWN_IDS)} for a tokenizer of kind "
            f"{manifest.tokenizer.kind!r}, got {vars(ids)}"
        )
    if max(vars(ids).values()) >= sizes.vocab_size or min(vars(ids).values()) < 0:
        raise BundleError(
            f"{path}: special_ids must be in [0, {sizes.vocab_size - 1}], got {vars(ids)}"
        )
    widths = [each.axes[-1] for each in manifest.step.outputs if each.role == "logits"]
    if any(isinstance(width, int) and width != sizes.vocab_size for width in widths):
        raise BundleError(
            f"{path}: sizes.vocab_size must be {widths[0]}, the width of the logits, got "
            f"{sizes.vocab_size}"
        )
    others = manifest.other_ends
    if others and (manifest.task != "generate" or len({ids.eos, *others}) <= len(others)):
        raise BundleError(
            f"{path}: other_ends must be a language model's, each once and without eos, got "
            f"{list(others)}"
        )
    if not all(0 <= end < sizes.vocab_size for end in others):
        raise BundleError(
            f"{path}: other_ends must be in [0, {sizes.vocab_size - 1}], got {list(others)}"
        )
    if manifest.task == "translate" and (manifest.encoder is None or sizes.max_source is None):
        raise BundleError(f"{path}: a translation bundle needs encoder and sizes.max_source")


def _check_reading(path: Path, manifest: Manifest) -> None:
    """Raise BundleError if the bundle of an encoder lacks something that reading needs."""
    encoder, reading = manifest.encoder, manifest.reading
    if encoder is None or reading is None or manifest.sizes.max_source is None:
        raise BundleError(
            f"{path}: a bundle for {manifest.task!r} needs encoder, reading and sizes.max_source"
        )
    width = encoder.outputs[0].axes[-1]
    if manifest.task == "classify" and width != len(reading.labels):
        raise BundleError(
            f"{path}: reading.labels must name {width} classes, got {len(reading.labels)}"
        )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into the folder, with the hashes of all files but the card and the
    engines, which have hashes of their own."""
    others = {MANIFEST, CARD, *(engine.file for engine in manifest.engines)}
    files = {
        path.name: file_hash(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name not in others
    }
    tree = manifest.model_copy(update={"files": files}).model_dump(mode="json")
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_files(folder: Path, manifest: Manifest) -> None:
    files = manifest.tokenizer
    needed = {files.source_file, files.target_file}
    others = (files.vocabulary_file, files.source_vocabulary_file, files.chat_template_file)
    needed |= {file for file in others if file}
    needed |= {graph.file for graph in (manifest.encoder, manifest.step) if graph}
    needed |= {manifest.probe_file} if manifest.probe_file else set()
    if manifest.shortlist:
        needed |= {manifest.shortlist.lexicon, manifest.shortlist.step.file}
    unlisted = needed - manifest.files.keys()
    if unlisted:
        raise BundleError(f"{folder}: {MANIFEST} lists no sha256 for {sorted(unlisted)[0]!r}")
    for name, wanted in manifest.files.items():
        path = folder / name
        if name != path.name or name == "..":
            raise BundleError(
                f"{folder}: {MANIFEST} lists {name!r}, which is not the plain name of a file in it"
            )
        try:
            found = file_hash(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BundleError(
                f"{folder}: {name!r} is listed in {MANIFEST} but cannot be read ({reason})"
            ) from error
        if found != wanted:
            raise HashMismatchError(
                f"{path}: sha256 is {found[:12]}, {MANIFEST} says {wanted[:12]}; "
                "the file is damaged or was changed, copy the bundle again"
            )


def find_bundles(root: Path) -> list[Path]:
    """The bundle folders directly under `root`, sorted by name; they are not read."""
    return sorted(path.parent for path in root.glob(f"*/{MANIFEST}"))
