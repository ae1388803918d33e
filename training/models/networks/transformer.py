"""The encoder-decoder Transformer; its block makes it the baseline, Macaron Net or one's own.

Shape letters: B sentences, S source positions, T target positions, Q queries, C cache slots,
D model, V vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from serving.search.ids import PAD_ID
from training.models.base import (
    DecodingStep,
    NewTokens,
    StepContext,
    TranslationModel,
    padding_mask,
)
from training.models.blocks import Block
from training.models.configs.transformer import TransformerConfig
from training.models.context import (
    AttentionContext,
    KeyValue,
    StepNeeds,
    cache_tensors,
    needs_of,
    split_caches,
)
from training.models.stack import Halting, Stack
from training.models.sublayers.embedding import SideEmbedding, TokenEmbedding, sinusoid
from training.models.sublayers.norms import make_norm, make_output_norm
from training.models.sublayers.positions import RelativeBias

T = TypeVar("T")


class Transformer(TranslationModel):
    """Encoder-decoder. Source, target and output share one embedding, or have separate ones."""

    decoder_kind = "cross"
    alignment_role = "alignment_query"
    output_matrix: nn.Parameter | None

    def __init__(self, config: TransformerConfig, block: Block) -> None:
        super().__init__()
        self.config: TransformerConfig = config
        # If layers are shared, each step adds the positions again.
        positions = "none" if config.share_layers else config.positions
        of_encoder = config.of_encoder()
        self.embedding = TokenEmbedding(config, positions)
        self.encoder = make_stack(of_encoder, "encoder", block.encoder_layer)
        self.decoder = make_stack(config, "decoder", block.decoder_layer)
        self.encoder_halting, self.decoder_halting = make_halting(config), make_halting(config)
        self.encoder_norm = make_norm(of_encoder, "pre", "sandwich")
        self.decoder_norm = make_output_norm(config, "pre", "sandwich")
        self.logit_soft_cap = config.logit_soft_cap
        self.encoder_side, self.decoder_side = SideEmbedding(of_encoder), SideEmbedding(config)
        self.encoder_bias = make_bias(of_encoder, sees_ahead=True)
        self.decoder_bias = make_bias(config, sees_ahead=False)
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.source_embedding: TokenEmbedding | None = None
        if config.source_vocab_size:
            own = replace(of_encoder, vocab_size=config.source_vocab_size)
            self.source_embedding = TokenEmbedding(own, positions)
        self.register_parameter("output_matrix", None)
        if not config.tie_embeddings:
            shape = (config.vocab_size, config.model_dim)
            self.output_matrix = nn.Parameter(torch.randn(shape) * config.model_dim**-0.5)

    @property
    def cache_axes(self) -> tuple[str | int, ...]:
        """Axes of keys and values: a row for each sentence, whose beams share it."""
        return ("B", "C", self.config.attention_width)

    @property
    def layer_needs(self) -> list[StepNeeds]:
        """The needs of each decoder layer for a decoding step; a shared layer is listed once for
        each step that it takes."""
        return self._at_each_step([needs_of(layer) for layer in self.decoder])

    @property
    def num_sources(self) -> int:
        """Keys and values of each source attention."""
        return 2 * len(self.decoder)

    @property
    def alignment_layer(self) -> int:
        """The decoder layer whose source attention is nearest to word alignments: the last but one
        (Garg et al. 2019, section 4), or the only one."""
        return max(0, len(self.decoder) - 2)

    @property
    def _alignment_step(self) -> int:
        """The step of the decoder whose source attention gives the alignment: the last but one, or
        the only one."""
        return max(0, self.decoder.depth - 2)

    def encode_source(self, source_BS: Tensor, source_mask_BS: Tensor) -> list[Tensor]:
        """Source ids and mask to [key, value] * L, each [B,S,D]."""
        mask_B1SS = source_mask_BS[:, None, None, :].expand(-1, -1, source_BS.shape[1], -1)
        layers = self.project_source(self.encode(source_BS, mask_B1SS))
        return [tensor for layer in layers for tensor in (layer.keys, layer.values)]

    def decode_step(self, tokens: NewTokens, memory: StepContext) -> DecodingStep:
        """States [B,Q,D] of new tokens, the queries [B,Q,D] of `alignment_layer`'s source attention
        and the appended caches, each [B,C,D] or of a state's own width."""
        token_ids_BQ, positions_BQ, write_index_B, visible_B1QC = tokens
        if self.decoder_bias is not None:
            assert memory.slot_positions_BC is not None
            slots_B1C = memory.slot_positions_BC.unsqueeze(1)
            visible_B1QC = visible_B1QC + self.decoder_bias(slots_B1C - positions_BQ.unsqueeze(2))
        mask_B11S = memory.source_mask_BS[:, None, None, :]
        source_mask = mask_B11S.expand(-1, -1, token_ids_BQ.shape[1], -1)
        sources = memory.sources
        pairs = [KeyValue(*pair) for pair in zip(sources[::2], sources[1::2], strict=True)]
        contexts = [
            AttentionContext(
                source=source,
                source_mask=source_mask,
                visible=visible_B1QC,
                write_index=write_index_B,
                positions=positions_BQ,
                key_values=own_key_values,
                states=own_states,
                ancestors=memory.ancestors_BQW,
                slot_positions=memory.slot_positions_BC,
            )
            for source, (own_key_values, own_states) in zip(
                self._at_each_step(pairs),
                split_caches(self.layer_needs, memory.caches),
                strict=True,
            )
        ]
        x_BQD = self.decode(token_ids_BQ, positions_BQ, contexts)
        query_BQD = contexts[self._alignment_step].source_query
        assert query_BQD is not None
        return DecodingStep(x_BQD, query_BQD, cache_tensors(contexts))

    def encode(self, source_BS: Tensor, source_mask: Tensor | None) -> Tensor:
        """Source ids to the encoder's output [B,S,D]; the mask is additive, [B,1,1 or S,S]."""
        positions_1S = torch.arange(source_BS.shape[1], device=source_BS.device)[None]
        if self.encoder_bias is not None:
            bias_1HSS = self.encoder_bias(positions_1S[:, None] - positions_1S[..., None])
            source_mask = bias_1HSS if source_mask is None else bias_1HSS + source_mask
        embedding = self.source_embedding or self.embedding
        x_BSD = self.encoder_side(embedding(source_BS, positions_1S), positions_1S)
        masks = [(source_mask,)] * self.encoder.depth
        x_BSD = self._run(self.encoder, self.encoder_halting, x_BSD, positions_1S, masks)
        return self.encoder_norm(x_BSD)

    def project_source(self, memory_BSD: Tensor) -> list[KeyValue]:
        """Source keys and values of each decoder layer."""
        return [layer.project_source(memory_BSD) for layer in self.decoder]  # type: ignore[operator]

    def _at_each_step(self, of_layers: list[T]) -> list[T]:
        """The values of the layers in the order in which layers run: shared layers come once for
        each step."""
        return [of_layers[step % len(of_layers)] for step in range(self.decoder.depth)]

    def decode(
        self, token_ids_BQ: Tensor, positions_BQ: Tensor, contexts: list[AttentionContext]
    ) -> Tensor:
        """Decoder states [B,Q,D] of new tokens; each layer's context receives its new cache."""
        x_BQD = self.decoder_side(self.embedding(token_ids_BQ, positions_BQ), positions_BQ)
        each = [(context,) for context in contexts]
        x_BQD = self._run(self.decoder, self.decoder_halting, x_BQD, positions_BQ, each)
        return self.decoder_norm(x_BQD)

    def _run(
        self,
        stack: Stack,
        halting: Halting | None,
        x_BTD: Tensor,
        positions_BT: Tensor,
        inputs: list[tuple[Any, ...]],
    ) -> Tensor:
        """The state after all layers. If layers are shared, positions and the number of the step
        are added before each (Dehghani et al. 2018, equations 6 and 7)."""
        if not self.config.share_layers:
            return stack.run(x_BTD, inputs, self.run_layer)
        dim = self.config.model_dim
        absolute = self.config.positions == "sinusoid"
        positions_BTD = sinusoid(positions_BT, dim) if absolute else torch.zeros_like(x_BTD[:1])

        def signal(step: int) -> Tensor:
            return positions_BTD + sinusoid(torch.tensor(step, device=x_BTD.device), dim)

        return stack.run(x_BTD, inputs, self.run_layer, signal, halting)

    @property
    def output_weight(self) -> Tensor:
        """The target's embedding [V,D], or the output's own matrix."""
        return self.embedding.vectors if self.output_matrix is None else self.output_matrix

    def states(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Decoder states [B,T,D] of a training batch."""
        return self.aligned_states(source_BS, target_BT)[0]

    def aligned_states(
        self, source_BS: Tensor, target_BT: Tensor
    ) -> tuple[Tensor, AttentionContext]:
        """Decoder states [B,T,D] of a training batch, and the context that the source attention of
        `alignment_layer` has read; its `source_query` is set."""
        mask_B11S = padding_mask(source_BS)
        memory_BSD = self.encode(source_BS, mask_B11S)
        positions_1T = torch.arange(target_BT.shape[1], device=target_BT.device)[None]
        visible = self._visible(positions_1T)
        contexts = [
            AttentionContext(source=key_value, source_mask=mask_B11S, visible=visible)
            for key_value in self._at_each_step(self.project_source(memory_BSD))
        ]
        x_BTD = self.decode(target_BT, positions_1T, contexts)
        if self.config.halting and self.training:
            self.penalty = self.config.ponder_weight * (
                _mean_ponder(self.encoder, source_BS) + _mean_ponder(self.decoder, target_BT)
            )
        return x_BTD, contexts[self._alignment_step]

    def _visible(self, positions_1T: Tensor) -> Tensor | None:
        """The values added to the scores of the decoder's self-attention in training, [1,H,T,T]:
        the relative bias, and -inf at the positions ahead. None if the model has no bias; then only
        the positions ahead are hidden."""
        if self.decoder_bias is None:
            return None
        distance_1TT = positions_1T[:, None] - positions_1T[..., None]
        ahead_11TT = (distance_1TT > 0).unsqueeze(1)
        return self.decoder_bias(distance_1TT).masked_fill(ahead_11TT, -torch.inf)


def make_stack(
    config: TransformerConfig, side: str, layer: Callable[[TransformerConfig], nn.Module]
) -> Stack:
    """The layers of a `side`, `encoder` or `decoder`."""
    depth = getattr(config, f"num_{side}_layers")
    count = 1 if config.share_layers else depth
    layers = [layer(config.of_layer(number)) for number in range(count)]
    rate = getattr(config, f"{side}_layerdrop")
    return Stack(layers, depth, rate, learns_rates=config.learns_layerdrop)


def make_bias(config: TransformerConfig, *, sees_ahead: bool) -> RelativeBias | None:
    """The relative bias of a side's self-attention; None if the configuration has another kind of
    positions."""
    if config.positions != "relative_bias":
        return None
    return RelativeBias(
        config.num_heads, config.num_buckets, config.max_distance, sees_ahead=sees_ahead
    )


def make_halting(config: TransformerConfig) -> Halting | None:
    """The unit that ends the steps of a side; None unless `halting` is set."""
    if not config.halting:
        return None
    return Halting(config.model_dim, config.halting_threshold)


def _mean_ponder(stack: Stack, ids_BT: Tensor) -> Tensor:
    """Mean number of steps per position, without padding."""
    ponder_BT, stack.ponder_BT = stack.ponder_BT, None
    assert ponder_BT is not None
    return ponder_BT[ids_BT != PAD_ID].mean()
