"""Sizes and options of a joint-representation model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.models.configs.common import ModelConfig


@dataclass(frozen=True, kw_only=True)
class JointConfig(ModelConfig):
    """Sizes of a joint-representation model (Li et al. 2020, "Neural Machine Translation with Joint
    Representation"): Reformer-base has no encoder layers, Reformer-fast has some.

    `num_encoder_layers` is the depth of the PreNet, `num_decoder_layers` the number of joint
    layers. The defaults follow the authors' code where it disagrees with the paper, which has
    `embedding_scale="sum"`.
    """

    least_encoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "norm": ("pre",),
        "joint_dropout": ("shared", "ordinary"),
    }
    decoding_budget: ClassVar[int] = 131072

    architecture: str = "joint"
    tie_embeddings: bool = True
    """Share one embedding between source, target and output; the authors have three."""
    joint_dropout: str = "shared"
    """`shared`: joint layers share noise along source or target or both (dropout 1d and 2d, section
    3.4 of the paper); `ordinary`: each element has its own noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_fix_norm(self.tie_embeddings)

    @property
    def family(self) -> str:
        return "joint"

    def batch_cost(self, source_length: int, target_length: int) -> int:
        """Cells of one row: a joint model has a state for each pair of positions."""
        return source_length * target_length
