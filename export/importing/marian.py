"""MarianMT of Hugging Face `transformers`, as OPUS-MT is published (Tiedemann and Thottingal 2020;
Junczys-Dowmunt et al. 2018)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, Weights, read_json, read_weights
from export.importing.languages import is_tag, language_tags, short_code, tagged
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
    pieces, special_ids = _read_pieces(folder, special_ids, config.vocab_size)
    state = _read_state(weights, config, special_ids)
    return Imported(
        "MarianMT of Hugging Face transformers (OPUS-MT)",
        loaded(config, state),
        pieces,
        special_ids,
        _languages(folder, choice, pieces),
        search,
    )


def _read_options(options: Options) -> tuple[TransformerConfig, SpecialIds]:
    options.must("normalize_before", False, default=False)
    options.must("normalize_embedding", False, default=False)
    options.must("add_final_layer_norm", False, default=False)
    options.must("static_position_embeddings", True, default=True)
    options.must("share_encoder_decoder_embeddings", True, default=True)
    options.must("tie_word_embeddings", True, default=True)
    options.must("is_encoder_decoder", True, default=True)
    options.must("is_decoder", False, default=False)
    options.get("add_bias_logits")  # there is one whatever it says
    options.get("max_position_embeddings")  # sinusoids have no end
    sizes = read_sizes(options, activation="gelu", scale_embedding=False)
    config = replace(sizes, norm="post", positions="marian", output_bias=True)
    size = config.vocab_size
    options.must("decoder_vocab_size", size, default=size)
    pad = special_id(options, "pad_token_id", size)
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
    folder: Path, special_ids: SpecialIds, vocab_size: int
) -> tuple[Pieces, SpecialIds]:
    path = find_file(folder, "vocab.json", "the ids of the pieces")
    ids = read_json(path)
    found = [i for i in ids.values() if type(i) is int]
    if sorted(found) != list(range(vocab_size)):
        raise ExportError(
            f"{path}: must give each of the {vocab_size} rows of the embedding one piece, as "
            f"{CONFIG}'s vocab_size says; got {len(ids)} pieces, ids up to {max(found, default=-1)}"
        )
    written = sorted(ids, key=ids.__getitem__)
    for piece in ("<unk>", "</s>"):
        if piece not in ids:
            raise ExportError(f"{path}: the piece {piece} is missing")
    if ids["</s>"] != special_ids.eos:
        raise ExportError(
            f"{path}: </s> has the id {ids['</s>']}, {CONFIG}'s eos_token_id is {special_ids.eos}"
        )
    tags = {i for piece, i in ids.items() if is_tag(piece)}
    pieces = Pieces(
        written,
        frozenset({special_ids.pad, special_ids.eos, *tags}),
        find_file(folder, "source.spm", "the SentencePiece model of the source"),
        find_file(folder, "target.spm", "the SentencePiece model of the target"),
    )
    return pieces, SpecialIds(special_ids.pad, ids["<unk>"], special_ids.bos, special_ids.eos)


def _languages(folder: Path, choice: LanguageChoice, pieces: Pieces) -> Languages:
    path = folder / "tokenizer_config.json"
    told = read_json(path) if path.is_file() else {}
    source = choice.source or _told(told.get("source_lang"))
    if not source:
        raise ExportError(
            f"{path}: source_lang {told.get('source_lang')!r} names no language; say which the "
            "model reads with --from CODE,..."
        )
    tags = language_tags(pieces.written)
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
