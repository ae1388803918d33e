"""The texts that a bundle is compared on: given ones, or the run's own held-out text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from export.errors import ExportError
from export.parity import DevSet
from training.corpus import read_pairs
from training.perplexity import Window, rolling_windows
from training.run import (
    VALIDATION_SOURCE,
    VALIDATION_TARGET,
    VALIDATION_TEXT,
    TrainedLanguageModel,
)
from training.text_data import read_documents

_SCORED_TOKENS = 40_000
"""Of a validation text; a bundle scores so many in a minute or so."""


@dataclass(frozen=True)
class TextPair:
    """Two line-aligned files, plain or .gz, under a name."""

    name: str
    source: Path
    reference: Path

    def read(self) -> DevSet:
        """The lines of both.

        Raises CorpusError where they cannot be read or are not aligned, ExportError where no pair
        has words on both sides.
        """
        pairs = read_pairs(self.source, self.reference)
        if not any(source.strip() and reference.strip() for source, reference in pairs):
            raise ExportError(
                f"{self.source}: no pair has words on both sides; give another text for {self.name}"
            )
        return DevSet([source for source, _ in pairs], [reference for _, reference in pairs])


def validation_pair(checkpoint: Path) -> TextPair:
    """The held-out pairs of the run that a checkpoint folder belongs to.

    Raises ExportError where it kept none.
    """
    for folder in _run_folders(checkpoint):
        pair = TextPair("validation", folder / VALIDATION_SOURCE, folder / VALIDATION_TARGET)
        if pair.source.is_file() and pair.reference.is_file():
            return pair
    raise ExportError(
        f"{checkpoint}: its run holds no validation text to compare on; give --dev SOURCE REFERENCE"
    )


def validation_text(checkpoint: Path) -> Path:
    """The same of a language model: the cleaned text, a document a line."""
    for folder in _run_folders(checkpoint):
        if (folder / VALIDATION_TEXT).is_file():
            return folder / VALIDATION_TEXT
    raise ExportError(
        f"{checkpoint}: its run holds no {VALIDATION_TEXT} to compare on; give --text FILE"
    )


def compared_windows(trained: TrainedLanguageModel, text: Path) -> list[Window]:
    """Windows of a text to compare a language model on: the first ones, up to 40,000 tokens.

    A run's own validation text is clean already. Raises ExportError where there is no text.
    """
    if text.name == VALIDATION_TEXT:
        lines = text.read_text(encoding="utf-8").splitlines()
    else:
        lines = clean_lines(trained, text)
    kept, total = [], 0
    for window in windows_of(trained, text, lines):
        kept.append(window)
        total += window.scored
        if total >= _SCORED_TOKENS:
            break
    return kept


def clean_lines(trained: TrainedLanguageModel, text: Path) -> list[str]:
    """The documents of a text, cleaned as the model's training text was."""
    return read_documents(text, trained.recipe.data)[0]


def windows_of(trained: TrainedLanguageModel, text: Path, lines: list[str]) -> list[Window]:
    """Rolling windows over a text's lines, as long as the model's training segments.

    Raises ExportError where no line has a token.
    """
    documents = [ids for ids in trained.tokenizer.encode_batch(lines) if ids]
    if not documents:
        raise ExportError(f"{text}: holds no text to compare on")
    return rolling_windows(documents, trained.recipe.data.segment_length)


def _run_folders(checkpoint: Path) -> Iterator[Path]:
    """Where a run's files may lie: in the checkpoint's folder or in one of two above it."""
    yield from (checkpoint, checkpoint.parent, checkpoint.parent.parent)
