"""What the families of encoders call the same things: BERT, RoBERTa, XLM-RoBERTa, DistilBERT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EncoderFamily:
    """The names of one family in `config.json` and among its weights."""

    prefix: str
    """What may stand before the names of weights."""
    sizes: Mapping[str, str]
    """Keys of `config.json`, by the fields of a BertConfig."""
    layers: str
    """What stands before the number of a layer."""
    attention: tuple[str, str, str]
    """Projections of queries, keys and values, within a layer."""
    layer: Mapping[str, str]
    """Other parts of a layer, by the names of this project."""
    head_dense: str
    """The dense layer of a classifier, behind the first token's state."""
    head_output: str
    """Its output."""
    pooler: str = "tanh"
    """As in a BertConfig."""
    segments: str = ""
    """The key of `config.json` with the number of kinds of parts; empty where there are none."""
    norm_eps: float | None = None
    """Where `config.json` does not have it."""
    offset: bool = False
    """Whether positions count from behind the padding's id, as in fairseq."""

    def skipped_positions(self, tree: Mapping[str, Any]) -> int:
        """Rows of the table of positions that no token of a text has."""
        return int(tree.get("pad_token_id", 1)) + 1 if self.offset else 0


_SIZES = {
    "model_dim": "hidden_size",
    "num_heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
    "num_encoder_layers": "num_hidden_layers",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
_ATTENTION = ("attention.self.query", "attention.self.key", "attention.self.value")
_LAYER = {
    "self_attention.out_proj": "attention.output.dense",
    "self_attention_residual.norm": "attention.output.LayerNorm",
    "ffn.up_proj": "intermediate.dense",
    "ffn.down_proj": "output.dense",
    "ffn_residual.norm": "output.LayerNorm",
}


def _roberta() -> EncoderFamily:
    return EncoderFamily(
        prefix="roberta",
        sizes=_SIZES,
        layers="encoder.layer",
        attention=_ATTENTION,
        layer=_LAYER,
        head_dense="classifier.dense",
        head_output="classifier.out_proj",
        segments="type_vocab_size",
        offset=True,
    )


FAMILIES: Mapping[str, EncoderFamily] = {
    "bert": EncoderFamily(
        prefix="bert",
        sizes=_SIZES,
        layers="encoder.layer",
        attention=_ATTENTION,
        layer=_LAYER,
        head_dense="pooler.dense",
        head_output="classifier",
        segments="type_vocab_size",
    ),
    "roberta": _roberta(),
    "xlm-roberta": _roberta(),
    "distilbert": EncoderFamily(
        prefix="distilbert",
        sizes={
            "model_dim": "dim",
            "num_heads": "n_heads",
            "ffn_dim": "hidden_dim",
            "num_encoder_layers": "n_layers",
            "activation": "activation",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
        },
        layers="transformer.layer",
        attention=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        layer={
            "self_attention.out_proj": "attention.out_lin",
            "self_attention_residual.norm": "sa_layer_norm",
            "ffn.up_proj": "ffn.lin1",
            "ffn.down_proj": "ffn.lin2",
            "ffn_residual.norm": "output_layer_norm",
        },
        head_dense="pre_classifier",
        head_output="classifier",
        pooler="relu",
        norm_eps=1e-12,
    ),
}
"""By `model_type`."""
