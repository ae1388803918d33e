"""mBART-50 of Hugging Face `transformers` (Tang et al. 2020): many languages in one model, with
tags for both source and target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, Weights, read_json
from export.importing.hugging_face.family import Family, Folder, VocabularyPart, read_folder
from export.importing.hugging_face.m2m100 import MODEL, SPECIAL, many_languages
from export.importing.layers import State, take_norm, transformer_state
from export.importing.model import Imported, LanguageChoice, Pieces, find_file, read_sizes
from export.importing.vocabularies.sentencepieces import pieces_of, read_sentencepiece
from serving.search.options import MAX_STEPS
from training.models import TransformerConfig

_TAGS = """ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT
lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR
id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX
uk_UA ur_PK xh_ZA gl_ES sl_SI"""
TAGS = _TAGS.split()
"""Languages in the order of their tags, which follow the pieces."""
_LEAST_POSITIONS = 2 * MAX_STEPS + 2
"""Least number of positions: the longest prefix and the longest output after it, with a start and a
tag."""
_UNUSED_ROWS = 2
"""Unused first rows of a table of positions."""


def read_mbart(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of mBART-50; raises ExportError, with file and entry, for unsupported ones."""
    kind = "mBART-50 of Hugging Face transformers"
    return read_folder(folder, choice, Family(kind, _read_config, _read_text, learnt_state))


def _read_config(options: Options) -> TransformerConfig:
    options.get("forced_bos_token_id")  # the language of the request is forced
    return learnt_config(options, "pre")


def _read_text(folder: Folder, choice: LanguageChoice) -> VocabularyPart:
    written, path = _pieces(folder.path, folder.config.vocab_size), folder.path / MODEL
    silent = {"<s>", "<pad>", "</s>", "<mask>", *TAGS}
    control = frozenset(i for i, piece in enumerate(written) if piece in silent)
    return VocabularyPart(
        Pieces(written, control, path, path),
        written.index("<unk>"),
        many_languages({tag[:2]: tag for tag in TAGS}, choice),
    )


def learnt_config(options: Options, norm: str) -> TransformerConfig:
    """Options common to BART and its successors: a norm after the embedding, and learnt positions.
    With `norm` before the layers there is also one at the end."""
    options.must_be(True, "normalize_embedding", "tie_word_embeddings", "is_encoder_decoder")
    options.must_be(norm == "pre", "normalize_before", "add_final_layer_norm")
    options.must_be(False, "static_position_embeddings", "add_bias_logits", "is_decoder")
    return replace(
        read_sizes(options, activation="gelu", scale_embedding=False),
        norm=norm,
        positions="learnt",
        max_positions=_read_positions(options),
        embedding_norm=True,
        output_bias=True,
    )


def _read_positions(options: Options) -> int:
    """The rows of a position table without the unused ones; raises ExportError if they are too few
    for the longest request."""
    positions = options.integer("max_position_embeddings")
    if positions < _LEAST_POSITIONS:
        raise ExportError(
            f"{options.path}: max_position_embeddings must be >= {_LEAST_POSITIONS}, for sources "
            f"and targets of {MAX_STEPS} pieces, got {positions}"
        )
    return positions


def learnt_state(weights: Weights, folder: Folder) -> State:
    """Take all weights of a model with learnt positions, a norm after the embedding and an output
    bias, as in BART."""
    config = folder.config
    dim, size = config.model_dim, config.vocab_size
    state = transformer_state(weights, config)
    for side in ("encoder", "decoder"):
        rows = config.max_positions + _UNUSED_ROWS
        table = weights.take(f"model.{side}.embed_positions.weight", rows, dim)
        state[f"{side}_side.positions.weight"] = table[_UNUSED_ROWS:].clone()
        norm = f"model.{side}.layernorm_embedding"
        state |= take_norm(weights, norm, f"{side}_side.norm", dim)
        weights.drop(f"model.{side}.version")  # of fairseq's layers, in older files
    state["output_bias"] = weights.take("final_logits_bias", 1, size)[0]
    return state


def _pieces(folder: Path, size: int) -> list[str]:
    """The written form of each id: four special ones, the pieces of the SentencePiece model, then
    the tags and the mask."""
    tokenizer_config = folder / "tokenizer_config.json"
    kind = (
        read_json(tokenizer_config).get("tokenizer_class") if tokenizer_config.is_file() else None
    )
    if kind is not None and not str(kind).startswith("MBart50Tokenizer"):
        raise ExportError(
            f"{tokenizer_config}: tokenizer_class {kind!r} is not supported for mBART; it must be "
            "'MBart50Tokenizer', whose tag stands before the source"
        )
    path = find_file(folder, MODEL, "the SentencePiece model")
    own = pieces_of(read_sentencepiece(path))[3:]
    written = [*SPECIAL, *own, *TAGS, "<mask>"]
    if len(written) != size:
        raise ExportError(
            f"{path}: with tags and special pieces there are {len(written)}, but the embedding has "
            f"{size} rows ({CONFIG}'s vocab_size)"
        )
    return written
