"""mBART-50: its pieces by place, learnt positions and norms behind the embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.hugging_face.mbart import TAGS, read_mbart
from export.importing.model import Imported, LanguageChoice, Pieces
from tests.unit.export.importing.small_bart import (
    OPTIONS,
    POSITIONS,
    learnt_shapes,
    random_tensors,
    write_folder,
)
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces


def read(
    folder: Path, told: dict[str, Any] | None = None, more: dict[str, Tensor] | None = None,
    **files: Any,
) -> tuple[Imported, dict[str, Tensor], list[str]]:  # fmt: skip
    own = write_pieces(folder / "sentencepiece.bpe.model")
    size = 4 + len(own) - 3 + len(TAGS) + 1
    special = {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}
    sizes = {"vocab_size": size, "max_position_embeddings": POSITIONS}
    kinds = dict.fromkeys(["normalize_before", "add_final_layer_norm", "normalize_embedding"], True)
    given = random_tensors(learnt_shapes(size, last_norms=True)) | (more or {})
    write_folder(folder, given, {**OPTIONS, **special, **sizes, **kinds, **(told or {})}, **files)
    return read_mbart(folder, LanguageChoice()), given, own


def test_special_pieces_stand_first_and_tags_and_mask_last(tmp_path: Path) -> None:
    imported, given, own = read(tmp_path, tokenizer_config={"tokenizer_class": "MBart50Tokenizer"})
    pieces = imported.pieces
    assert isinstance(pieces, Pieces)
    assert pieces.written == ["<s>", "<pad>", "</s>", "<unk>", *own[3:], *TAGS, "<mask>"]
    silent = {pieces.written[i] for i in pieces.control}
    assert silent == {"<s>", "<pad>", "</s>", "<mask>", *TAGS}
    assert imported.special_ids.unk == 3
    assert imported.languages.source_tags["en"] == "en_XX"
    assert len(imported.languages.first_pieces) == len(TAGS) == 52
    state = imported.model.state_dict()
    assert torch.equal(state["output_bias"], given["final_logits_bias"][0])
    for side in ("encoder", "decoder"):
        table = given[f"model.{side}.embed_positions.weight"]
        assert torch.equal(state[f"{side}_side.positions.weight"], table[2:])
        norm = given[f"model.{side}.layernorm_embedding.weight"]
        assert torch.equal(state[f"{side}_side.norm.weight"], norm)
        last = given[f"model.{side}.layer_norm.weight"]
        assert torch.equal(state[f"{side}_norm.weight"], last)


def test_versions_of_layers_are_no_weights(tmp_path: Path) -> None:
    read(tmp_path, more={"model.encoder.version": torch.ones(1)})
    with pytest.raises(ExportError, match=r"'model\.encoder\.gate' \[1\] is not known"):
        read(tmp_path, more={"model.encoder.gate": torch.ones(1)})


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"max_position_embeddings": 512}, r"max_position_embeddings must be >= \d+, for sources"),
        ({"normalize_before": False}, "normalize_before False is not supported"),
        (
            {"vocab_size": 99},
            r"with tags and special pieces there are \d+, but the embedding has 99",
        ),
        ({"normalize_embedding": False}, "normalize_embedding False is not supported"),
    ],
)
def test_options_that_are_not_supported_are_named(
    tmp_path: Path, told: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read(tmp_path, told)


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match="tokenizer_class 'MBartTokenizer' is not supported for m"
    ):
        read(tmp_path, tokenizer_config={"tokenizer_class": "MBartTokenizer"})
