"""The weights of an encoder as its family names them, in the places of a `BidirectionalEncoder`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from export.importing.encoders.family import EncoderFamily
from export.importing.folder import Weights
from training.models import BidirectionalEncoder


class EncoderWeights:
    """The tensors of an encoder, whose names may have their family's before them."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights, self._prefix = weights, prefix

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return self._name(name) in self._weights

    def rows(self, name: str) -> int:
        """Of a tensor that is there."""
        return self._weights.shape(self._name(name))[0]

    def copy(self, module: Any, name: str) -> None:
        """Copy weight and bias into a layer or a norm."""
        names = [(f"{name}.weight", f"{name}.bias")]
        names += [(f"{name}.gamma", f"{name}.beta")]  # as the first BERT called those of norms
        weight, bias = next((pair for pair in names if self.has(pair[0])), names[0])
        self.assign(module.weight, weight)
        self.assign(module.bias, bias)

    def assign(self, parameter: Tensor, *names: str) -> None:
        """Copy one tensor, or several of one shape below each other, into a parameter; raises
        ExportError where one is missing or of another shape."""
        rows, *others = parameter.shape
        shape = (rows // len(names), *others)
        value = torch.cat([self._weights.take(self._name(name), *shape) for name in names])
        with torch.no_grad():
            parameter.copy_(value)

    def table(self, name: str, first: int, rows: int, width: int) -> Tensor:
        """Rows of a table from `first` on; raises ExportError where it is missing or of another
        shape."""
        return self._weights.take(self._name(name), first + rows, width)[first:]

    def _name(self, name: str) -> str:
        return name if name in self._weights else f"{self._prefix}.{name}"


def load_encoder(
    encoder: BidirectionalEncoder, weights: EncoderWeights, family: EncoderFamily, skipped: int
) -> None:
    """Copy an encoder's weights into one of its sizes, but for `skipped` positions at the
    beginning; raises ExportError where one is missing or of another shape."""
    embedding, config = encoder.embedding, encoder.config
    weights.assign(embedding.weight, "embeddings.word_embeddings.weight")
    assert embedding.positions is not None
    positions = weights.table(
        "embeddings.position_embeddings.weight", skipped, config.max_positions, config.model_dim
    )
    kinds = "embeddings.token_type_embeddings.weight"
    if embedding.segments is not None:
        weights.assign(embedding.segments.weight, kinds)
    elif family.segments:
        positions = positions + weights.table(kinds, 0, 1, config.model_dim)
    with torch.no_grad():
        embedding.positions.weight.copy_(positions)
    weights.copy(embedding.norm, "embeddings.LayerNorm")
    for number, layer in enumerate(encoder.layers):
        prefix = f"{family.layers}.{number}"
        parts = [f"{prefix}.{part}" for part in family.attention]
        projection = layer.get_submodule("self_attention.in_proj")
        assert isinstance(projection, nn.Linear)
        weights.assign(projection.weight, *(f"{part}.weight" for part in parts))
        weights.assign(projection.bias, *(f"{part}.bias" for part in parts))
        for own, name in family.layer.items():
            weights.copy(layer.get_submodule(own), f"{prefix}.{name}")
