"""The sections of a recipe, except the model's. Each section checks its own values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

from training.errors import ConfigError
from training.recipe.checks import check_choice, check_range
from training.recipe.filters import (
    DuplicatesFilter,
    EncodingFilter,
    Filter,
    Languages,
    LengthFilter,
    RatioFilter,
    ScriptFilter,
    scripts_of,
)

AUTO = "auto"
"""The value of `data.token_budget` that makes a run choose its own budget."""
MOST_COPIES = 1000.0
"""The largest weight of a corpus. An epoch is laid out in memory with all copies."""
DECODED_SCORES = ("bleu", "chrf")
BEST_BY = ("loss", *DECODED_SCORES, "accuracy", "f1", "matthews", "pearson", "spearman")
VOCABULARIES = {
    "sentencepiece": "tokenizer.model",
    "words": "vocab.txt",
    "wordpiece": "tokenizer.json",
}
"""The file of a run that holds the vocabulary, by `tokenizer.kind`."""
MOST_SEED = 2**64 - 1
"""The largest seed that PyTorch's generator takes."""
_RESERVED = ("<s>", "<pad>", "<unk>")  # every vocabulary has these pieces
_TABLES = (".tsv", ".tsv.gz", ".tsv.zst", ".parquet")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})?")
ONE, BOTH = "one", "both"


@dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """A parallel corpus: two line-aligned text files (`source` and `target`), or one table
    (`file`)."""

    source: str | None = None
    """A text file: plain, .gz or .zst."""
    target: str | None = None
    file: str | None = None
    """A table: .tsv, .tsv.gz, .tsv.zst or .parquet."""
    columns: tuple[int | str, int | str] | None = None
    """The columns of source and target in the table. A TSV file takes numbers from 1, or names from
    its first line; a Parquet file takes names. The default is the first two columns of a TSV
    file."""
    direction_column: int | str | None = None
    """The column of a TSV file that names the only direction that a line is good for, such as
    `de>en`. Lines for another direction are left out, and counted as `empty`. A line may lack the
    column, or have nothing there: it is good for both."""
    weight: float = 1.0
    """The number of times that an epoch contains each training pair. With 2.5, each pair comes
    twice, and half of the pairs, drawn anew each epoch, come a third time. Validation ignores
    it."""
    until_step: int | None = None
    """The last update that trains on this corpus. By default it is used to the end. Validation
    ignores it."""
    tag: str | None = None
    """A piece such as `<web>` that is put before each source of this corpus. Translation requests
    never carry a tag, so the model then translates as it learnt from the corpora without one.
    Validation ignores it."""
    source_language: str | None = None
    """The source language of these files, if it differs from `data.source_language`."""
    target_language: str | None = None
    """The target language of these files, if it differs from `data.target_language`."""
    directions: str = ONE
    """`one`: from source to target. `both`: from target to source too, as a second corpus."""

    @property
    def name(self) -> str:
        """The name of the corpus in reports and errors: the file of its source."""
        return str(self.file or self.source)

    def reversed(self) -> ParallelFiles:
        """The same corpus with source and target exchanged."""
        first, second = self.columns or (1, 2)
        return replace(
            self,
            source=self.target,
            target=self.source,
            columns=None if self.file is None else (second, first),
            source_language=self.target_language,
            target_language=self.source_language,
        )

    def check(self, where: str) -> None:
        """Raise ConfigError for keys that contradict each other; the message calls the corpus
        `where`."""
        check_range(f"{where}.weight", self.weight, 0, MOST_COPIES)
        if self.until_step is not None:
            check_range(f"{where}.until_step", self.until_step, 1)
        check_choice(f"{where}.directions", self.directions, (ONE, BOTH))
        tag = self.tag
        if tag is not None and (not re.fullmatch(r"<[a-z0-9_-]+>", tag) or tag in _RESERVED):
            raise ConfigError(
                f"{where}.tag must be lower-case letters, digits, _ or - in < and >, like '<web>' "
                f"(but not one of {', '.join(_RESERVED)}), got {tag!r}"
            )
        if self.file is None:
            for key in ("source", "target"):
                if getattr(self, key) is None:
                    raise ConfigError(f"missing key '{where}.{key}' (or {where}.file)")
            for key in ("columns", "direction_column"):
                if getattr(self, key) is not None:
                    raise ConfigError(f"{where}.{key} belongs to {where}.file, which is not given")
            return
        if self.source is not None or self.target is not None:
            raise ConfigError(f"{where} has both file and source or target; give only one of them")
        if not self.file.endswith(_TABLES):
            allowed = ", ".join(_TABLES)
            raise ConfigError(f"{where}.file must end in one of {allowed}, got {self.file!r}")
        named = [isinstance(column, str) for column in self.columns or ()]
        if self.file.endswith(".parquet") and not (named and all(named)):
            raise ConfigError(
                f"{where}.columns must name two columns of a Parquet file, got {self.columns!r}"
            )
        if self.direction_column is not None and self.file.endswith(".parquet"):
            raise ConfigError(f"{where}.direction_column is for TSV files, got {self.file!r}")
        if isinstance(self.direction_column, int):
            check_range(f"{where}.direction_column", self.direction_column, 1)
        for column in self.columns or ():
            if isinstance(column, int):
                check_range(f"{where}.columns", column, 1)


@dataclass(frozen=True, kw_only=True)
class NoiseConfig:
    """The share of an epoch's pairs that each kind of noise changes. 0 turns a kind off.

    The pairs are drawn anew each epoch. Placeholders, addresses and other text that is not plain
    words stay unchanged.
    """

    names: float = 0.0
    """Replaces a name that both sides contain by another one of the corpora, or by a made-up
    one."""
    numbers: float = 0.0
    """Replaces a number that both sides contain by another one of up to 12 digits."""
    placeholders: float = 0.0
    """Replaces a name or number that both sides contain by a placeholder, an address or a file
    name."""
    units: float = 0.0
    """Replaces a quantity that both sides contain by another number and unit."""
    phrases: float = 0.0
    """Cuts both sides to a phrase of one to six words, if both have the same breaks."""
    emojis: float = 0.0
    """Adds one or two emojis before or after both sides."""
    scripts: float = 0.0
    """Replaces a name that both sides contain by a word of another script."""
    lower: float = 0.0
    """Writes the source in lower case."""
    title: float = 0.0
    """Capitalises each word of the source."""
    typos: float = 0.0
    """Swaps, drops or doubles one letter of the source, or replaces it by its neighbour on the
    keyboard."""
    punctuation: float = 0.0
    """Drops the final punctuation mark of both sides, if it is the same."""
    accents: float = 0.0
    """Removes accents from the source: ü becomes ue or u, ß becomes ss, é becomes e."""
    join: float = 0.0
    """Joins two or three pairs of a corpus into one, if `max_pieces` allows it."""
    copy: float = 0.0
    """Uses the target as the source, so that the model copies text that is in the target language
    already."""

    def __post_init__(self) -> None:
        for kind in fields(self):
            check_range(f"data.noise.{kind.name}", getattr(self, kind.name), 0, 1)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Corpora, cleaning and languages."""

    source_language: str
    target_language: str
    train: tuple[ParallelFiles, ...]
    validation: ParallelFiles | None = None
    """A parallel corpus for early stopping. Without it, `held_out_pairs` training pairs are held
    out."""
    held_out_pairs: int = 2000
    """Pairs to hold out of training. Pairs with the same source sentence stay together."""
    attribution: str = ""
    """Origin and licence of the text. The bundle carries it."""
    max_pieces: int = 200
    """A pair is dropped if either side has more pieces than this."""
    filters: tuple[Filter, ...] | None = None
    """Filters that drop pairs, applied in this order (`filters`). Pairs with an empty side are
    always dropped. The default is encoding, length, ratio and duplicates."""
    max_length_ratio: float = 3.0
    """`max_ratio` of the default ratio filter. It cannot be combined with `filters`."""
    token_budget: int | str = 4096
    """Size of a batch with padding: rows x max(source, target) pieces; for joint models rows x
    source x target. `auto` measures once per run what fits into the device's memory
    (`training.loop.budget`)."""
    subword_alpha: float = 0.0
    """Subword regularisation (Kudo 2018). 0 turns it off, 0.1 to 0.5 is usual, smaller is noisier.

    It needs a unigram tokenizer.
    """
    bpe_dropout: float = 0.0
    """BPE-dropout (Provilkov et al. 2020): the probability of leaving out a merge. 0 turns it off,
    0.1 is usual. It needs a bpe tokenizer."""
    temperature: float | None = None
    """Computes the weights of the corpora: a corpus of n pairs is sampled in proportion to n^(1/T).
    With several directions, this applies to each direction with all its corpora. 1 keeps the sizes;
    larger values favour small corpora. The size of an epoch stays the number of pairs."""
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    streaming: int = 0
    """Number of pairs in memory at a time, for corpora larger than memory. Clean text and ids then
    lie in `cache`, and `validation` must be given. 0 keeps all pairs in memory."""
    cache: str | None = None
    """A folder for clean text and ids, so that the next start reads them in seconds. Entries are
    found by a hash of everything that they were made from."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name at least one corpus, got none")
        for index, files in enumerate(self.train):
            files.check(f"data.train[{index}]")
        if self.validation is not None:
            self.validation.check("data.validation")
        if self.temperature is not None:
            check_range("data.temperature", self.temperature, 1)
            if any(files.weight != 1 for files in self.train):
                raise ConfigError(
                    "data.temperature computes the weights of data.train; leave out one of the two"
                )
        self._check_directions()
        if not any(files.weight for files in self.train):
            raise ConfigError(
                "data.train: every weight is 0, so there is nothing to train on; give at least one "
                "corpus a weight above 0"
            )
        least = 0 if self.validation is not None else 1
        check_range("data.held_out_pairs", self.held_out_pairs, least)
        check_range("data.max_pieces", self.max_pieces, 1)
        check_range("data.streaming", self.streaming, 0)
        if self.streaming:
            for key in ("cache", "validation"):
                if getattr(self, key) is None:
                    raise ConfigError(
                        f"data.streaming needs data.{key}: it keeps the text on disk and holds out "
                        f"no pairs; set data.{key}"
                    )
        check_range("data.max_length_ratio", self.max_length_ratio, 1)
        if self.filters is not None and self.max_length_ratio != 3.0:
            raise ConfigError(
                "data.max_length_ratio applies only without data.filters, got both; set max_ratio "
                "of the filter {name: ratio} instead"
            )
        if isinstance(self.token_budget, int):
            check_range("data.token_budget", self.token_budget, 1)
        elif self.token_budget != AUTO:
            raise ConfigError(
                f"data.token_budget must be an integer or '{AUTO}', got {self.token_budget!r}"
            )
        check_range("data.subword_alpha", self.subword_alpha, 0)
        check_range("data.bpe_dropout", self.bpe_dropout, 0, 1)

    @property
    def budget(self) -> int:
        """The token budget as a number. Every run's recipe has one after `settle_budget`."""
        assert isinstance(self.token_budget, int), "settle_budget comes first"
        return self.token_budget

    def _check_directions(self) -> None:
        """Raise ConfigError for languages that contradict each other or the filters."""
        given = self.source_language, self.target_language
        if not self.is_multilingual and self.directions != (given,):
            raise ConfigError(
                f"data.source_language and data.target_language are {' to '.join(given)}, but "
                f"data.train is {' to '.join(self.directions[0])}; make them agree"
            )
        for files in self.validation_corpora:
            if (found := self.direction(files)) not in self.directions:
                raise ConfigError(
                    f"data.validation is {' to '.join(found)}, but data.train has only "
                    f"{', '.join(' to '.join(each) for each in self.directions)}"
                )
        if not self.is_multilingual:
            return
        for number, files in enumerate(self.train):
            source, target = self.direction(files)
            check_language(f"data.train[{number}].source_language", source)
            check_language(f"data.train[{number}].target_language", target)
            if source == target:
                raise ConfigError(
                    f"data.train[{number}] translates {source!r} to itself; set its "
                    "source_language or target_language"
                )
        for step in self.filters or ():
            scripts = isinstance(step, ScriptFilter) and (step.source, step.target)
            if scripts and scripts != (ScriptFilter.source, ScriptFilter.target):
                raise ConfigError(
                    "filter script: source and target apply to one direction; with several, the "
                    "filter knows each language's scripts: leave both out"
                )

    @cached_property
    def corpora(self) -> tuple[ParallelFiles, ...]:
        """The training corpora in the order of `train`, each with one direction. A corpus of both
        directions becomes two."""
        return tuple(each for files in self.train for each in self._resolved(files))

    @cached_property
    def validation_corpora(self) -> tuple[ParallelFiles, ...]:
        """The validation corpora, each with one direction, as in `corpora`."""
        return () if self.validation is None else self._resolved(self.validation)

    def _resolved(self, files: ParallelFiles) -> tuple[ParallelFiles, ...]:
        source, target = self.direction(files)
        named = replace(files, directions=ONE, source_language=source, target_language=target)
        return (named, named.reversed()) if files.directions == BOTH else (named,)

    def direction(self, files: ParallelFiles) -> Languages:
        """The source and target language of a corpus."""
        return (
            files.source_language or self.source_language,
            files.target_language or self.target_language,
        )

    @cached_property
    def directions(self) -> tuple[Languages, ...]:
        """The distinct language pairs of the training corpora."""
        return tuple(dict.fromkeys(self.direction(files) for files in self.corpora))

    @property
    def is_multilingual(self) -> bool:
        """Whether each source needs a tag of its target language."""
        return len(self.directions) > 1

    @property
    def language_tags(self) -> dict[str, str]:
        """The tag of each target language; empty if there is one direction."""
        if not self.is_multilingual:
            return {}
        return {target: f"<2{target}>" for _, target in self.directions}

    @property
    def tags(self) -> tuple[str, ...]:
        """The distinct tags of the corpora, without those of languages."""
        return tuple(dict.fromkeys(files.tag for files in self.train if files.tag is not None))

    @property
    def steps(self) -> tuple[Filter, ...]:
        """The filters of the recipe, or the default ones."""
        if self.filters is not None:
            return self.filters
        return (
            EncodingFilter(),
            LengthFilter(),
            RatioFilter(max_ratio=self.max_length_ratio),
            DuplicatesFilter(),
        )

    def steps_of(self, direction: Languages) -> tuple[Filter, ...]:
        """The filters for one direction."""
        if not self.is_multilingual:
            return self.steps
        source, target = map(scripts_of, direction)
        return tuple(
            replace(step, source=source, target=target) if isinstance(step, ScriptFilter) else step
            for step in self.steps
        )


def check_language(where: str, code: str) -> None:
    """Raise ConfigError, which calls the value `if`, if `code` is not a language code."""
    if not _LANGUAGE.fullmatch(code):
        raise ConfigError(
            f"{where} must be a lower-case language code, like 'fr' or 'pt-br', got {code!r}"
        )


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Text of a language model, and how it is cut into training rows. Each line is a document."""

    train: tuple[str, ...]
    """Text files: plain, .gz or .zst."""
    validation: str
    """A text file for early stopping."""
    attribution: str = ""
    """Origin and licence of the text. The bundle carries it."""
    cleaning: str = "none"
    """`none`: keeps the text unchanged, with empty lines. `wikitext`: undoes the tokenisation of
    WikiText and drops empty lines and sentences with <unk>, at which it cuts a line."""
    batching: str = "columns"
    """`columns`: cuts the text into `batch_size` contiguous columns and reads them in order
    (truncated back-propagation, as in Wang et al. 2020). `documents`: shuffles the documents each
    epoch and packs them into rows. Each row starts without a state either way."""
    batch_size: int = 20
    """Rows per batch."""
    segment_length: int = 70
    """Tokens per row."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name at least one file, got none")
        check_choice("data.cleaning", self.cleaning, ("none", "wikitext"))
        check_choice("data.batching", self.batching, ("columns", "documents"))
        check_range("data.batch_size", self.batch_size, 1)
        check_range("data.segment_length", self.segment_length, 1)


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Settings of the vocabulary. Source and target share one, and its size is the model's
    `vocab_size`."""

    kind: str = "sentencepiece"
    """`sentencepiece`; `words`: every word of the training text (language models only);
    `wordpiece`: the pieces of BERT (the only kind for encoders)."""
    model_type: str = "unigram"
    character_coverage: float = 1.0
    max_sentences: int = 250_000
    """Number of texts, drawn at random, that the vocabulary is learnt from. Each side of a pair
    counts as one. Four times as many take four times as long and save 0.6 % of the pieces."""
    file: str | None = None
    """An existing SentencePiece model, word list or `tokenizer.json`, used instead of a new one."""
    lowercase: bool = True
    """`wordpiece` only: lower-case the text and remove accents."""

    def __post_init__(self) -> None:
        check_choice("tokenizer.kind", self.kind, tuple(VOCABULARIES))
        check_choice("tokenizer.model_type", self.model_type, ("unigram", "bpe", "char", "word"))
        check_range("tokenizer.character_coverage", self.character_coverage, 0.98, 1)
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
    """`adamw`: Adam with decoupled weight decay. `sgd`: no momentum; weight decay is added to the
    clipped gradient."""
    peak_lr: float = 1e-3
    schedule: str = "inverse_sqrt"
    """`inverse_sqrt`, `constant`, `linear` or `cosine`. The last two reach `final_lr` at
    `max_steps`."""
    warmup_steps: int = 1000
    final_lr: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    """The gradient is scaled down to this norm if it is longer. 0 turns clipping off."""
    label_smoothing: float = 0.1
    alignment_weight: float = 0.0
    """Weight of the alignment loss beside that of the labels, for example 0.1. It teaches attention
    the links of a word aligner (`tasks.guide`). For Transformers only; 0 turns it off."""
    branch_warmup_steps: int | None = None
    """Warm-up steps of the weights kappa and alpha of a Weighted Transformer. The default is
    `warmup_steps`."""
    branch_frozen_steps: int = 0
    """Number of final updates in which kappa and alpha are frozen."""
    accumulation: int = 1
    """Batches whose gradients are summed into one update."""
    ema_decay: float = 0.0
    """Decay of an exponential moving average of the weights, for example 0.999. 0 turns it off.
    With it, validation uses the average, and checkpoints store it as the model's weights."""

    def __post_init__(self) -> None:
        check_choice("optim.optimizer", self.optimizer, ("adamw", "sgd"))
        schedules = ("inverse_sqrt", "constant", "linear", "cosine")
        check_choice("optim.schedule", self.schedule, schedules)
        check_range("optim.warmup_steps", self.warmup_steps, 1)
        check_range("optim.accumulation", self.accumulation, 1)
        check_range("optim.branch_frozen_steps", self.branch_frozen_steps, 0)
        if self.branch_warmup_steps is not None:
            check_range("optim.branch_warmup_steps", self.branch_warmup_steps, 1)
        check_range("optim.label_smoothing", self.label_smoothing, 0, 0.999)
        check_range("optim.ema_decay", self.ema_decay, 0, 0.999999)
        for beta in self.betas:
            check_range("optim.betas", beta, 0, 0.99999)
        for name in ("peak_lr", "final_lr", "eps", "weight_decay", "clip_norm", "alignment_weight"):
            check_range(f"optim.{name}", getattr(self, name), 0)


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Settings of the training loop: its length, and how often it logs, validates and saves."""

    max_steps: int = 100_000
    log_every: int = 50
    validate_every: int = 1000
    checkpoint_every: int = 500
    keep_checkpoints: int = 5
    keep_best: int = 0
    """The number of best validated checkpoints to keep beside the last `keep_checkpoints`. If it is
    not 0, every validation saves a checkpoint."""
    best_by: str = "loss"
    """The measure that decides which validation is best. Every model has `loss`; translation models
    have `bleu` and `chrf` of the `bleu_sentences`; encoders with labels have their metrics."""
    patience: int = 0
    """Stop after this many validations without improvement. 0 turns it off."""
    bleu_sentences: int = 200
    """Validation sentences to decode for BLEU and chrF. 0 turns it off."""
    bleu_beam_size: int = 1
    bf16: bool = True
    """Autocast to bfloat16. Weights and optimiser stay in fp32."""
    activation_checkpointing: bool = False
    """Keep only the inputs of layers and recompute the rest for the gradient. It saves memory and
    takes about a third more time."""
    compile: bool = False
    """Compile the model with `torch.compile`, for batches of any size. The first updates then take
    minutes. It needs Triton on a GPU and a C++ compiler on a CPU."""
    device: str = "cpu"
    seed: int = 1
    initial_weights: str | None = None
    """Start from the weights and vocabulary of this run or checkpoint (fine-tuning). Its model must
    have the same sizes; optimiser and schedule start anew. The other run is no longer needed once
    this one has saved a checkpoint."""
    tracker: str | None = None
    """`module:Class` of a tracker that receives the metrics beside TensorBoard
    (`training.runs.trackers`)."""

    def __post_init__(self) -> None:
        for name in (
            "max_steps",
            "log_every",
            "validate_every",
            "checkpoint_every",
            "keep_checkpoints",
        ):
            check_range(f"loop.{name}", getattr(self, name), 1)
        for name in ("keep_best", "patience", "bleu_sentences"):
            check_range(f"loop.{name}", getattr(self, name), 0)
        check_range("loop.seed", self.seed, 0, MOST_SEED)
        check_choice("loop.best_by", self.best_by, BEST_BY)
        if self.best_by in DECODED_SCORES and not self.bleu_sentences:
            raise ConfigError(
                f"loop.best_by = {self.best_by!r} needs decoded sentences, but "
                "loop.bleu_sentences is 0; set it to 200 or more"
            )
        check_range("loop.bleu_beam_size", self.bleu_beam_size, 1, 64)
