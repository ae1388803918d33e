"""The tables of `bench quality` in Markdown and its record in JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.reports.report import Machine, head_lines, table_head, table_line, versions
from bench.runs.evaluation.quality import RunResult, SystemResult
from training.runs.checkpoint import write_atomically


def quality_markdown(
    command: str, machine: Machine, subject: str, results: list[SystemResult]
) -> str:
    """The whole report; `subject` states what was translated and how."""
    quality = results[0].runs[0].quality
    lines = [*head_lines(command, machine, subject), ""]
    lines += [f"sacreBLEU: {quality.bleu_signature}; chrF: {quality.chrf_signature}.", ""]
    lines += [*_main_table(results), "", *_notes(results), ""]
    lines += ["BLEU by words of the source, mean over runs:", "", *_length_table(results), ""]
    if results[0].runs[0].frequencies:
        lines += [
            "F1 of words by their count in the training target text of the first run, mean over "
            "runs:",
            "",
            *_frequency_table(results),
        ]
    return "\n".join(lines)


def write_quality_record(
    path: Path, command: str, machine: Machine, subject: str, results: list[SystemResult]
) -> None:
    """Write every figure of every run, and the translations, atomically."""
    record: dict[str, Any] = {
        "command": command,
        "machine": asdict(machine) | {"busy": machine.busy},
        "versions": versions(),
        "subject": subject,
        "systems": [asdict(result) for result in results],
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())


def _main_table(results: list[SystemResult]) -> Iterator[str]:
    columns = ["system", "runs", "parameters, M", "BLEU (min-max)", "change of BLEU [95 %]"]
    columns += ["chrF (min-max)", "length ratio", "training, h", "decode tokens/s (PyTorch)"]
    yield from table_head(columns)
    for result in results:
        runs, change = result.runs, result.change
        yield table_line(
            [
                result.name,
                str(len(runs)),
                _mean([run.parameters for run in runs], lambda mean: f"{mean / 1e6:.2f}"),
                _spread(runs, lambda run: run.quality.bleu),
                f"{change.mean:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
                if change
                else "baseline",
                _spread(runs, lambda run: run.quality.chrf),
                f"{statistics.fmean(run.quality.length_ratio for run in runs):.3f}",
                _mean([run.training_hours for run in runs], "{:.2f}".format),
                _mean([run.tokens_per_second for run in runs], "{:.0f}".format),
            ]
        )


def _mean(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    """The mean of the known values as text; empty if no run has one."""
    known = [value for value in values if value is not None]
    return text(statistics.fmean(known)) if known else ""


def _spread(runs: list[RunResult], figure: Callable[[RunResult], float]) -> str:
    """The mean, with the range if there are several values."""
    values = [figure(run) for run in runs]
    mean = f"{statistics.fmean(values):.2f}"
    return f"{mean} ({min(values):.2f}-{max(values):.2f})" if len(values) > 1 else mean


def _notes(results: list[SystemResult]) -> Iterator[str]:
    checkpoints = {run.checkpoint for result in results for run in result.runs}
    names = ", ".join(sorted(name for name in checkpoints if name is not None))
    notes = [f"checkpoints: {names}"] if names else []
    notes += ["translations read from files"] if None in checkpoints else []
    yield (
        f"Means over runs; {', '.join(notes)}. The change is from "
        f"{results[0].name}, first run from first run and so on as far as both have them; its "
        "interval is a paired bootstrap over sentences, the same for all runs, and does not cover "
        "the choice of seeds. Training counts validation but no break between sessions. "
        "Decoding is PyTorch eager with the tree cache, on the whole file; tokens are the pieces "
        "of the best outputs, without eos."
    )


def _length_table(results: list[SystemResult]) -> Iterator[str]:
    yield from table_head(["words", "sentences", *(result.name for result in results)])
    for index, bucket in enumerate(results[0].runs[0].lengths):
        means = [
            f"{statistics.fmean(run.lengths[index].bleu for run in result.runs):.2f}"
            for result in results
        ]
        yield table_line([bucket.words, str(bucket.sentences), *means])


def _frequency_table(results: list[SystemResult]) -> Iterator[str]:
    yield from table_head(["count", "reference words", *(result.name for result in results)])
    for index, bucket in enumerate(results[0].runs[0].frequencies):
        means = [
            f"{statistics.fmean(run.frequencies[index].f1 for run in result.runs):.3f}"
            for result in results
        ]
        yield table_line([bucket.frequency, str(bucket.reference_words), *means])
