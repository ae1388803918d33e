"""Pegasus of Hugging Face `transformers` (Zhang et al. 2020): a summariser, or whatever else was
trained from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import sentencepiece

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, Weights, read_json, read_weights
from export.importing.layers import State, drop_sinusoids, transformer_state
from export.importing.model import (
    HARMLESS,
    Imported,
    LanguageChoice,
    Pieces,
    find_file,
    generation_options,
    loaded,
    read_options,
    read_sizes,
    search_options,
    special_id,
)
from serving.bundle.languages import Languages
from serving.search.ids import SpecialIds
from training.models import TransformerConfig
from training.models.embedding import marian_sinusoid

MODEL = "spiece.model"
_OWN = 2
"""Pieces of the SentencePiece model whose ids stay: padding and the end."""
_OFFSET = 103
"""What all others count further: pieces of the pre-training stand between."""


def read_pegasus(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of Pegasus; raises ExportError, with file and entry, for what is not
    supported. Without a choice it reads and writes English."""
    options, generation = read_options(folder), generation_options(folder)
    config = _read_config(options)
    size = config.vocab_size
    written = _pieces(folder, size)
    special_ids = SpecialIds(
        pad=special_id(options, "pad_token_id", size),
        unk=written.index("<unk>"),
        bos=special_id(options, "decoder_start_token_id", size),
        eos=special_id(options, "eos_token_id", size),
    )
    options.get("bos_token_id")  # there is none
    options.must("force_bos_token_to_be_generated", False, default=False)
    search = search_options(options, generation)
    options.finish(HARMLESS)
    state = _read_state(read_weights(folder), config)
    model = find_file(folder, MODEL, "the SentencePiece model")
    return Imported(
        "Pegasus of Hugging Face transformers",
        loaded(config, state),
        Pieces(written, frozenset(range(_OWN + _OFFSET)), model, model),
        special_ids,
        Languages(source=choice.source or ("en",), target=choice.target or ("en",)),
        search,
    )


def _read_config(options: Options) -> TransformerConfig:
    for name in ("normalize_before", "add_final_layer_norm", "static_position_embeddings"):
        options.must(name, True, default=True)
    for name in ("normalize_embedding", "add_bias_logits", "is_decoder"):
        options.must(name, False, default=False)
    for name in ("tie_word_embeddings", "is_encoder_decoder"):
        options.must(name, True, default=True)
    options.get("max_position_embeddings")  # sinusoids have no end
    sizes = read_sizes(options, activation="gelu", scale_embedding=False)
    return replace(sizes, norm="pre", positions="marian", output_bias=True)


def _read_state(weights: Weights, config: TransformerConfig) -> State:
    drop_sinusoids(weights, "embed_positions.weight", marian_sinusoid, config.model_dim)
    state = transformer_state(weights, config)
    state["output_bias"] = weights.take("final_logits_bias", 1, config.vocab_size)[0]
    weights.finish()
    return state


def _pieces(folder: Path, size: int) -> list[str]:
    """The written form of each id."""
    told = folder / "tokenizer_config.json"
    offset = read_json(told).get("offset", _OFFSET) if told.is_file() else _OFFSET
    if offset != _OFFSET:
        raise ExportError(f"{told}: offset must be {_OFFSET}, got {offset!r}")
    path = find_file(folder, MODEL, "the SentencePiece model")
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ExportError(f"{path}: no usable SentencePiece model: {reason}") from error
    own = [str(model.id_to_piece(i)) for i in range(model.vocab_size())]
    masks = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, _OFFSET))]
    written = [*own[:_OWN], *masks, *own[_OWN:]]
    if len(written) != size or written[_OWN + _OFFSET] != "<unk>":
        raise ExportError(
            f"{path}: with special pieces there are {len(written)}, of which <unk> must be number "
            f"{_OWN + _OFFSET}, but the embedding has {size} rows ({CONFIG}'s vocab_size)"
        )
    return written
