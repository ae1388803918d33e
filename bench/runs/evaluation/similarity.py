"""Measures the quality of the vectors of embedding models: whether the nearest text is the right
one, and whether cosines agree with people.

Retrieval is that of translations (Artetxe and Schwenk 2019, section 4.3); similarity is the
Spearman correlation of SemEval's task (Cer et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.reports.report import table_head, table_line
from serving.encoding.reader import Embedder
from training.corpora.labelled import LabelledLine, find_columns, read_sheet, scores
from training.metrics.labels import matching_metrics, score_metrics
from training.recipe.filters import bare

MOST_PAIRS = 2000
"""Number of texts among which each text is searched for; accuracy falls if there are more."""
_READ_TOGETHER = 64
_ADVICE = (
    "give a table of these columns alone, or name them sentence1, sentence2 and, for --scores, "
    "score in its first line"
)
"""What to do with a table whose columns are not recognised."""


@dataclass(frozen=True)
class SimilarityResult:
    """The quality of one bundle's vectors on one table."""

    system: str
    table: str
    lines: int
    value: float
    """Retrieval: the accuracy, the mean of both ways. Similarity: Spearman's correlation."""


def measure_similarity(
    systems: Mapping[str, Embedder],
    pairs: Mapping[str, Path],
    scored: Mapping[str, Path],
    progress: Callable[[str], None],
) -> list[SimilarityResult]:
    """Measure each system on each table: of `pairs` the first 2,000 lines of two texts with
    the same meaning, without lines that repeat a text, which would have several right answers; of
    `scored` all lines of two texts and a score.

    Raises CorpusError, with the line, for an error in a table, before anything is measured.
    """
    results = []
    read = {name: _distinct(_read(path, "contrastive")) for name, path in pairs.items()}
    rated = {name: _read(path, "regression") for name, path in scored.items()}
    wanted = {name: scores(path, rated[name]) for name, path in scored.items()}
    for name, distinct in read.items():
        lines = distinct[:MOST_PAIRS]
        for system, embedder in systems.items():
            progress(f"{name}: {system}")
            accuracy = matching_metrics(*_vectors(embedder, lines))["accuracy"]
            results.append(SimilarityResult(system, name, len(lines), float(accuracy)))
    for name, lines in rated.items():
        for system, embedder in systems.items():
            progress(f"{name}: {system}")
            first_BD, second_BD = _vectors(embedder, lines)
            lengths_B = np.linalg.norm(first_BD, axis=1) * np.linalg.norm(second_BD, axis=1)
            cosines_B = (first_BD * second_BD).sum(axis=1) / np.maximum(lengths_B, 1e-12)
            spearman = score_metrics(cosines_B, wanted[name])["spearman"]
            results.append(SimilarityResult(system, name, len(lines), float(spearman)))
    return results


def _read(path: Path, kind: str) -> list[LabelledLine]:
    sheet = read_sheet(path)
    return sheet.lines(find_columns(sheet, kind, _ADVICE), 2)


def _distinct(lines: Sequence[LabelledLine]) -> list[LabelledLine]:
    """The lines of which neither text has occurred in an earlier line; case and punctuation do not
    matter."""
    seen: set[tuple[int, str]] = set()
    kept = []
    for line in lines:
        keys = {(side, bare(text)) for side, text in enumerate(line.texts)}
        if seen.isdisjoint(keys):
            kept.append(line)
        seen |= keys
    return kept


def _vectors(embedder: Embedder, lines: Sequence[LabelledLine]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors [B,D] of the first and of the second texts; long texts are cut."""
    found = []
    for side in (0, 1):
        texts = [line.texts[side] for line in lines]
        calls = (texts[i : i + _READ_TOGETHER] for i in range(0, len(texts), _READ_TOGETHER))
        found.append(np.concatenate([embedder.embed(call, truncate=True) for call in calls]))
    return found[0], found[1]


def similarity_markdown(results: Sequence[SimilarityResult]) -> str:
    """A row for each table, a column for each system, in hundredths."""
    systems = list(dict.fromkeys(result.system for result in results))
    lines = table_head(["text", "lines", *systems])
    values = {(result.table, result.system): result for result in results}
    for table in dict.fromkeys(result.table for result in results):
        row = [values[table, system] for system in systems]
        cells = [f"{100 * result.value:.1f}" for result in row]
        lines.append(table_line([table, f"{row[0].lines:,}", *cells]))
    return "\n".join(lines)
