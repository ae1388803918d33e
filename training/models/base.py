"""The interface of models to decoding, export and training, for every architecture.

Shape letters: B sentences, S source positions, T target positions, Q queries, C cache slots,
W ancestors, D model, V vocabulary.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from serving.search.ids import PAD_ID
from training.models.configs.common import ModelConfig
from training.models.context import StepNeeds
from training.models.dropout import HeadDropout
from training.models.operators import soft_cap


class NewTokens(NamedTuple):
    """The tokens that a decoding step appends, Q per sentence."""

    token_ids_BQ: Tensor
    positions_BQ: Tensor
    write_index_B: Tensor
    """First of the Q cache slots that a sentence's tokens go into."""
    visible_B1QC: Tensor
    """Additive attention mask: 0 where a token sees slot c, -inf elsewhere."""


class StepContext(NamedTuple):
    """Input of a translation step besides its new tokens."""

    source_mask_BS: Tensor
    """Additive attention mask: 0 at the pieces of a source, -inf at padding."""
    caches: list[Tensor]
    """Caches in the order of `split_caches`."""
    sources: list[Tensor]
    """Source tensors of `encode_source`."""
    ancestors_BQW: Tensor | None = None
    """Slots of each token's nearest ancestors, nearest first, -1 where there is none; None unless
    `step_needs` asks for them."""
    slot_positions_BC: Tensor | None = None
    """Positions of the tokens in the slots, including the new ones; None unless `step_needs` asks
    for them."""


class DecodingStep(NamedTuple):
    """Output of a decoding step."""

    x_BQD: Tensor
    """Decoder states of the new tokens, the input of `output_logits`."""
    alignment: Tensor
    """Alignment of the tokens, in the form of `alignment_role`."""
    caches: list[Tensor]
    """The caches, with the new tokens in their slots."""


class Cache(NamedTuple):
    """A tensor that a decoding step reads and extends: it has one entry for each position."""

    name: str
    role: Literal["self", "state"]
    """`self`: keys or values of self-attention; `state`: states of another module."""
    axes: tuple[str | int, ...]
    """Axes in the letters of a bundle's manifest."""

    def shape(self, sizes: Mapping[str, int]) -> list[int]:
        """Shape for these sizes of the letters."""
        return [axis if isinstance(axis, int) else sizes[axis] for axis in self.axes]

    @property
    def slot_size(self) -> int:
        """Number of values in one slot of a row."""
        return math.prod(axis for axis in self.axes if isinstance(axis, int))


class Trainable(nn.Module):
    """The interface of a model to the training loop, for every kind of output."""

    config: ModelConfig
    checkpointing: bool = False
    """Whether training keeps only the inputs of layers and recomputes the rest for the gradient."""
    penalty: Tensor | None = None
    """Extra loss of the last training batch, added to the mean loss per label."""

    def drop_heads(self, rate: float) -> None:
        """Drop heads of every attention at this rate in training, from now on."""
        for module in self.modules():
            if isinstance(module, HeadDropout):
                module.rate = rate

    def run_layer(self, layer: nn.Module, *inputs: Any) -> Tensor:
        """Call a layer; in training with `checkpointing` only its inputs are kept."""
        if self.checkpointing and self.training:
            result: Tensor = checkpoint(layer, *inputs, use_reentrant=False)
        else:
            result = layer(*inputs)
        return result


class Network(Trainable, ABC):
    """Common part of translation models, language models and encoders in pre-training: an output
    matrix that gives the logits of ids."""

    stacks: ClassVar[dict[str, str]] = {"encoder": "encoder", "decoder": "decoder"}
    """The submodules with the layers of each side."""
    states: Callable[..., Tensor]
    """States [B,T,D] of a training batch, the input of `output_logits`."""
    output_bias: nn.Parameter | None
    """Bias [V] of the output matrix, if any."""
    logit_soft_cap: float = 0.0
    """Soft cap of the logits; 0 turns it off."""
    _output_layer: Callable[[Tensor], Tensor] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("output_bias", None)

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The output matrix [V,D]: its product with decoder states is the logits."""

    def forward(self, *inputs: Tensor) -> Tensor:
        """Training logits [B,T,V] of the token after each position."""
        return self.output_logits(self.states(*inputs))

    def replace_output(self, layer: nn.Module) -> None:
        """Let a layer, registered as the submodule `output_layer`, compute the logits [B,Q,V] from
        now on, instead of `output_weight` and `output_bias`."""
        self.add_module("output_layer", layer)
        self._output_layer = layer.__call__

    def output_logits(self, x_BQD: Tensor) -> Tensor:
        """Logits [B,Q,V] of decoder states."""
        if self._output_layer is not None:
            return soft_cap(self._output_layer(x_BQD), self.logit_soft_cap)
        logits_BQV = nn.functional.linear(x_BQD, self.output_weight, self.output_bias)
        return soft_cap(logits_BQV, self.logit_soft_cap)

    def compile_states(self, backend: str) -> None:
        """Compile `states` with `torch.compile`, for batches of any size."""
        self.states = torch.compile(self.states, dynamic=True, backend=backend)


class DecodingNetwork(Network):
    """Common part of translation and language models: a decoder with caches."""

    decoder_kind: ClassVar[Literal["cross", "joint", "lm"]]
    """The way the decoder attends to the source, as named in a bundle's manifest."""

    @property
    @abstractmethod
    def cache_axes(self) -> tuple[str | int, ...]:
        """Axes of each cache of keys or values, in the letters of a bundle's manifest."""

    @property
    @abstractmethod
    def layer_needs(self) -> list[StepNeeds]:
        """The needs of each decoder layer for a step, among them what it caches for each
        position."""

    @property
    def step_needs(self) -> StepNeeds:
        """The needs of all decoder layers together for a step, among them what they cache for each
        position."""
        return sum(self.layer_needs, StepNeeds())

    @property
    def caches(self) -> list[Cache]:
        """All caches of a step, in the order of `split_caches`."""
        needs, pair = self.step_needs, ("key", "value")
        return [
            Cache(f"self_{kind}_{number}", "self", self.cache_axes)
            for number in range(needs.attentions)
            for kind in pair
        ] + [
            Cache(f"state_{number}", "state", ("B", "C", width))
            for number, width in enumerate(needs.states)
        ]


class TranslationModel(DecodingNetwork):
    """A translation model. Training calls `states`; decoding calls `encode_source`, `decode_step`
    and `output_logits`, and export traces them.

    Masks are additive, 0 or -inf.
    """

    decoder_kind: ClassVar[Literal["cross", "joint"]]
    alignment_role: ClassVar[Literal["alignment", "alignment_query"]]
    """`alignment`: probabilities [B,Q,S]; `alignment_query`: queries [B,Q,D] of the source
    attention in `alignment_layer`."""

    @property
    def alignment_layer(self) -> int | None:
        """The decoder layer whose source keys, in [key, value] * L, fit the alignment's queries;
        None if the model returns probabilities."""
        return None

    @property
    @abstractmethod
    def num_sources(self) -> int:
        """Number of source tensors [B,S,D] that the encoder returns and each step takes."""

    @abstractmethod
    def encode_source(self, source_BS: Tensor, source_mask_BS: Tensor) -> list[Tensor]:
        """Source ids to the source tensors for `decode_step`."""

    @abstractmethod
    def decode_step(self, tokens: NewTokens, memory: StepContext) -> DecodingStep:
        """Append Q tokens per sentence to the caches; each sees the slots in `visible`."""

    @abstractmethod
    def states(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Decoder states [B,T,D] of a training batch: ids are padded on the right, `target` starts
        with bos."""


def padding_mask(ids_BS: Tensor) -> Tensor | None:
    """Additive mask [B,1,1,S], -inf at padding; None without padding."""
    padded_BS = ids_BS == PAD_ID
    if not bool(padded_BS.any()):
        return None
    mask_BS = torch.zeros(ids_BS.shape, device=ids_BS.device).masked_fill(padded_BS, -torch.inf)
    return mask_BS[:, None, None, :]
