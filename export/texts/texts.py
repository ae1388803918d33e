"""The texts that a bundle is compared on: given ones, or the run's own held-out text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from export.errors import ExportError
from export.texts.dev_set import DevSet, Direction
from serving.bundle.manifest import Activations
from serving.bundle.tokenizer import TextTokenizer
from serving.search.ids import EOS_ID
from serving.text.splitting.sentences import has_words
from training.corpora.pairs import read_lines, read_pairs
from training.recipe.config import TextConfig
from training.results.perplexity import Window, rolling_windows
from training.runs.folder import (
    VALIDATION_LANGUAGES,
    VALIDATION_SOURCE,
    VALIDATION_TARGET,
    VALIDATION_TEXT,
    TrainedLanguageModel,
)
from training.tasks.language import read_documents

_SCORED_TOKENS = 40_000
"""Number of tokens of a validation text that are scored; a bundle scores them in about a minute."""

_FITTED_SENTENCES, _FITTED_WINDOWS = 64, 32
"""Numbers of sentences and windows to which int8 is fitted. They give the ranges, and show which
products int8 would spoil."""
LOGIT_WINDOWS = 8
"""Number of windows, the first ones, whose logits are compared step by step."""
_MEASURED_SENTENCES = 256
"""Number of sentences to which fp16 is fitted. They give the magnitudes."""
SENTENCES = Path(__file__).with_name("sentences.json")
"""A few sentences in each of several languages, the same in all. They are too few to judge a model
by; the searches of checkpoint and bundle must agree on them."""
PASSAGE = Path(__file__).with_name("passage.txt")
"""English of this project's own, a paragraph a line, some two thousand tokens: a language model's
perplexity on a dozen sentences would be a matter of chance."""
LEAST_SENTENCES, LEAST_TOKENS = 8, 128
"""Least sizes of a text for fitting. With less text, ranges and magnitudes would be a matter of
chance: values outside them are cut off or overflow, and the figures of parity would not show it
because they are measured on the same text."""
_UNFITTED = {"int8": "fp32", "fp16": "bf16 or fp32", "w8a16": "bf16 or fp32"}
"""The precisions that are fitted to a text, and the precisions that can be exported without one."""


@dataclass(frozen=True)
class TextPair:
    """A pair of line-aligned files, plain or .gz, under a name."""

    name: str
    source: Path
    reference: Path
    languages: Direction = (None, None)
    """The languages of source and reference; needed if the model translates in several
    directions."""
    languages_file: Path | None = None
    """A file with the languages of each line, separated by a space, in place of `languages`."""

    def read(self) -> DevSet:
        """The lines of both.

        Raises CorpusError if they cannot be read or are not aligned, ExportError if no pair
        has words on both sides.
        """
        pairs = read_pairs(self.source, self.reference)
        if not any(source.strip() and reference.strip() for source, reference in pairs):
            raise ExportError(
                f"{self.source}: no pair has words on both sides; give another text for {self.name}"
            )
        languages: list[Direction] = [self.languages] * len(pairs)
        if self.languages_file is not None:
            given = [text for _, text in read_pairs(self.source, self.languages_file)]
            languages = [
                (first, last) for first, _, last in (each.partition(" ") for each in given)
            ]
        sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
        return DevSet(sources, references, languages)


def validation_pair(checkpoint: Path) -> TextPair:
    """The held-out pairs of the run that a checkpoint folder belongs to.

    Raises ExportError if it kept none.
    """
    for folder in run_folders(checkpoint):
        languages_file = folder / VALIDATION_LANGUAGES
        pair = TextPair(
            "validation",
            folder / VALIDATION_SOURCE,
            folder / VALIDATION_TARGET,
            languages_file=languages_file if languages_file.is_file() else None,
        )
        if pair.source.is_file() and pair.reference.is_file():
            return pair
    raise ExportError(
        f"{checkpoint}: its run holds no validation text to compare on; give --dev SOURCE REFERENCE"
    )


@dataclass(frozen=True)
class DocumentsFile:
    """A file of a language model's documents, one per line, plain or .gz, under a name."""

    name: str
    file: Path
    clean: bool = False
    """Whether it has been cleaned already, as a run's own validation text has."""

    def read(self, data: TextConfig) -> list[str]:
        """The documents, cleaned as a training text is.

        Raises CorpusError if the file cannot be read, ExportError if nothing is left of it.
        """
        lines = read_lines(self.file) if self.clean else read_documents(self.file, data)[0]
        if not any(line.strip() for line in lines):
            raise ExportError(f"{self.file}: no line has words; give another text for {self.name}")
        return lines


@dataclass(frozen=True)
class Texts:
    """The texts on which a bundle is compared and scored. Those that are left out are found
    elsewhere: the held-out text of a run, or a built-in text. Each task uses some of them."""

    dev: TextPair | None = None
    """The pair of files to compare translations on."""
    text: Path | None = None
    """The text to compare on: sources alone, documents, or the lines of an encoder; labelled ones
    for an encoder of a run."""
    tests: tuple[TextPair, ...] = ()
    """The pairs of files to score translations on."""
    test_texts: tuple[DocumentsFile, ...] = ()
    """The documents to score a language model on."""
    task: Path | None = None
    """Labelled texts to score an encoder of others on."""

    @property
    def files(self) -> list[Path]:
        """All files that the texts name."""
        pairs = [pair for pair in (self.dev, *self.tests) if pair is not None]
        found = [file for pair in pairs for file in (pair.source, pair.reference)]
        found += [each.file for each in self.test_texts]
        return [*found, *(file for file in (self.text, self.task) if file is not None)]


NO_TEXTS = Texts()


def read_sources(file: Path) -> DevSet:
    """The lines of a text without references, as far as they have words.

    Raises CorpusError if it cannot be read, ExportError if no line has words.
    """
    lines = [line for line in read_lines(file) if has_words(line)]
    if not lines:
        raise ExportError(f"{file}: no line has words; give another text with --text FILE")
    return DevSet(lines, None)


def fitting_sentences(
    precision: str, activations: Activations | None, source: Path, dev: DevSet
) -> list[int]:
    """The numbers of the sentences with words to which a precision is fitted: int8 to the last
    ones, because logits are compared on the first; fp16 to up to 256 from all of the text; other
    precisions, and int8 with activations of 16 bits, to none.

    Raises ExportError if there are too few.
    """
    if precision not in _UNFITTED or activations == "row16":
        return []
    sentences = [number for number, source in enumerate(dev.sources) if has_words(source)]
    if len(sentences) < LEAST_SENTENCES:
        raise ExportError(
            f"{source}: {precision} is fitted to at least {LEAST_SENTENCES} sentences with "
            f"words, got {len(sentences)}; give a longer text with --dev SOURCE REFERENCE, or "
            f"export with --precision {_UNFITTED[precision]}"
            + (" or --activations row16" if precision == "int8" else "")
        )
    if precision == "int8":
        return sentences[-_FITTED_SENTENCES:]
    return sentences[:: -(-len(sentences) // _MEASURED_SENTENCES)]


def validation_text(checkpoint: Path) -> DocumentsFile:
    """The held-out text of the run of a language model that a checkpoint folder belongs to.

    Raises ExportError if it kept none.
    """
    for folder in run_folders(checkpoint):
        if (folder / VALIDATION_TEXT).is_file():
            return DocumentsFile("validation", folder / VALIDATION_TEXT, clean=True)
    raise ExportError(
        f"{checkpoint}: its run holds no {VALIDATION_TEXT} to compare on; give --text FILE"
    )


class DocumentReader(NamedTuple):
    """Reads documents in the way a language model does."""

    tokenizer: TextTokenizer
    length: int
    """Tokens at once."""
    start: int = EOS_ID
    """The id before each document."""

    @classmethod
    def of(cls, trained: TrainedLanguageModel) -> DocumentReader:
        """The reader of a model trained here; it reads as much at once as a training segment
        holds."""
        return cls(trained.tokenizer, trained.recipe.data.segment_length)


def compared_windows(reader: DocumentReader, file: Path, lines: list[str]) -> list[Window]:
    """Windows of a text to compare a language model on: the first ones, up to 40,000 tokens.

    Raises ExportError if no line has a token.
    """
    kept, total = [], 0
    for window in windows_of(reader, file, lines):
        kept.append(window)
        total += window.scored
        if total >= _SCORED_TOKENS:
            break
    return kept


def fitting_windows(precision: str, file: Path, windows: list[Window]) -> list[Window]:
    """The windows to which a precision is fitted: int8 to windows other than those whose logits are
    compared, if these are enough; fp16 to all; other precisions to none.

    Raises ExportError if all together are too few.
    """
    if precision not in _UNFITTED:
        return []
    chosen = windows
    if precision == "int8":
        others = windows[LOGIT_WINDOWS:][:_FITTED_WINDOWS]
        chosen = others if _tokens(others) >= LEAST_TOKENS else windows[-_FITTED_WINDOWS:]
    if _tokens(chosen) < LEAST_TOKENS:
        raise ExportError(
            f"{file}: {precision} is fitted to at least {LEAST_TOKENS} tokens of text, got "
            f"{_tokens(chosen)}; give a longer text with --text FILE, or export with --precision "
            f"{_UNFITTED[precision]}"
        )
    return chosen


def _tokens(windows: list[Window]) -> int:
    return sum(window.scored for window in windows)


def windows_of(reader: DocumentReader, file: Path, lines: list[str]) -> list[Window]:
    """Rolling windows over a text's lines, as long as the model reads at once.

    Raises ExportError if no line has a token.
    """
    documents = [ids for ids in reader.tokenizer.encode_batch(lines) if ids]
    if not documents:
        raise ExportError(f"{file}: no line has a token; give another text")
    return rolling_windows(documents, reader.length, reader.start)


def run_folders(checkpoint: Path) -> Iterator[Path]:
    """The folders where a run's files may be: the checkpoint's folder, and the two above it."""
    yield from (checkpoint, checkpoint.parent, checkpoint.parent.parent)
