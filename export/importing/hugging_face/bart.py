"""BART of Hugging Face `transformers` (Lewis et al. 2020): a summariser, or whatever else was
trained from it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from export.errors import ExportError
from export.importing.folder import Options, read_weights
from export.importing.hugging_face.mbart import learnt_config, learnt_state
from export.importing.model import (
    HARMLESS,
    FastTokenizerFile,
    Imported,
    LanguageChoice,
    generation_options,
    loaded,
    read_options,
    search_options,
    special_id,
)
from export.importing.vocabularies.byte_pairs import SPECIAL, read_byte_pairs
from serving.bundle.languages import Languages
from serving.search.ids import SpecialIds
from serving.search.options import MAX_STEPS

_FIRST, _, _, _UNKNOWN = SPECIAL
_HARMLESS = HARMLESS | {"replacing_rate", "student_decoder_layers", "student_encoder_layers"}


def read_bart(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of BART; raises ExportError, with file and entry, for what is not supported.
    Without a choice it reads and writes English."""
    options, generation = read_options(folder), generation_options(folder)
    config = learnt_config(options, "post")
    size = config.vocab_size
    content = read_byte_pairs(folder, size)
    ids = FastTokenizer.from_str(content.decode()).get_vocab(with_added_tokens=True)
    special_ids = SpecialIds(
        pad=special_id(options, "pad_token_id", size),
        unk=ids[_UNKNOWN],
        bos=special_id(options, "decoder_start_token_id", size),
        eos=special_id(options, "eos_token_id", size),
    )
    forced = _is_first_forced(options, generation, ids[_FIRST])
    search = search_options(options, generation)
    options.must("prefix", "", " ", default="")  # a space, which its own tokenizer has not either
    options.finish(_HARMLESS)
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
