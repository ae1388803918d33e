"""The caches and computations of PyTorch eager for each architecture: each step takes one new token
per hypothesis.

Shape letters: B sentences, K beams, R live hypotheses (B * K), S source positions, T target
positions so far, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from bench.errors import BenchError
from training.batches.batching import pad
from training.models import JointModel, Transformer, TranslationModel
from training.models.base import padding_mask
from training.models.blocks import STANDARD, DecoderLayer
from training.models.context import KeyValue
from training.models.networks.joint import JointLayer
from training.models.sublayers.attention import SelfAttention
from training.models.sublayers.embedding import POSITIONS, TokenEmbedding

ModelT = TypeVar("ModelT", bound=nn.Module)


class EagerBatch(Protocol):
    """R hypotheses of a running batch: their caches, and the source repeated for each of them."""

    def step(self, token_ids_R1: Tensor, position: int) -> Tensor:
        """Append a token to each hypothesis; returns the logits [R,V] of the next one."""

    def reorder(self, order_R: Tensor) -> None:
        """Continue hypothesis r from hypothesis `order[r]`.

        `order` is shorter if a sentence is done; each beam's parent belongs to its own sentence.
        """


def start_batch(
    model: TranslationModel, sources: Sequence[Sequence[int]], beam_size: int
) -> EagerBatch:
    """Encode sources of ids; nothing has been generated yet.

    Raises BenchError for a model whose decoding in PyTorch eager is not written here.
    """
    if POSITIONS[model.config.positions] is None:
        raise BenchError(
            "PyTorch eager decodes models whose positions are added to the embedding; got "
            f"positions {model.config.positions!r}, give a run of another one"
        )
    if isinstance(model, JointModel):
        return _JointBatch(model, sources, beam_size)
    if isinstance(model, Transformer) and _is_baseline(model):
        return _TransformerBatch(model, sources, beam_size)
    raise BenchError(
        "PyTorch eager decodes the baseline Transformer and joint models only; "
        "give a run of one of these"
    )


def _is_baseline(model: Transformer) -> bool:
    if model.config.share_layers:
        return False
    return all(
        type(m) is DecoderLayer
        and list(m.order) == list(STANDARD)
        and isinstance(m.self_attention, SelfAttention)
        for m in model.decoder
    )


def to_half(model: ModelT) -> ModelT:
    """The model with all weights and states in fp16, which is enough for decoding."""

    def round_states(module: nn.Module, inputs: object, x: Tensor) -> Tensor:
        return x.half()

    for module in model.modules():
        if isinstance(module, TokenEmbedding):  # positions are in fp32
            module.register_forward_hook(round_states)
    return model.half()


def _padded(
    model: TranslationModel, sources: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor | None]:
    """The ids [B,S] and the mask, on the model's device and in its type."""
    ids_BS = pad([list(source) for source in sources]).to(model.output_weight.device)
    mask = padding_mask(ids_BS)
    return ids_BS, None if mask is None else mask.to(_type(model))


def _type(model: TranslationModel) -> torch.dtype:
    return model.output_weight.dtype


class _TransformerBatch:
    """Source keys and values are projected once and repeated for each beam."""

    def __init__(
        self, model: Transformer, sources: Sequence[Sequence[int]], beam_size: int
    ) -> None:
        self._model = model
        ids_BS, mask = _padded(model, sources)
        memory_BSD = model.encode(ids_BS, mask)
        self._sources = [
            KeyValue(
                layer.keys.repeat_interleave(beam_size, 0),
                layer.values.repeat_interleave(beam_size, 0),
            )
            for layer in model.project_source(memory_BSD)
        ]
        self._mask_R11S = None if mask is None else mask.repeat_interleave(beam_size, 0)
        empty_R0D = memory_BSD.new_zeros(len(sources) * beam_size, 0, memory_BSD.shape[2])
        self._caches = [KeyValue(empty_R0D, empty_R0D) for _ in self._sources]  # [R,T,D]

    def step(self, token_ids_R1: Tensor, position: int) -> Tensor:
        model = self._model
        x_R1D = model.embedding(
            token_ids_R1, torch.tensor([[position]], device=token_ids_R1.device)
        )
        for index, layer in enumerate(model.decoder):
            assert isinstance(layer, DecoderLayer)
            x_R1D = self._run_layer(index, layer, x_R1D)
        return model.output_logits(model.decoder_norm(x_R1D))[:, 0]

    def reorder(self, order_R: Tensor) -> None:
        fewer = len(order_R) < len(self._caches[0].keys)
        self._caches = [_select(cache, order_R) for cache in self._caches]
        if fewer:  # beams of one sentence share its source, so parents do not matter
            self._sources = [_select(source, order_R) for source in self._sources]
            if self._mask_R11S is not None:
                self._mask_R11S = self._mask_R11S.index_select(0, order_R)

    def _run_layer(self, index: int, layer: DecoderLayer, x_R1D: Tensor) -> Tensor:
        own, source = layer.self_attention, layer.source_attention
        assert isinstance(own, SelfAttention)

        def attend_own(x_R1D: Tensor) -> Tensor:
            query, new = project(own, x_R1D)
            cache = self._caches[index] = append(self._caches[index], new, axis=1)
            return own.out_proj(attend(query, cache, own.num_heads))

        def attend_source(x_R1D: Tensor) -> Tensor:
            query, pair = source.query_proj(x_R1D), self._sources[index]
            return source.out_proj(attend(query, pair, source.num_heads, self._mask_R11S))

        x_R1D = layer.self_attention_residual(x_R1D, attend_own)
        x_R1D = layer.source_attention_residual(x_R1D, attend_source)
        return layer.ffn_residual(x_R1D, layer.ffn)


class _JointBatch:
    """Decodes a joint model as its authors do: a token makes a slab of 1 x S states for each
    hypothesis.

    The PreNet's output is repeated for each beam. Only target attention has a cache: the input of
    all other sublayers depends on the new token.
    """

    def __init__(self, model: JointModel, sources: Sequence[Sequence[int]], beam_size: int) -> None:
        self._model = model
        ids_BS, mask = _padded(model, sources)
        mask_BS = torch.zeros_like(ids_BS, dtype=_type(model)) if mask is None else mask[:, 0, 0]
        (source_BSD,) = model.encode_source(ids_BS, mask_BS)
        self._source_RSD = source_BSD.repeat_interleave(beam_size, 0)
        self._mask_RS = None if mask is None else mask_BS.repeat_interleave(beam_size, 0)
        rows, length, dim = self._source_RSD.shape
        empty = source_BSD.new_zeros(rows, length, 0, dim)
        self._caches = [KeyValue(empty, empty) for _ in model.layers]  # [R,S,T,D]

    def step(self, token_ids_R1: Tensor, position: int) -> Tensor:
        model = self._model
        target_R1D = model.embedding(
            token_ids_R1, torch.tensor([[position]], device=token_ids_R1.device)
        )
        x_RSD = self._source_RSD + target_R1D
        for index, layer in enumerate(model.layers):
            assert isinstance(layer, JointLayer)
            x_RSD = self._run_layer(index, layer, x_RSD)
        x_R1D, _ = model.reduction(x_RSD[:, None], self._mask_RS)
        return model.output_logits(model.decoder_norm(x_R1D.to(_type(model))))[:, 0]

    def reorder(self, order_R: Tensor) -> None:
        fewer = len(order_R) < len(self._source_RSD)
        self._caches = [_select(cache, order_R) for cache in self._caches]
        if fewer:
            self._source_RSD = self._source_RSD.index_select(0, order_R)
            if self._mask_RS is not None:
                self._mask_RS = self._mask_RS.index_select(0, order_R)

    def _run_layer(self, index: int, layer: JointLayer, x_RSD: Tensor) -> Tensor:
        target, source = layer.target_attention, layer.source_attention
        mask_R11S = None if self._mask_RS is None else self._mask_RS[:, None, None]

        def attend_target(x_RSD: Tensor) -> Tensor:
            query_RSD, new = project(target, x_RSD)
            new = KeyValue(new.keys[:, :, None], new.values[:, :, None])
            cache = self._caches[index] = append(self._caches[index], new, axis=2)
            rows = KeyValue(cache.keys.flatten(0, 1), cache.values.flatten(0, 1))  # [R*S,T,D]
            out = attend(query_RSD.flatten(0, 1)[:, None], rows, target.num_heads)
            return target.out_proj(out).view_as(x_RSD)

        def attend_source(x_RSD: Tensor) -> Tensor:
            query_RSD, pair = project(source, x_RSD)
            return source.out_proj(attend(query_RSD, pair, source.num_heads, mask_R11S))

        x_RSD = layer.target_attention_residual(x_RSD, attend_target)
        x_RSD = layer.first_ffn_residual(x_RSD, layer.first_ffn)
        x_RSD = layer.source_attention_residual(x_RSD, attend_source)
        return layer.ffn_residual(x_RSD, layer.ffn)


def project(module: SelfAttention, x: Tensor) -> tuple[Tensor, KeyValue]:
    """Queries, and keys and values, of a self-attention's fused projection."""
    query, key, value = module.in_proj(x).chunk(3, dim=-1)
    return query, KeyValue(key, value)


def attend(
    query: Tensor,
    pair: KeyValue,
    num_heads: int,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
) -> Tensor:
    """Attention of [R,Q,D] by PyTorch's fused kernel, which for one query is the quickest it has.

    The models' own form is written for training.
    """

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    operands = (heads(query), heads(pair.keys), heads(pair.values))
    out = nn.functional.scaled_dot_product_attention(*operands, attn_mask=mask, is_causal=causal)
    return out.transpose(1, 2).flatten(2)


def append(cache: KeyValue, new: KeyValue, axis: int) -> KeyValue:
    """The cache with one more target position."""
    return KeyValue(
        torch.cat([cache.keys, new.keys], axis), torch.cat([cache.values, new.values], axis)
    )


def _select(pair: KeyValue, order_R: Tensor) -> KeyValue:
    """Rows of keys and values."""
    return KeyValue(pair.keys.index_select(0, order_R), pair.values.index_select(0, order_R))
