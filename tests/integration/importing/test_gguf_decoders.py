"""Decoders with traits of their own in files of GGUF, against `transformers`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.importing.language_models.families.qwen import read_qwen2
from export.importing.language_models.gguf.file import read_gguf
from tests.integration.importing.test_gguf import add_tokenizer
from tests.toy.language_checkpoints import ROWS, write_llama

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

LAYERS = 6
RMS = {"attention.layer_norm_rms_epsilon": 1e-6}
GEMMA_KEYS = {"attention.key_length": 24, "attention.value_length": 24} | RMS
GEMMA_KEYS |= {"attention.sliding_window": 5}
GEMMA = {"head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 5, "rms_norm_eps": 1e-6}
FACTORS = {"short_factor": [1.0, 1.0, 1.1, 1.5], "long_factor": [1.0, 2.0, 3.0, 4.0]}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen2": (
        {"kind": "Qwen2", "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
            "original_max_position_embeddings": 32, "beta_fast": 2.0}},
        RMS | {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
               "rope.scaling.original_context_length": 32, "rope.scaling.yarn_beta_fast": 2.0,
               "rope.scaling.finetuned": True},
    ),
    "qwen3": ({"kind": "Qwen3", "head_dim": 24}, {"attention.key_length": 24} | RMS
              | {"attention.value_length": 24, "rope.dimension_count": 24}),
    "phi3": (
        {
            "kind": "Phi3", "pad_token_id": 0, "original_max_position_embeddings": 64,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "longrope", "rope_theta": 500.0, **FACTORS},
        },
        {"rope.scaling.original_context_length": 64, "attention.sliding_window": 0} | RMS
        | {"rope.scaling.attn_factor": math.sqrt(1 + math.log(2) / math.log(64))},
    ),
    "gemma2": ({"kind": "Gemma2", **GEMMA}, GEMMA_KEYS
               | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    "gemma3": (
        {"kind": "Gemma3Text", **GEMMA, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0} | GEMMA_KEYS,
    ),
    "olmo2": ({"kind": "Olmo2", "rms_norm_eps": 1e-6}, RMS),
    "gptneox": (
        {"kind": "GPTNeoX", "num_key_value_heads": None, "rope_parameters": {
            "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
        {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 4,
         "use_parallel_residual": True, "attention.head_count_kv": 4},
    ),
    "smollm3": ({"kind": "SmolLM3", "pad_token_id": 0}, RMS),
}  # fmt: skip
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}  # fmt: skip
WHOLE = {
    "model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm",
    "gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm",
    "embed_out": "output",
}  # fmt: skip


def their_name(architecture: str, name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    number, _, part = stem.partition("layers.")[2].partition(".")
    if part == "post_attention_layernorm":
        posts = architecture in ("gemma2", "gemma3", "olmo2")
        return f"blk.{number}.{'post_attention_norm' if posts else 'ffn_norm'}.{kind}"
    return f"blk.{number}.{PARTS[part]}.{kind}"


def their_rows(architecture: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """As llama.cpp's converter stores them."""
    if architecture.startswith("gemma") and "norm" in name:
        return tensor + 1.0
    if architecture == "gptneox" and "query_key_value" in name:
        return tensor.unflatten(0, (4, 3, -1)).transpose(0, 1).flatten(0, 2)
    if architecture == "smollm3" and ("q_proj" in name or "k_proj" in name):
        halves = tensor.unflatten(0, (-1, 2, 4))
        return halves.transpose(1, 2).flatten(0, 2)
    return tensor


def write_gguf(folder: Path, architecture: str) -> Any:
    """folder/model.gguf with a small model; returns the model."""
    changed, keys = MODELS[architecture]
    theirs = write_llama(folder / "folder", num_hidden_layers=LAYERS, **changed)
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    common = {
        "block_count": LAYERS, "context_length": 128, "embedding_length": 32,
        "feed_forward_length": 48, "attention.head_count": 4, "attention.head_count_kv": 2,
        "rope.freq_base": 500.0,
    }  # fmt: skip
    for name, value in (common | keys).items():
        add = {int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool}
        add.get(type(value), writer.add_string)(f"{architecture}.{name}", value)
    add_tokenizer(writer, folder / "folder")
    state = {name: tensor.detach() for name, tensor in theirs.named_parameters()}
    for name, tensor in state.items():
        rows = their_rows(architecture, name, tensor).contiguous().numpy()
        writer.add_tensor(their_name(architecture, name), rows)
    if architecture == "phi3":
        for kind, factors in FACTORS.items():
            own = f"rope_factors_{kind.removesuffix('_factor')}.weight"
            writer.add_tensor(own, np.array(factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return theirs


@pytest.mark.parametrize("architecture", MODELS)
def test_logits_are_those_of_transformers(tmp_path: Path, architecture: str) -> None:
    theirs = write_gguf(tmp_path, architecture)
    imported = read_gguf(tmp_path / "model.gguf")
    ids = torch.randint(0, ROWS, (3, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found, wanted = imported.model(ids), theirs(ids).logits
    assert wanted.std() > 0.5
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    assert imported.max_positions == (64 if architecture == "phi3" else 128)


def test_yarn_in_gguf_is_that_of_the_folder_it_was_made_of(tmp_path: Path) -> None:
    write_gguf(tmp_path, "qwen2")
    read, folder = read_gguf(tmp_path / "model.gguf"), read_qwen2(tmp_path / "folder")
    ours = read.model.config  # the header has the number in 32 bits
    assert replace(ours, norm_eps=folder.model.config.norm_eps) == folder.model.config
    assert read.max_positions == folder.max_positions
    theirs = folder.model.state_dict()
    for name, tensor in read.model.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=0)
