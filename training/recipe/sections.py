"""The sections of a recipe but for the model's; each checks its own values."""

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
"""A token budget that a run finds out for itself."""
MOST_COPIES = 1000.0
"""The greatest weight of a corpus: an epoch is laid out in memory, copies included."""
DECODED_SCORES = ("bleu", "chrf")
BEST_BY = ("loss", *DECODED_SCORES, "accuracy", "f1", "matthews", "pearson", "spearman")
VOCABULARIES = {
    "sentencepiece": "tokenizer.model",
    "words": "vocab.txt",
    "wordpiece": "tokenizer.json",
}
"""The file of a run that holds its vocabulary, by `tokenizer.kind`."""
_RESERVED = ("<s>", "<pad>", "<unk>")  # pieces of every vocabulary
_TABLES = (".tsv", ".tsv.gz", ".tsv.zst", ".parquet")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})?")
ONE, BOTH = "one", "both"


@dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """One corpus: two line-aligned text files (`source` and `target`), or one table (`file`)."""

    source: str | None = None
    """Text, plain, .gz or .zst."""
    target: str | None = None
    file: str | None = None
    """.tsv, .tsv.gz, .tsv.zst or .parquet."""
    columns: tuple[int | str, int | str] | None = None
    """The table's columns of source and target: numbers from 1 (TSV), or names (of a TSV file, in
    its first line). Where absent: the first two of a TSV file."""
    weight: float = 1.0
    """How often each of their training pairs comes in an epoch: 2.5 is twice, and a third time for
    half of the pairs, drawn anew each epoch. Validation text has no use for it."""
    until_step: int | None = None
    """The update after which none of its pairs is trained on any more; by default they always are.
    Validation text has no use for it."""
    tag: str | None = None
    """A piece of its own that is put before each source of this corpus (`<web>`). Nothing puts one
    before a text that is to be translated: what the model then does it has learnt from the corpora
    without a tag. Validation text has no use for it either."""
    source_language: str | None = None
    """Of these files, where it is another than `data.source_language`."""
    target_language: str | None = None
    """Of these files, where it is another than `data.target_language`."""
    directions: str = ONE
    """`one`: from source to target; `both`: from target to source as well, as a corpus of its
    own."""

    @property
    def name(self) -> str:
        """What reports and errors call the corpus: the file of its source."""
        return str(self.file or self.source)

    def reversed(self) -> ParallelFiles:
        """The same text from its target to its source."""
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
        """Raise ConfigError, which calls the corpus `where`, for keys that do not go together."""
        check_range(f"{where}.weight", self.weight, 0, MOST_COPIES)
        if self.until_step is not None:
            check_range(f"{where}.until_step", self.until_step, 1)
        check_choice(f"{where}.directions", self.directions, (ONE, BOTH))
        tag = self.tag
        if tag is not None and (not re.fullmatch(r"<[a-z0-9_-]+>", tag) or tag in _RESERVED):
            raise ConfigError(
                f"{where}.tag must be small letters, digits, _ or - between < and >, like '<web>' "
                f"(but not one of {', '.join(_RESERVED)}), got {tag!r}"
            )
        if self.file is None:
            for key in ("source", "target"):
                if getattr(self, key) is None:
                    raise ConfigError(f"missing key '{where}.{key}' (or {where}.file)")
            if self.columns is not None:
                raise ConfigError(f"{where}.columns belongs to {where}.file, which is not given")
            return
        if self.source is not None or self.target is not None:
            raise ConfigError(f"{where} has file, and source or target; give one of the two")
        if not self.file.endswith(_TABLES):
            allowed = ", ".join(_TABLES)
            raise ConfigError(f"{where}.file must end in one of {allowed}, got {self.file!r}")
        named = [isinstance(column, str) for column in self.columns or ()]
        if self.file.endswith(".parquet") and not (named and all(named)):
            raise ConfigError(
                f"{where}.columns must name two columns of a Parquet file, got {self.columns!r}"
            )
        for column in self.columns or ():
            if isinstance(column, int):
                check_range(f"{where}.columns", column, 1)


@dataclass(frozen=True, kw_only=True)
class NoiseConfig:
    """Shares of an epoch's pairs that are changed, each drawn anew each epoch; 0 is off.

    Placeholders, addresses and whatever else is no plain word stay as they are.
    """

    numbers: float = 0.0
    """Another number, up to 12 digits long, on both sides for one that stands on both."""
    placeholders: float = 0.0
    """A placeholder, address or file name on both sides for a name or number on both."""
    units: float = 0.0
    """Another number and unit on both sides for a quantity that stands on both."""
    phrases: float = 0.0
    """A part of one to six words of both sides, where both have the same breaks."""
    emojis: float = 0.0
    """One or two emojis before or behind both sides."""
    scripts: float = 0.0
    """A word of another script on both sides for a name that stands on both."""
    lower: float = 0.0
    """The source in small letters."""
    title: float = 0.0
    """Each word of the source with a capital letter."""
    typos: float = 0.0
    """One letter of the source swapped, left out, doubled or replaced by its neighbour."""
    punctuation: float = 0.0
    """The end mark left out on both sides, where it is the same one."""
    accents: float = 0.0
    """The source without accents: ü as ue or u, ß as ss, é as e."""
    join: float = 0.0
    """Two or three pairs of a corpus in one line, where `max_pieces` allows it."""
    copy: float = 0.0
    """The target as the source: what is in the target language already stays as it is."""

    def __post_init__(self) -> None:
        for kind in fields(self):
            check_range(f"data.noise.{kind.name}", getattr(self, kind.name), 0, 1)


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
    filters: tuple[Filter, ...] | None = None
    """What drops pairs, in this order (`filters`); pairs with an empty side always go.
    Where absent: encoding, length, ratio and duplicates."""
    max_length_ratio: float = 3.0
    """`max_ratio` of the ratio filter where `filters` is absent."""
    token_budget: int | str = 4096
    """Rows x max(source, target) of one batch, joint models: rows x source x target; padding
    included. `auto`: what the device has memory for (`training.loop.budget`), found once a run."""
    subword_alpha: float = 0.0
    """Subword regularisation (Kudo 2018): 0 is off, 0.1 to 0.5 is usual; smaller is noisier.

    It needs a unigram tokenizer.
    """
    bpe_dropout: float = 0.0
    """BPE-dropout (Provilkov et al. 2020): the probability with which a merge is left out at each
    step; 0 is off, 0.1 is usual. It needs a bpe tokenizer."""
    temperature: float | None = None
    """In place of weights: a corpus of n pairs is n^(1/T) of what is sampled; of several directions
    each one, with all its corpora. 1 is as they are, larger gives small ones more; an epoch has as
    many pairs as there are."""
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    streaming: int = 0
    """Pairs that are in memory at a time, of corpora that are larger than it: clean text and ids
    lie in `cache`, and `validation` is a text of its own. 0: all are in memory."""
    cache: str | None = None
    """A folder that keeps clean text and its ids, found again by the content of all that they are
    made of: the next start reads them in seconds."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name one pair of files at least, got none")
        for index, files in enumerate(self.train):
            files.check(f"data.train[{index}]")
        if self.validation is not None:
            self.validation.check("data.validation")
        if self.temperature is not None:
            check_range("data.temperature", self.temperature, 1)
            if any(files.weight != 1 for files in self.train):
                raise ConfigError(
                    "data.temperature computes the weights of data.train, got both; leave out one"
                )
        self._check_directions()
        if not any(files.weight for files in self.train):
            raise ConfigError(
                "data.train: every weight is 0, so that no pair would be trained on; give one file "
                "pair a weight above 0"
            )
        least = 0 if self.validation is not None else 1
        check_range("data.held_out_pairs", self.held_out_pairs, least)
        check_range("data.max_pieces", self.max_pieces, 1)
        check_range("data.streaming", self.streaming, 0)
        if self.streaming:
            for key in ("cache", "validation"):
                if getattr(self, key) is None:
                    raise ConfigError(
                        f"data.streaming keeps the text on disk and holds no pair out: give "
                        f"data.{key} too"
                    )
        check_range("data.max_length_ratio", self.max_length_ratio, 1)
        if self.filters is not None and self.max_length_ratio != 3.0:
            raise ConfigError(
                "data.max_length_ratio counts where data.filters is absent, got both; give "
                "max_ratio to the filter {name: ratio} instead"
            )
        if isinstance(self.token_budget, int):
            check_range("data.token_budget", self.token_budget, 1)
        elif self.token_budget != AUTO:
            raise ConfigError(
                f"data.token_budget must be a whole number or '{AUTO}', got {self.token_budget!r}"
            )
        check_range("data.subword_alpha", self.subword_alpha, 0)
        check_range("data.bpe_dropout", self.bpe_dropout, 0, 1)

    @property
    def budget(self) -> int:
        """The token budget of a recipe in which it is a number, as in that of every run."""
        assert isinstance(self.token_budget, int), "settle_budget comes first"
        return self.token_budget

    def _check_directions(self) -> None:
        """Raise ConfigError for languages that contradict each other, or the filters."""
        given = self.source_language, self.target_language
        if not self.is_multilingual and self.directions != (given,):
            raise ConfigError(
                f"data.source_language and data.target_language are {' to '.join(given)}, but all "
                f"of data.train is {' to '.join(self.directions[0])}; make them agree"
            )
        for files in self.validation_corpora:
            if (found := self.direction(files)) not in self.directions:
                raise ConfigError(
                    f"data.validation is {' to '.join(found)}, which nothing of data.train is; "
                    f"there are {', '.join(' to '.join(each) for each in self.directions)}"
                )
        if not self.is_multilingual:
            return
        for number, files in enumerate(self.train):
            source, target = self.direction(files)
            check_language(f"data.train[{number}].source_language", source)
            check_language(f"data.train[{number}].target_language", target)
            if source == target:
                raise ConfigError(
                    f"data.train[{number}] is from {source!r} to itself; give it another "
                    "source_language or target_language"
                )
        for step in self.filters or ():
            scripts = isinstance(step, ScriptFilter) and (step.source, step.target)
            if scripts and scripts != (ScriptFilter.source, ScriptFilter.target):
                raise ConfigError(
                    "filter script: source and target are those of one direction; with several, "
                    "each language has its own: leave both out"
                )

    @cached_property
    def corpora(self) -> tuple[ParallelFiles, ...]:
        """What is trained on, each from one language to one other: those of `train`, in order, one
        of both directions as two."""
        return tuple(each for files in self.train for each in self._resolved(files))

    @cached_property
    def validation_corpora(self) -> tuple[ParallelFiles, ...]:
        """What `validation` names, as `corpora` does."""
        return () if self.validation is None else self._resolved(self.validation)

    def _resolved(self, files: ParallelFiles) -> tuple[ParallelFiles, ...]:
        source, target = self.direction(files)
        named = replace(files, directions=ONE, source_language=source, target_language=target)
        return (named, named.reversed()) if files.directions == BOTH else (named,)

    def direction(self, files: ParallelFiles) -> Languages:
        """The languages of a corpus' source and target."""
        return (
            files.source_language or self.source_language,
            files.target_language or self.target_language,
        )

    @cached_property
    def directions(self) -> tuple[Languages, ...]:
        """The pairs of languages that are trained on, each once."""
        return tuple(dict.fromkeys(self.direction(files) for files in self.corpora))

    @property
    def is_multilingual(self) -> bool:
        """Whether the model needs a tag of the target language before each source."""
        return len(self.directions) > 1

    @property
    def language_tags(self) -> dict[str, str]:
        """The tag of each target language; none where there is one direction."""
        if not self.is_multilingual:
            return {}
        return {target: f"<2{target}>" for _, target in self.directions}

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the corpora, each once; those of languages are apart."""
        return tuple(dict.fromkeys(files.tag for files in self.train if files.tag is not None))

    @property
    def steps(self) -> tuple[Filter, ...]:
        """The filters that count: those given, or those of a recipe that names none."""
        if self.filters is not None:
            return self.filters
        return (
            EncodingFilter(),
            LengthFilter(),
            RatioFilter(max_ratio=self.max_length_ratio),
            DuplicatesFilter(),
        )

    def steps_of(self, direction: Languages) -> tuple[Filter, ...]:
        """The filters as they judge one of the directions."""
        if not self.is_multilingual:
            return self.steps
        source, target = map(scripts_of, direction)
        return tuple(
            replace(step, source=source, target=target) if isinstance(step, ScriptFilter) else step
            for step in self.steps
        )


def check_language(where: str, code: str) -> None:
    """Raise ConfigError, which calls it `where`, for what is no code of a language."""
    if not _LANGUAGE.fullmatch(code):
        raise ConfigError(
            f"{where} must be a language code in small letters, like 'fr' or 'pt-br', got {code!r}"
        )


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Text of a language model, and how it is cut into training rows. A line is a document."""

    train: tuple[str, ...]
    """Files, plain, .gz or .zst."""
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
    """Making a vocabulary; of two languages it is joint, and its size is the model's vocab_size."""

    kind: str = "sentencepiece"
    """`sentencepiece`, `words` (language models only): every word of the training text, or
    `wordpiece` (encoders only, which have no other): the pieces of BERT."""
    model_type: str = "unigram"
    character_coverage: float = 1.0
    max_sentences: int = 250_000
    """Texts, each side of a pair being one, that are drawn at random to learn from. Four times as
    many take four times as long and save 0.6 % of the pieces."""
    file: str | None = None
    """An existing SentencePiece model, word list or `tokenizer.json` to use instead of making
    one."""
    lowercase: bool = True
    """`wordpiece`: in small letters without accents."""

    def __post_init__(self) -> None:
        check_choice("tokenizer.kind", self.kind, tuple(VOCABULARIES))
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
    alignment_weight: float = 0.0
    """Weight of the loss by which attention learns the links of a word aligner (`tasks.guide`)
    beside that of the labels, 0.1 for example; for a Transformer. 0 is off."""
    branch_warmup_steps: int | None = None
    """Warm-up of the weights kappa and alpha of a Weighted Transformer; by default the same."""
    branch_frozen_steps: int = 0
    """The last updates, in which these weights are learnt no more."""
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
    """The measure that decides which validation is best: `loss`; of translations `bleu` or `chrf`
    of the `bleu_sentences`; of an encoder that is fitted to labels one of their metrics."""
    patience: int = 0
    """Validations without a better one before stopping; 0 is off."""
    bleu_sentences: int = 200
    """Validation sentences decoded for BLEU and chrF; 0 is off."""
    bleu_beam_size: int = 1
    bf16: bool = True
    """Autocast to bfloat16; the weights and the optimiser stay in fp32."""
    activation_checkpointing: bool = False
    """Keep only the inputs of layers for the gradient: less memory, about a third more time."""
    compile: bool = False
    """Have `torch.compile` make kernels of the model, for batches of any size; the first updates
    then take minutes. It needs Triton for a GPU and a C++ compiler for a CPU."""
    device: str = "cpu"
    seed: int = 1
    initial_weights: str | None = None
    """A run or checkpoint whose weights and vocabulary this run begins with, to go on with text of
    one's own (fine-tuning). Its model must have the same sizes; optimiser and schedule begin anew.
    Once this run has a checkpoint, the other one is no longer needed."""
    tracker: str | None = None
    """`module:Class`: what gets the figures beside TensorBoard (`training.runs.trackers`)."""

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
        check_choice("loop.best_by", self.best_by, BEST_BY)
        if self.best_by in DECODED_SCORES and not self.bleu_sentences:
            raise ConfigError(
                f"loop.best_by = {self.best_by!r} is measured on decoded sentences, but "
                "loop.bleu_sentences is 0; set it to 200 or more"
            )
        check_range("loop.bleu_beam_size", self.bleu_beam_size, 1, 64)
