"""The result of readers of foreign checkpoints: a model of `training.models` and its text side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, read_json
from export.importing.pointers import refuse_pointer
from serving.bundle.languages import Languages
from serving.bundle.shortlist import Shortlist
from serving.errors import InvalidOptionError
from serving.search.ids import SpecialIds
from serving.search.options import MAX_STEPS, parse_options
from training.errors import ConfigError
from training.models import TransformerConfig, TranslationModel, build_model
from training.models.networks.bert import Pooling

SOURCE_MODEL, TARGET_MODEL, VOCABULARY = "source.model", "target.model", "vocabulary.json"
SOURCE_VOCABULARY = "source.vocabulary.json"
SOURCE_RULES, TARGET_RULES = "source.moses.json", "target.moses.json"
"""The names of an imported tokenizer's files in a bundle."""

_NAMES = """activation_dropout architectures attention_dropout attn_implementation classif_dropout
classifier_dropout decoder_layerdrop dropout dtype early_stopping encoder_layerdrop
extra_pos_embeddings finetuning_task forced_eos_token_id gradient_checkpointing id2label init_std
label2id max_length min_length model_type no_repeat_ngram_size num_hidden_layers output_attentions
output_hidden_states output_past problem_type return_dict save_step task_specific_params
tokenizer_class torch_dtype transformers_version use_cache"""
HARMLESS = frozenset(_NAMES.split())
"""Options that change no logit: those of training, of other tasks and of the library itself."""


ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
"""The names of `transformers`, and ours."""


@dataclass(frozen=True)
class LanguageChoice:
    """The language codes that the user gives; empty if the checkpoint names them."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()


AS_TOLD = LanguageChoice()


@dataclass(frozen=True)
class Declared:
    """Facts that the user states about a checkpoint, where it states nothing or something else."""

    family: str | None = None
    languages: LanguageChoice = AS_TOLD
    licence: str | None = None
    pooling: Pooling | None = None
    attribution: str = ""
    """The origin and licence of an encoder."""
    origin: str | None = None
    """The model's origin with its revision; None stands for the name of its folder."""


NOTHING_DECLARED = Declared()


@dataclass(frozen=True)
class Pieces:
    """The vocabulary of a checkpoint, with the SentencePiece models or BPE codes that split texts
    for it."""

    written: Sequence[str]
    """The written form of each id."""
    control: frozenset[int]
    """Ids that do not occur in texts."""
    source_model: Path
    target_model: Path
    source_written: Sequence[str] | None = None
    """The source's written forms, if its ids differ from the target's."""
    source_control: frozenset[int] = frozenset()
    moses: tuple[bytes, bytes] | None = None
    """The content of the bundle's `moses` files for source and target; only with BPE codes."""


@dataclass(frozen=True)
class FastTokenizerFile:
    """The vocabulary of a checkpoint as a file of the `tokenizers` library, which splits texts and
    puts nothing around them."""

    content: bytes


@dataclass(frozen=True)
class Imported:
    """A checkpoint after reading."""

    kind: str
    """Description of the checkpoint for people."""
    model: TranslationModel
    pieces: Pieces | FastTokenizerFile
    special_ids: SpecialIds
    languages: Languages
    search: dict[str, Any] = field(default_factory=dict)
    """Search options that the checkpoint names."""
    max_source: int = MAX_STEPS
    source_end: bool = True
    """Whether eos ends each source."""
    shortlist: Shortlist | None = None
    """The likely target pieces of each source piece, if the checkpoint has them."""


def loaded(config: TransformerConfig, state: dict[str, Tensor]) -> TranslationModel:
    """A model with these weights, in evaluation mode."""
    model = build_model(config)
    model.load_state_dict(state)
    return model.eval()


def read_options(folder: Path) -> Options:
    """The options in `config.json`; raises ExportError if there are none."""
    return Options(folder / CONFIG, read_json(folder / CONFIG))


def read_sizes(options: Options, *, activation: str, scale_embedding: bool) -> TransformerConfig:
    """The options that all families here name alike: sizes, activation and the scale of the
    embedding. `activation` and `scale_embedding` are the family's defaults. Raises ExportError."""
    found = options.must("activation_function", *ACTIVATIONS, default=activation)
    scaled = options.flag("scale_embedding", scale_embedding)
    try:
        return TransformerConfig(
            model_dim=options.integer("d_model"),
            num_heads=options.equal("encoder_attention_heads", "decoder_attention_heads"),
            ffn_dim=options.equal("encoder_ffn_dim", "decoder_ffn_dim"),
            activation=ACTIVATIONS[found],
            num_encoder_layers=options.integer("encoder_layers"),
            num_decoder_layers=options.integer("decoder_layers"),
            vocab_size=options.integer("vocab_size"),
            embedding_scale="token" if scaled else "none",
        )
    except ConfigError as error:
        raise ExportError(f"{options.path}: {error}") from error


def read_cap(options: Options, name: str, default: float) -> float:
    """A soft cap; null stands for no cap, which is 0 here."""
    return 0.0 if options.given(name, default) is None else options.number(name, default)


def generation_options(folder: Path) -> Options:
    """The options in `generation_config.json`; empty if there is no such file."""
    path = folder / "generation_config.json"
    return Options(path, read_json(path) if path.is_file() else {})


def search_options(*given: Options) -> dict[str, Any]:
    """Beam size and length penalty, by the names that checkpoints use. Later options override
    earlier ones. Raises ExportError for a value that no request may have."""
    found: dict[str, Any] = {"beam_size": 5, "length_penalty": 1.0, "eos_in_length": True}
    for options in given:
        for ours, theirs in (("beam_size", "num_beams"), ("length_penalty", "length_penalty")):
            found[ours] = options.get(theirs, found[ours])
        check_search(options.path, found, "num_beams or length_penalty")
    return found


def check_search(path: Path, search: dict[str, Any], names: str) -> dict[str, Any]:
    """The same search options, checked. Raises ExportError, with the file and these names, for a
    value that no request may have."""
    try:
        parse_options(search)
    except InvalidOptionError as error:
        raise ExportError(f"{path}: {names}: {error}") from error
    return search


def special_id(options: Options, name: str, vocab_size: int) -> int:
    """The id of a special piece that the options name."""
    found = options.integer(name)
    if found >= vocab_size:
        raise ExportError(
            f"{options.path}: {name} must be below vocab_size {vocab_size}, got {found}"
        )
    return found


def find_file(folder: Path, name: str, what: str) -> Path:
    """The path of a file that the checkpoint needs; raises ExportError if it is missing."""
    if not (folder / name).is_file():
        raise ExportError(f"{folder}: {name} is missing, {what}; put it beside the weights")
    refuse_pointer(folder / name)
    return folder / name
