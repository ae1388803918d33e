"""What decoding, export and training ask of a model, whatever its architecture.

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
    """The tokens that a step of decoding appends, Q a sentence."""

    token_ids_BQ: Tensor
    positions_BQ: Tensor
    write_index_B: Tensor
    """The first of the cache slots into which the tokens of a sentence go, one each."""
    visible_B1QC: Tensor
    """0 where a token may see slot c, -inf elsewhere."""


class StepContext(NamedTuple):
    """What a step of translation reads beside its new tokens."""

    source_mask_BS: Tensor
    """0 at a source's pieces, -inf at padding."""
    caches: list[Tensor]
    """In the order of `split_caches`."""
    sources: list[Tensor]
    """As `encode_source` makes them."""
    ancestors_BQW: Tensor | None = None
    """The slots of each token's nearest ancestors, nearest first, -1 where there is none; None
    where `step_needs` does not ask for them."""
    slot_positions_BC: Tensor | None = None
    """Positions of the tokens in the slots, the new ones included; None as above."""


class DecodingStep(NamedTuple):
    """What a step of decoding makes of new tokens."""

    x_BQD: Tensor
    """Decoder states of the new tokens, from which `output_logits` makes logits."""
    alignment: Tensor
    """What the tokens are aligned to, in the form that `alignment_role` names."""
    caches: list[Tensor]
    """The caches with what is kept of the new tokens in their slots."""


class Cache(NamedTuple):
    """One tensor in which a step keeps something of each position."""

    name: str
    role: Literal["self", "state"]
    """`self`: keys or values of self-attention; `state`: another module's states."""
    axes: tuple[str | int, ...]
    """In the letters of a bundle's manifest."""

    def shape(self, sizes: Mapping[str, int]) -> list[int]:
        """Its shape where the letters have these sizes."""
        return [axis if isinstance(axis, int) else sizes[axis] for axis in self.axes]

    @property
    def slot_size(self) -> int:
        """Numbers in one slot of a row."""
        return math.prod(axis for axis in self.axes if isinstance(axis, int))


class Trainable(nn.Module):
    """What the training loop asks of a model, whatever it gives."""

    config: ModelConfig
    checkpointing: bool = False
    """Training keeps the inputs of layers only and computes the rest again for the gradient."""
    penalty: Tensor | None = None
    """What the last training batch adds to the mean loss of a label."""

    def drop_heads(self, rate: float) -> None:
        """Let training drop heads of every attention at this rate from here on."""
        for module in self.modules():
            if isinstance(module, HeadDropout):
                module.rate = rate

    def run_layer(self, layer: nn.Module, *inputs: Any) -> Tensor:
        """Call a layer, in training with `checkpointing` so that only its inputs are kept."""
        if self.checkpointing and self.training:
            result: Tensor = checkpoint(layer, *inputs, use_reentrant=False)
        else:
            result = layer(*inputs)
        return result


class Network(Trainable, ABC):
    """What translation models, language models and encoders in pre-training have in common: an
    output matrix gives the logits of ids."""

    stacks: ClassVar[dict[str, str]] = {"encoder": "encoder", "decoder": "decoder"}
    """The submodules that hold the layers of each side."""
    states: Callable[..., Tensor]
    """States [B,T,D] of a training batch, from which `output_logits` makes logits."""
    output_bias: nn.Parameter | None
    """A bias [V] beside the output matrix."""
    logit_soft_cap: float = 0.0
    """What logits come near and never reach; 0 is none."""
    _output_layer: Callable[[Tensor], Tensor] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("output_bias", None)

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """The matrix [V,D] whose product with decoder states are the logits."""

    def forward(self, *inputs: Tensor) -> Tensor:
        """Training logits [B,T,V] of the tokens that follow each position."""
        return self.output_logits(self.states(*inputs))

    def replace_output(self, layer: nn.Module) -> None:
        """Let a layer, which becomes the submodule `output_layer`, compute the logits [B,Q,V] from
        here on in the place of `output_weight` and `output_bias`."""
        self.add_module("output_layer", layer)
        self._output_layer = layer.__call__

    def output_logits(self, x_BQD: Tensor) -> Tensor:
        """Logits [B,Q,V] of decoder states."""
        if self._output_layer is not None:
            return soft_cap(self._output_layer(x_BQD), self.logit_soft_cap)
        logits_BQV = nn.functional.linear(x_BQD, self.output_weight, self.output_bias)
        return soft_cap(logits_BQV, self.logit_soft_cap)

    def compile_states(self, backend: str) -> None:
        """Have `torch.compile` make kernels of `states`, for batches of any size."""
        self.states = torch.compile(self.states, dynamic=True, backend=backend)


class DecodingNetwork(Network):
    """What translation and language models have in common: a decoder with caches."""

    decoder_kind: ClassVar[Literal["cross", "joint", "lm"]]
    """How the decoder sees the source, as a bundle's manifest says it."""

    @property
    @abstractmethod
    def cache_axes(self) -> tuple[str | int, ...]:
        """Axes of each cache of keys or values, in the letters of a bundle's manifest."""

    @property
    @abstractmethod
    def layer_needs(self) -> list[StepNeeds]:
        """What each decoder layer keeps of a position and asks of a step."""

    @property
    def step_needs(self) -> StepNeeds:
        """What all decoder layers keep of a position and ask of a step together."""
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
    """A translation model: `states` trains; `encode_source`, `decode_step` and `output_logits` are
    what decoding calls eagerly and export writes out.

    Masks are additive, 0 or -inf.
    """

    decoder_kind: ClassVar[Literal["cross", "joint"]]
    alignment_role: ClassVar[Literal["alignment", "alignment_query"]]
    """`alignment`: probabilities [B,Q,S]; `alignment_query`: queries [B,Q,D] of the source
    attention of `alignment_layer`."""

    @property
    def alignment_layer(self) -> int | None:
        """The decoder layer whose source keys, of [key, value] * L, belong to the alignment's
        queries; None where the model gives probabilities."""
        return None

    @property
    @abstractmethod
    def num_sources(self) -> int:
        """How many source tensors, each [B,S,D], the encoder makes and each step reads."""

    @abstractmethod
    def encode_source(self, source_BS: Tensor, source_mask_BS: Tensor) -> list[Tensor]:
        """Source ids to the source tensors of `decode_step`."""

    @abstractmethod
    def decode_step(self, tokens: NewTokens, memory: StepContext) -> DecodingStep:
        """Append Q tokens a sentence to the caches; each sees the slots that `visible` shows."""

    @abstractmethod
    def states(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Decoder states [B,T,D] of a training batch: ids padded on the right, `target` starts with
        bos."""


def padding_mask(ids_BS: Tensor) -> Tensor | None:
    """Additive mask [B,1,1,S], -inf at padding; None where nothing is padded."""
    padded_BS = ids_BS == PAD_ID
    if not bool(padded_BS.any()):
        return None
    mask_BS = torch.zeros(ids_BS.shape, device=ids_BS.device).masked_fill(padded_BS, -torch.inf)
    return mask_BS[:, None, None, :]
