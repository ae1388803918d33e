"""Copies the weights of an encoder, by its family's names, into a `BidirectionalEncoder`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from export.importing.encoders.family import EncoderFamily
from export.importing.folder import Weights
from training.models import BertConfig, BidirectionalEncoder, TextClassifier

_SEGMENTS = "embeddings.token_type_embeddings.weight"


class EncoderWeights:
    """The tensors of an encoder, whose names may have their family's prefix."""

    def __init__(self, weights: Weights, family: EncoderFamily) -> None:
        self._weights, self._family = weights, family

    def has(self, name: str) -> bool:
        """Whether a tensor of this name exists."""
        return self._name(name) in self._weights

    def rows(self, name: str) -> int:
        """Number of rows of an existing tensor."""
        return self._weights.shape(self._name(name))[0]

    def check(self, name: str, *shape: int) -> None:
        """Raise ExportError if a tensor is missing or has another shape."""
        self._weights.check(self._name(name), *shape)

    def copy(self, module: Any, *names: str) -> None:
        """Copy weight and bias into a layer or a norm; with several names they are stacked."""
        kinds = ("weight", "bias")
        if not self.has(f"{names[0]}.weight") and self.has(f"{names[0]}.gamma"):
            kinds = ("gamma", "beta")  # the first BERT's names for the parts of norms
        weights, biases = ([f"{name}.{kind}" for name in names] for kind in kinds)
        self.assign(module.weight, *weights)
        if self._family.has_biases or self.has(biases[0]):
            self.assign(module.bias, *biases)
        else:
            nn.init.zeros_(module.bias)

    def assign(self, parameter: Tensor, *names: str) -> None:
        """Copy one tensor, or several of one shape stacked, into a parameter; raises ExportError if
        one is missing or has another shape."""
        rows, *others = parameter.shape
        shape = (rows // len(names), *others)
        value = torch.cat([self._weights.take(self._name(name), *shape) for name in names])
        with torch.no_grad():
            parameter.copy_(value)

    def table(self, name: str, first: int, rows: int, width: int) -> Tensor:
        """Rows of a table from `first` on; raises ExportError if it is missing or has another
        shape."""
        return self._weights.take(self._name(name), first + rows, width)[first:]

    def _name(self, name: str) -> str:
        return name if name in self._weights else f"{self._family.prefix}.{name}"


def check_sizes(
    config: BertConfig, weights: EncoderWeights, family: EncoderFamily, skipped: int
) -> None:
    """Raise ExportError if the weights are not of these sizes, before a model of them takes any
    memory."""
    dim, last = config.model_dim, config.num_encoder_layers - 1
    weights.check(f"{family.embedding}.weight", config.vocab_size, dim)
    if family.positions:
        weights.check(f"{family.positions}.weight", skipped + config.max_positions, dim)
        if config.num_segments:
            weights.check(_SEGMENTS, config.num_segments, dim)
    down = family.layer["ffn.down_proj"]
    weights.check(f"{family.layers}.{last}.{down}.weight", dim, config.ffn_dim)


def load_encoder(
    encoder: BidirectionalEncoder, weights: EncoderWeights, family: EncoderFamily, skipped: int
) -> None:
    """Copy an encoder's weights into a model of its sizes, without `skipped` positions at the
    beginning; raises ExportError if one is missing or has another shape."""
    weights.assign(encoder.embedding.weight, f"{family.embedding}.weight")
    _load_positions(encoder, weights, family, skipped)
    weights.copy(encoder.embedding.norm, family.embedding_norm)
    for number, layer in enumerate(encoder.layers):
        prefix = f"{family.layers}.{number}"
        projection = layer.get_submodule("self_attention.in_proj")
        weights.copy(projection, *(f"{prefix}.{part}" for part in family.attention))
        for own, name in family.layer.items():
            module = layer.get_submodule(own)
            if not isinstance(module, nn.Identity):
                weights.copy(module, f"{prefix}.{name}")
    if family.norm:
        weights.copy(encoder.norm, family.norm)


def load_classifier(model: TextClassifier, weights: EncoderWeights, family: EncoderFamily) -> None:
    """Copy the weights after the encoder; raises as `load_encoder`."""
    weights.copy(model.output, family.head_output)
    weights.copy(model.pooler.dense, family.head_dense)
    if family.head_norm:
        weights.copy(model.pooler.norm, family.head_norm)


def _load_positions(
    encoder: BidirectionalEncoder, weights: EncoderWeights, family: EncoderFamily, skipped: int
) -> None:
    """Tables of positions, token types and distances."""
    embedding, config = encoder.embedding, encoder.config
    if encoder.bias is not None:
        weights.assign(encoder.bias.weight_1RH[0], f"{family.distances}.weight")
    if not family.positions:
        return
    assert embedding.positions is not None
    positions = weights.table(
        f"{family.positions}.weight", skipped, config.max_positions, config.model_dim
    )
    if embedding.segments is not None:
        weights.assign(embedding.segments.weight, _SEGMENTS)
    elif family.segments:
        positions = positions + weights.table(_SEGMENTS, 0, 1, config.model_dim)
    with torch.no_grad():
        embedding.positions.weight.copy_(positions)
