"""Which of Llama's tensors stands where, and how its positions are scaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Weights
from export.importing.language_models.families.llama import read_llama
from export.importing.language_models.model import ImportedLanguageModel
from export.importing.language_models.options import SIZES, window_of
from export.importing.language_models.state import Names, as_they_are, decoder_state
from tests.unit.export.importing.language_models.small_llama import (
    DIM,
    FFN,
    HEADS,
    KV_HEADS,
    LLAMA,
    SIZE,
    WIDTH,
    llama_tensors,
    write_tokenizer,
)
from tests.unit.export.importing.small_bart import write_folder

LAYER = "model.layers.0"


def read(
    folder: Path, given: dict[str, Tensor] | None = None, **told: Any
) -> ImportedLanguageModel:
    write_tokenizer(folder)
    write_folder(folder, given or llama_tensors(), LLAMA | told)
    return read_llama(folder)


def test_each_tensor_has_its_place(tmp_path: Path) -> None:
    given = llama_tensors()
    imported = read(tmp_path, given, rms_norm_eps=1e-3)
    config, state = imported.model.config, imported.model.state_dict()
    assert (config.num_heads, config.kv_heads, config.norm_eps) == (HEADS, KV_HEADS, 1e-3)
    assert (config.activation, config.positions, config.norm_type) == ("swiglu", "rotary", "rms")
    for ours, theirs in {
        "embedding.weight": ["model.embed_tokens"],
        "output_matrix": ["lm_head"],
        "norm.weight": ["model.norm"],
        "layers.0.self_attention.in_proj.weight": [
            f"{LAYER}.self_attn.{part}_proj" for part in "qkv"
        ],
        "layers.0.self_attention.out_proj.weight": [f"{LAYER}.self_attn.o_proj"],
        "layers.0.self_attention_residual.norm.weight": [f"{LAYER}.input_layernorm"],
        "layers.0.ffn_residual.norm.weight": [f"{LAYER}.post_attention_layernorm"],
        "layers.0.ffn.up_proj.weight": [f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.up_proj"],
        "layers.0.ffn.down_proj.weight": [f"{LAYER}.mlp.down_proj"],
    }.items():
        assert torch.equal(state[ours], torch.cat([given[f"{name}.weight"] for name in theirs]))
    assert (imported.special_ids.bos, imported.special_ids.eos) == (1, 2)
    assert imported.max_positions == 64
    assert imported.tokenizer == (tmp_path / "tokenizer.json").read_bytes()
    assert imported.kind.startswith("Llama")


def test_biases_and_a_shared_matrix_are_read_where_the_options_say_so(tmp_path: Path) -> None:
    given = llama_tensors(biases=True, output=False)
    given[f"{LAYER}.self_attn.rotary_emb.inv_freq"] = torch.ones(WIDTH // 2)  # computed here
    imported = read(tmp_path, given, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
    state = imported.model.state_dict()
    biases = torch.cat([given[f"{LAYER}.self_attn.{part}_proj.bias"] for part in "qkv"])
    assert torch.equal(state["layers.0.self_attention.in_proj.bias"], biases)
    down = given[f"{LAYER}.mlp.down_proj.bias"]
    assert torch.equal(state["layers.0.ffn.down_proj.bias"], down)
    assert imported.model.config.tie_embeddings


def test_heads_are_turned_as_the_names_say(tmp_path: Path) -> None:
    del tmp_path
    given = {name.replace("model.", "m."): t for name, t in llama_tensors().items()}
    seen = []

    def turned(rows: Tensor, heads: int) -> Tensor:
        seen.append(heads)
        return rows.flip(0)

    names = Names(
        embedding="m.embed_tokens",
        output="lm_head",
        norm="m.norm",
        attention_norm="m.layers.{}.input_layernorm",
        ffn_norm="m.layers.{}.post_attention_layernorm",
        query_key_value=(
            "m.layers.{}.self_attn.q_proj",
            "m.layers.{}.self_attn.k_proj",
            "m.layers.{}.self_attn.v_proj",
        ),
        attention_output="m.layers.{}.self_attn.o_proj",
        up=("m.layers.{}.mlp.gate_proj", "m.layers.{}.mlp.up_proj"),
        down="m.layers.{}.mlp.down_proj",
        heads=turned,
    )
    sizes = {
        **SIZES, "model_dim": DIM, "num_heads": HEADS, "num_kv_heads": KV_HEADS, "ffn_dim": FFN,
        "num_decoder_layers": 1, "vocab_size": SIZE, "attention_bias": False, "ffn_bias": False,
        "tie_embeddings": False,
    }  # fmt: skip
    state = decoder_state(Weights(Path("m"), dict(given)), Path("c"), sizes, names)
    query, key, value = (given[f"m.layers.0.self_attn.{part}_proj.weight"] for part in "qkv")
    wanted = torch.cat([query.flip(0), key.flip(0), value])
    assert torch.equal(state["layers.0.self_attention.in_proj.weight"], wanted)
    assert seen == [HEADS, KV_HEADS]
    assert as_they_are(query, HEADS) is query


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({}, {"rotary_base": 10000.0}),
        ({"rope_theta": 500.0}, {"rotary_base": 500.0}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, {"rotary_base": 7.0}),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rotary_scaling": "linear", "rotary_factor": 2.0},
        ),
        (
            {"rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
            }},
            {"rotary_scaling": "llama3", "rotary_factor": 8.0, "rotary_low_factor": 1.0,
             "rotary_high_factor": 4.0, "rotary_trained_length": 32},
        ),
    ],
)  # fmt: skip
def test_positions_are_turned_as_the_options_say(
    tmp_path: Path, told: dict[str, Any], found: dict[str, Any]
) -> None:
    config = read(tmp_path, **told).model.config
    assert {name: getattr(config, name) for name in found} == found


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            {"rope_scaling": {"type": "yarn"}},
            "'yarn' needs a number factor >= 1, got None",
        ),
        ({"rope_scaling": {"type": "linear"}}, "of the type 'linear' needs a number factor"),
        ({"rope_parameters": {"rope_type": "x"}}, "rope_parameters of the type 'x' is not"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"head_dim": 3}, "head_dim 3 is not supported; it must be 2"),
        ({"layer_types": ["sliding_attention"]}, "layer_types .* is not supported"),
        ({"qk_norm": True}, "'qk_norm' .True. is not known"),
        ({"num_attention_heads": 3}, "num_heads"),
    ],
)
def test_options_that_are_not_supported_are_named(
    tmp_path: Path, told: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read(tmp_path, **told)


def test_a_window_is_one_where_it_is_narrower_than_all_there_is(tmp_path: Path) -> None:
    assert window_of(None, 64) == window_of(64, 64) == {}
    assert window_of(16, 64) == {
        "attention": "cascade",
        "first_window": 16,
        "window_multiplier": 1,
    }
    imported = read(tmp_path, model_type="mistral", sliding_window=16)
    assert imported.kind.startswith("Mistral")
    assert imported.model.config.first_window == 16


def test_tensors_that_are_missing_or_not_known_are_named(tmp_path: Path) -> None:
    given = llama_tensors()
    gate = given.pop(f"{LAYER}.mlp.gate_proj.weight")
    with pytest.raises(ExportError, match=r"mlp\.gate_proj\.weight' is missing"):
        read(tmp_path, given)
    more = given | {f"{LAYER}.mlp.gate_proj.weight": gate, "model.gate": torch.ones(2)}
    with pytest.raises(ExportError, match=r"'model\.gate' \[2\] is not known"):
        read(tmp_path, more)
