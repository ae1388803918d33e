"""MarianMT of Hugging Face `transformers`, as OPUS-MT is published (Tiedemann and Thottingal 2020;
Junczys-Dowmunt et al. 2018)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, Weights, read_json
from export.importing.hugging_face.family import Family, Folder, VocabularyPart, read_folder
from export.importing.layers import State, drop_sinusoids, transformer_state
from export.importing.model import (
    Imported,
    LanguageChoice,
    Pieces,
    find_file,
    read_sizes,
    special_id,
)
from export.importing.vocabularies.languages import (
    CheckpointLanguage,
    is_tag,
    marian_languages,
    short_code,
)
from export.importing.vocabularies.pair import Written, check_special
from training.models import TransformerConfig
from training.models.sublayers.embedding import marian_sinusoid

NEVER = -1e4
"""A bias that no logit offsets, and that fits fp16. Marian uses padding only for the decoder's
start, so it is never written and has no share of the distribution."""


def read_marian(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of MarianMT; raises ExportError, with file and entry, for unsupported ones."""
    kind = "MarianMT of Hugging Face transformers (OPUS-MT)"
    return read_folder(folder, choice, Family(kind, _read_config, _read_text, _read_state))


def _read_config(options: Options) -> TransformerConfig:
    options.must_be(False, "normalize_before", "normalize_embedding", "add_final_layer_norm")
    options.must_be(True, "static_position_embeddings")
    shared = options.must("share_encoder_decoder_embeddings", True, False, default=True)
    tied = options.must(
        "tie_word_embeddings", *((True,) if shared else (True, False)), default=True
    )
    options.must_be(True, "is_encoder_decoder")
    options.must_be(False, "is_decoder")
    options.get("add_bias_logits")  # there is one whatever it says
    options.get("max_position_embeddings")  # sinusoids have no end
    sizes = read_sizes(options, activation="gelu", scale_embedding=False)
    source_size = size = sizes.vocab_size
    if shared:
        options.must_be(size, "decoder_vocab_size")
    elif options.get("decoder_vocab_size") is not None:
        size = options.integer("decoder_vocab_size")
    pad = special_id(options, "pad_token_id", min(source_size, size))
    options.must_be([[pad]], "bad_words_ids")
    return replace(
        sizes,
        norm="post",
        positions="marian",
        output_bias=True,
        vocab_size=size,
        source_vocab_size=0 if shared else source_size,
        tie_embeddings=tied,
    )


def _read_state(weights: Weights, folder: Folder) -> State:
    config = folder.config
    drop_sinusoids(weights, "embed_positions.weight", marian_sinusoid, config.model_dim)
    state = transformer_state(weights, config)
    bias_1V = weights.take("final_logits_bias", 1, config.vocab_size)
    bias_1V[0, folder.special_ids.pad] = NEVER
    return {**state, "output_bias": bias_1V[0]}


def _read_text(folder: Folder, choice: LanguageChoice) -> VocabularyPart:
    """The vocabulary, one for both sides or one each, and the languages, from the tokenizer's
    options."""
    path, config, pad = folder.path, folder.config, folder.special_ids.pad
    config_path = path / "tokenizer_config.json"
    tokenizer_config = read_json(config_path) if config_path.is_file() else {}
    name = "vocab.json"
    source = target = _read_ids(path, name, config.source_vocab_size or config.vocab_size)
    if tokenizer_config.get("separate_vocabs"):
        name = "target_vocab.json"
        target = _read_ids(path, name, config.vocab_size)
    elif config.source_vocab_size not in (0, config.vocab_size):
        raise ExportError(
            f"{path}: {CONFIG} has vocab_size {config.source_vocab_size} and decoder_vocab_size "
            f"{config.vocab_size}, and tokenizer_config.json no separate_vocabs"
        )
    eos, unk = (target.index(piece) for piece in ("</s>", "<unk>"))
    if eos != folder.special_ids.eos:
        raise ExportError(
            f"{path / name}: </s> has the id {eos}, {CONFIG}'s eos_token_id is "
            f"{folder.special_ids.eos}"
        )
    written = Written(source, target)
    check_special(path, written, {target[i]: i for i in (eos, unk, pad)})
    control = [
        frozenset({pad, eos, *(i for i, piece in enumerate(side) if is_tag(piece))})
        for side in (source, target)
    ]
    pieces = Pieces(
        target,
        control[1],
        find_file(path, "source.spm", "the SentencePiece model of the source"),
        find_file(path, "target.spm", "the SentencePiece model of the target"),
    )
    if written.differ:
        pieces = replace(pieces, source_written=source, source_control=control[0])
    languages = marian_languages(
        choice,
        source,
        _named(config_path, tokenizer_config, "source_lang"),
        _named(config_path, tokenizer_config, "target_lang"),
    )
    return VocabularyPart(pieces, unk, languages)


def _named(path: Path, tokenizer_config: dict[str, Any], option: str) -> CheckpointLanguage:
    code = tokenizer_config.get(option)
    short = short_code(code) if isinstance(code, str) else None
    return CheckpointLanguage(
        (short,) if short else (), f"{path}: {option} {code!r} does not name a language"
    )


def _read_ids(folder: Path, name: str, rows: int) -> list[str]:
    """The pieces of a vocabulary in the order of their ids, the rows of an embedding."""
    path = find_file(folder, name, "the ids of the pieces")
    ids = read_json(path)
    found = [i for i in ids.values() if type(i) is int]
    if not len(found) == len(ids) == rows or sorted(found) != list(range(rows)):
        raise ExportError(
            f"{path}: must give each of the {rows} rows of the embedding one piece, as {CONFIG}'s "
            f"vocab_size says; got {len(ids)} pieces, ids up to {max(found, default=-1)}"
        )
    for piece in ("<unk>", "</s>"):
        if piece not in ids:
            raise ExportError(f"{path}: the piece {piece} is missing")
    return sorted(ids, key=ids.__getitem__)
