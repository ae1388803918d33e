"""Translation with a joint representation: one state for each pair of source and target positions.

Li et al. 2020, "Neural Machine Translation with Joint Representation" (Reformer-base and
Reformer-fast there; not the LSH Reformer). Shape letters: B sentences, S source positions,
T target positions, Q queries, C cache slots, D model, V vocabulary, L joint layers.

A state is kept as [B,S,Q,D] for attention along the target, and as [B,Q,S,D] for attention along
the source: attention folds the axis that it does not aggregate into the batch.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from training.models.base import (
    DecodingStep,
    NewTokens,
    StepContext,
    TranslationModel,
    padding_mask,
)
from training.models.blocks import EncoderLayer, Residual, feed_forward, self_attention
from training.models.configs.joint import JointConfig
from training.models.context import (
    CacheContext,
    StepNeeds,
    cache_tensors,
    needs_of,
    split_caches,
)
from training.models.stack import Stack
from training.models.sublayers.embedding import TokenEmbedding
from training.models.sublayers.norms import make_norm, make_output_norm

# Axes along which dropout 1d and 2d share their noise.
_SOURCE = (1,)  # of [B,S,Q,D]
_TARGET = (1,)  # of [B,Q,S,D]
_BOTH = (1, 2)  # of either


class JointLayer(nn.Module):
    """Target attention, feed-forward, source attention, feed-forward (section 3.2, figure 3)."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        shares = config.joint_dropout == "shared"
        self.shares_dropout = shares
        self.target_attention = self_attention(config)
        self.first_ffn = feed_forward(config, _BOTH if shares else ())
        self.source_attention = self_attention(config)
        self.ffn = feed_forward(config, _BOTH if shares else ())
        self.needs = self.target_attention.needs  # attention along the source keeps nothing
        self.target_attention_residual = Residual(config, shared_axes=_SOURCE if shares else ())
        self.first_ffn_residual = Residual(config, shared_axes=_BOTH if shares else ())
        self.source_attention_residual = Residual(config, shared_axes=_TARGET if shares else ())
        self.ffn_residual = Residual(config, shared_axes=_BOTH if shares else ())

    def forward(self, x_BSQD: Tensor, context: CacheContext, source_mask: Tensor | None) -> Tensor:
        """[B,S,Q,D] to [B,Q,S,D].

        The rows of `context` are those of [B*S,Q,D]; `source_mask` is [B*Q,1,1 or S,S], 0 or -inf.
        """
        sources, queries = x_BSQD.shape[1], x_BSQD.shape[2]

        def attend_target(x_BSQD: Tensor) -> Tensor:
            sharing = sources if self.shares_dropout else 1
            out = self.target_attention.decode(x_BSQD.flatten(0, 1), context, sharing)
            return out.reshape(-1, sources, *out.shape[1:])

        def attend_source(x_BQSD: Tensor) -> Tensor:
            sharing = queries if self.shares_dropout else 1
            out = self.source_attention(x_BQSD.flatten(0, 1), source_mask, sharing)
            return out.reshape(-1, queries, *out.shape[1:])

        x_BSQD = self.target_attention_residual(x_BSQD, attend_target)
        x_BSQD = self.first_ffn_residual(x_BSQD, self.first_ffn)
        x_BQSD = x_BSQD.transpose(1, 2).contiguous()
        x_BQSD = self.source_attention_residual(x_BQSD, attend_source)
        return self.ffn_residual(x_BQSD, self.ffn)


class Reduction(nn.Module):
    """Reduce joint states to one state per target position: a softmax along the source per feature.

    y[t] = sum_s softmax_s(LN(x) W)[t,s] * LN(x)[t,s] (equation 6); the softmax runs in fp32.
    """

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.norm = make_norm(config, "pre")
        self.scores = nn.Linear(config.model_dim, config.model_dim, bias=False)
        nn.init.normal_(self.scores.weight, std=config.model_dim**-0.5)

    def forward(self, x_BQSD: Tensor, source_mask_BS: Tensor | None) -> tuple[Tensor, Tensor]:
        """[B,Q,S,D] to [B,Q,D], and the weights [B,Q,S,D]; the mask is 0 or -inf."""
        sentences, queries, sources, dim = x_BQSD.shape
        x_BQSD = self.norm(x_BQSD)
        scores_BQSD = self.scores(x_BQSD).float()
        if source_mask_BS is not None:
            scores_BQSD = scores_BQSD + source_mask_BS[:, None, :, None]
        # In two axes and along the last: ONNX Runtime sums along a middle axis in an order that
        # depends on the number of queries, and pushes transposes through all but a reshape.
        weights = scores_BQSD.transpose(2, 3).reshape(-1, sources).softmax(-1)
        values = x_BQSD.transpose(2, 3).reshape(-1, sources)
        reduced_BQD = (weights * values).sum(-1).reshape(sentences, queries, dim)
        weights_BQDS = weights.reshape(sentences, queries, dim, sources)
        return reduced_BQD, weights_BQDS.transpose(2, 3)


class JointModel(TranslationModel):
    """PreNet (an ordinary encoder, or nothing), joint layers, Reduction."""

    decoder_kind = "joint"
    stacks: ClassVar[dict[str, str]] = {"encoder": "encoder", "decoder": "layers"}
    alignment_role = "alignment"

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.config: JointConfig = config
        self.embedding = TokenEmbedding(config, config.positions)
        self.source_embedding = (
            None if config.tie_embeddings else TokenEmbedding(config, config.positions)
        )
        self.output = None
        if not config.tie_embeddings:
            shape = (config.vocab_size, config.model_dim)
            self.output = nn.Parameter(torch.randn(shape) * config.model_dim**-0.5)
        learns, depth = config.learns_layerdrop, config.num_encoder_layers
        prenet = [EncoderLayer(config) for _ in range(depth)]
        self.encoder = Stack(prenet, depth, config.encoder_layerdrop, learns_rates=learns)
        self.encoder_norm = make_norm(config, "pre") if config.num_encoder_layers else nn.Identity()
        joint = [JointLayer(config) for _ in range(config.num_decoder_layers)]
        self.layers = Stack(joint, len(joint), config.decoder_layerdrop, learns_rates=learns)
        self.reduction = Reduction(config)
        self.decoder_norm = make_output_norm(config, "pre")

    @property
    def cache_axes(self) -> tuple[str | int, ...]:
        """Axes of each cache: target attention has a row for each source position."""
        return ("BS", "C", self.config.model_dim)

    @property
    def layer_needs(self) -> list[StepNeeds]:
        """Needs of each joint layer."""
        return [needs_of(layer) for layer in self.layers]

    @property
    def num_sources(self) -> int:
        """One: the PreNet's output, from which each step makes the joint states."""
        return 1

    def encode_source(self, source_BS: Tensor, source_mask_BS: Tensor) -> list[Tensor]:
        """Source ids and mask (0 or -inf) to the PreNet's output [B,S,D]."""
        mask = source_mask_BS[:, None, None, :].expand(-1, -1, source_BS.shape[1], -1)
        return [self._prenet(source_BS, mask)]

    def decode_step(self, tokens: NewTokens, memory: StepContext) -> DecodingStep:
        """States [B,Q,D] of new tokens, the weights of Reduction (mean over features, [B,Q,S]) and
        the extended caches, each [B*S,C,D]."""
        token_ids_BQ, positions_BQ, write_index_B, visible_B1QC = tokens
        (source_BSD,) = memory.sources
        length, queries = source_BSD.shape[1], token_ids_BQ.shape[1]

        def at_each_source(x: Tensor) -> Tensor:
            """[B,...] to [B*S,...]."""
            return x[:, None].expand(-1, length, *[-1] * (x.dim() - 1)).flatten(0, 1)

        visible, write_index, positions = map(
            at_each_source, (visible_B1QC, write_index_B, positions_BQ)
        )
        slots_BC = memory.slot_positions_BC
        slot_positions = None if slots_BC is None else at_each_source(slots_BC)
        mask_B111S = memory.source_mask_BS[:, None, None, None, :]
        mask = mask_B111S.expand(-1, queries, -1, length, -1)
        contexts = [
            CacheContext(
                visible=visible,
                write_index=write_index,
                key_values=pairs,
                positions=positions,
                slot_positions=slot_positions,
            )
            for pairs, _ in split_caches(self.layer_needs, memory.caches)
        ]
        target_BQD = self.embedding(token_ids_BQ, positions_BQ)
        x_BQSD = self._joint(source_BSD, target_BQD, contexts, mask.flatten(0, 1))
        x_BQD, weights_BQSD = self.reduction(x_BQSD, memory.source_mask_BS)
        alignment = weights_BQSD.reshape(-1, self.config.model_dim).mean(-1)
        alignment_BQS = alignment.reshape(-1, queries, length)
        return DecodingStep(self.decoder_norm(x_BQD), alignment_BQS, cache_tensors(contexts))

    @property
    def output_weight(self) -> Tensor:
        """The output matrix: separate, or the embedding."""
        return self.embedding.vectors if self.output is None else self.output

    def states(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Decoder states [B,T,D] of a training batch; every cell of S x T is kept."""
        mask_B11S = padding_mask(source_BS)
        mask_BS = source_mask = None
        if mask_B11S is not None:
            mask_BS = mask_B11S[:, 0, 0]
            source_mask = mask_B11S.repeat_interleave(target_BT.shape[1], 0)
        source_BSD = self._prenet(source_BS, mask_B11S)
        positions_1T = torch.arange(target_BT.shape[1], device=target_BT.device)[None]
        target_BTD = self.embedding(target_BT, positions_1T)
        contexts = [CacheContext() for _ in self.layers]
        x_BTSD = self._joint(source_BSD, target_BTD, contexts, source_mask)
        return self.decoder_norm(self.reduction(x_BTSD, mask_BS)[0])

    def _prenet(self, source_BS: Tensor, mask: Tensor | None) -> Tensor:
        positions_1S = torch.arange(source_BS.shape[1], device=source_BS.device)[None]
        x_BSD = (self.source_embedding or self.embedding)(source_BS, positions_1S)
        masks = [(mask,)] * self.encoder.depth
        return self.encoder_norm(self.encoder.run(x_BSD, masks, self.run_layer))

    def _joint(
        self,
        source_BSD: Tensor,
        target_BQD: Tensor,
        contexts: list[CacheContext],
        source_mask: Tensor | None,
    ) -> Tensor:
        """Joint states [B,Q,S,D] of every pair of positions."""
        x_BSQD = source_BSD[:, :, None] + target_BQD[:, None]
        x_BQSD = None
        for number in self.layers.running():
            if x_BQSD is not None:
                x_BSQD = x_BQSD.transpose(1, 2).contiguous()
            layer, context = self.layers.layer(number), contexts[number]
            x_BQSD = self.run_layer(layer, x_BSQD, context, source_mask)
            x_BQSD = self.layers.weigh(number, x_BSQD.transpose(1, 2), x_BQSD)
        return x_BSQD.transpose(1, 2) if x_BQSD is None else x_BQSD
