"""The `data` sections of the recipes of encoders. Each section checks its own values."""

from __future__ import annotations

from dataclasses import dataclass

from training.errors import ConfigError
from training.recipe.checks import check_choice, check_range

LEAST_INPUT = 8
"""The smallest `max_length` in ids. Two short parts and their special ids must fit."""
CLASSES = ("single", "pair")
"""The kinds of labelled text whose labels are class names."""
KINDS = (*CLASSES, "regression", "contrastive")
METRICS: dict[str, tuple[str, ...]] = {
    "single": ("accuracy", "f1", "matthews"),
    "pair": ("accuracy", "f1", "matthews"),
    "regression": ("pearson", "spearman"),
    "contrastive": ("accuracy",),
}
"""The metrics of a validation for each `kind`; `loop.best_by` may name one of them."""


@dataclass(frozen=True, kw_only=True)
class DocumentFile:
    """A text file with one text per line and a blank line between documents."""

    file: str
    """A text file: plain, .gz or .zst."""
    cleaning: str = "none"
    """`none`: keeps the text unchanged. `wikitext`: undoes the tokenisation of WikiText, drops
    lines with <unk>, and makes each article a document."""


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """Text for the masked-language-model pretraining of an encoder, and how it is cut into
    inputs."""

    train: tuple[DocumentFile, ...]
    validation: DocumentFile
    attribution: str = ""
    """Origin and licence of the text. The bundle carries it."""
    next_sentence: bool = True
    """Whether inputs have two parts. In half of them the second part follows the first, in the
    other half it comes from another document, and the model learns which (Devlin et al. 2019)."""
    max_length: int = 128
    """Ids per input, including special ids."""
    mask_share: float = 0.15
    """Share of an input's ids to predict, not counting special ids. Of these, 80 % are masked, 10 %
    are replaced by a random id, and 10 % stay."""
    token_budget: int = 4096
    """Ids per batch. Inputs are packed one after another, without padding."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name at least one file, got none")
        for files in (*self.train, self.validation):
            check_choice("data.cleaning", files.cleaning, ("none", "wikitext"))
        check_range("data.max_length", self.max_length, LEAST_INPUT)
        check_range("data.mask_share", self.mask_share, 0.01, 0.99)
        check_range("data.token_budget", self.token_budget, self.max_length)


@dataclass(frozen=True, kw_only=True)
class LabelledConfig:
    """Labelled text for fine-tuning an encoder."""

    train: str
    """A table: TSV without quoting, CSV (.csv) or JSON lines (.jsonl); plain, .gz or .zst."""
    validation: str | None = None
    """A table with the same columns. Without it, `held_out_share` of `train` is held out."""
    held_out_share: float = 0.1
    attribution: str = ""
    """Origin and licence of the text. The bundle carries it."""
    kind: str = "single"
    """`single`: the class of a text. `pair`: the class of two texts. `regression`: a number for one
    or two texts. `contrastive`: vectors that are similar for the two texts of a line, and
    dissimilar for texts of different lines."""
    columns: tuple[int | str, ...] = (1, 2)
    """The columns of the text or both texts, then that of the label; `contrastive` has no label. A
    table takes numbers from 1, or names from its first line; JSON lines take the keys of the
    objects."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the model's logits. With two classes, F1 is that of the
    second."""
    score_range: tuple[float, float] | None = None
    """`regression` only: the lowest and the highest score, which the model scales to 0 and 1."""
    symmetric: bool = False
    """Swap the two texts of a line in half of the inputs, drawn anew each epoch."""
    batch_size: int = 32
    """Lines per batch. For `contrastive`, the other lines of the batch are the negatives."""
    max_length: int = 128
    """Ids per input, including special ids. Longer inputs are cut off at the end."""
    similarity_scale: float = 20.0
    """`contrastive` only: the factor of the cosines, which is the inverse temperature of Gao et al.
    2021."""
    teacher_vectors: str | None = None
    """`contrastive` only: a file of `python -m training vectors`. A text that is in it, and its
    pair if that is not, learns the teacher's vector (Reimers and Gurevych 2020)."""
    teacher_weight: float = 10.0
    """Weight of the distance to the teacher's vector (1 less the cosine) beside the loss of
    `contrastive`."""

    def __post_init__(self) -> None:
        check_choice("data.kind", self.kind, KINDS)
        check_range("data.teacher_weight", self.teacher_weight, 0.0, 1000)
        if self.teacher_vectors is not None and self.kind != "contrastive":
            raise ConfigError(
                "data.teacher_vectors are for data.kind 'contrastive', got "
                f"{self.kind!r}; leave them out"
            )
        check_range("data.held_out_share", self.held_out_share, 0.001, 0.9)
        check_range("data.batch_size", self.batch_size, 2 if self.kind == "contrastive" else 1)
        check_range("data.max_length", self.max_length, LEAST_INPUT)
        check_range("data.similarity_scale", self.similarity_scale, 0.1, 1000)
        for column in self.columns:
            if isinstance(column, int):
                check_range("data.columns", column, 1)
        if len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"data.columns must differ, got {list(self.columns)}")
        counts = {"single": (2,), "pair": (3,), "regression": (2, 3), "contrastive": (2,)}
        if len(self.columns) not in counts[self.kind]:
            raise ConfigError(
                f"data.columns must be {' or '.join(map(str, counts[self.kind]))} columns for "
                f"data.kind {self.kind!r}, got {list(self.columns)}"
            )
        if self.symmetric and self.num_texts != 2:
            raise ConfigError("data.symmetric needs two texts per line, but data.columns name one")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"data.labels must differ, got {list(self.labels)}")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ConfigError(
                f"data.score_range must be the lowest and the highest score, got "
                f"{list(self.score_range)}"
            )

    @property
    def num_texts(self) -> int:
        """The number of texts per line."""
        return len(self.columns) - (self.kind != "contrastive")
