"""The section `data` of the recipes of encoders; each checks its own values."""

from __future__ import annotations

from dataclasses import dataclass

from training.errors import ConfigError
from training.recipe.checks import check_choice, check_range

LEAST_INPUT = 8
"""Ids of the longest input: with special ones two short parts must have room."""
CLASSES = ("single", "pair")
"""Kinds of labelled text whose labels are names."""
KINDS = (*CLASSES, "regression", "contrastive")
METRICS: dict[str, tuple[str, ...]] = {
    "single": ("accuracy", "f1", "matthews"),
    "pair": ("accuracy", "f1", "matthews"),
    "regression": ("pearson", "spearman"),
    "contrastive": ("accuracy",),
}
"""What is measured of each kind; the first decides by default, of scores the last."""


@dataclass(frozen=True, kw_only=True)
class DocumentFile:
    """A text in lines, a blank line between documents."""

    file: str
    """Plain, .gz or .zst."""
    cleaning: str = "none"
    """`none`: the text as it is; `wikitext`: WikiText's tokenisation is undone, lines with <unk>
    are dropped, and a document is an article."""


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """Text from which an encoder learns what words stand where, and how it is cut into inputs."""

    train: tuple[DocumentFile, ...]
    validation: DocumentFile
    attribution: str = ""
    """Origin and licence of the text; it is carried into the bundle."""
    next_sentence: bool = True
    """Inputs of two parts, of which the second follows the first or is of another document, half
    of them each, and the model learns which (Devlin et al. 2019); else of one part each."""
    max_length: int = 128
    """Ids of an input, special ones included."""
    mask_share: float = 0.15
    """Of an input's ids, special ones left out: those to predict. Of these eight tenths are
    hidden, a tenth are another id, a tenth stay."""
    token_budget: int = 4096
    """Ids of a batch, in which inputs lie behind one another: nothing is padding."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ConfigError("data.train must name one file at least, got none")
        for files in (*self.train, self.validation):
            check_choice("data.cleaning", files.cleaning, ("none", "wikitext"))
        check_range("data.max_length", self.max_length, LEAST_INPUT)
        check_range("data.mask_share", self.mask_share, 0.01, 0.99)
        check_range("data.token_budget", self.token_budget, self.max_length)


@dataclass(frozen=True, kw_only=True)
class LabelledConfig:
    """Labelled text to which an encoder is fitted."""

    train: str
    """A table: TSV without quoting, CSV (.csv) or JSON lines (.jsonl), plain, .gz or .zst."""
    validation: str | None = None
    """A table with the same columns; where absent, `held_out_share` of `train` is set apart."""
    held_out_share: float = 0.1
    attribution: str = ""
    """Origin and licence of the text; it is carried into the bundle."""
    kind: str = "single"
    """`single`: the class of a text; `pair`: of two texts; `regression`: a number for one or two
    texts; `contrastive`: vectors, alike for the two texts of a line and unlike for those of
    different lines."""
    columns: tuple[int | str, ...] = (1, 2)
    """Of the text or both texts and, but for `contrastive`, at last of the label: numbers from 1,
    or names, which the first line has, or the objects of JSON lines."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the model's logits; of two the second is what F1 is of."""
    score_range: tuple[float, float] | None = None
    """Regression: the lowest and the highest score, which the model gives as 0 and 1."""
    symmetric: bool = False
    """The two texts of a line change places in half of the inputs, drawn anew each epoch."""
    batch_size: int = 32
    """Lines of a batch; of `contrastive` each text has the others of it as unlike ones."""
    max_length: int = 128
    """Ids of an input, special ones included; of longer ones the end is cut off."""
    similarity_scale: float = 20.0
    """`contrastive`: what cosines are multiplied by, one over the temperature of Gao et al.
    2021."""

    def __post_init__(self) -> None:
        check_choice("data.kind", self.kind, KINDS)
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
                f"data.columns of kind {self.kind!r} must be "
                f"{' or '.join(map(str, counts[self.kind]))}, got {list(self.columns)}"
            )
        if self.symmetric and self.num_texts != 2:
            raise ConfigError("data.symmetric is for two texts a line, got columns of one")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"data.labels must differ, got {list(self.labels)}")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ConfigError(
                f"data.score_range must be the lowest and the highest score, got "
                f"{list(self.score_range)}"
            )

    @property
    def num_texts(self) -> int:
        """Of a line."""
        return len(self.columns) - (self.kind != "contrastive")
