"""Which of GPT-2's tensors stands where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.language_models.families.gpt2 import ACTIVATIONS, read_gpt2
from export.importing.language_models.model import ImportedLanguageModel
from tests.unit.export.importing.language_models.small_llama import (
    DIM,
    SIZE,
    gpt2_tensors,
    write_tokenizer,
)
from tests.unit.export.importing.small_bart import write_folder

OPTIONS = {
    "n_embd": DIM, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": SIZE,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def read(
    folder: Path, given: dict[str, Tensor] | None = None, **told: Any
) -> ImportedLanguageModel:
    write_tokenizer(folder)
    write_folder(folder, given or gpt2_tensors(), OPTIONS | told)
    return read_gpt2(folder)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_each_tensor_has_its_place_and_products_are_turned(tmp_path: Path, prefix: str) -> None:
    given = gpt2_tensors(prefix)
    masks = {
        f"{prefix}h.0.attn.bias": torch.ones(1),
        f"{prefix}h.0.attn.masked_bias": torch.ones(1),
    }
    imported = read(tmp_path, given | masks)
    state, layer = imported.model.state_dict(), f"{prefix}h.0"
    for ours, theirs in {
        "embedding.weight": f"{prefix}wte.weight",
        "positions.weight": f"{prefix}wpe.weight",
        "norm.bias": f"{prefix}ln_f.bias",
        "layers.0.self_attention_residual.norm.weight": f"{layer}.ln_1.weight",
        "layers.0.ffn_residual.norm.weight": f"{layer}.ln_2.weight",
        "layers.0.self_attention.in_proj.bias": f"{layer}.attn.c_attn.bias",
    }.items():
        assert torch.equal(state[ours], given[theirs]), ours
    for ours, theirs in {
        "self_attention.in_proj": "attn.c_attn",
        "self_attention.out_proj": "attn.c_proj",
        "ffn.up_proj": "mlp.c_fc",
        "ffn.down_proj": "mlp.c_proj",
    }.items():
        assert torch.equal(state[f"layers.0.{ours}.weight"], given[f"{layer}.{theirs}.weight"].T)
    assert imported.max_positions == 16
    assert imported.special_ids.eos == 2


def test_an_output_of_its_own_is_read_where_the_options_say_so(tmp_path: Path) -> None:
    given = gpt2_tensors(output=True)
    imported = read(tmp_path, given, tie_word_embeddings=False)
    assert torch.equal(imported.model.state_dict()["output_matrix"], given["lm_head.weight"])
    with pytest.raises(ExportError, match=r"'lm_head\.weight' differs from 'transformer\.wte"):
        read(tmp_path, given)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_our_names(tmp_path: Path, name: str) -> None:
    config = read(tmp_path, activation_function=name).model.config
    assert config.activation == ACTIVATIONS[name]
    assert config.ffn_dim == 4 * DIM


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"activation_function": "tanh"}, "activation_function 'tanh' is not supported"),
        ({"scale_attn_weights": False}, "scale_attn_weights False is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention True is not supported"),
        ({"n_inner": 9}, r"mlp\.c_fc\.weight' must be \[8, 9\] by config\.json, got \[8, 32\]"),
        ({"rotary": True}, "'rotary' .True. is not known"),
    ],
)
def test_options_that_are_not_supported_are_named(
    tmp_path: Path, told: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read(tmp_path, **told)
