"""Encoder-decoders as CTranslate2's `TransformerSpec` names their parts, to `training.models`.

Shape letters: D model, F feed-forward, V vocabulary, E head, R distances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Weights
from export.importing.hugging_face.marian import NEVER
from export.importing.layers import State
from export.importing.toolkits.ctranslate2_file import SpecFile
from export.importing.vocabularies.pair import Written
from training.models import TransformerConfig
from training.models.sublayers.embedding import POSITIONS

_ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
_GATED = {"relu": "reglu", "silu": "swiglu", "gelu": "geglu"}
_SOURCE = "encoder/embeddings_0/weight"
_TARGET, _OUTPUT = "decoder/embeddings/weight", "decoder/projection/weight"
_WITHOUT_MEANING = ("alignment_layer", "alignment_heads", "embeddings_merge")
"""Options without meaning for logits, in a model with one embedding for each side."""


@dataclass(frozen=True)
class _Positions:
    """The kind of positions of a model; learnt ones have a table for each side."""

    kind: str
    distances: int = 16
    tables: dict[str, Tensor] = field(default_factory=dict)


class SpecLayers:
    """Sizes and weights of a model, as `training.models` has them."""

    def __init__(self, path: Path, file: SpecFile, norm_eps: float | None) -> None:
        self._weights = Weights(path, dict(file.tensors))
        self._path, self._options = path, dict(file.options)
        self._dim = self._size(_SOURCE, 1)
        self._ffn = self._size("encoder/layer_0/ffn/linear_0/weight", 0)
        target = _TARGET if _TARGET in self._weights else _SOURCE
        self._vocab = self._size(target, 0)
        # Shared tensors are stored again under each name.
        self._own_source = _differ(file.tensors, _SOURCE, target)
        self._own_output = _differ(file.tensors, _OUTPUT, target)
        positions = self._positions()
        self.config = self._config(positions, norm_eps)
        self.state = self._state(positions)
        self._weights.finish()
        self._finish_options()

    def append_row(self) -> None:
        """A piece that nothing writes, with a vector of zeros."""
        bias_V = self.state.get("output_bias", torch.zeros(self.config.vocab_size))
        for name in ("embedding.weight", "output_matrix"):
            if name in self.state:
                self.state[name] = torch.cat([self.state[name], torch.zeros(1, self._dim)])
        self.state["output_bias"] = torch.cat([bias_V, torch.tensor([NEVER])])
        rows = self.config.vocab_size + 1
        self.config = replace(self.config, vocab_size=rows, output_bias=True)

    def check_rows(self, source: Path, written: Written) -> None:
        """Raise ExportError unless each row of the embeddings is a piece's."""
        sizes = self.config.source_vocab_size or self._vocab, self._vocab
        for side, pieces, rows in zip(
            ("source", "target"), (written.source, written.target), sizes, strict=True
        ):
            if len(pieces) != rows:
                raise ExportError(
                    f"{source}: the vocabulary of the {side} has {len(pieces)} pieces and its "
                    f"embedding {rows} rows"
                )

    def _size(self, name: str, axis: int) -> int:
        if name not in self._weights:
            raise ExportError(f"{self._path}: the tensor {name!r} is missing")
        return self._weights.shape(name)[axis]

    def _whole(self, name: str) -> Tensor:
        """A tensor whose shape is still to be checked."""
        return self._weights.take(name, *self._weights.shape(name))

    def _both(self, name: str, default: float) -> float:
        """An option that must be the same for both sides."""
        values = [self._options.pop(f"{s}/{name}", default) for s in ("encoder", "decoder")]
        if values[0] != values[1]:
            raise ExportError(f"{self._path}: {name} must be equal on both sides, got {values}")
        return values[0]

    def _config(self, positions: _Positions, norm_eps: float | None) -> TransformerConfig:
        activation = self._both("activation", 0)
        if activation not in _ACTIVATIONS:
            raise ExportError(
                f"{self._path}: activation {activation:g} is not supported; supported: "
                f"{', '.join(f'{i} ({name})' for i, name in _ACTIVATIONS.items())}"
            )
        name = _ACTIVATIONS[int(activation)]
        gated = "encoder/layer_0/ffn/linear_0_noact/weight" in self._weights
        affine = "encoder/layer_0/self_attention/layer_norm/beta" in self._weights
        return TransformerConfig(
            model_dim=self._dim,
            num_heads=int(self._both("num_heads", 8)),
            ffn_dim=self._ffn,
            activation=_GATED[name] if gated else name,
            num_encoder_layers=self._count("encoder"),
            num_decoder_layers=self._count("decoder"),
            vocab_size=self._vocab,
            source_vocab_size=self._size(_SOURCE, 0) if self._own_source else 0,
            tie_embeddings=not self._own_output,
            norm="pre" if self._both("pre_norm", 1) else "post",
            norm_type="layer" if affine else "rms",
            norm_eps=1e-5 if norm_eps is None else float(norm_eps),
            embedding_scale="token" if self._is_scaled() else "none",
            positions=positions.kind,
            max_positions=len(positions.tables.get("encoder", ())),
            max_relative_distance=positions.distances,
            embedding_norm="encoder/layernorm_embedding/gamma" in self._weights,
            output_bias="decoder/projection/bias" in self._weights,
        )

    def _is_scaled(self) -> bool:
        """Whether vectors are multiplied by the root of their size: given by the factor, or by a
        switch that is 1."""
        factor, root = self._both("scale_embeddings", 1), math.sqrt(self._dim)
        if factor != 0 and factor != 1 and not math.isclose(factor, root, rel_tol=1e-3):
            raise ExportError(
                f"{self._path}: scale_embeddings must be off or sqrt({self._dim}), got {factor:g}"
            )
        return factor != 0

    def _count(self, side: str) -> int:
        name = f"{side}/layer_{{}}/ffn/linear_0/weight"
        count = 0
        while name.format(count) in self._weights:
            count += 1
        return count

    def _positions(self) -> _Positions:
        keys = "encoder/layer_0/self_attention/relative_position_keys"
        if keys in self._weights:
            return _Positions("relative", distances=self._weights.shape(keys)[0] // 2)
        names = {side: f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")}
        given = {side: self._whole(name) for side, name in names.items() if name in self._weights}
        if len(given) < len(names):
            return _Positions("sinusoid")  # CTranslate2 computes them when it loads the model
        shapes = [list(table.shape) for table in given.values()]
        if shapes[0] != shapes[1] or shapes[0][1] != self._dim:
            raise ExportError(
                f"{self._path}: position_encodings must be of one shape on both sides, got {shapes}"
            )
        for kind, sinusoid in POSITIONS.items():
            if sinusoid is not None:
                wanted = sinusoid(torch.arange(shapes[0][0]), self._dim)
                if all(torch.allclose(table, wanted, atol=1e-3) for table in given.values()):
                    return _Positions(kind)
        return _Positions("learnt", tables=given)

    def _state(self, positions: _Positions) -> State:
        state, shared = {}, [_TARGET]
        if self._own_source:
            rows = self.config.source_vocab_size
            state["source_embedding.weight"] = self._weights.take(_SOURCE, rows, self._dim)
        else:
            shared.append(_SOURCE)
        if self._own_output:
            state["output_matrix"] = self._weights.take(_OUTPUT, self._vocab, self._dim)
        else:
            shared.append(_OUTPUT)
        state["embedding.weight"] = self._weights.take_one(shared, self._vocab, self._dim)
        if self.config.output_bias:
            state["output_bias"] = self._weights.take("decoder/projection/bias", self._vocab)
        for side in ("encoder", "decoder"):
            if positions.tables:
                state[f"{side}_side.positions.weight"] = positions.tables[side]
            if self.config.embedding_norm:
                state |= self._norm(f"{side}/layernorm_embedding", f"{side}_side.norm")
            if self.config.norm == "pre":
                state |= self._norm(f"{side}/layer_norm", f"{side}_norm")
            for number in range(self._count(side)):
                state |= self._layer(f"{side}/layer_{number}", f"{side}.{number}", side)
        return state

    def _layer(self, there: str, here: str, side: str) -> State:
        """A layer's state; the products of self-attention and of source attention have the same
        parts in the file and here."""
        dim, mine = self._dim, f"{here}.self_attention"
        state = self._products(
            f"{there}/self_attention", mine, {"in_proj": 3 * dim, "out_proj": dim}
        )
        if self.config.positions == "relative":
            state |= self._relative(f"{there}/self_attention", f"{mine}.relative")
        if side == "decoder":
            rows = {"query_proj": dim, "key_value_proj": 2 * dim, "out_proj": dim}
            state |= self._products(f"{there}/attention", f"{here}.source_attention", rows)
        return state | self._ffn_state(f"{there}/ffn", f"{here}.ffn")

    def _products(self, there: str, here: str, rows: dict[str, int]) -> State:
        """The products of an attention, by name and rows, and the norm of its residual."""
        state = self._norm(f"{there}/layer_norm", f"{here}_residual.norm")
        for number, (name, size) in enumerate(rows.items()):
            state |= self._linear(f"{there}/linear_{number}", f"{here}.{name}", size, self._dim)
        return state

    def _ffn_state(self, there: str, here: str) -> State:
        up = self._linear(f"{there}/linear_0", f"{here}.up_proj", self._ffn, self._dim)
        if self.config.activation in _GATED.values():  # the gate's rows come before the others
            other = self._linear(f"{there}/linear_0_noact", f"{here}.up_proj", self._ffn, self._dim)
            up = {name: torch.cat([tensor, other[name]]) for name, tensor in up.items()}
        down = self._linear(f"{there}/linear_1", f"{here}.down_proj", self._dim, self._ffn)
        return up | down | self._norm(f"{there}/layer_norm", f"{here}_residual.norm")

    def _relative(self, there: str, here: str) -> State:
        rows = 2 * self.config.max_relative_distance + 1
        shape = (rows, self._dim // self.config.num_heads)
        return {
            f"{here}.{kind}_1RE": self._weights.take(f"{there}/relative_position_{kind}", *shape)[
                None
            ]
            for kind in ("keys", "values")
        }

    def _linear(self, there: str, here: str, rows: int, columns: int) -> State:
        weight = self._weights.take(f"{there}/weight", rows, columns)
        name, bias = f"{there}/bias", torch.zeros(rows)
        if name in self._weights:  # some converters leave out zero biases
            bias = self._weights.take(name, rows)
        return {f"{here}.weight": weight, f"{here}.bias": bias}

    def _norm(self, there: str, here: str) -> State:
        state = {f"{here}.weight": self._weights.take(f"{there}/gamma", self._dim)}
        if self.config.norm_type == "layer":
            state[f"{here}.bias"] = self._weights.take(f"{there}/beta", self._dim)
        return state

    def _finish_options(self) -> None:
        """Raise ExportError for an option that is switched on and not known here."""
        for name, value in self._options.items():
            last = name.rpartition("/")[2]
            known = last in _WITHOUT_MEANING or last == "start_from_zero_embedding"
            if value and not known:
                raise ExportError(
                    f"{self._path}: {name} {value:g} is not supported; it must be left out or 0"
                )


def _differ(tensors: Mapping[str, Tensor], one: str, other: str) -> bool:
    """Whether both are there and not the same."""
    return one in tensors and other in tensors and not torch.equal(tensors[one], tensors[other])
