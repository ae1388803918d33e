"""Weights by the names of BART's modules, and folders with them, written without its library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

DIM, FFN, HEADS, POSITIONS = 8, 12, 2, 2100
OPTIONS: dict[str, Any] = {
    "d_model": DIM,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": FFN,
    "decoder_ffn_dim": FFN,
}


def random_tensors(shapes: dict[str, Sequence[int]], seed: int = 0) -> dict[str, Tensor]:
    """A tensor of each shape, all of them different."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def bart_shapes(vocab_size: int, *, last_norms: bool = False) -> dict[str, Sequence[int]]:
    """One layer on each side; with `last_norms` each side ends with one."""
    shapes: dict[str, Sequence[int]] = {"model.shared.weight": (vocab_size, DIM)}

    def both(name: str, *shape: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]

    for side in ("encoder", "decoder"):
        layer = f"model.{side}.layers.0"
        attentions = ["self_attn"] + ["encoder_attn"] * (side == "decoder")
        for attention in attentions:
            for part in ("q", "k", "v", "out"):
                both(f"{layer}.{attention}.{part}_proj", DIM, DIM)
            both(f"{layer}.{attention}_layer_norm", DIM)
        both(f"{layer}.fc1", FFN, DIM)
        both(f"{layer}.fc2", DIM, FFN)
        both(f"{layer}.final_layer_norm", DIM)
        if last_norms:
            both(f"model.{side}.layer_norm", DIM)
    return shapes


def learnt_shapes(vocab_size: int, *, last_norms: bool = False) -> dict[str, Sequence[int]]:
    """The same with learnt positions, norms behind the embeddings and a bias of the output."""
    shapes = bart_shapes(vocab_size, last_norms=last_norms)
    for side in ("encoder", "decoder"):
        shapes[f"model.{side}.embed_positions.weight"] = (POSITIONS + 2, DIM)
        for kind in ("weight", "bias"):
            shapes[f"model.{side}.layernorm_embedding.{kind}"] = (DIM,)
    shapes["final_logits_bias"] = (1, vocab_size)
    return shapes


def write_folder(
    folder: Path, tensors: dict[str, Tensor], options: dict[str, Any], **files: Any
) -> None:
    """The weights and the options, and other JSON files by their names without the ending."""
    save_file(tensors, folder / "model.safetensors")
    for name, tree in {"config": options, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(tree), encoding="utf-8")
