"""The weights of a decoder as any file names them, in the places of a `CausalLanguageModel`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from export.importing.folder import Weights
from export.importing.language_models.model import model_config
from training.models import LanguageModelConfig

State = dict[str, Tensor]


def as_they_are(rows: Tensor, heads: int) -> Tensor:
    """Return the rows unchanged: features that are turned together are half a head apart, as
    here."""
    del heads
    return rows


def as_it_is(gain: Tensor) -> Tensor:
    """Return the gain unchanged: a norm multiplies by it, as here."""
    return gain


def one_more(gain: Tensor) -> Tensor:
    """Add one to a gain, because Gemma stores gains less one."""
    return 1.0 + gain


@dataclass(frozen=True)
class Names:
    """The names of a decoder's tensors in a file; those of a layer have `{}` in place of its
    number. A tensor with an empty name does not exist."""

    embedding: str
    output: str
    norm: str
    query_key_value: tuple[str, ...]
    """The names of three products, or of one that holds the rows of all three."""
    attention_output: str
    up: tuple[str, ...]
    """The names of the gate and of what it multiplies, or of one product that holds the rows of
    both."""
    down: str
    attention_norm: str = ""
    ffn_norm: str = ""
    attention_output_norm: str = ""
    """The name of the norm of attention's output, before it is added."""
    ffn_output_norm: str = ""
    query_norm: str = ""
    key_norm: str = ""
    heads: Callable[[Tensor, int], Tensor] = as_they_are
    """Reorders the rows of queries or keys, or of all three in one, given the number of their
    heads, into the order used here: by head, in halves that are turned together."""
    gain: Callable[[Tensor], Tensor] = as_it_is
    """Turns a stored value into the gain of a norm."""


def decoder_state(weights: Weights, path: Path, sizes: dict[str, Any], names: Names) -> State:
    """The state of a `CausalLanguageModel` of these sizes, which `path` has. Raises ExportError for
    tensors that are missing, of another shape, or left over."""
    config = model_config(path, sizes)
    state = _matrices(weights, config, names)
    layers = _Layers(weights, config, names)
    for number in range(config.num_decoder_layers):
        state |= layers.norms(number) | layers.attention(number) | layers.feed_forward(number)
    state |= layers.norm(names.norm, "norm", config.model_dim)
    weights.finish()
    return state


def _matrices(weights: Weights, config: LanguageModelConfig, names: Names) -> State:
    shape = (config.vocab_size, config.model_dim)
    embedding, output = f"{names.embedding}.weight", f"{names.output}.weight"
    if config.tie_embeddings:
        return {"embedding.weight": weights.take_one((embedding, output), *shape)}
    return {
        "embedding.weight": weights.take(embedding, *shape),
        "output_matrix": weights.take(output, *shape),
    }


@dataclass(frozen=True)
class _Layers:
    weights: Weights
    config: LanguageModelConfig
    names: Names

    def norm(self, there: str, here: str, width: int) -> State:
        """The gain of a norm, and its bias if its kind has one."""
        state = {f"{here}.weight": self.names.gain(self.weights.take(f"{there}.weight", width))}
        if self.config.norm_type == "layer":
            state[f"{here}.bias"] = self.weights.take(f"{there}.bias", width)
        return state

    def norms(self, number: int) -> State:
        """The norms before and after both sublayers of a layer."""
        names, state = self.names, State()
        for place, there in (
            ("self_attention_residual.norm", names.attention_norm),
            ("self_attention_residual.output_norm", names.attention_output_norm),
            ("ffn_residual.norm", names.ffn_norm),
            ("ffn_residual.output_norm", names.ffn_output_norm),
        ):
            if there:
                here = f"layers.{number}.{place}"
                state |= self.norm(there.format(number), here, self.config.model_dim)
        return state

    def attention(self, number: int) -> State:
        """The products and biases of a layer's attention, and the norms of its queries and keys."""
        config, names = self.config, self.names
        here, width = f"layers.{number}.self_attention", config.head_width
        counts = (config.num_heads, config.kv_heads, config.kv_heads)
        state: State = {}
        for kind in ("weight", "bias") if config.attention_bias else ("weight",):
            state[f"{here}.in_proj.{kind}"] = self._query_key_value(number, kind, counts)
            if kind == "weight" or config.attention_output_bias:
                state[f"{here}.out_proj.{kind}"] = self._take(
                    names.attention_output, number, kind, config.model_dim, counts[0] * width
                )
        for ours, theirs, heads in (
            ("query", names.query_norm, counts[0]),
            ("key", names.key_norm, counts[1]),
        ):
            if theirs:
                size = width if config.query_key_norm == "head" else heads * width
                place = f"{here}.query_key_norm.{ours}"
                state |= self.norm(theirs.format(number), place, size)
        return state

    def feed_forward(self, number: int) -> State:
        """The products of a layer's feed-forward, with its biases if it has any."""
        config, names = self.config, self.names
        here, state = f"layers.{number}.ffn", State()
        gated = 2 if config.activation in ("swiglu", "geglu", "geglu_tanh", "reglu") else 1
        rows = config.ffn_dim * gated // len(names.up)
        for kind in ("weight", "bias") if config.ffn_bias else ("weight",):
            parts = [self._take(up, number, kind, rows, config.model_dim) for up in names.up]
            state[f"{here}.up_proj.{kind}"] = torch.cat(parts)
            state[f"{here}.down_proj.{kind}"] = self._take(
                names.down, number, kind, config.model_dim, config.ffn_dim
            )
        return state

    def _take(self, name: str, number: int, kind: str, outputs: int, inputs: int) -> Tensor:
        """The weight or bias of a product."""
        shape = (outputs, inputs) if kind == "weight" else (outputs,)
        return self.weights.take(f"{name.format(number)}.{kind}", *shape)

    def _query_key_value(self, number: int, kind: str, counts: tuple[int, int, int]) -> Tensor:
        """The rows of queries, keys and values, one below the other."""
        width, dim, names = self.config.head_width, self.config.model_dim, self.names
        if len(names.query_key_value) == 1:
            rows = self._take(names.query_key_value[0], number, kind, sum(counts) * width, dim)
            return names.heads(rows, counts[0])
        found = []
        for place, (name, heads) in enumerate(zip(names.query_key_value, counts, strict=True)):
            rows = self._take(name, number, kind, heads * width, dim)
            found.append(names.heads(rows, heads) if place < 2 else rows)
        return torch.cat(found)
