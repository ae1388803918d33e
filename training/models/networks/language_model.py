"""Decoder-only language models: full or light attention, standard or Macaron layers.

Wang et al. 2020, "Transformer on a Diet". Shape letters: B rows, T tokens, Q queries, C cache
slots, W ancestors, D model, H heads of keys and values, E head, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from training.models.base import DecodingNetwork
from training.models.blocks import ORDERS, CausalLayer, ParallelLayer
from training.models.configs.language_model import LanguageModelConfig
from training.models.context import (
    CacheContext,
    StepNeeds,
    cache_tensors,
    needs_of,
    split_caches,
)
from training.models.dropout import Dropout
from training.models.stack import Stack
from training.models.sublayers.embedding import TokenEmbedding
from training.models.sublayers.light_attention import LightSelfAttention, layer_offsets, offset_mask
from training.models.sublayers.norms import make_norm, make_output_norm


class PlacedTokens(NamedTuple):
    """The tokens that a step appends, Q per row, and their places among those in the slots."""

    token_ids_BQ: Tensor
    positions_BQ: Tensor
    slot_positions_BC: Tensor
    """Positions of the tokens in all slots, the new ones included; positions of slots that
    `visible` hides do not matter."""
    write_index_B: Tensor
    """The first of the cache slots into which the tokens of a row go, one each."""
    visible_B1QC: Tensor
    """Additive attention mask: 0 where a token may see slot c, -inf elsewhere."""


class LanguageStep(NamedTuple):
    """Output of a decoding step: states of the new tokens, and the extended caches."""

    x_BQD: Tensor
    """States of the new tokens, from which `output_logits` makes logits."""
    caches: list[Tensor]
    """The caches, with the values of the new tokens in their slots."""


class CausalLanguageModel(DecodingNetwork):
    """A language model: tokens to logits of the next tokens. Training calls `states`, decoding
    calls `decode_step`.

    Nothing is carried from one training segment to the next: each starts at position 0 without
    context, as in the authors' code.
    """

    decoder_kind = "lm"
    stacks: ClassVar[dict[str, str]] = {"decoder": "layers"}

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.config: LanguageModelConfig = config
        self.embedding = TokenEmbedding(config, config.positions)
        self.positions: nn.Embedding | None = None
        if config.positions == "learnt":
            self.positions = nn.Embedding(config.max_positions, config.model_dim)
            nn.init.normal_(self.positions.weight, std=config.model_dim**-0.5)
        # Post-norm has one here, as in the authors' code with norms switched on.
        self.embedding_norm = make_norm(config, "post")
        self.offsets = layer_offsets(config)
        self.layers = Stack(
            [_make_layer(config, number, offsets) for number, offsets in enumerate(self.offsets)],
            config.num_decoder_layers,
            config.decoder_layerdrop,
            learns_rates=config.learns_layerdrop,
        )
        self.norm = make_output_norm(config, "pre", "output", "sandwich")
        self.logit_soft_cap = config.logit_soft_cap
        self.output_dropout = Dropout(config.output_dropout)
        self.output_bias = (
            nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        )
        self.output_matrix: nn.Parameter | None = None
        if not config.tie_embeddings:
            shape = (config.vocab_size, config.model_dim)
            self.output_matrix = nn.Parameter(torch.randn(shape) * config.model_dim**-0.5)

    @property
    def cache_axes(self) -> tuple[str | int, ...]:
        """Axes of keys and values: by head, so that a step's one query reads its keys in order."""
        return ("B", self.config.kv_heads, "C", self.config.head_width)

    @property
    def layer_needs(self) -> list[StepNeeds]:
        """The needs of each layer for a decoding step."""
        return [needs_of(layer) for layer in self.layers]

    @property
    def output_weight(self) -> Tensor:
        """The embedding [V,D], which input and output share, or a matrix of its own."""
        return self.embedding.vectors if self.output_matrix is None else self.output_matrix

    def decode_step(
        self, tokens: PlacedTokens, caches: list[Tensor], ancestors_BQW: Tensor | None = None
    ) -> LanguageStep:
        """Append Q tokens per row to the caches. Each token sees the slots that both `visible` and
        its layer's offsets allow.

        `caches` are in the order of `split_caches`, keys and values [B,H,C,E]. `ancestors` are the
        slots of each token's nearest ancestors, if `step_needs` asks for them. A slot that no layer
        can reach any more may be dropped, or reused for another token.
        """
        token_ids_BQ, positions_BQ, slot_positions_BC, write_index_B, visible_B1QC = tokens
        distance_B1QC = positions_BQ[:, None, :, None] - slot_positions_BC[:, None, None, :]
        masks: dict[tuple[int, ...] | None, Tensor] = {None: visible_B1QC}
        for offsets in self.offsets:
            if offsets is not None and offsets not in masks:
                masks[offsets] = visible_B1QC + offset_mask(distance_B1QC, offsets)
        contexts = [
            CacheContext(
                visible=masks[offsets],
                write_index=write_index_B,
                positions=positions_BQ,
                slot_positions=slot_positions_BC,
                key_values=own_key_values,
                states=own_states,
                ancestors=ancestors_BQW,
            )
            for offsets, (own_key_values, own_states) in zip(
                self.offsets, split_caches(self.layer_needs, caches), strict=True
            )
        ]
        x_BQD = self._decode(token_ids_BQ, positions_BQ, contexts)
        return LanguageStep(x_BQD, cache_tensors(contexts))

    def states(self, token_ids_BT: Tensor) -> Tensor:
        """Decoder states [B,T,D] of training rows, which have no padding."""
        positions_1T = torch.arange(token_ids_BT.shape[1], device=token_ids_BT.device)[None]
        contexts = [CacheContext() for _ in self.layers]
        x_BTD = self._decode(token_ids_BT, positions_1T, contexts)
        return self.output_dropout(x_BTD)

    def _decode(
        self, token_ids_BQ: Tensor, positions_BQ: Tensor, contexts: list[CacheContext]
    ) -> Tensor:
        x_BQD = self.embedding(token_ids_BQ, positions_BQ)
        if self.positions is not None:
            # The padding of a chunk may be after the last position; nothing sees it.
            x_BQD = x_BQD + self.positions(positions_BQ.clamp(max=self.config.max_positions - 1))
        x_BQD = self.embedding_norm(x_BQD)
        each = [(context,) for context in contexts]
        return self.norm(self.layers.run(x_BQD, each, self.run_layer))


def _make_layer(
    config: LanguageModelConfig, number: int, offsets: tuple[int, ...] | None
) -> CausalLayer:
    """Make a layer that attends to these offsets. With `dropout_layers: reference` the last layer
    drops nothing."""
    if config.dropout_layers == "reference" and number == config.num_decoder_layers - 1:
        config = replace(config, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    config = config.of_layer(number)
    parallel = config.block == "parallel"
    named = ORDERS["standard" if parallel else config.block]
    order = {name: scale for name, scale in named.items() if "source" not in name}
    layer = ParallelLayer if parallel else CausalLayer
    return layer(config, order, lambda _: LightSelfAttention(config, offsets))
