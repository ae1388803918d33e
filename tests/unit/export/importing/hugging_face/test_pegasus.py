"""Pegasus: pieces that count from 103 on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.hugging_face.pegasus import read_pegasus
from export.importing.model import Imported, LanguageChoice, Pieces
from tests.unit.export.importing.small_bart import (
    OPTIONS,
    bart_shapes,
    random_tensors,
    write_folder,
)
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
ASKED = LanguageChoice()


def read(
    folder: Path, choice: LanguageChoice = ASKED, ids: dict[str, int] = IDS, more: int = 0,
    told: dict[str, Any] | None = None, **files: Any,
) -> tuple[Imported, dict[str, Tensor], list[str]]:  # fmt: skip
    own = write_pieces(folder / "spiece.model", **ids)
    size = len(own) + 103 + more
    options = {**OPTIONS, "vocab_size": size, "pad_token_id": 0, "decoder_start_token_id": 0}
    options |= {"eos_token_id": 1, **(told or {})}
    shapes = {**bart_shapes(size, last_norms=True), "final_logits_bias": (1, size)}
    given = random_tensors(shapes)
    write_folder(folder, given, options, **files)
    return read_pegasus(folder, choice), given, own


def test_pieces_of_the_pre_training_stand_between(tmp_path: Path) -> None:
    imported, given, own = read(tmp_path)
    pieces = imported.pieces
    assert isinstance(pieces, Pieces)
    assert pieces.written[:5] == [own[0], own[1], "<mask_1>", "<mask_2>", "<unk_2>"]
    assert pieces.written[104:] == ["<unk_102>", *own[2:]]
    assert pieces.control == set(range(105))
    assert imported.special_ids.unk == 105
    config, state = imported.model.config, imported.model.state_dict()
    assert (config.norm, config.positions, config.embedding_scale) == ("pre", "marian", "none")
    assert torch.equal(state["output_bias"], given["final_logits_bias"][0])
    assert (imported.languages.source, imported.languages.target) == (("en",), ("en",))


def test_a_choice_of_languages_counts(tmp_path: Path) -> None:
    imported, _, _ = read(tmp_path, LanguageChoice(("de",), ("en",)))
    assert (imported.languages.source, imported.languages.target) == (("de",), ("en",))


def test_pieces_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"offset must be 103, got 0"):
        read(tmp_path, tokenizer_config={"offset": 0})
    read(tmp_path, tokenizer_config={"offset": 103})
    with pytest.raises(
        ExportError, match=r"<unk> must be number 105, but the embedding has \d+ rows"
    ):
        read(tmp_path, more=1)
    with pytest.raises(ExportError, match="<unk> must be number 105"):
        read(tmp_path, ids={"unk_id": 0, "pad_id": 2, "eos_id": 1, "bos_id": -1})


def test_options_that_are_not_supported_are_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="add_bias_logits True is not supported"):
        read(tmp_path, told={"add_bias_logits": True})
