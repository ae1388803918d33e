"""The skeleton that the families with BART's modules share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from export.errors import ExportError
from export.importing.folder import Options, Weights
from export.importing.hugging_face.family import Family, Folder, VocabularyPart, read_folder
from export.importing.layers import State, transformer_state
from export.importing.model import Imported, LanguageChoice, Pieces, read_sizes
from serving.bundle.languages import Languages
from tests.unit.export.importing.small_bart import (
    OPTIONS,
    bart_shapes,
    random_tensors,
    write_folder,
)
from training.models import TransformerConfig

SIZE = 9
CHOICE = LanguageChoice(("de",), ("en",))
SPECIAL = {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 3}


def config(options: Options) -> TransformerConfig:
    found = read_sizes(options, activation="relu", scale_embedding=False)
    return replace(found, norm="post", positions="marian")


def text(folder: Folder, choice: LanguageChoice) -> VocabularyPart:
    assert choice is CHOICE
    written = [f"piece {i}" for i in range(folder.config.vocab_size)]
    pieces = Pieces(written, frozenset([folder.special_ids.pad]), folder.path, folder.path)
    return VocabularyPart(pieces, 7, Languages(source=("de",), target=("en",)))


def state(weights: Weights, folder: Folder) -> State:
    return transformer_state(weights, folder.config)


FAMILY = Family("a family", config, text, state, frozenset({"harmless"}))


def read(folder: Path, generation: Any = None, **told: Any) -> Imported:
    options = {**OPTIONS, "vocab_size": SIZE, **SPECIAL, **told}
    files = {} if generation is None else {"generation_config": generation}
    write_folder(folder, random_tensors(bart_shapes(SIZE)), options, **files)
    return read_folder(folder, CHOICE, FAMILY)


def test_what_all_have_is_read_and_each_part_is_asked(tmp_path: Path) -> None:
    imported = read(tmp_path, {"num_beams": 3}, num_beams=4, harmless=1, bos_token_id=0)
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (1, 7, 2, 3)
    assert (imported.kind, imported.search["beam_size"]) == ("a family", 3)
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.control == {1}
    shared = random_tensors(bart_shapes(SIZE))["model.shared.weight"]
    assert torch.equal(imported.model.state_dict()["embedding.weight"], shared)
    assert not imported.model.training


@pytest.mark.parametrize("name", SPECIAL)
def test_special_ids_are_rows(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError, match=f"{name} must be below vocab_size 9, got 9"):
        read(tmp_path, **{name: 9})
    with pytest.raises(ExportError, match=f"{name} must be an integer >= 0, got None"):
        read(tmp_path, **{name: None})


def test_options_and_tensors_that_nobody_asked_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"'rotary' \(1\) is not known"):
        read(tmp_path, rotary=1)
    given = random_tensors(bart_shapes(SIZE)) | {"model.gate": torch.ones(2)}
    write_folder(tmp_path, given, {**OPTIONS, "vocab_size": SIZE, **SPECIAL})
    with pytest.raises(ExportError, match=r"'model\.gate' \[2\] is not known"):
        read_folder(tmp_path, CHOICE, FAMILY)
