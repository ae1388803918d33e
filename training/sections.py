"""The sections of a recipe but for the model's; each checks its own values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from training.errors import ConfigError

_NO_LIMIT = float("inf")
MOST_COPIES = 1000.0
"""The greatest weight of a corpus: an epoch is laid out in memory, copies included."""


def check_range(name: str, value: float, low: float, high: float = _NO_LIMIT) -> None:
    """Raise ConfigError for a value outside [low, high]."""
    if not low <= value <= high:  # written so that NaN fails
        allowed = f">= {low}" if high == _NO_LIMIT else f"in [{low}, {high}]"
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ConfigError for a value that is none of the choices."""
    if value not in choices:
        hint = nearest(value, choices) or f"; there are {list(choices)}"
        raise ConfigError(f"unknown {name} {value!r}{hint}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message that proposes the known word most like this one, or nothing."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


@dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """Two line-aligned text files, plain or .gz."""

    source: str
    target: str
    weight: float = 1.0
    """How often each of their training pairs comes in an epoch: 2.5 is twice, and a third time for
    half of the pairs, drawn anew each epoch. Validation text has no use for it."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Corpora, cleaning limits and languages."""

    source_language: str
    target_language: str
    train: tuple[ParallelFiles, ...]
    validation: ParallelFiles | None = None
    """Text for early stopping; where absent, `held_out_pairs` training pairs are set apart."""
    held_out_pairs: int = 2000
    """Pairs held out of training, whole groups of equal source sentences at a time."""
    attribution: str = ""
    """Origin and licence of the text; it is carried into the bundle."""
    max_pieces: int = 200
    """A longer side (in pieces) drops the pair."""
    max_length_ratio: float = 3.0
    """A greater ratio of characters between the sides drops the pair (short pairs are let by)."""
    token_budget: int = 4096
    """Rows x max(source, target) of one batch, joint models: rows x source x target; padding
    included."""
    subword_alpha: float = 0.0
    """Subword regularisation (Kudo 2018): 0 is off, 0.1 to 0.5 is usual; smaller is noisier.

    It needs a unigram tokenizer.
    """

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name one pair of files at least, got none")
        for index, files in enumerate(self.train):
            check_range(f"data.train[{index}].weight", files.weight, 0, MOST_COPIES)
        if not any(files.weight for files in self.train):
            raise ConfigError(
                "data.train: every weight is 0, so that no pair would be trained on; give one file "
                "pair a weight above 0"
            )
        least = 0 if self.validation is not None else 1
        check_range("data.held_out_pairs", self.held_out_pairs, least)
        check_range("data.max_pieces", self.max_pieces, 1)
        check_range("data.max_length_ratio", self.max_length_ratio, 1)
        check_range("data.token_budget", self.token_budget, 1)
        check_range("data.subword_alpha", self.subword_alpha, 0)


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Text of a language model, and how it is cut into training rows. A line is a document."""

    train: tuple[str, ...]
    """Files, plain or .gz."""
    validation: str
    """Text for early stopping."""
    attribution: str = ""
    """Origin and licence of the text; it is carried into the bundle."""
    cleaning: str = "none"
    """`none`: the text as it is, empty lines included; `wikitext`: WikiText's tokenisation is
    undone, empty lines and lines with <unk> are dropped."""
    batching: str = "columns"
    """`columns`: the text in `batch_size` contiguous columns, in order (truncated back-propagation
    as in Wang et al. 2020); `documents`: documents in a new order each epoch, packed into rows.
    Either way each row starts cold."""
    batch_size: int = 20
    """Rows of a batch."""
    segment_length: int = 70
    """Tokens of a row."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name one file at least, got none")
        check_choice("data.cleaning", self.cleaning, ("none", "wikitext"))
        check_choice("data.batching", self.batching, ("columns", "documents"))
        check_range("data.batch_size", self.batch_size, 1)
        check_range("data.segment_length", self.segment_length, 1)


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """SentencePiece training; the vocabulary is joint and its size is the model's vocab_size."""

    kind: str = "sentencepiece"
    """`sentencepiece`, or `words` (language models only): every word of the training text."""
    model_type: str = "unigram"
    character_coverage: float = 1.0
    max_sentences: int = 1_000_000
    file: str | None = None
    """An existing SentencePiece model or word list to use instead of making one."""

    def __post_init__(self) -> None:
        check_choice("tokenizer.kind", self.kind, ("sentencepiece", "words"))
        check_choice("tokenizer.model_type", self.model_type, ("unigram", "bpe", "char", "word"))
        check_range("tokenizer.character_coverage", self.character_coverage, 0.9, 1)
        check_range("tokenizer.max_sentences", self.max_sentences, 1)


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimiser and the learning-rate schedule.

    Gradients are means over labels. "Transformer on a Diet" trained with lr 10, clip 0.25 and
    weight decay 1.2e-6, but its loss is the mean divided by the batch of 20 (MXNet's loss averages
    over the batch, the code then divides by it again): here that is peak_lr 0.5, clip_norm 5 and
    weight_decay 2.4e-5.
    """

    optimizer: str = "adamw"
    """`adamw`: Adam with decoupled weight decay; `sgd`: without momentum, weight decay is added to
    the clipped gradient."""
    peak_lr: float = 1e-3
    schedule: str = "inverse_sqrt"
    """`inverse_sqrt`, `constant`, `linear` or `cosine`; the last two reach `final_lr` at
    max_steps."""
    warmup_steps: int = 1000
    final_lr: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    """Largest norm of the gradient, to which longer ones are scaled down; 0 is no limit."""
    label_smoothing: float = 0.1
    accumulation: int = 1
    """Batches summed into one update."""
    ema_decay: float = 0.0
    """Decay of an exponential moving average of the weights, 0.999 for example; 0 is off. With it,
    the average is what is validated and what checkpoints hold as the model's weights."""

    def __post_init__(self) -> None:
        check_choice("optim.optimizer", self.optimizer, ("adamw", "sgd"))
        schedules = ("inverse_sqrt", "constant", "linear", "cosine")
        check_choice("optim.schedule", self.schedule, schedules)
        check_range("optim.warmup_steps", self.warmup_steps, 1)
        check_range("optim.accumulation", self.accumulation, 1)
        check_range("optim.label_smoothing", self.label_smoothing, 0, 0.999)
        check_range("optim.ema_decay", self.ema_decay, 0, 0.999999)
        for beta in self.betas:
            check_range("optim.betas", beta, 0, 0.99999)
        for name in ("peak_lr", "final_lr", "eps", "weight_decay", "clip_norm"):
            check_range(f"optim.{name}", getattr(self, name), 0)


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long to train, and how often to look."""

    max_steps: int = 100_000
    log_every: int = 50
    validate_every: int = 1000
    checkpoint_every: int = 500
    keep_checkpoints: int = 5
    keep_best: int = 0
    """Validated checkpoints, the best ones, that are kept beside the last `keep_checkpoints`; where
    it is not 0, every validation has its checkpoint."""
    best_by: str = "loss"
    """What tells the best validation: `loss`, or `bleu` or `chrf` of the `bleu_sentences`."""
    patience: int = 0
    """Validations without a better one before stopping; 0 is off."""
    bleu_sentences: int = 200
    """Validation sentences decoded for BLEU and chrF; 0 is off."""
    bleu_beam_size: int = 1
    bf16: bool = True
    """Autocast to bfloat16; the weights and the optimiser stay in fp32."""
    activation_checkpointing: bool = False
    """Keep only the inputs of layers for the gradient: less memory, about a third more time."""
    device: str = "cpu"
    seed: int = 1

    def __post_init__(self) -> None:
        for name in (
            "max_steps",
            "log_every",
            "validate_every",
            "checkpoint_every",
            "keep_checkpoints",
        ):
            check_range(f"loop.{name}", getattr(self, name), 1)
        for name in ("keep_best", "patience", "bleu_sentences", "seed"):
            check_range(f"loop.{name}", getattr(self, name), 0)
        check_choice("loop.best_by", self.best_by, ("loss", "bleu", "chrf"))
        if self.best_by != "loss" and not self.bleu_sentences:
            raise ConfigError(
                f"loop.best_by = {self.best_by!r} is told by decoded sentences, but "
                "loop.bleu_sentences is 0; set it to 200 or more"
            )
        check_range("loop.bleu_beam_size", self.bleu_beam_size, 1, 64)
