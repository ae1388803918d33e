"""MarianMT of Hugging Face `transformers`, as OPUS-MT is published (Tiedemann and Thottingal 2020;
Junczys-Dowmunt et al. 2018)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

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
from export.importing.vocabularies.languages import is_tag, language_tags, short_code, tagged
from export.importing.vocabularies.pair import Written, check_special
from serving.bundle.languages import Languages
from serving.search.ids import SpecialIds
from training.models import TransformerConfig
from training.models.embedding import marian_sinusoid

NEVER = -1e4
"""A bias that no logit makes up for, and that fp16 holds: Marian has no padding, which is here for
the decoder's start alone, so it is never written and has no share of the distribution."""


def read_marian(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of MarianMT; raises ExportError, with file and entry, for what is not
    supported."""
    options, generation = read_options(folder), generation_options(folder)
    config, special_ids = _read_options(options)
    search = search_options(options, generation)
    options.finish(HARMLESS)
    weights = read_weights(folder)
    path = folder / "tokenizer_config.json"
    told = read_json(path) if path.is_file() else {}
    pieces, special_ids = _read_pieces(folder, special_ids, config, told)
    state = _read_state(weights, config, special_ids)
    return Imported(
        "MarianMT of Hugging Face transformers (OPUS-MT)",
        loaded(config, state),
        pieces,
        special_ids,
        _languages(path, told, choice, pieces),
        search,
    )


def _read_options(options: Options) -> tuple[TransformerConfig, SpecialIds]:
    options.must("normalize_before", False, default=False)
    options.must("normalize_embedding", False, default=False)
    options.must("add_final_layer_norm", False, default=False)
    options.must("static_position_embeddings", True, default=True)
    shared = options.must("share_encoder_decoder_embeddings", True, False, default=True)
    tied = options.must(
        "tie_word_embeddings", *((True,) if shared else (True, False)), default=True
    )
    options.must("is_encoder_decoder", True, default=True)
    options.must("is_decoder", False, default=False)
    options.get("add_bias_logits")  # there is one whatever it says
    options.get("max_position_embeddings")  # sinusoids have no end
    sizes = read_sizes(options, activation="gelu", scale_embedding=False)
    source_size = size = sizes.vocab_size
    if shared:
        options.must("decoder_vocab_size", size, default=size)
    elif options.get("decoder_vocab_size") is not None:
        size = options.integer("decoder_vocab_size")
    config = replace(
        sizes,
        norm="post",
        positions="marian",
        output_bias=True,
        vocab_size=size,
        source_vocab_size=0 if shared else source_size,
        tie_embeddings=tied,
    )
    pad = special_id(options, "pad_token_id", min(source_size, size))
    options.must("bad_words_ids", [[pad]], default=[[pad]])
    options.get("bos_token_id")  # there is none
    special_ids = SpecialIds(
        pad=pad,
        unk=0,  # the vocabulary's to tell
        bos=special_id(options, "decoder_start_token_id", size),
        eos=special_id(options, "eos_token_id", size),
    )
    return config, special_ids


def _read_state(weights: Weights, config: TransformerConfig, special_ids: SpecialIds) -> State:
    drop_sinusoids(weights, "embed_positions.weight", marian_sinusoid, config.model_dim)
    state = transformer_state(weights, config)
    bias_1V = weights.take("final_logits_bias", 1, config.vocab_size)
    bias_1V[0, special_ids.pad] = NEVER
    weights.finish()
    return {**state, "output_bias": bias_1V[0]}


def _read_pieces(
    folder: Path, special_ids: SpecialIds, config: TransformerConfig, told: dict[str, Any]
) -> tuple[Pieces, SpecialIds]:
    """The vocabulary, of both sides or of each, as the tokenizer's options tell."""
    name = "vocab.json"
    source = target = _read_ids(folder, name, config.source_vocab_size or config.vocab_size)
    if told.get("separate_vocabs"):
        name = "target_vocab.json"
        target = _read_ids(folder, name, config.vocab_size)
    elif config.source_vocab_size not in (0, config.vocab_size):
        raise ExportError(
            f"{folder}: {CONFIG} has vocab_size {config.source_vocab_size} and decoder_vocab_size "
            f"{config.vocab_size}, and tokenizer_config.json no separate_vocabs"
        )
    eos, unk = (target.index(piece) for piece in ("</s>", "<unk>"))
    if eos != special_ids.eos:
        raise ExportError(
            f"{folder / name}: </s> has the id {eos}, {CONFIG}'s eos_token_id is {special_ids.eos}"
        )
    written = Written(source, target)
    check_special(folder, written, {target[i]: i for i in (eos, unk, special_ids.pad)})
    control = [
        frozenset({special_ids.pad, eos, *(i for i, piece in enumerate(side) if is_tag(piece))})
        for side in (source, target)
    ]
    pieces = Pieces(
        target,
        control[1],
        find_file(folder, "source.spm", "the SentencePiece model of the source"),
        find_file(folder, "target.spm", "the SentencePiece model of the target"),
    )
    if written.differ:
        pieces = replace(pieces, source_written=source, source_control=control[0])
    return pieces, SpecialIds(special_ids.pad, unk, special_ids.bos, eos)


def _read_ids(folder: Path, name: str, rows: int) -> list[str]:
    """The pieces of a vocabulary in the order of their ids, which are the rows of an embedding."""
    path = find_file(folder, name, "the ids of the pieces")
    ids = read_json(path)
    found = [i for i in ids.values() if type(i) is int]
    if sorted(found) != list(range(rows)):
        raise ExportError(
            f"{path}: must give each of the {rows} rows of the embedding one piece, as {CONFIG}'s "
            f"vocab_size says; got {len(ids)} pieces, ids up to {max(found, default=-1)}"
        )
    for piece in ("<unk>", "</s>"):
        if piece not in ids:
            raise ExportError(f"{path}: the piece {piece} is missing")
    return sorted(ids, key=ids.__getitem__)


def _languages(
    path: Path, told: dict[str, Any], choice: LanguageChoice, pieces: Pieces
) -> Languages:
    """The languages that are given, or that the tokenizer's options at `path` tell."""
    source = choice.source or _told(told.get("source_lang"))
    if not source:
        raise ExportError(
            f"{path}: source_lang {told.get('source_lang')!r} names no language; say which the "
            "model reads with --from CODE,..."
        )
    tags = language_tags(pieces.source_written or pieces.written)
    if tags:
        return tagged(source, choice.target, tags)
    target = choice.target or _told(told.get("target_lang"))
    if len(target) != 1:
        raise ExportError(
            f"{path}: target_lang {told.get('target_lang')!r} names no language, and the model has "
            "no tags of several; say which one it writes with --to CODE"
        )
    return Languages(source=source, target=target)


def _told(code: object) -> tuple[str, ...]:
    short = short_code(code) if isinstance(code, str) else None
    return (short,) if short else ()
