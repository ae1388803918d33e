"""Finds the files of a Marian model, and reads its vocabulary. The YAML of its decoder names the
files, or a folder holds one of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from export.errors import ExportError
from export.importing.folder import Options, has_config
from export.importing.marian.file import is_model, read_mapping
from export.importing.marian.shortlist import is_shortlist
from export.importing.model import LanguageChoice, Pieces, check_search, find_file
from export.importing.vocabularies.languages import (
    CheckpointLanguage,
    is_tag,
    marian_languages,
    short_code,
)
from export.importing.vocabularies.sentencepieces import pieces_of, read_sentencepiece
from serving.bundle.languages import Languages

_DECODERS = (".yml", ".yaml")
_NAMES = """alignment cache-size cpu-threads gemm-precision int8shift int8shiftAll int8shiftAlpha
int8shiftAlphaAll log log-level max-length max-length-break max-length-crop max-length-factor
maxi-batch maxi-batch-sort mini-batch mini-batch-words quiet quiet-translation relative-paths
skip-cost ssplit-mode ssplit-prefix-file version workspace"""
_HARMLESS = frozenset(_NAMES.split())
"""Options of a decoder that affect its speed and form, not its outputs."""
_MODELS = re.compile(r"^models[ \t]*:[ \t]*(\[|$)", re.MULTILINE)
"""A list of files; in a YAML of pieces a number would follow."""
_PAIR = re.compile(r"(?:^|\.)([a-z]{2})([a-z]{2})(?:\.|$)")
"""The pair of languages in the name of a model: `model.enpt.intgemm.alphas.bin`."""


_SIDES = re.compile(r"(source|src)\S* (target|trg|tgt)\S*")
"""The names of two vocabularies, in order: `srcvocab.enja.spm`, `trgvocab.enja.spm`."""


@dataclass(frozen=True)
class MarianFiles:
    """The files of one model, and the options of its decoder."""

    model: Path
    vocabularies: tuple[Path, ...]
    shortlist: Path | None
    decoder: Options


def has_marian(source: Path) -> bool:
    """Whether it is a model of Marian: a file of it, its decoder's YAML, or a folder with one."""
    if source.is_dir():
        return not has_config(source) and any(
            is_model(path) or _is_decoder(path) for path in source.iterdir()
        )
    return is_model(source) or _is_decoder(source)


def _is_decoder(path: Path) -> bool:
    if path.suffix not in _DECODERS or not path.is_file():
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return _MODELS.search(text) is not None


def find_files(source: Path) -> MarianFiles:
    """The files that belong to a model; raises ExportError if one is missing or not clear."""
    if not source.exists():
        raise ExportError(f"{source}: there is no such file or folder")
    folder = source if source.is_dir() else source.parent
    decoders = [path for path in sorted(folder.iterdir()) if _is_decoder(path)]
    if _is_decoder(source):
        decoders = [source]
    elif source.is_file():
        decoders = []
    if decoders:
        return _named(_only(folder, "YAML of a decoder", decoders))
    files = sorted(path for path in folder.iterdir() if path.is_file())
    models = [source] if source.is_file() else [path for path in files if is_model(path)]
    lists = [path for path in files if is_shortlist(path)]
    vocabularies = [path for path in files if path.suffix == ".spm"]
    if len(vocabularies) > 1 and not _SIDES.fullmatch(" ".join(p.name for p in vocabularies)):
        raise ExportError(
            f"{folder}: nothing says which vocabulary is the source's; give the decoder's .yml, or "
            f"name them source.spm and target.spm, got {', '.join(p.name for p in vocabularies)}"
        )
    return MarianFiles(
        _only(folder, "model (.npz or .bin)", models),
        tuple(vocabularies),
        _only(folder, "shortlist", lists) if lists else None,
        Options(folder, {}),
    )


def _only(folder: Path, what: str, found: list[Path]) -> Path:
    if len(found) != 1:
        listed = ", ".join(path.name for path in found) or "none"
        raise ExportError(
            f"{folder}: must hold one {what}, got {listed}; give the decoder's .yml, or the file "
            "of the model, as SOURCE"
        )
    return found[0]


def _named(path: Path) -> MarianFiles:
    """The files that a decoder's YAML names, which are beside it."""
    options = Options(path, read_mapping(path, path.read_bytes()))
    models = _paths(options, "models")
    if len(models) != 1:
        raise ExportError(
            f"{path}: models must name one file, got {len(models)}; ensembles are not supported"
        )
    lists = _paths(options, "shortlist")[:1]
    return MarianFiles(
        models[0],
        tuple(dict.fromkeys(_paths(options, "vocabs"))),
        lists[0] if lists else None,
        options,
    )


def _paths(options: Options, name: str) -> list[Path]:
    """The files of an option; other values in its list, as for a shortlist, are left out."""
    given = options.get(name, [])
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list):
        raise ExportError(f"{options.path}: {name} must be a list of files, got {given!r}")
    found = [options.path.parent / entry for entry in listed if isinstance(entry, str)]
    for file in found:
        if not file.is_file():
            raise ExportError(f"{options.path}: {name} names {file.name!r}, which is not beside it")
    return found


def search_of(files: MarianFiles) -> dict[str, Any]:
    """The search options of the decoder; raises ExportError for one of its options that is not
    supported."""
    decoder = files.decoder
    normalize = decoder.get("normalize", 1.0)
    search = {
        "beam_size": decoder.get("beam-size", 1 if files.shortlist else 5),
        "length_penalty": float(normalize) if isinstance(normalize, bool | int) else normalize,
        "eos_in_length": True,
    }
    decoder.must("word-penalty", 0, default=0)
    for name in ("allow-unk", "n-best", "output-sampling"):
        decoder.must(name, False, default=False)
    decoder.finish(_HARMLESS)
    return check_search(decoder.path, search, "beam-size or normalize")


@dataclass(frozen=True)
class MarianVocabulary:
    """The pieces of both sides, and Marian's ids of the end and of unknown pieces."""

    pieces: Pieces
    eos: int
    unk: int


@dataclass(frozen=True)
class _Side:
    """The vocabulary of one side, or of both."""

    path: Path
    written: list[str]
    control: frozenset[int]
    eos: int
    unk: int


def read_vocabulary(files: MarianFiles, source_size: int, size: int) -> MarianVocabulary:
    """Read SentencePiece models whose ids are the rows of the embeddings, one for both sides or one
    for each; or YAMLs of ids with `source.spm` and `target.spm` beside them.

    A last piece is added for the decoder's start. Raises ExportError if the numbers of pieces and
    rows differ, or if the sides have different ids of the end and of unknown pieces.
    """
    folder, given = files.model.parent, _distinct(files.vocabularies)
    if not given:
        raise ExportError(f"{folder}: a vocabulary (.spm) is missing; put it beside the model")
    if len(given) > 2:
        raise ExportError(
            f"{given[2]}: source and target have one vocabulary each, got {len(given)}"
        )
    if len({path.suffix == ".spm" for path in given}) > 1:
        raise ExportError(f"{given[1]}: must be of the kind of {given[0].name}, .spm or YAML")
    source, target = _side(given[0]), _side(given[-1])
    source_model, target_model = source.path, target.path
    if source.path.suffix != ".spm":
        source_model = find_file(folder, "source.spm", "the SentencePiece model of the source")
        target_model = find_file(folder, "target.spm", "the SentencePiece model of the target")
    for side, rows in ((source, source_size), (target, size)):
        if len(side.written) != rows:
            raise ExportError(
                f"{side.path}: must give each of the {rows} rows of the embedding one piece, got "
                f"{len(side.written)} pieces"
            )
    if (source.eos, source.unk) != (target.eos, target.unk):
        raise ExportError(
            f"{target.path}: </s> and <unk> must have the ids {source.eos} and {source.unk} that "
            f"{source.path.name} gives them, got {target.eos} and {target.unk}"
        )
    silent = target.control | {target.eos, size}
    pieces = Pieces([*target.written, "<start>"], silent, source_model, target_model)
    if source.written != target.written:
        silent = source.control | {source.eos}
        pieces = replace(pieces, source_written=source.written, source_control=silent)
    return MarianVocabulary(pieces, target.eos, target.unk)


def _side(path: Path) -> _Side:
    read = _sentencepiece if path.suffix == ".spm" else _yaml_vocabulary
    written, control, eos, unk = read(path)
    return _Side(path, written, frozenset(control), eos, unk)


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Files of different content."""
    by_content: dict[bytes, Path] = {}
    for path in paths:
        by_content.setdefault(path.read_bytes(), path)
    return list(by_content.values())


def _sentencepiece(path: Path) -> tuple[list[str], set[int], int, int]:
    model = read_sentencepiece(path)
    ids = range(model.vocab_size())
    if model.eos_id() < 0:
        raise ExportError(f"{path}: it has no piece </s>, which ends a source and a target")
    control = {i for i in ids if model.is_control(i)}
    return pieces_of(model), control, model.eos_id(), model.unk_id()


def _yaml_vocabulary(path: Path) -> tuple[list[str], set[int], int, int]:
    """Pieces and their ids. All pieces are read as texts, because `no` and `1` are pieces too."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        tree = yaml.load(path.read_bytes(), Loader=loader)  # only texts, lists and mappings
        ids = {str(piece): int(number) for piece, number in tree.items()}
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise ExportError(f"{path}: must be YAML that gives pieces their ids: {reason}") from error
    written = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in written] != list(range(len(written))):
        raise ExportError(f"{path}: must give pieces the ids from 0 on, each once")
    for piece in ("</s>", "<unk>"):
        if piece not in ids:
            raise ExportError(f"{path}: the piece {piece} is missing")
    tags = {i for piece, i in ids.items() if is_tag(piece)}
    return written, tags, ids["</s>"], ids["<unk>"]


def languages_of(files: MarianFiles, choice: LanguageChoice, pieces: Pieces) -> Languages:
    """The languages from the choice or from the names of the files; raises ExportError if there are
    none."""
    codes, missing = _named_pair(files), f"{files.model}: its name contains no languages"
    named = [CheckpointLanguage(each, missing) for each in (codes[:1], codes[1:])]
    return marian_languages(choice, pieces.source_written or pieces.written, *named)


def _named_pair(files: MarianFiles) -> tuple[str, ...]:
    """The source and target languages in `model_info.json` or in the name of the model; empty if
    there are none."""
    try:
        info = json.loads((files.model.parent / "model_info.json").read_text(encoding="utf-8"))
        parts = str(info["shortName"]).split("-")
    except (OSError, ValueError, KeyError, TypeError):
        parts = []
    pair = tuple(code for code in map(short_code, parts[:2]) if code)
    if len(pair) == 2:
        return pair
    found = _PAIR.search(files.model.name)
    return found.groups() if found else ()
