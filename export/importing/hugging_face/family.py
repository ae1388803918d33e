"""Reads a folder of a family with BART's modules: the common part is here, and each family adds its
own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from export.importing.folder import Options, Weights, read_weights
from export.importing.layers import State
from export.importing.model import (
    HARMLESS,
    FastTokenizerFile,
    Imported,
    LanguageChoice,
    Pieces,
    generation_options,
    loaded,
    read_options,
    search_options,
    special_id,
)
from serving.bundle.languages import Languages
from serving.search.ids import SpecialIds
from training.models import TransformerConfig


@dataclass(frozen=True)
class Folder:
    """A folder with its configuration."""

    path: Path
    options: Options
    generation: Options
    config: TransformerConfig
    special_ids: SpecialIds
    """Special pieces as the options name them; the vocabulary names the unknown piece."""


@dataclass(frozen=True)
class VocabularyPart:
    """Result of reading the vocabulary of a folder."""

    pieces: Pieces | FastTokenizerFile
    unk: int
    languages: Languages


@dataclass(frozen=True)
class Family:
    """The parts that a family defines; each raises ExportError for unsupported options."""

    kind: str
    """Name of the family, for messages."""
    config: Callable[[Options], TransformerConfig]
    text: Callable[[Folder, LanguageChoice], VocabularyPart]
    state: Callable[[Weights, Folder], State]
    """Takes all weights of the folder."""
    harmless: frozenset[str] = HARMLESS
    """Options that do not change any logit."""


def read_folder(path: Path, choice: LanguageChoice, family: Family) -> Imported:
    """Read a folder of `transformers`; raises ExportError, with file and entry, for unsupported
    ones."""
    options, generation = read_options(path), generation_options(path)
    config = family.config(options)
    pad, start, eos = (
        special_id(options, f"{name}_token_id", config.vocab_size)
        for name in ("pad", "decoder_start", "eos")
    )
    options.get("bos_token_id")  # missing, or in the vocabulary too
    folder = Folder(path, options, generation, config, SpecialIds(pad=pad, bos=start, eos=eos))
    text = family.text(folder, choice)
    search = search_options(options, generation)
    options.finish(family.harmless)
    weights = read_weights(path)
    state = family.state(weights, folder)
    weights.finish()
    return Imported(
        family.kind,
        loaded(config, state),
        text.pieces,
        replace(folder.special_ids, unk=text.unk),
        text.languages,
        search,
    )
