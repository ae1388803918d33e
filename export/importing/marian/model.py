"""Models of Marian itself (Junczys-Dowmunt et al. 2018) in its own files, and the students of
Bergamot and Firefox Translations with SSRU decoders (Kim et al. 2019).

Options and names of parameters are those of marian-dev (`models/transformer.h`, `rnn/cells.h`).
CTranslate2's converter has the names for `.npz` files too, except for SSRU; all were tried on
published students.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, Weights, integer_of
from export.importing.layers import State
from export.importing.marian.file import MarianFile, read_model
from export.importing.marian.folder import find_files, languages_of, read_vocabulary, search_of
from export.importing.marian.shortlist import read_marian_shortlist
from export.importing.model import Imported, LanguageChoice, loaded
from serving.search.ids import SpecialIds
from training.models import TransformerConfig

_ACTIVATIONS = {"relu": "relu", "swish": "silu"}
"""Names of Marian to ours; its `gelu` is x * sigmoid(1.702 x), which is not here."""
_NEVER = -1e3
"""A bias that no logit makes up for, and beside which fp32 still holds thousandths of logits: as in
Marian, neither <unk> nor the start is ever written."""
_NAMES = """bert-train-type-embeddings bert-type-vocab-size dec-cell dec-cell-base-depth
dec-cell-high-depth dim-rnn enc-cell enc-cell-depth enc-type lemma-dependency max-length
original-type output-approx-knn skip transformer-aan-activation transformer-aan-depth
transformer-aan-nogate transformer-depth-scaling transformer-dim-aan
transformer-guided-alignment-layer ulr-dim-emb ulr-trainable-transformation version"""
_HARMLESS = frozenset(_NAMES.split())
"""Options that are ignored here: those of other kinds of models, and of training."""
_USUAL: dict[str, object] = {
    "factor-predictor": "",
    "factors-combine": "sum",
    "factors-dim-emb": 0,
    "input-types": [],
    "layer-normalization": False,
    "lemma-dim-emb": 0,
    "right-left": False,
    "transformer-decoder-dim-ffn": 0,
    "transformer-decoder-ffn-depth": 0,
    "transformer-ffn-depth": 2,
    "transformer-no-affine": False,
    "transformer-no-bias": False,
    "transformer-no-projection": False,
    "transformer-pool": False,
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "transformer-train-positions": False,
    "ulr": False,
}
"""The values of the architecture's options without any feature that is not supported."""


def read_marian_model(source: Path, choice: LanguageChoice) -> Imported:
    """Read a model of Marian: a `.npz` or `.bin`, the YAML of its decoder, or a folder with them.

    Raises ExportError, with file and entry, if something is not supported.
    """
    files = find_files(source)
    file = read_model(files.model)
    config = _read_config(file.options)
    size = config.vocab_size - 1
    vocabulary = read_vocabulary(files, config.source_vocab_size or size, size)
    special_ids = SpecialIds(pad=size, unk=vocabulary.unk, bos=size, eos=vocabulary.eos)
    search = search_of(files)
    state = _read_state(file, config, special_ids)
    shortlist = None
    if files.shortlist is not None:
        written = vocabulary.pieces.source_written
        own = None if written is None else len(written)
        shortlist = read_marian_shortlist(files.shortlist, size, special_ids.eos, own)
    student = ", SSRU decoder" if config.decoder_mixing == "ssru" else ""
    return Imported(
        f"a model of Marian ({files.model.suffix[1:]}{student})",
        loaded(config, state),
        vocabulary.pieces,
        special_ids,
        languages_of(files, choice, vocabulary.pieces),
        search,
        shortlist=shortlist,
    )


def _read_config(options: Options) -> TransformerConfig:
    options.must("type", "transformer")
    for name, wanted in _USUAL.items():
        options.must(name, wanted, default=wanted)
    pre = options.must("transformer-preprocess", "", "n", default="") == "n"
    options.must("transformer-postprocess", "da" if pre else "dan")
    options.must("transformer-postprocess-top", "n" if pre else "", default="")
    embedding = options.must("transformer-postprocess-emb", "", "d", "n", "nd", default="d")
    recurrent = options.must("transformer-decoder-autoreg", "self-attention", "rnn") == "rnn"
    if recurrent:
        options.must("dec-cell", "ssru")
    activation = options.must("transformer-ffn-activation", *_ACTIVATIONS, default="swish")
    source_size, size = _sizes(options)
    config = TransformerConfig(
        model_dim=options.integer("dim-emb"),
        num_heads=options.integer("transformer-heads"),
        ffn_dim=options.integer("transformer-dim-ffn"),
        activation=_ACTIVATIONS[activation],
        num_encoder_layers=options.integer("enc-depth"),
        num_decoder_layers=options.integer("dec-depth"),
        vocab_size=size + 1,
        source_vocab_size=source_size,
        tie_embeddings=_is_tied(options, "tied-embeddings"),
        norm="pre" if pre else "post",
        norm_eps=1e-6,
        positions="tensor2tensor",
        embedding_norm="n" in embedding,
        output_bias=True,
        decoder_mixing="ssru" if recurrent else "attention",
    )
    options.must("output-omit-bias", False, True, default=False)
    options.finish(_HARMLESS)
    return config


def _is_tied(options: Options, name: str) -> bool:
    """Whether two of the embeddings are one: all three may be."""
    every = options.get("tied-embeddings-all", False)
    return bool(options.get(name, False) or every)


def _sizes(options: Options) -> tuple[int, int]:
    """Rows of the source's own embedding (0 if it shares the target's), and of the target's. Raises
    ExportError unless there are one source and one target."""
    sizes = options.get("dim-vocabs")
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise ExportError(
            f"{options.path}: dim-vocabs must be two sizes, of one source and a target, got "
            f"{sizes!r}"
        )
    for size in sizes:
        integer_of(f"{options.path}: dim-vocabs", size, least=1)
    if not _is_tied(options, "tied-embeddings-src"):
        return sizes[0], sizes[1]
    if sizes[0] != sizes[1]:
        raise ExportError(
            f"{options.path}: dim-vocabs must be two equal sizes where source and target share an "
            f"embedding, got {sizes!r}"
        )
    return 0, sizes[1]


def _embeddings(weights: Weights, config: TransformerConfig) -> State:
    """The vectors of source, target and output. The decoder starts with a vector of zeros, that of
    the piece after all others."""
    dim, size, own = config.model_dim, config.vocab_size - 1, config.source_vocab_size
    start = torch.zeros(1, dim)
    state = {}
    if own:
        state["source_embedding.weight"] = weights.take("encoder_Wemb", own, dim)
    if not config.tie_embeddings:
        name = "decoder_ff_logit_out_W"
        if name in weights:  # of versions that did not transpose it
            rows = _matrix(weights, name, dim, size)
        else:
            rows = weights.take(f"{name}t", size, dim)
        state["output_matrix"] = torch.cat([rows, start])
    table = weights.take("decoder_Wemb" if own else "Wemb", size, dim)
    return state | {"embedding.weight": torch.cat([table, start])}


def _read_state(file: MarianFile, config: TransformerConfig, special_ids: SpecialIds) -> State:
    weights, dim, size = file.weights, config.model_dim, config.vocab_size - 1
    bias = torch.zeros(size + 1)
    if not file.options.get("output-omit-bias"):
        bias[:size] = weights.take("decoder_ff_logit_out_b", 1, size)[0]
    bias[[special_ids.unk, special_ids.pad]] = _NEVER
    state = _embeddings(weights, config) | {"output_bias": bias}
    sides = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    for side, count in sides.items():
        for number in range(count):
            state |= _layer(weights, side, number, config)
        if config.norm == "pre":
            state |= _norm(weights, f"{side}_top", f"{side}_norm", dim)
        if config.embedding_norm:
            state |= _norm(weights, f"{side}_emb", f"{side}_side.norm", dim, "_pre")
    weights.finish()
    return state


def _layer(weights: Weights, side: str, number: int, config: TransformerConfig) -> State:
    there, here = f"{side}_l{number + 1}", f"{side}.{number}"
    dim, ffn_dim = config.model_dim, config.ffn_dim
    suffix = "_pre" if config.norm == "pre" else ""
    if side == "decoder" and config.decoder_mixing == "ssru":
        name, norm = f"{there}_rnn", f"{there}_rnn" if suffix else f"{there}_rnn_ffn"
        gate, new = (_matrix(weights, f"{name}_{part}", dim, dim) for part in ("Wf", "W"))
        state = {
            f"{here}.self_attention.in_proj.weight": torch.cat([gate, new]),
            f"{here}.self_attention.forget_bias": weights.take(f"{name}_bf", 1, dim)[0],
        }
    else:
        norm = f"{there}_self_Wo"
        state = _linear(weights, f"{there}_self", "qkv", f"{here}.self_attention.in_proj", dim)
        state |= _linear(weights, f"{there}_self", "o", f"{here}.self_attention.out_proj", dim)
    state |= _norm(weights, norm, f"{here}.self_attention_residual.norm", dim, suffix)
    if side == "decoder":
        name, ours = f"{there}_context", f"{here}.source_attention"
        for parts, projection in (("q", "query"), ("kv", "key_value"), ("o", "out")):
            state |= _linear(weights, name, parts, f"{ours}.{projection}_proj", dim)
        state |= _norm(weights, f"{name}_Wo", f"{ours}_residual.norm", dim, suffix)
    for part, ours, sizes in (("1", "up_proj", (dim, ffn_dim)), ("2", "down_proj", (ffn_dim, dim))):
        state |= _linear(weights, f"{there}_ffn", part, f"{here}.ffn.{ours}", *sizes)
    return state | _norm(weights, f"{there}_ffn_ffn", f"{here}.ffn_residual.norm", dim, suffix)


def _linear(
    weights: Weights, there: str, parts: str, here: str, inputs: int, outputs: int | None = None
) -> State:
    """Join products of the same input, row below row; each letter of `parts` names one of the
    checkpoint's products."""
    outputs = outputs or inputs
    matrices = [_matrix(weights, f"{there}_W{part}", inputs, outputs) for part in parts]
    biases = [weights.take(f"{there}_b{part}", 1, outputs)[0] for part in parts]
    return {f"{here}.weight": torch.cat(matrices), f"{here}.bias": torch.cat(biases)}


def _matrix(weights: Weights, name: str, inputs: int, outputs: int) -> Tensor:
    """A transposed matrix: Marian's has a row per input, ours one per output."""
    return weights.take(name, inputs, outputs).T.contiguous()


def _norm(weights: Weights, there: str, here: str, dim: int, suffix: str = "") -> State:
    names = {"weight": "scale", "bias": "bias"}
    return {
        f"{here}.{ours}": weights.take(f"{there}_ln_{theirs}{suffix}", 1, dim)[0]
        for ours, theirs in names.items()
    }
