"""BART of Hugging Face `transformers` (Lewis et al. 2020): a summariser, or whatever else was
trained from it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from export.errors import ExportError
from export.importing.folder import Options, read_json, read_weights
from export.importing.mbart import learnt_state, read_positions
from export.importing.model import (
    HARMLESS,
    FastTokenizerFile,
    Imported,
    LanguageChoice,
    find_file,
    generation_options,
    loaded,
    read_options,
    read_sizes,
    search_options,
    special_id,
)
from export.importing.text_side import TOKENIZER
from serving.bundle.manifest import Languages
from serving.search.ids import SpecialIds
from serving.search.options import MAX_STEPS
from training.models import TransformerConfig

_FIRST, _UNKNOWN = "<s>", "<unk>"
_SPECIAL = (_FIRST, "<pad>", "</s>", _UNKNOWN)


def read_bart(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of BART; raises ExportError, with file and entry, for what is not supported.
    Without a choice it reads and writes English."""
    options, generation = read_options(folder), generation_options(folder)
    config = _read_config(options)
    size = config.vocab_size
    content = _read_tokenizer(folder)
    ids = FastTokenizer.from_str(content.decode()).get_vocab(with_added_tokens=True)
    special_ids = SpecialIds(
        pad=special_id(options, "pad_token_id", size),
        unk=ids[_UNKNOWN],
        bos=special_id(options, "decoder_start_token_id", size),
        eos=special_id(options, "eos_token_id", size),
    )
    forced = _is_first_forced(options, generation, ids[_FIRST])
    search = search_options(options, generation)
    options.finish(HARMLESS)
    state = learnt_state(read_weights(folder), config)
    return Imported(
        "BART of Hugging Face transformers",
        loaded(config, state),
        FastTokenizerFile(content),
        special_ids,
        _languages(choice, first_is_forced=forced),
        search,
        # What is left of the table is for an output as long, of which a request may give the start.
        max_source=config.max_positions - MAX_STEPS - 2,
    )


def _read_config(options: Options) -> TransformerConfig:
    options.must("normalize_embedding", True, default=True)
    for name in (
        "normalize_before",
        "add_final_layer_norm",
        "static_position_embeddings",
        "add_bias_logits",
        "is_decoder",
    ):
        options.must(name, False, default=False)
    for name in ("tie_word_embeddings", "is_encoder_decoder"):
        options.must(name, True, default=True)
    return replace(
        read_sizes(options, activation="gelu", scale_embedding=False),
        norm="post",
        positions="learnt",
        max_positions=read_positions(options),
        embedding_norm=True,
        output_bias=True,
    )


def _is_first_forced(options: Options, generation: Options, first: int) -> bool:
    """Whether each output has to begin with the piece with which each source does."""
    options.get("bos_token_id")  # the vocabulary has told it
    named = generation.get("forced_bos_token_id", options.get("forced_bos_token_id"))
    if named not in (None, first):
        raise ExportError(
            f"{options.path}: forced_bos_token_id must be {first}, the id of {_FIRST}, or left "
            f"out, got {named!r}"
        )
    earlier = options.get("force_bos_token_to_be_generated", False)
    return named is not None or bool(earlier)


def _languages(choice: LanguageChoice, *, first_is_forced: bool) -> Languages:
    source, target = choice.source or ("en",), choice.target or ("en",)
    before = dict.fromkeys(source, _FIRST)
    if not first_is_forced:
        return Languages(source=source, target=target, source_tags=before)
    return Languages(
        source=source,
        target=target,
        pairs=tuple(product(source, target)),
        source_tags=before,
        first_pieces=dict.fromkeys(target, _FIRST),
    )


def _read_tokenizer(folder: Path) -> bytes:
    """The vocabulary as one file, which puts nothing around a text; raises ExportError where there
    is none, or a special piece is missing."""
    path = folder / TOKENIZER
    if path.is_file():
        tree = read_json(path) | {"post_processor": None}
        content = json.dumps(tree, ensure_ascii=False)
    else:
        path = find_file(folder, "vocab.json", f"the ids of the pieces, or {TOKENIZER}")
        merges = find_file(folder, "merges.txt", "the merges of the vocabulary")
        content = _joined(path, merges, folder / "tokenizer_config.json")
    try:
        ids = FastTokenizer.from_str(content).get_vocab(with_added_tokens=True)
    except Exception as error:  # the library raises nothing more special
        reason = " ".join(str(error).split())
        raise ExportError(f"{path}: no usable tokenizer: {reason}") from error
    for piece in _SPECIAL:
        if piece not in ids:
            raise ExportError(f"{path}: the piece {piece} is missing")
    return content.encode()


def _joined(vocabulary: Path, merges: Path, told: Path) -> str:
    """GPT-2's form of a vocabulary, in two files, as one."""
    spaced = told.is_file() and bool(read_json(told).get("add_prefix_space"))
    try:
        tokenizer = FastTokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # the library raises nothing more special
        reason = " ".join(str(error).split())
        raise ExportError(f"{merges}: no usable merges for {vocabulary.name}: {reason}") from error
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    tokenizer.decoder = decoders.ByteLevel()
    known = [piece for piece in (*_SPECIAL, "<mask>") if tokenizer.token_to_id(piece) is not None]
    tokenizer.add_special_tokens([AddedToken(piece, lstrip=piece == "<mask>") for piece in known])
    return str(tokenizer.to_str())
