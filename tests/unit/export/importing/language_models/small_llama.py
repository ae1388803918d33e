"""Weights of small language models by the names of `transformers`, and a vocabulary, written
without its library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from tests.unit.export.importing.small_bart import random_tensors

DIM, HEADS, KV_HEADS, FFN, SIZE = 8, 4, 2, 12, 9
WIDTH = DIM // HEADS


def llama_tensors(*, biases: bool = False, output: bool = True) -> dict[str, Tensor]:
    """A Llama of one layer with grouped queries."""
    layer, shapes = "model.layers.0", {}

    def product(name: str, rows: int, columns: int, *, biased: bool = False) -> None:
        shapes[f"{layer}.{name}.weight"] = (rows, columns)
        if biased:
            shapes[f"{layer}.{name}.bias"] = (rows,)

    kinds: dict[str, Sequence[int]] = shapes
    kinds["model.embed_tokens.weight"] = (SIZE, DIM)
    kinds["model.norm.weight"] = (DIM,)
    if output:
        kinds["lm_head.weight"] = (SIZE, DIM)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        kinds[f"{layer}.{norm}.weight"] = (DIM,)
    product("self_attn.q_proj", DIM, DIM, biased=biases)
    product("self_attn.k_proj", KV_HEADS * WIDTH, DIM, biased=biases)
    product("self_attn.v_proj", KV_HEADS * WIDTH, DIM, biased=biases)
    product("self_attn.o_proj", DIM, DIM, biased=biases)
    product("mlp.gate_proj", FFN, DIM, biased=biases)
    product("mlp.up_proj", FFN, DIM, biased=biases)
    product("mlp.down_proj", DIM, FFN, biased=biases)
    return random_tensors(kinds)


LLAMA: dict[str, Any] = {
    "hidden_size": DIM,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "num_hidden_layers": 1,
    "intermediate_size": FFN,
    "vocab_size": SIZE,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def gpt2_tensors(prefix: str = "transformer.", *, output: bool = False) -> dict[str, Tensor]:
    """A GPT-2 of one layer."""
    shapes: dict[str, Sequence[int]] = {"wte.weight": (SIZE, DIM), "wpe.weight": (16, DIM)}

    def both(name: str, *shape: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[-1:]

    both("h.0.ln_1", DIM)
    both("h.0.ln_2", DIM)
    both("h.0.attn.c_attn", DIM, 3 * DIM)
    both("h.0.attn.c_proj", DIM, DIM)
    both("h.0.mlp.c_fc", DIM, 4 * DIM)
    both("h.0.mlp.c_proj", 4 * DIM, DIM)
    both("ln_f", DIM)
    found = {f"{prefix}{name}": t for name, t in random_tensors(shapes).items()}
    return found | (random_tensors({"lm_head.weight": (SIZE, DIM)}, seed=1) if output else {})


def write_tokenizer(folder: Path) -> bytes:
    """A vocabulary of two letters; returns the content of its file."""
    pieces = ["<unk>", "<s>", "</s>", "a", "b", "ab"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(ids, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return (folder / "tokenizer.json").read_bytes()
