"""PyTorch eager on a language model: one new token per row and step, keys and values concatenated.

Shape letters: B rows, T tokens so far, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.systems.pytorch.eager_models import append, attend, project, to_half
from training.models import CausalLanguageModel, LanguageModelConfig
from training.models.context import KeyValue
from training.runs.checkpoint import load_weights, read_state

Generate = Callable[[list[list[int]], int, int], list[list[int]]]


def load_eager(folder: Path, device: str = "cpu", *, half: bool = False) -> Generate:
    """Prompts, number of tokens and top-k (1 is greedy) to generated ids; for full attention and
    standard layers. With `half` all is computed in fp16."""
    config = LanguageModelConfig(**read_state(folder)["model"])
    model = CausalLanguageModel(config)
    load_weights(folder, model)
    model.eval().to(device)
    if half:
        model = to_half(model)
    dtype = model.output_weight.dtype

    @torch.inference_mode()
    def generate(prompts: list[list[int]], count: int, top_k: int) -> list[list[int]]:
        # Left padding would change positions; rows of one length are read together.
        lengths = sorted({len(prompt) for prompt in prompts})
        caches: list[KeyValue] = []
        longest = lengths[-1]
        masks, rows = [], []
        for length in lengths:
            group = [n for n, prompt in enumerate(prompts) if len(prompt) == length]
            found = _read(model, torch.tensor([prompts[n][:-1] for n in group], device=device))
            pad = longest - length
            found = [
                KeyValue(
                    torch.nn.functional.pad(pair.keys, (0, 0, pad, 0)),
                    torch.nn.functional.pad(pair.values, (0, 0, pad, 0)),
                )
                for pair in found
            ]
            caches = (
                [_join(*pairs) for pairs in zip(caches, found, strict=True)] if caches else found
            )
            masks += [[-torch.inf] * pad + [0.0] * (length - 1)] * len(group)
            rows += group
        mask_BT = torch.tensor(masks, dtype=dtype, device=device)
        tokens_B1 = torch.tensor([[prompts[n][-1]] for n in rows], device=device)
        positions_B1 = torch.tensor([[len(prompts[n]) - 1] for n in rows], device=device)
        drawn: list[Tensor] = []
        for _ in range(count):
            mask_BT = torch.nn.functional.pad(mask_BT, (0, 1))
            mask = mask_BT[:, None, None] if len(lengths) > 1 else None
            logits_BV = _step(model, tokens_B1, positions_B1, caches, mask)
            if top_k == 1:
                tokens_B1 = logits_BV.argmax(-1, keepdim=True)
            else:
                best = logits_BV.topk(top_k)
                place = torch.multinomial(best.values.softmax(-1), 1)
                tokens_B1 = best.indices.gather(1, place)
            drawn.append(tokens_B1)
            positions_B1 = positions_B1 + 1
        outputs = dict(zip(rows, torch.cat(drawn, 1).tolist(), strict=True))
        return [outputs[n] for n in range(len(prompts))]

    return generate


def _join(first: KeyValue, second: KeyValue) -> KeyValue:
    """The rows of two caches of equal length, one below the other."""
    return KeyValue(torch.cat([first.keys, second.keys]), torch.cat([first.values, second.values]))


def _read(model: CausalLanguageModel, ids_BT: Tensor) -> list[KeyValue]:
    """Keys and values of prompts of one length."""
    caches = []
    positions_1T = torch.arange(ids_BT.shape[1], device=ids_BT.device)[None]
    x = model.embedding_norm(model.embedding(ids_BT, positions_1T))
    for layer in model.layers:
        parts: Any = layer

        def own(x: Tensor, parts: Any = parts) -> Tensor:
            query, pair = project(parts.self_attention, x)
            caches.append(pair)
            out = attend(query, pair, parts.self_attention.num_heads, causal=True)
            return parts.self_attention.out_proj(out)

        x = parts.ffn_residual(parts.self_attention_residual(x, own), parts.ffn)
    return caches


def _step(
    model: CausalLanguageModel,
    token_ids_B1: Tensor,
    positions_B1: Tensor,
    caches: list[KeyValue],
    mask: Tensor | None,
) -> Tensor:
    """Append a token to each row; returns the logits [B,V] of the next one."""
    x = model.embedding_norm(model.embedding(token_ids_B1, positions_B1))
    for index, layer in enumerate(model.layers):
        parts: Any = layer

        def own(x: Tensor, parts: Any = parts, index: int = index) -> Tensor:
            query, new = project(parts.self_attention, x)
            cache = caches[index] = append(caches[index], new, axis=1)
            out = attend(query, cache, parts.self_attention.num_heads, mask)
            return parts.self_attention.out_proj(out)

        x = parts.ffn_residual(parts.self_attention_residual(x, own), parts.ffn)
    return model.output_logits(model.norm(x))[:, 0]
