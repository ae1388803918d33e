"""A run folder: its files, the run that it belongs to, and the model that it holds.

RUN/config.yaml              the resolved recipe
RUN/corpus_report.json       the report of cleaning: what was dropped, and why
RUN/tokenizer.model          the SentencePiece model; in its place vocab.txt for a word list, or
                             tokenizer.json for an encoder's pieces
RUN/validation.txt           validation text of a language model or an encoder, a document per line
RUN/validation.tsv           validation lines of a fitted encoder: texts and label
RUN/results.json             the results of all trials of a grid, with the labelled text's columns
RUN/validation.source        validation text, one sentence per line; validation.target is aligned
                             to it, and with several directions validation.languages
RUN/metrics.jsonl            one JSON record per line; tensorboard/ holds the same figures
RUN/report.html, .png        the curves, if `training report` has drawn them
RUN/checkpoints/step_*       the last checkpoints
RUN/best, RUN/averaged       the checkpoint of the best validation, the mean of several
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from serving.bundle.tokenizer import TextTokenizer, Tokenizer
from serving.bundle.words import WordVocabulary
from training.errors import BrokenCheckpointError, CheckpointError, ConfigError
from training.models import (
    CausalLanguageModel,
    TextModel,
    TranslationModel,
    build_model,
    build_network,
    build_trainable,
)
from training.recipe.config import (
    VOCABULARIES,
    FineTuningRecipe,
    LanguageRecipe,
    PretrainingRecipe,
    Recipe,
    TranslationRecipe,
    read_tree,
    recipe_from_dict,
)
from training.runs.checkpoint import (
    STATE,
    find_checkpoint,
    list_checkpoints,
    load_weights,
    read_state,
)

CONFIG_FILE = "config.yaml"
REPORT_FILE = "corpus_report.json"
TOKENIZER_FILE = VOCABULARIES["sentencepiece"]
VOCABULARY_FILE = VOCABULARIES["words"]
VALIDATION_SOURCE, VALIDATION_TARGET = "validation.source", "validation.target"
VALIDATION_LANGUAGES = "validation.languages"
VALIDATION_TEXT = "validation.txt"
VALIDATION_TABLE = "validation.tsv"
_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


@dataclass(frozen=True)
class Trained:
    """A trained translation model with its tokenizer."""

    checkpoint: Path
    recipe: TranslationRecipe
    model: TranslationModel
    tokenizer: Tokenizer


@dataclass(frozen=True)
class TrainedLanguageModel:
    """A trained language model with its vocabulary."""

    checkpoint: Path
    recipe: LanguageRecipe
    model: CausalLanguageModel
    tokenizer: TextTokenizer


@dataclass(frozen=True)
class TrainedEncoder:
    """An encoder that was fitted to labelled text, with the file of its pieces."""

    checkpoint: Path
    recipe: FineTuningRecipe
    model: TextModel
    vocabulary: Path


def read_run_recipe(folder: Path) -> Recipe:
    """The recipe a run folder was started with, or a checkpoint folder was saved with.

    A run folder without its recipe has that of its last checkpoint. Raises CheckpointError if
    the folder is neither, or its recipe cannot be read.
    """
    if (folder / CONFIG_FILE).is_file():
        return _read_config(folder / CONFIG_FILE)
    broken: BrokenCheckpointError | None = None
    for path in (folder, *reversed(list_checkpoints(folder)), folder / "best"):
        if (path / STATE).is_file():
            try:
                return _saved_recipe(path)
            except BrokenCheckpointError as error:
                broken = broken or error
    raise broken or CheckpointError(
        f"{folder}: neither a run ({CONFIG_FILE}) nor a checkpoint ({STATE})"
    )


def _saved_recipe(checkpoint: Path) -> Recipe:
    state = read_state(checkpoint)
    if "recipe" not in state:
        raise BrokenCheckpointError(f"{checkpoint / STATE}: cannot be read: it has no recipe")
    return recipe_from_dict(state["recipe"])


def _read_config(path: Path) -> Recipe:
    try:
        return recipe_from_dict(read_tree(path))
    except ConfigError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise CheckpointError(
            f"{where}{error}; delete it; then the recipe of the last checkpoint is used, or "
            "that of the command if there is none"
        ) from error


def load_trained(path: Path, device: str = "cpu") -> Trained:
    """The translation model of a run folder (see `find_checkpoint`) or of a checkpoint in one.

    Raises CheckpointError if weights or tokenizer are missing or do not fit, ConfigError if
    it is a language model.
    """
    folder = find_checkpoint(path)
    recipe = read_run_recipe(folder)
    model = build_model(recipe.model)
    assert isinstance(recipe, TranslationRecipe)
    load_weights(folder, model)
    tokenizer = load_tokenizer(find_vocabulary(folder, "sentencepiece"))
    return Trained(folder, recipe, model.to(find_device(device)).eval(), tokenizer)


def load_language_model(path: Path, device: str = "cpu") -> TrainedLanguageModel:
    """The language model of a run folder (see `find_checkpoint`) or of a checkpoint in one.

    Raises CheckpointError if weights or vocabulary are missing or do not fit, ConfigError if it is
    not a language model.
    """
    folder = find_checkpoint(path)
    recipe = read_run_recipe(folder)
    model = build_network(recipe.model)
    if not (isinstance(model, CausalLanguageModel) and isinstance(recipe, LanguageRecipe)):
        raise ConfigError(
            f"{path}: a language model is needed here: architecture must be 'lm', got "
            f"{recipe.model.architecture!r}"
        )
    load_weights(folder, model)
    kind = recipe.tokenizer.kind
    tokenizer = load_text_tokenizer(find_vocabulary(folder, kind), words=kind == "words")
    return TrainedLanguageModel(folder, recipe, model.to(find_device(device)).eval(), tokenizer)


def load_encoder(path: Path, device: str = "cpu") -> TrainedEncoder:
    """The fitted encoder of a run folder (see `find_checkpoint`) or of a checkpoint in one.

    Raises CheckpointError if weights or vocabulary are missing or do not fit, ConfigError if it is
    not an encoder, or was only pre-trained.
    """
    folder = find_checkpoint(path)
    recipe = read_run_recipe(folder)
    if not isinstance(recipe, FineTuningRecipe):
        hint = ""
        if isinstance(recipe, PretrainingRecipe):
            hint = f"; fit it to labelled text: python -m macaron finetune {path} TASK"
        raise ConfigError(
            f"{path}: a fitted encoder is needed here: architecture must be 'classifier' or "
            f"'embedder', got {recipe.model.architecture!r}{hint}"
        )
    model = build_trainable(recipe.model)
    assert isinstance(model, TextModel)
    load_weights(folder, model)
    vocabulary = find_vocabulary(folder, recipe.tokenizer.kind)
    return TrainedEncoder(folder, recipe, model.to(find_device(device)).eval(), vocabulary)


def find_vocabulary(checkpoint: Path, kind: str) -> Path:
    """The vocabulary of that `tokenizer.kind` with which a checkpoint's weights were learnt.

    Raises CheckpointError if it is neither there nor in the run folder above.
    """
    name = VOCABULARIES[kind]
    near = (checkpoint, checkpoint.parent, checkpoint.parent.parent)
    file = next((p / name for p in near if (p / name).is_file()), None)
    if file is None:
        raise CheckpointError(f"{checkpoint}: no {name} there or in the run folder above")
    return file


def load_tokenizer(path: Path) -> Tokenizer:
    """The SentencePiece model at `path`.

    Raises ConfigError if it cannot be read or has other special ids.
    """
    try:
        return Tokenizer(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{path}: no usable SentencePiece model: {error}") from error


def load_text_tokenizer(path: Path, *, words: bool) -> TextTokenizer:
    """The word list or SentencePiece model at `path`.

    Raises ConfigError if it cannot be read or has other special ids.
    """
    if not words:
        return load_tokenizer(path)
    try:
        return WordVocabulary(path)
    except OSError as error:
        raise ConfigError(
            f"no usable word list: {path}: cannot be read ({error.strerror})"
        ) from error
    except ValueError as error:
        raise ConfigError(f"no usable word list: {error}") from error


def find_device(name: str) -> torch.device:
    """The device of that name.

    Raises ConfigError if this machine or this build of torch lacks it.
    """
    # Both are read at the first use of memory.
    os.environ.setdefault(_HUGE_PAGES, "1")  # each step takes fresh pages: few large ones
    if name.startswith("cuda"):
        # Batches have many sizes: memory segments of fixed sizes would soon fit none of them.
        os.environ.setdefault(_ALLOCATOR, "expandable_segments:True")
        # cuDNN's attention plans again for each size, which takes longer than the update.
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"device {name!r} cannot be used: {reason}; set loop.device=cpu, or --device cpu"
        ) from error
    return device


def check_compiler(device: str) -> None:
    """Raise ConfigError if `torch.compile` would find nothing to make kernels with."""
    missing = missing_compiler(device)
    if missing is not None:
        raise ConfigError(
            f"loop.compile needs {missing} on {device}, which is not found; install it, or set "
            "loop.compile=false"
        )


def missing_compiler(device: str) -> str | None:
    """The compiler that `torch.compile` needs on a device and cannot find on this machine; None if
    it finds it."""
    if device.startswith("cuda"):
        return None if importlib.util.find_spec("triton") is not None else "Triton"
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is not None:
        return None
    return f"a C++ compiler ({compiler}; CXX names another one)"
