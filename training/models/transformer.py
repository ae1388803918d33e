"""The encoder-decoder Transformer; its block makes it the baseline, Macaron Net or one's own.

Shape letters: B sentences, S source positions, T target positions, Q queries, C cache slots,
D model, V vocabulary, L layers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from serving.tokenizer import PAD_ID
from training.models.attention import AttentionContext, KeyValue
from training.models.blocks import Block
from training.models.config import TransformerConfig
from training.models.embedding import TokenEmbedding


class Transformer(nn.Module):
    """Encoder-decoder with one embedding for source, target and output.

    `forward` trains; `encode`, `project_source` and `decode` are what decoding and export call.
    """

    def __init__(self, config: TransformerConfig, block: Block) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab_size, config.model_dim, config.dropout)
        self.encoder = nn.ModuleList(
            block.encoder_layer(config) for _ in range(config.num_encoder_layers)
        )
        self.decoder = nn.ModuleList(
            block.decoder_layer(config) for _ in range(config.num_decoder_layers)
        )
        final_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.model_dim) if final_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.model_dim) if final_norm else nn.Identity()

    def encode(self, source_BS: Tensor, source_mask: Tensor | None) -> Tensor:
        """Source ids to the encoder's output [B,S,D]; the mask is additive, [B,1,1 or S,S]."""
        positions_1S = torch.arange(source_BS.shape[1], device=source_BS.device)[None]
        x_BSD = self.embedding(source_BS, positions_1S)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, source_mask)
        return self.encoder_norm(x_BSD)

    def project_source(self, memory_BSD: Tensor) -> list[KeyValue]:
        """Source keys and values of each decoder layer."""
        return [layer.project_source(memory_BSD) for layer in self.decoder]  # type: ignore[operator]

    def decode(
        self, token_ids_BQ: Tensor, positions_BQ: Tensor, contexts: list[AttentionContext]
    ) -> Tensor:
        """Decoder states [B,Q,D] of new tokens; each layer's context receives its new cache."""
        x_BQD = self.embedding(token_ids_BQ, positions_BQ)
        for layer, context in zip(self.decoder, contexts, strict=True):
            x_BQD = layer(x_BQD, context)
        return self.decoder_norm(x_BQD)

    def output_logits(self, x_BQD: Tensor) -> Tensor:
        """Logits [B,Q,V] with the embedding as output matrix."""
        return nn.functional.linear(x_BQD, self.embedding.weight)

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Training logits [B,T,V]: ids padded on the right, `target` starts with bos."""
        mask_B11S = padding_mask(source_BS)
        memory_BSD = self.encode(source_BS, mask_B11S)
        contexts = [
            AttentionContext(source=key_value, source_mask=mask_B11S)
            for key_value in self.project_source(memory_BSD)
        ]
        positions_1T = torch.arange(target_BT.shape[1], device=target_BT.device)[None]
        return self.output_logits(self.decode(target_BT, positions_1T, contexts))


def padding_mask(ids_BS: Tensor) -> Tensor | None:
    """Additive mask [B,1,1,S], -inf at padding; None where nothing is padded."""
    padded_BS = ids_BS == PAD_ID
    if not bool(padded_BS.any()):
        return None
    mask_BS = torch.zeros(ids_BS.shape, device=ids_BS.device).masked_fill(padded_BS, -torch.inf)
    return mask_BS[:, None, None, :]
