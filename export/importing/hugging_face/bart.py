"""BART of Hugging Face `transformers` (Lewis et al. 2020): a summariser, or another model
fine-tuned from it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.hugging_face.family import Family, Folder, VocabularyPart, read_folder
from export.importing.hugging_face.mbart import learnt_config, learnt_state
from export.importing.model import HARMLESS, FastTokenizerFile, Imported, LanguageChoice
from export.importing.vocabularies.byte_pairs import SPECIAL, read_byte_pairs
from serving.bundle.languages import Languages
from serving.search.options import MAX_STEPS
from training.models import TransformerConfig

_FIRST, _, _, _UNKNOWN = SPECIAL
_HARMLESS = HARMLESS | {"replacing_rate", "student_decoder_layers", "student_encoder_layers"}


def read_bart(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of BART; raises ExportError, with file and entry, for unsupported ones. Without
    a choice it reads and writes English."""
    kind = "BART of Hugging Face transformers"
    family = Family(kind, _read_config, _read_text, learnt_state, _HARMLESS)
    imported = read_folder(folder, choice, family)
    config = imported.model.config
    assert isinstance(config, TransformerConfig)
    # The rest of the table is for an output of that length, whose start a request may give.
    return replace(imported, max_source=config.max_positions - MAX_STEPS - 2)


def _read_config(options: Options) -> TransformerConfig:
    options.must("prefix", "", " ", default="")  # a space, which its own tokenizer has not either
    return learnt_config(options, "post")


def _read_text(folder: Folder, choice: LanguageChoice) -> VocabularyPart:
    content = read_byte_pairs(folder.path, folder.config.vocab_size)
    ids = FastTokenizer.from_str(content.decode()).get_vocab(with_added_tokens=True)
    forced = _is_first_forced(folder.options, folder.generation, ids[_FIRST])
    return VocabularyPart(
        FastTokenizerFile(content), ids[_UNKNOWN], _languages(choice, first_is_forced=forced)
    )


def _is_first_forced(options: Options, generation: Options, first: int) -> bool:
    """Whether each output must begin with the first piece of each source."""
    named = generation.get("forced_bos_token_id", options.get("forced_bos_token_id"))
    if named not in (None, first):
        raise ExportError(
            f"{options.path}: forced_bos_token_id must be {first}, the id of {_FIRST}, or left "
            f"out, got {named!r}"
        )
    earlier = options.flag("force_bos_token_to_be_generated", False)
    return named is not None or earlier


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
