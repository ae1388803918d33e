"""Measures how well language models predict text, in a unit that does not depend on their pieces.

The unit is bits per byte of Gao et al. 2020 ("The Pile", section 3.1), of documents on their own as
in `rolling` of lm-eval: the end of a document is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.reports.report import table_head, table_line
from serving.generation.generator import Generator
from training.corpora.pairs import read_lines
from training.corpora.wikitext import clean_wikitext

_SCORED_TOGETHER = 256


@dataclass(frozen=True)
class PerplexityResult:
    """The log-probability of one text under one bundle."""

    system: str
    text: str
    documents: int
    num_bytes: int
    """Number of bytes of the documents in UTF-8."""
    num_tokens: int
    """Tokens of that system, the end of a document not among them."""
    nats: float
    """The sum of their negative log-probabilities."""

    @property
    def bits_per_byte(self) -> float:
        """Bits that the model needs for a byte of the text; lower is better."""
        return self.nats / math.log(2) / self.num_bytes

    @property
    def perplexity(self) -> float:
        """Perplexity per token; comparable only between models of one tokenizer."""
        return math.exp(self.nats / self.num_tokens)


def measure_perplexity(
    systems: Mapping[str, Generator],
    texts: Mapping[str, Path],
    wikitexts: Mapping[str, Path],
    progress: Callable[[str], None],
) -> list[PerplexityResult]:
    """Score each text by each system; its non-blank lines are documents. `wikitexts` are files
    of WikiText as published, and are cleaned as for training.

    Raises CorpusError if a file cannot be read, BenchError if it holds no text.
    """
    documents = {name: _filled(name, read_lines(path)) for name, path in texts.items()}
    for name, path in wikitexts.items():
        documents[name] = _filled(name, clean_wikitext(read_lines(path))[0])
    results = []
    for name, lines in documents.items():
        num_bytes = sum(len(line.encode()) for line in lines)
        for system, generator in systems.items():
            progress(f"{name}: {system}")
            num_tokens, nats = _score(generator, lines)
            results.append(PerplexityResult(system, name, len(lines), num_bytes, num_tokens, nats))
    return results


def _filled(name: str, lines: Sequence[str]) -> list[str]:
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise BenchError(f"text {name!r} must have a line that is not blank, got {len(lines)}")
    return filled


def _score(generator: Generator, documents: Sequence[str]) -> tuple[int, float]:
    """Tokens of the documents, and the sum of their negative log-probabilities."""
    count, nats = 0, 0.0
    for start in range(0, len(documents), _SCORED_TOGETHER):
        for tokens in generator.score(documents[start : start + _SCORED_TOGETHER]):
            count += len(tokens)
            nats -= sum(token.log_prob for token in tokens if token.log_prob is not None)
    return count, nats


def perplexity_markdown(results: Sequence[PerplexityResult]) -> str:
    """Format a row for each text and a column for each system: bits per byte, then perplexity per
    token."""
    systems = list(dict.fromkeys(result.system for result in results))
    lines = table_head(["text", "documents", "bytes", *systems])
    values = {(result.text, result.system): result for result in results}
    for text in dict.fromkeys(result.text for result in results):
        row = [values[text, system] for system in systems]
        cells = [f"{result.bits_per_byte:.3f} ({result.perplexity:.1f})" for result in row]
        lines.append(table_line([text, f"{row[0].documents:,}", f"{row[0].num_bytes:,}", *cells]))
    return "\n".join(lines)
