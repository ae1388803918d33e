"""Translation models of CTranslate2, whatever they were converted from, and the packages of Argos
Translate, which hold such a model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import CONFIG, number_of, read_json
from export.importing.hugging_face.m2m100 import CONTROL, many_languages, tags_among
from export.importing.model import Imported, LanguageChoice, loaded
from export.importing.toolkits.ctranslate2_file import is_spec_file, read_spec_file
from export.importing.toolkits.spec_layers import SpecLayers
from export.importing.vocabularies.languages import (
    CheckpointLanguage,
    is_tag,
    language_tags,
    marian_languages,
)
from export.importing.vocabularies.pair import (
    Written,
    check_special,
    check_tags,
    find_pieces,
    one_pair,
    special_piece_ids,
)
from serving.bundle.languages import Languages
from serving.search.ids import SpecialIds

MODEL = "model.bin"
_SPEC = "TransformerSpec"
_UNUSED = re.compile(r"madeupword\d+")
"""The names that CTranslate2's converter gives to rows of M2M100 without a piece."""
_PADDING = ("<blank>", "<pad>", "[PAD]")


def find_model(source: Path) -> Path | None:
    """The folder of the model: the source itself, or a folder in a package of Argos Translate; None
    if there is no model."""
    return next((f for f in (source, source / "model") if is_spec_file(f / MODEL)), None)


def read_ctranslate2(source: Path, choice: LanguageChoice) -> Imported:
    """Read a model of CTranslate2; raises ExportError, with file and entry, if something is not
    supported."""
    folder = find_model(source)
    if folder is None:
        raise ExportError(f"{source}: {MODEL} is missing, neither here nor in its folder model")
    path = folder / CONFIG
    options = read_json(path) if path.is_file() else {}
    about = source / "metadata.json"
    written = _vocabulary(folder)
    languages = _tagged(folder, choice, written)
    several = languages is not None and bool(languages.source_tags)
    if languages is None:
        languages = one_pair(source, choice, read_json(about) if about.is_file() else {})
    file = read_spec_file(folder / MODEL)
    if file.spec != _SPEC:
        raise ExportError(
            f"{folder / MODEL}: {file.spec!r} is not supported, it must be {_SPEC!r}, an "
            "encoder-decoder that translates"
        )
    epsilon = options.get("layer_norm_epsilon")
    if epsilon is not None:
        epsilon = number_of(f"{path}: layer_norm_epsilon", epsilon)
    layers = SpecLayers(folder / MODEL, file, epsilon)
    from_zero = bool(file.options.get("decoder/start_from_zero_embedding"))
    layers.check_rows(folder, written)
    special = _special_ids(path, options, written.target, from_zero=from_zero)
    if special.pad == len(written.target):  # a row that was left out, as nothing writes it
        target = [*written.target, "<pad>"]
        written = Written(written.source if written.differ else target, target)
        layers.append_row()
    config = layers.config
    pieces = written.target
    check_special(path, written, {pieces[i]: i for i in (special.unk, special.eos)})
    silent = {pieces[i] for i in (special.pad, special.bos, special.eos)} - {pieces[special.unk]}
    silent |= _never_in_texts(written, several=several)
    return Imported(
        "a Transformer of CTranslate2",
        loaded(config, layers.state),
        find_pieces(source, written, sorted(silent), languages, folder),
        special,
        languages,
        {"beam_size": 5, "length_penalty": 1.0, "eos_in_length": True},
        # Models converted from transformers get it in the tokens of a request.
        source_end=bool(options.get("add_source_eos")) or from_zero or several,
    )


def _tagged(folder: Path, choice: LanguageChoice, written: Written) -> Languages | None:
    """The languages of a model that reads language tags, as those of Marian, M2M100 and NLLB; None
    if its vocabulary has no tags. Raises ExportError for other tags."""
    if language_tags(written.source):
        unnamed = CheckpointLanguage((), f"{folder}: does not name its languages")
        return marian_languages(choice, written.source, unnamed, unnamed)
    tags = {} if written.differ else tags_among(written.target)
    if tags:
        return many_languages(tags, choice)
    check_tags(folder, written)
    return None


def _never_in_texts(written: Written, *, several: bool) -> set[str]:
    """Pieces that do not occur in texts: all tags and, in a model with a tag for each language,
    pieces without meaning."""
    tags = {piece for piece in written.source if is_tag(piece)}
    if not several:
        return tags
    unused = {piece for piece in written.target if _UNUSED.fullmatch(piece)}
    return tags | unused | set(tags_among(written.target).values()) | CONTROL


def _vocabulary(folder: Path) -> Written:
    """The written forms of the ids of both sides; raises ExportError if there are none."""
    for names in (("shared",), ("source", "target")):
        for ending in (".json", ".txt"):
            paths = [folder / f"{name}_vocabulary{ending}" for name in names]
            if not all(path.is_file() for path in paths):
                continue
            lists = [_read_vocabulary(path) for path in paths]
            return Written(lists[0], lists[-1])
    raise ExportError(f"{folder}: shared_vocabulary.json is missing, the pieces of the ids")


def _read_vocabulary(path: Path) -> list[str]:
    try:
        content = path.read_text(encoding="utf-8")
        found = json.loads(content) if path.suffix == ".json" else content.split("\n")
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: cannot be read: {error}") from error
    if path.suffix == ".txt" and found[-1] == "":
        found.pop()
    if not isinstance(found, list) or not all(isinstance(piece, str) for piece in found):
        raise ExportError(f"{path}: must be a list of pieces")
    return found


def _special_ids(
    path: Path, options: dict[str, Any], written: list[str], *, from_zero: bool
) -> SpecialIds:
    """The ids of the special pieces. If the vocabulary has no padding, a row is appended for it; a
    decoder that starts from zeros starts with that row too."""
    bos = options.get("bos_token") or "<s>"
    names = {
        "unk": options.get("unk_token") or "<unk>",
        "eos": options.get("eos_token") or "</s>",
    }
    if not from_zero:
        names["start"] = options.get("decoder_start_token") or bos
    ids = special_piece_ids(path, written, names)
    pad = next((written.index(piece) for piece in _PADDING if piece in written), len(written))
    if from_zero:
        pad = len(written)
    return SpecialIds(pad, ids["unk"], pad if from_zero else ids["start"], ids["eos"])
