"""Decoder-only language models: full or light attention, standard or Macaron layers.

Wang et al. 2020, "Transformer on a Diet". Shape letters: B rows, T tokens, Q queries, C cache
slots, D model, H heads, E head, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from training.models.attention import CacheContext, KeyValue, cache_tensors
from training.models.base import DecodingNetwork
from training.models.blocks import Residual, feed_forward
from training.models.config import LanguageModelConfig
from training.models.dropout import Dropout
from training.models.embedding import TokenEmbedding
from training.models.light_attention import LightSelfAttention, layer_offsets, offset_mask
from training.models.norms import make_norm, make_output_norm


class LanguageStep(NamedTuple):
    """What a step of decoding makes of new tokens."""

    x_BQD: Tensor
    """States of the new tokens, from which `output_logits` makes logits."""
    caches: list[Tensor]
    """The caches with the new tokens' keys and values in their slots."""


class LanguageLayer(nn.Module):
    """Causal self-attention, full or light, then the feed-forward."""

    def __init__(self, config: LanguageModelConfig, offsets: tuple[int, ...] | None) -> None:
        super().__init__()
        self.self_attention = LightSelfAttention(config, offsets)
        self.ffn = feed_forward(config)
        self.self_attention_residual = Residual(config)
        self.ffn_residual = Residual(config)

    def forward(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        """[B,Q,D] to [B,Q,D]; `context.cache` is replaced by the appended cache."""
        x_BQD = self.self_attention_residual(
            x_BQD, lambda x: self.self_attention.decode(x, context)
        )
        return self.ffn_residual(x_BQD, self.ffn)


class MacaronLanguageLayer(LanguageLayer):
    """Half feed-forward, self-attention, half feed-forward (Lu et al. 2019, equations 17 to 19)."""

    def __init__(self, config: LanguageModelConfig, offsets: tuple[int, ...] | None) -> None:
        super().__init__(config, offsets)
        self.first_ffn = feed_forward(config)
        self.first_ffn_residual = Residual(config, scale=0.5)
        self.ffn_residual.scale = 0.5

    def forward(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        """[B,Q,D] to [B,Q,D]; `context.cache` is replaced by the appended cache."""
        return super().forward(self.first_ffn_residual(x_BQD, self.first_ffn), context)


class CausalLanguageModel(DecodingNetwork):
    """One embedding for input and output; `states` trains, `decode_step` is what decoding calls.

    Nothing is carried from one training segment to the next: each starts cold, at position 0, as in
    the authors' code.
    """

    decoder_kind = "lm"

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.config: LanguageModelConfig = config
        self.embedding = TokenEmbedding(config, config.positions)
        # Post-norm has one here, as the authors' code has where its norms are on.
        self.embedding_norm = make_norm(config, "post")
        layer = MacaronLanguageLayer if config.block == "macaron" else LanguageLayer
        self.offsets = layer_offsets(config)
        self.layers = nn.ModuleList(
            layer(_layer_config(config, number), offsets)
            for number, offsets in enumerate(self.offsets)
        )
        self.norm = make_output_norm(config, "pre")
        self.output_dropout = Dropout(config.output_dropout)
        self.output_bias = (
            nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        )

    @property
    def cache_axes(self) -> tuple[str | int, ...]:
        """Axes of each cache: by head, so that a step's one query reads its keys in order."""
        heads = self.config.num_heads
        return ("B", heads, "C", self.config.model_dim // heads)

    @property
    def num_caches(self) -> int:
        """Keys and values of each self-attention."""
        return 2 * self.config.num_decoder_layers

    @property
    def output_weight(self) -> Tensor:
        """The embedding [V,D], which input and output share."""
        return self.embedding.vectors

    def decode_step(
        self,
        token_ids_BQ: Tensor,
        positions_BQ: Tensor,
        slot_positions_BC: Tensor,
        write_index_B: Tensor,
        visible_B1QC: Tensor,
        caches: list[Tensor],
    ) -> LanguageStep:
        """Append Q tokens a row at `write_index`; each sees the slots that `visible` (0 or -inf)
        and its layer's offsets both show.

        `slot_positions` are the positions of the tokens in all slots, the new ones included; those
        of slots that `visible` hides do not matter. `caches` are [key, value] * L, each [B,H,C,E].
        A slot that no layer can reach any more may be dropped, or taken by another token.
        """
        distance_B1QC = positions_BQ[:, None, :, None] - slot_positions_BC[:, None, None, :]
        masks: dict[tuple[int, ...] | None, Tensor] = {None: visible_B1QC}
        for offsets in self.offsets:
            if offsets is not None and offsets not in masks:
                masks[offsets] = visible_B1QC + offset_mask(distance_B1QC, offsets)
        contexts = [
            CacheContext(
                visible=masks[offsets],
                cache=KeyValue(caches[2 * number], caches[2 * number + 1]),
                write_index=write_index_B,
            )
            for number, offsets in enumerate(self.offsets)
        ]
        x_BQD = self._decode(token_ids_BQ, positions_BQ, contexts)
        return LanguageStep(x_BQD, cache_tensors(contexts))

    def states(self, token_ids_BT: Tensor) -> Tensor:
        """Decoder states [B,T,D] of training rows, which are full: none is padded."""
        positions_1T = torch.arange(token_ids_BT.shape[1], device=token_ids_BT.device)[None]
        contexts = [CacheContext() for _ in self.layers]
        x_BTD = self._decode(token_ids_BT, positions_1T, contexts)
        return self.output_dropout(x_BTD)

    def _decode(
        self, token_ids_BQ: Tensor, positions_BQ: Tensor, contexts: list[CacheContext]
    ) -> Tensor:
        x_BQD = self.embedding_norm(self.embedding(token_ids_BQ, positions_BQ))
        for layer, context in zip(self.layers, contexts, strict=True):
            x_BQD = self.run_layer(layer, x_BQD, context)
        return self.norm(x_BQD)


def _layer_config(config: LanguageModelConfig, layer: int) -> LanguageModelConfig:
    """The configuration of one layer: where asked for, the last one drops nothing."""
    if config.dropout_layers == "all" or layer < config.num_decoder_layers - 1:
        return config
    return replace(config, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
