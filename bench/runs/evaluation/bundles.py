"""Bundles of several models side by side on one text: speed, size and quality."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.systems.processes.repetitions import Progress
from serving.bundle.manifest import Manifest
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from training.corpora.pairs import Pair
from training.metrics.bleu import CorpusScores, measure_quality
from training.results.report import PICTURE_STYLE
from training.runs.checkpoint import write_atomically


@dataclass(frozen=True)
class BundlesPlan:
    """The parameters of a comparison of bundles."""

    bundles: Mapping[str, Path]
    """The bundles by their names in tables; the first is the baseline."""
    pairs: Sequence[Pair]
    batches: tuple[int, ...]
    beam_size: int
    repetitions: int
    threads: int


@dataclass(frozen=True)
class BundleResult:
    """The results of one bundle on the text."""

    name: str
    manifest: Manifest
    size: int
    """Bytes of the folder's files."""
    quality: CorpusScores
    ms_per_sentence: Mapping[int, list[float]]
    """Milliseconds per sentence by the number of sentences per call, one entry per repetition."""

    def median(self, batch: int) -> float:
        """Median milliseconds per sentence, in calls of this many."""
        return statistics.median(self.ms_per_sentence[batch])


def time_bundles(plan: BundlesPlan, progress: Progress) -> list[BundleResult]:
    """Time the bundles in turns, after a warm-up repetition whose outputs give the quality.

    Sentences are translated in the order of the text, in calls of each size. Raises BundleError for
    a bundle that cannot be opened.
    """
    options = SearchOptions(beam_size=plan.beam_size)
    systems = {
        name: Translator(folder, threads=plan.threads) for name, folder in plan.bundles.items()
    }
    sources, references = ([pair[side] for pair in plan.pairs] for side in (0, 1))
    times: dict[str, dict[int, list[float]]] = {name: {} for name in systems}
    quality: dict[str, CorpusScores] = {}
    for batch in plan.batches:
        for repetition in range(plan.repetitions + 1):
            progress(f"{batch} sentences a call: repetition {repetition} of {plan.repetitions}")
            for name, system in systems.items():
                start = time.perf_counter()
                texts = _translate(system, sources, batch, options)
                seconds = time.perf_counter() - start
                if repetition:
                    times[name].setdefault(batch, []).append(1000 * seconds / len(sources))
                elif name not in quality:
                    quality[name] = measure_quality(texts, references)
    return [
        BundleResult(
            name=name,
            manifest=system.manifest,
            size=sum(f.stat().st_size for f in plan.bundles[name].rglob("*") if f.is_file()),
            quality=quality[name],
            ms_per_sentence=times[name],
        )
        for name, system in systems.items()
    ]


def _translate(
    system: Translator, sources: Sequence[str], batch: int, options: SearchOptions
) -> list[str]:
    calls = (sources[i : i + batch] for i in range(0, len(sources), batch))
    return [t.text for call in calls for t in system.translate_sentences(call, options)]


def bundles_markdown(
    command: str, machine: Machine, subject: str, plan: BundlesPlan, found: Sequence[BundleResult]
) -> str:
    """The table, with each bundle's speed relative to the first."""
    columns = ["system", "precision", "MB", "BLEU", "chrF"]
    for batch in plan.batches:
        columns += [f"ms at batch {batch} (min-max)", f"speed / {found[0].name}"]
    lines = [*head_lines(command, machine, subject), ""]
    lines += [f"sacreBLEU: {found[0].quality.bleu_signature}.", ""]
    lines += table_head(columns, texts=2)
    for each in found:
        cells = [each.name, each.manifest.precision, f"{each.size / 1e6:.1f}"]
        cells += [f"{each.quality.bleu:.2f}", f"{each.quality.chrf:.2f}"]
        for batch in plan.batches:
            times = each.ms_per_sentence[batch]
            cells.append(f"{each.median(batch):.2f} ({min(times):.2f}-{max(times):.2f})")
            cells.append(f"{found[0].median(batch) / each.median(batch):.2f}")
        lines.append(table_line(cells))
    return "\n".join(lines)


def draw_bundles(found: Sequence[BundleResult], batch: int, file: Path) -> None:
    """Write a PNG picture of quality against speed in calls of `batch` sentences.

    Raises StorageError if the file cannot be written.
    """
    with mpl.rc_context(PICTURE_STYLE):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.subplots()
        for each in found:
            point = (1000 / each.median(batch), each.quality.bleu)
            axes.plot(*point, "o")
            axes.annotate(each.name, point, xytext=(4, 4), textcoords="offset points")
        axes.set_xlabel(f"Sentences a second, {batch} a call")
        axes.set_ylabel("BLEU")
        axes.margins(0.15)  # leave space for the names
        axes.grid(alpha=0.3)
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=120)
    write_atomically(file, picture.getvalue())
