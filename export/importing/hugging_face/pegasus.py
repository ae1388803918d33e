"""Pegasus of Hugging Face `transformers` (Zhang et al. 2020): a summariser, or another
model fine-tuned from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, Weights, read_json
from export.importing.hugging_face.family import Family, Folder, VocabularyPart, read_folder
from export.importing.layers import State, drop_sinusoids, transformer_state
from export.importing.model import Imported, LanguageChoice, Pieces, find_file, read_sizes
from export.importing.vocabularies.sentencepieces import pieces_of, read_sentencepiece
from serving.bundle.languages import Languages
from training.models import TransformerConfig
from training.models.sublayers.embedding import marian_sinusoid

MODEL = "spiece.model"
_OWN = 2
"""Pieces of the SentencePiece model that keep their ids: padding and the end."""
_OFFSET = 103
"""Offset of all other ids; pieces of the pre-training are before it."""


def read_pegasus(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of Pegasus; raises ExportError, with file and entry, for unsupported ones.
    Without a choice it reads and writes English."""
    kind = "Pegasus of Hugging Face transformers"
    return read_folder(folder, choice, Family(kind, _read_config, _read_text, _read_state))


def _read_config(options: Options) -> TransformerConfig:
    options.must_be(True, "normalize_before", "add_final_layer_norm", "static_position_embeddings")
    options.must_be(False, "normalize_embedding", "add_bias_logits", "is_decoder")
    options.must_be(True, "tie_word_embeddings", "is_encoder_decoder")
    options.must_be(False, "force_bos_token_to_be_generated")
    options.get("max_position_embeddings")  # sinusoids have no end
    sizes = read_sizes(options, activation="gelu", scale_embedding=False)
    return replace(sizes, norm="pre", positions="marian", output_bias=True)


def _read_text(folder: Folder, choice: LanguageChoice) -> VocabularyPart:
    path = find_file(folder.path, MODEL, "the SentencePiece model")
    written = _pieces(path, folder.config.vocab_size)
    return VocabularyPart(
        Pieces(written, frozenset(range(_OWN + _OFFSET)), path, path),
        written.index("<unk>"),
        Languages(source=choice.source or ("en",), target=choice.target or ("en",)),
    )


def _read_state(weights: Weights, folder: Folder) -> State:
    config = folder.config
    drop_sinusoids(weights, "embed_positions.weight", marian_sinusoid, config.model_dim)
    state = transformer_state(weights, config)
    state["output_bias"] = weights.take("final_logits_bias", 1, config.vocab_size)[0]
    return state


def _pieces(path: Path, size: int) -> list[str]:
    """The written form of each id, from the SentencePiece model."""
    tokenizer_config = path.parent / "tokenizer_config.json"
    offset = (
        read_json(tokenizer_config).get("offset", _OFFSET)
        if tokenizer_config.is_file()
        else _OFFSET
    )
    if offset != _OFFSET:
        raise ExportError(f"{tokenizer_config}: offset must be {_OFFSET}, got {offset!r}")
    own = pieces_of(read_sentencepiece(path))
    masks = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, _OFFSET))]
    written = [*own[:_OWN], *masks, *own[_OWN:]]
    if len(written) != size or written[_OWN + _OFFSET] != "<unk>":
        raise ExportError(
            f"{path}: with special pieces there are {len(written)}, of which <unk> must be number "
            f"{_OWN + _OFFSET}, but the embedding has {size} rows ({CONFIG}'s vocab_size)"
        )
    return written
