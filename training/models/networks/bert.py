"""Bidirectional encoders, BERT in standard or Macaron form, with their heads.

Devlin et al. 2019; Lu et al. 2019, section 4.2. Shape letters: B texts, S ids of the longest, M ids
of all texts or the masked ones of these, D model, V vocabulary, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from training.models.base import Network, Trainable, padding_mask
from training.models.blocks import Block, Layer, Residual
from training.models.configs.bert import MOST_DISTANCE, BertConfig
from training.models.dropout import Dropout
from training.models.operators import attention
from training.models.stack import Stack
from training.models.sublayers.attention import Packing
from training.models.sublayers.embedding import TokenEmbedding
from training.models.sublayers.feed_forward import activation_of
from training.models.sublayers.norms import make_norm, new_norm
from training.models.sublayers.positions import RelativeBias, RelativePositions

Pooling = Literal["cls", "mean"]
"""How a text's vector is computed: the state of its first token, or the mean of all states."""


class EncoderEmbedding(TokenEmbedding):
    """Sum of the vectors of tokens, positions and segments; a norm follows with post-norm, as in
    BERT, or with `embedding_norm`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, config.positions)
        self.positions = (
            _new_table(config.max_positions, config) if config.positions == "learnt" else None
        )
        self.segments = _new_table(config.num_segments, config) if config.num_segments else None
        self.norm = make_norm(config, "post", *(("pre",) if config.embedding_norm else ()))

    def forward(
        self, token_ids_BS: Tensor, positions_BS: Tensor, segment_ids_BS: Tensor | None = None
    ) -> Tensor:
        """Ids and 0-based positions [B,S] (or positions [1,S]) to [B,S,D]; without segment ids all
        are of segment 0."""
        x_BSD = self.sum(token_ids_BS, positions_BS)
        if self.positions is not None:
            x_BSD = x_BSD + self.positions(positions_BS)
        if self.segments is not None:
            if segment_ids_BS is None:
                segment_ids_BS = torch.zeros_like(token_ids_BS)
            x_BSD = x_BSD + self.segments(segment_ids_BS)
        return self.dropout(self.norm(x_BSD))


def _new_table(size: int, config: BertConfig) -> nn.Embedding:
    """A table of `size` vectors drawn from N(0, 0.02), one per position or segment."""
    table = nn.Embedding(size, config.model_dim)
    nn.init.normal_(table.weight, std=0.02)
    return table


class BidirectionalEncoder(nn.Module):
    """Embedding and layers, in which each token sees its whole text."""

    def __init__(self, config: BertConfig, block: Block) -> None:
        super().__init__()
        self.config = config
        self.embedding = EncoderEmbedding(config)
        depth = config.num_encoder_layers
        self.layers = Stack(
            [block.encoder_layer(config.of_layer(number)) for number in range(depth)],
            depth,
            config.encoder_layerdrop,
            learns_rates=config.learns_layerdrop,
        )
        if config.embedding_norm:
            _leave_out_norm(self.layers[0])
        self.bias: RelativeBias | None = None
        if config.relative_buckets:
            self.bias = RelativeBias(
                config.num_heads, config.relative_buckets, MOST_DISTANCE, sees_ahead=True
            )
        self.norm = make_norm(config, "pre")

    def forward(
        self,
        token_ids_BS: Tensor,
        segment_ids_BS: Tensor | None = None,
        mask: Tensor | Packing | None = None,
        run_layer: Callable[..., Tensor] = nn.Module.__call__,
    ) -> Tensor:
        """States [B,S,D] under an additive mask [B,1,1 or S,S], positions counting from each row's
        start; or of packed texts [1,M,D]. `run_layer` calls a layer: `Trainable.run_layer` of the
        model that this is part of."""
        if isinstance(mask, Packing):
            positions_BS, length = mask.positions_1M, mask.slots_BS.shape[1]
        else:
            length = token_ids_BS.shape[1]
            positions_BS = torch.arange(length, device=token_ids_BS.device)[None]
        x_BSD = self.embedding(token_ids_BS, positions_BS, segment_ids_BS)
        positions_S = torch.arange(length, device=token_ids_BS.device)
        inputs = self._masks_of_layers(mask, positions_S)
        return self.norm(self.layers.run(x_BSD, inputs, run_layer))

    def _masks_of_layers(
        self, mask: Tensor | Packing | None, positions_S: Tensor
    ) -> list[tuple[Tensor | Packing | None]]:
        """The mask of each layer: the given mask with the positions that the layer's window hides,
        and with the bias of distances."""
        config = self.config
        windows = [config.window_of(number) for number in range(config.num_encoder_layers)]
        if self.bias is None and not any(windows):
            return [(mask,)] * len(windows)
        distance_1SS = (positions_S[None, :] - positions_S[:, None])[None]
        bias = None if self.bias is None else self.bias(distance_1SS)
        made = {
            window: _with_scores(mask, bias, distance_1SS, window) for window in sorted({*windows})
        }
        return [(made[window],) for window in windows]


def _with_scores(
    mask: Tensor | Packing | None, bias: Tensor | None, distance_1SS: Tensor, window: int
) -> Tensor | Packing | None:
    """The `bias` [1,H,S,S] as a mask that also hides positions further away than `window`; a window
    of 0 hides none."""
    if bias is None and not window:
        return mask
    hidden = mask.mask_BS[:, None, None, :] if isinstance(mask, Packing) else mask
    own = torch.zeros_like(distance_1SS[None], dtype=torch.float32) if bias is None else bias
    scores = own if hidden is None else own + hidden
    if window:
        scores = scores.masked_fill((distance_1SS.abs() > window)[None], -torch.inf)
        # Padding may have no token of its text in sight, and is to have numbers all the same.
        scores = torch.where((distance_1SS == 0)[None], own, scores)
    return replace(mask, scores=scores) if isinstance(mask, Packing) else scores


def _leave_out_norm(layer: nn.Module) -> None:
    """Remove the norm of a layer's first sublayer, which then reads its input unchanged."""
    assert isinstance(layer, Layer)
    residual = layer.get_submodule(f"{next(iter(layer.order))}_residual")
    assert isinstance(residual, Residual)
    residual.norm = nn.Identity()


_POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu_norm": nn.functional.gelu,
}
"""Activations of the poolers, except BERT's."""


class Pooler(nn.Module):
    """Transforms a text's vector, usually its first token's state, before labels are predicted.
    `tanh` is a dense layer with tanh, as in BERT; `relu` has ReLU in place of tanh; `gelu_norm` has
    GELU and a norm, as in ModernBERT; `none` does nothing, as in the Macaron authors' code."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.activation = _POOLED.get(config.pooler, torch.tanh)
        dense = config.pooler != "none"
        self.dense = nn.Linear(config.model_dim, config.model_dim) if dense else None
        self.norm = new_norm(config) if config.pooler == "gelu_norm" else nn.Identity()

    def forward(self, x_BD: Tensor) -> Tensor:
        """Transform the vectors of texts, [B,D] to [B,D]; without a dense layer they stay as they
        are."""
        return x_BD if self.dense is None else self.norm(self.activation(self.dense(x_BD)))


class Bert(Network):
    """An encoder in pre-training: it predicts masked tokens from the others, and whether the second
    part of a text follows the first."""

    stacks: ClassVar[dict[str, str]] = {"encoder": "encoder.layers"}

    def __init__(self, config: BertConfig, block: Block) -> None:
        super().__init__()
        self.config: BertConfig = config
        self.encoder = BidirectionalEncoder(config, block)
        self.mlm_dense = nn.Linear(config.model_dim, config.model_dim)
        self.mlm_activation = activation_of(config.activation)
        self.mlm_norm = new_norm(config)
        self.pooler = Pooler(config)
        self.next_sentence = nn.Linear(config.model_dim, 1)
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))

    @property
    def output_weight(self) -> Tensor:
        """The embedding [V,D], which input and output share."""
        return self.encoder.embedding.vectors

    def states(self, token_ids_BS: Tensor, segment_ids_BS: Tensor | None = None) -> Tensor:
        """The input of `output_logits` at each token, [B,S,D]. Training needs it at masked tokens
        only, and calls `masked_states`."""
        return self.masked_states(self.encode(token_ids_BS, segment_ids_BS))

    def encode(self, token_ids_BS: Tensor, segment_ids_BS: Tensor | None = None) -> Tensor:
        """The encoder's states [B,S,D] of texts padded on the right."""
        mask = padding_mask(token_ids_BS)
        return self.encoder(token_ids_BS, segment_ids_BS, mask, run_layer=self.run_layer)

    def encode_packed(
        self,
        token_ids_1M: Tensor,
        segment_ids_1M: Tensor | None,
        packing: Packing,
    ) -> Tensor:
        """The encoder's states [1,M,D] of packed texts."""
        return self.encoder(token_ids_1M, segment_ids_1M, packing, self.run_layer)

    def masked_states(self, x: Tensor) -> Tensor:
        """Transform the encoder's states [...,D] of masked tokens into the input of
        `output_logits`."""
        return self.mlm_norm(self.mlm_activation(self.mlm_dense(x)))

    def next_sentence_logits(self, x_BSD: Tensor) -> Tensor:
        """The log-odds [B] that the second part of each text follows the first."""
        return self.next_sentence(self.pooler(x_BSD[:, 0]))[:, 0]


class TextModel(Trainable, ABC):
    """An encoder with one vector for each text: the state of its first token, or the mean of
    all."""

    pooling: Pooling

    def __init__(self, encoder: BidirectionalEncoder, pooling: Pooling) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {get_args(Pooling)}, got {pooling!r}")
        self.encoder, self.pooling = encoder, pooling
        self.config: BertConfig = encoder.config

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers for each text."""

    @abstractmethod
    def read(self, x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """The encoder's states to [B,width]; the mask is 0 at tokens and -inf after them."""

    def pool(self, x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """The encoder's states to one for each text, [B,D]."""
        return x_BSD[:, 0] if self.pooling == "cls" else self._mean(x_BSD, mask_BS)

    def _mean(self, x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """The mean of the tokens' states, computed as attention with equal scores. Unlike a sum
        over padded states, its last bit does not depend on the padding."""
        query_B1D = x_BSD.new_zeros(1, 1, x_BSD.shape[2]).expand(x_BSD.shape[0], -1, -1)
        mask_B11S = mask_BS[:, None, None, :]
        heads = self.config.num_heads
        return attention(query_B1D, x_BSD, x_BSD, num_heads=heads, mask=mask_B11S)[:, 0]

    def forward(self, token_ids_BS: Tensor, segment_ids_BS: Tensor | None = None) -> Tensor:
        """Texts padded on the right to [B,width]."""
        mask_B11S = padding_mask(token_ids_BS)
        x_BSD = self.encoder(token_ids_BS, segment_ids_BS, mask_B11S, run_layer=self.run_layer)
        if mask_B11S is None:
            return self.read(x_BSD, torch.zeros(x_BSD.shape[:2], device=x_BSD.device))
        return self.read(x_BSD, mask_B11S[:, 0, 0])

    def read_packed(
        self,
        token_ids_1M: Tensor,
        segment_ids_1M: Tensor | None,
        packing: Packing,
    ) -> Tensor:
        """Packed texts to [B,width]."""
        x_1MD = self.encoder(token_ids_1M, segment_ids_1M, packing, self.run_layer)
        if self.pooling == "cls":
            packing = replace(
                packing, slots_BS=packing.slots_BS[:, :1], mask_BS=packing.mask_BS[:, :1]
            )
        return self.read(packing.unpack(x_1MD), packing.mask_BS)


class SentenceEmbedder(TextModel):
    """Gives each text a vector: its first token's state, or the mean of all states (Reimers and
    Gurevych 2019, section 3). With `normalised` the vectors have length one."""

    normalised: bool

    def __init__(
        self, encoder: BidirectionalEncoder, pooling: Pooling, *, normalised: bool
    ) -> None:
        super().__init__(encoder, pooling)
        self.normalised = normalised

    @property
    def width(self) -> int:
        """Features of the encoder."""
        return self.config.model_dim

    def extra_repr(self) -> str:
        """The settings in which two modules may differ besides their weights, for `repr`."""
        return f"pooling={self.pooling}, normalised={self.normalised}"

    def read(self, x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """States to vectors [B,D]."""
        x_BD = self.pool(x_BSD, mask_BS)
        if not self.normalised:
            return x_BD
        length_B1 = x_BD.square().sum(-1, keepdim=True).sqrt()
        return x_BD / length_B1.clamp_min(1e-12)


class TextClassifier(TextModel):
    """Gives each text or pair of texts the logits of C classes; for regression C is 1."""

    def __init__(
        self, encoder: BidirectionalEncoder, num_classes: int, pooling: Pooling = "cls"
    ) -> None:
        """The output begins at zero, so that no class is likelier than another (the Macaron
        authors' code)."""
        super().__init__(encoder, pooling)
        self.pooler = Pooler(encoder.config)
        self.dropout = Dropout(encoder.config.dropout)
        self.num_classes = num_classes
        self.output = nn.Linear(encoder.config.model_dim, num_classes)
        self.reset_output()

    def reset_output(self) -> None:
        """Let the output begin at zero, whatever it has learnt."""
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    @property
    def width(self) -> int:
        """Classes."""
        return self.num_classes

    def read(self, x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """States to logits [B,C]."""
        return self.output(self.dropout(self.pooler(self.pool(x_BSD, mask_BS))))


class TextGraph(nn.Module):
    """The graph of an encoder's bundle: packed texts to the model's output for each text."""

    def __init__(self, model: TextModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        token_ids_1M: Tensor,
        positions_1M: Tensor,
        segment_ids_1M: Tensor,
        slots_BS: Tensor,
        mask_BS: Tensor,
        rows_M: Tensor,
    ) -> Tensor:
        """All but token and segment ids are the fields of `Packing`; returns [B,width]."""
        packing = Packing(
            slots_BS=slots_BS, mask_BS=mask_BS, rows_M=rows_M, positions_1M=positions_1M
        )
        return self.model.read_packed(token_ids_1M, segment_ids_1M, packing)


@torch.no_grad()
def normal_init(model: nn.Module) -> None:
    """All matrices and vectors of tables from N(0, 0.02) and all biases zero, as in BERT."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.normal_(0.0, 0.02)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, TokenEmbedding | nn.Embedding):
            module.weight.normal_(0.0, 0.02)
        elif isinstance(module, RelativePositions):
            module.keys_1RE.normal_(0.0, 0.02)
            module.values_1RE.normal_(0.0, 0.02)


@torch.no_grad()
def kaiming_init(model: nn.Module) -> None:
    """Initialise attention from N(0, D^-0.5), and feed-forwards from N(0, gain * fan_in^-0.5) with
    gain 1 before the activation and sqrt(2) after it, as in the Macaron authors' code."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            place = name.rpartition(".")[2]
            if place in ("in_proj", "out_proj", "up_proj"):
                module.weight.normal_(0.0, module.in_features**-0.5)
            elif place == "down_proj":
                module.weight.normal_(0.0, (2.0 / module.in_features) ** 0.5)
