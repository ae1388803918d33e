"""The encoder-decoder Transformer; its block makes it the baseline, Macaron Net or one's own.

Shape letters: B sentences, S source positions, T target positions, Q queries, C cache slots,
D model, V vocabulary, L layers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.attention import AttentionContext, KeyValue, cache_tensors
from training.models.base import DecodingStep, TranslationModel, padding_mask
from training.models.blocks import Block
from training.models.config import TransformerConfig
from training.models.embedding import SideEmbedding, TokenEmbedding
from training.models.norms import make_norm, make_output_norm


class Transformer(TranslationModel):
    """Encoder-decoder with one embedding for source, target and output."""

    decoder_kind = "cross"
    alignment_role = "alignment_query"

    def __init__(self, config: TransformerConfig, block: Block) -> None:
        super().__init__()
        self.config: TransformerConfig = config
        self.embedding = TokenEmbedding(config, config.positions)
        self.encoder = nn.ModuleList(
            block.encoder_layer(config) for _ in range(config.num_encoder_layers)
        )
        self.decoder = nn.ModuleList(
            block.decoder_layer(config) for _ in range(config.num_decoder_layers)
        )
        self.encoder_norm = make_norm(config, "pre")
        self.decoder_norm = make_output_norm(config, "pre")
        self.encoder_side, self.decoder_side = SideEmbedding(config), SideEmbedding(config)
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))

    @property
    def cache_axes(self) -> tuple[str | int, ...]:
        """Axes of each cache: a row for each sentence, whose beams share it."""
        return ("B", "C", self.config.model_dim)

    @property
    def num_caches(self) -> int:
        """Keys and values of each self-attention."""
        return 2 * self.config.num_decoder_layers

    @property
    def num_sources(self) -> int:
        """Keys and values of each source attention."""
        return 2 * self.config.num_decoder_layers

    @property
    def alignment_layer(self) -> int:
        """The last but one decoder layer, whose source attention is nearest to word alignments
        (Garg et al. 2019, section 4), or the only one."""
        return max(0, self.config.num_decoder_layers - 2)

    def encode_source(self, source_BS: Tensor, source_mask_BS: Tensor) -> list[Tensor]:
        """Source ids and mask to [key, value] * L, each [B,S,D]."""
        mask_B1SS = source_mask_BS[:, None, None, :].expand(-1, -1, source_BS.shape[1], -1)
        layers = self.project_source(self.encode(source_BS, mask_B1SS))
        return [tensor for layer in layers for tensor in (layer.keys, layer.values)]

    def decode_step(
        self,
        token_ids_BQ: Tensor,
        positions_BQ: Tensor,
        write_index_B: Tensor,
        visible_B1QC: Tensor,
        source_mask_BS: Tensor,
        caches: list[Tensor],
        sources: list[Tensor],
    ) -> DecodingStep:
        """States [B,Q,D] of new tokens, the queries [B,Q,D] of `alignment_layer`'s source attention
        and the appended caches, each [B,C,D]."""
        source_mask = source_mask_BS[:, None, None, :].expand(-1, -1, token_ids_BQ.shape[1], -1)
        contexts = [
            AttentionContext(
                source=KeyValue(sources[layer], sources[layer + 1]),
                source_mask=source_mask,
                visible=visible_B1QC,
                cache=KeyValue(caches[layer], caches[layer + 1]),
                write_index=write_index_B,
            )
            for layer in range(0, len(caches), 2)
        ]
        x_BQD = self.decode(token_ids_BQ, positions_BQ, contexts)
        query_BQD = contexts[self.alignment_layer].source_query
        assert query_BQD is not None
        return DecodingStep(x_BQD, query_BQD, cache_tensors(contexts))

    def encode(self, source_BS: Tensor, source_mask: Tensor | None) -> Tensor:
        """Source ids to the encoder's output [B,S,D]; the mask is additive, [B,1,1 or S,S]."""
        positions_1S = torch.arange(source_BS.shape[1], device=source_BS.device)[None]
        x_BSD = self.encoder_side(self.embedding(source_BS, positions_1S), positions_1S)
        for layer in self.encoder:
            x_BSD = self.run_layer(layer, x_BSD, source_mask)
        return self.encoder_norm(x_BSD)

    def project_source(self, memory_BSD: Tensor) -> list[KeyValue]:
        """Source keys and values of each decoder layer."""
        return [layer.project_source(memory_BSD) for layer in self.decoder]  # type: ignore[operator]

    def decode(
        self, token_ids_BQ: Tensor, positions_BQ: Tensor, contexts: list[AttentionContext]
    ) -> Tensor:
        """Decoder states [B,Q,D] of new tokens; each layer's context receives its new cache."""
        x_BQD = self.decoder_side(self.embedding(token_ids_BQ, positions_BQ), positions_BQ)
        for layer, context in zip(self.decoder, contexts, strict=True):
            x_BQD = self.run_layer(layer, x_BQD, context)
        return self.decoder_norm(x_BQD)

    @property
    def output_weight(self) -> Tensor:
        """The embedding [V,D], which source, target and output share."""
        return self.embedding.vectors

    def states(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Decoder states [B,T,D] of a training batch."""
        return self.aligned_states(source_BS, target_BT)[0]

    def aligned_states(
        self, source_BS: Tensor, target_BT: Tensor
    ) -> tuple[Tensor, AttentionContext]:
        """Decoder states [B,T,D] of a training batch, and what the source attention of
        `alignment_layer` has seen; its `source_query` is set."""
        mask_B11S = padding_mask(source_BS)
        memory_BSD = self.encode(source_BS, mask_B11S)
        contexts = [
            AttentionContext(source=key_value, source_mask=mask_B11S)
            for key_value in self.project_source(memory_BSD)
        ]
        positions_1T = torch.arange(target_BT.shape[1], device=target_BT.device)[None]
        x_BTD = self.decode(target_BT, positions_1T, contexts)
        return x_BTD, contexts[self.alignment_layer]
