"""Names of options and weights in the families of encoders: BERT, RoBERTa, XLM-RoBERTa, DistilBERT,
MPNet and ModernBERT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from export.importing.encoders import modern_bert
from export.importing.folder import Options

_TRAINING = """_name_or_path architectures bos_token_id chunk_size_feed_forward cls_token_id
deterministic_flash_attn decoder_bias dtype eos_token_id gradient_checkpointing id2label
initializer_cutoff_factor initializer_range is_encoder_decoder label2id mlp_dropout
output_attentions output_hidden_states pad_token_id problem_type reference_compile
repad_logits_with_grad return_dict sentence_transformers sep_token_id sparse_pred_ignore_index
sparse_prediction tie_word_embeddings torch_dtype transformers_version use_cache"""


def _nothing(options: Options) -> dict[str, Any]:
    del options
    return {}


@dataclass(frozen=True)
class EncoderFamily:
    """Names of one family in `config.json` and among its weights."""

    prefix: str
    """Possible prefixes of weight names."""
    sizes: Mapping[str, str]
    """Keys of `config.json`, by the fields of a BertConfig."""
    layers: str
    """Prefix of a layer's number."""
    attention: tuple[str, ...]
    """Projections of queries, keys and values within a layer, or one fused projection."""
    layer: Mapping[str, str]
    """Other parts of a layer, by their names in this project. A first layer may lack the norm of
    its attention."""
    head_dense: str
    """The dense layer of a classifier, applied to a text's vector."""
    head_output: str
    """The classifier's output layer."""
    head_norm: str = ""
    """A norm between these two."""
    embedding: str = "embeddings.word_embeddings"
    embedding_norm: str = "embeddings.LayerNorm"
    positions: str = "embeddings.position_embeddings"
    """The table of positions; empty if there is none."""
    distances: str = ""
    """The table of distance buckets, with a column per head."""
    norm: str = ""
    """The norm after all layers."""
    pooler: str = "tanh"
    """The activation of the pooler, as in `BertConfig`."""
    segments: str = ""
    """Key of `config.json` with the number of token types; empty if there are none."""
    norm_eps: float | None = None
    """Default if `config.json` has no such key."""
    offset: bool = False
    """Whether positions count from one after the padding's id, as in fairseq."""
    padding: int | None = None
    """The padding's id in that case, regardless of `config.json`."""
    has_biases: bool = True
    """Whether all products and norms must have a bias; otherwise missing ones are zero."""
    more: Callable[[Options], dict[str, Any]] = _nothing
    """Other options of `config.json`, as fields of a BertConfig."""
    harmless: frozenset[str] | None = None
    """Options that change no output; any other unread option is an error. None accepts all, since
    older files have many."""

    def skipped_positions(self, options: Options) -> int:
        """Rows of the position table that no token uses."""
        if not self.offset:
            return 0
        return 1 + (options.integer("pad_token_id", 1) if self.padding is None else self.padding)


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
_HARMLESS = frozenset(_TRAINING.split())


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


def _mpnet() -> EncoderFamily:
    buckets = 32  # the code of transformers uses this, whatever the option says

    def more(options: Options) -> dict[str, Any]:
        options.must("relative_attention_num_buckets", buckets, default=buckets)
        return {"relative_buckets": buckets}

    return EncoderFamily(
        prefix="mpnet",
        sizes=_SIZES,
        layers="encoder.layer",
        attention=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        layer={
            **_LAYER,
            "self_attention.out_proj": "attention.attn.o",
            "self_attention_residual.norm": "attention.LayerNorm",
        },
        head_dense="classifier.dense",
        head_output="classifier.out_proj",
        distances="encoder.relative_attention_bias",
        offset=True,
        padding=1,
        more=more,
        harmless=_HARMLESS,
    )


def _modern_bert() -> EncoderFamily:
    return EncoderFamily(
        prefix="model",
        sizes={
            **_SIZES,
            "activation": "hidden_activation",
            "dropout": "embedding_dropout",
            "attention_dropout": "attention_dropout",
            "norm_eps": "norm_eps",
        },
        layers="layers",
        attention=("attn.Wqkv",),
        layer={
            "self_attention.out_proj": "attn.Wo",
            "self_attention_residual.norm": "attn_norm",
            "ffn.up_proj": "mlp.Wi",
            "ffn.down_proj": "mlp.Wo",
            "ffn_residual.norm": "mlp_norm",
        },
        head_dense="head.dense",
        head_output="classifier",
        head_norm="head.norm",
        embedding="embeddings.tok_embeddings",
        embedding_norm="embeddings.norm",
        positions="",
        norm="final_norm",
        pooler="gelu_norm",
        has_biases=False,
        more=modern_bert.read_options,
        harmless=_HARMLESS,
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
    "mpnet": _mpnet(),
    "modernbert": _modern_bert(),
}
"""Families by `model_type`."""
