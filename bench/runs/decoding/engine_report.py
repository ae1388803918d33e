"""The Markdown table of `bench engine`, and its JSON record."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.machine.gpu import MeasuredGpu
from bench.reports.report import Machine, head_lines, table_line, versions, written_change
from bench.runs.decoding.engine import TIE, EnginePlan, Result, Roofline
from bench.subjects.materials import DecodedModel
from bench.subjects.models import slot_bytes
from bench.subjects.scenarios import LIKE, SLOT_BEAM, System
from bench.systems.processes.repetitions import Measured
from export.comparison.significance import BleuChange, bleu_change
from training.metrics.bleu import measure_quality
from training.runs.checkpoint import write_atomically

MOST_UNEQUAL = 0.2
"""Largest difference in BLEU between systems whose times are compared."""
_CACHE_NOTE = (
    "Cache: fp32 keys and values of target positions at the peak, without padding, mean over "
    "sentences; reordered by parent, as PyTorch eager does, every beam has a slot for each step."
)


@dataclass(frozen=True)
class Bleu:
    """BLEU by system and beam size."""

    scores: dict[tuple[System, int], float]
    signature: str
    changes: dict[tuple[System, int], BleuChange] = field(default_factory=dict)
    """Differences from the CTranslate2 system of the same kind."""


@dataclass(frozen=True)
class _CacheUsage:
    """Cache slots and bytes after some number of steps."""

    steps: int
    beam_size: int
    limit: float
    shares: list[float]
    """Slots of each sentence divided by beams times steps."""
    cache_bytes: float
    """Per sentence, the mean over sentences."""
    reordered_bytes: float
    """The same for a cache in which each beam has its own slots."""


def score_translations(subject: DecodedModel, result: Result) -> Bleu:
    """BLEU of the translations of every system."""
    scores, signature = {}, ""
    for key, texts in result.translations.items():
        quality = measure_quality(texts, subject.references)
        scores[key], signature = quality.bleu, quality.bleu_signature
    found = result.translations
    changes = {
        (system, beam): bleu_change(found[LIKE[system], beam], texts, subject.references)
        for (system, beam), texts in found.items()
        if (LIKE.get(system), beam) in found
    }
    return Bleu(scores, signature, changes)


def unequal(bleu: Bleu) -> list[str]:
    """Systems whose quality certainly differs from that of CTranslate2 of the same kind, one line
    each; their times cannot be compared. With shortlists, each has its own lists."""
    return [
        f"beam {beam}: BLEU of {system.name} is {written_change(change)} beside that of "
        f"{LIKE[system].name}, at most {MOST_UNEQUAL} either way is equal"
        for (system, beam), change in bleu.changes.items()
        if not system.shortlist and (change.low > MOST_UNEQUAL or change.high < -MOST_UNEQUAL)
    ]


def to_markdown(
    command: str,
    machine: Machine,
    subject: DecodedModel,
    plan: EnginePlan,
    result: Result,
    bleu: Bleu,
) -> str:
    """The whole report of `bench engine`: tables of speed, memory, agreement, products and
    slots."""
    forced = f", {subject.max_length} tokens forced" if subject.forced else ""
    subject_line = f"{subject.name}{forced}; {plan.repetitions} interleaved repetitions."
    lines = [*head_lines(command, machine, subject_line), ""]
    lines += [*_table(machine, plan, subject, result, bleu), "", *_notes(subject, result, bleu)]
    lines += ["", *_agreement_lines(result), *_roofline_lines(result)]
    lines += [*_slot_lines(subject, result), _CACHE_NOTE]
    return "\n".join(lines)


def write_record(
    path: Path,
    command: str,
    machine: Machine,
    subject: DecodedModel,
    plan: EnginePlan,
    result: Result,
    bleu: Bleu,
) -> None:
    """Write every repetition of every thread setting, atomically."""
    record: dict[str, Any] = {
        "command": command,
        "machine": asdict(machine) | {"busy": machine.busy},
        "versions": versions(),
        "subject": subject.name,
        "model": asdict(subject.model.config),
        "forced_length": subject.max_length if subject.forced else None,
        "repetitions": plan.repetitions,
        "rows": [_record_row(m, subject, result, bleu) for m in result.measured],
        "bleu_signature": bleu.signature,
        "bleu_changes": [
            {"system": system.name, "rival": LIKE[system].name, "beam_size": beam, **asdict(change)}
            for (system, beam), change in bleu.changes.items()
        ],
        "agreement": [
            asdict(a)
            | {"system": a.system.name, "rival": a.rival.name, "other": a.other, "tie": TIE}
            for a in result.agreements
        ],
        "left_out": {system.name: reason for system, reason in result.left_out.items()},
        "int8_products": [_record_roofline(roofline) for roofline in result.rooflines],
        "slots": [asdict(usage) for usage in _cache_usage(subject, result)],
    }
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())


def _record_row(
    measured: Measured, subject: DecodedModel, result: Result, bleu: Bleu
) -> dict[str, Any]:
    scenario = measured.scenario
    return {
        "system": measured.system.name,
        **asdict(measured.setting),
        **asdict(scenario),
        "best_setting": measured is result.best(measured.system, scenario),
        "ms_per_sentence": measured.ms_per_sentence,
        "ms_per_sentence_median": measured.median,
        "tokens_per_second": measured.tokens_per_second,
        "peak_memory_bytes": measured.peak_memory,
        "bleu": bleu.scores.get((measured.system, scenario.beam_size)),
        "speed_over": {
            rival.name: result.speed_over(rival, measured) for rival in _beside(subject, result)
        },
    }


def _record_roofline(roofline: Roofline) -> dict[str, Any]:
    return {
        **asdict(roofline.whole.setting),
        **asdict(roofline.whole.scenario),
        "ms_per_sentence": roofline.ms_per_sentence,
        "share": roofline.share,
    }


def _table(
    machine: Machine, plan: EnginePlan, subject: DecodedModel, result: Result, bleu: Bleu
) -> Iterator[str]:
    systems = [system for system in subject.systems if system not in result.left_out]
    rivals = _beside(subject, result)
    columns = ["batch", "beam", "system", "workers x threads", "ms/sentence (min-max)"]
    on_gpu = subject.device == "cuda"
    columns += ["tokens/s", "GPU memory, MiB" if on_gpu else "peak RSS, MiB"]
    columns += [f"speed / {_short(rival)}" for rival in rivals]
    columns += ["bandwidth", "matrix speed"] if result.work else []
    columns += ["BLEU"] if bleu.scores else []
    yield table_line(columns)
    yield table_line(["---:", "---:", "---", "---", *["---:"] * (len(columns) - 4)])
    for scenario in plan.scenarios:
        for system in systems:
            best = result.best(system, scenario)
            yield table_line(_cells(best, rivals, result, bleu, machine.gpu))


def _beside(subject: DecodedModel, result: Result) -> list[System]:
    """The systems relative to which the table gives all speeds."""
    return [rival for rival in subject.comparison.beside if rival not in result.left_out]


def _short(rival: System) -> str:
    """A rival's name in a column header."""
    return rival.engine if rival.kind == "eager" else f"{rival.engine} {rival.precision}"


def _cells(
    best: Measured, rivals: list[System], result: Result, bleu: Bleu, gpu: MeasuredGpu | None
) -> list[str]:
    scenario, times = best.scenario, best.ms_per_sentence
    cells = [
        str(scenario.batch),
        str(scenario.beam_size),
        best.system.name,
        str(best.setting),
        f"{best.median:.1f} ({min(times):.1f}-{max(times):.1f})",
        f"{best.tokens_per_second:.0f}",
        f"{best.peak_memory / 2**20:.0f}",
        *(f"{result.speed_over(rival, best):.2f}" for rival in rivals),
    ]
    if scenario in result.work and gpu is not None:
        seconds = best.median / 1000 * scenario.batch
        cells += [f"{100 * share:.2g}%" for share in result.work[scenario].share(seconds, gpu)]
    return cells + ([f"{bleu.scores[best.system, scenario.beam_size]:.2f}"] if bleu.scores else [])


def _notes(subject: DecodedModel, result: Result, bleu: Bleu) -> Iterator[str]:
    memory = "GPU memory" if subject.device == "cuda" else "Peak RSS"
    yield (
        "Medians of whole calls; each system has a process of its own and stands with its fastest "
        f"thread setting. Tokens are those of the best outputs, without eos. {memory} counts from "
        "the start of the process, loading, compiling and smaller rows included."
    )
    if result.work:
        yield (
            "Bandwidth: the weights in 16 bits, read once for the encoder and once a step, over "
            "the time of a call, as a share of what copies reach. Matrix speed: the operations of "
            "matrix products without the attention of a step, likewise."
        )
    for system, reason in result.left_out.items():
        yield f"{system.name} is left out: {reason}."
    if bleu.scores:
        yield f"BLEU is of the whole file, decoded at the largest batch: {bleu.signature}."
    if bleu.changes:
        written = [
            f"{system.name}, beam {beam}: {written_change(change)}"
            for (system, beam), change in bleu.changes.items()
        ]
        yield (
            "BLEU beside CTranslate2's of the same kind, with the 95 % interval of the paired "
            f"bootstrap over sentences: {'; '.join(written)}."
        )


def _agreement_lines(result: Result) -> Iterator[str]:
    for a in result.agreements:
        yield (
            f"Same outputs{a.whose} as {a.rival.engine} {a.rival.precision}, beam {a.beam_size}: "
            f"{a.identical} of "
            f"{a.sentences} ({a.identical / a.sentences:.2%}); {a.ties} more are ties within "
            f"{TIE:g} of score, {a.other} differ; largest difference of equal outputs' scores "
            f"{a.score_difference:.1e}.  "
        )


def _roofline_lines(result: Result) -> Iterator[str]:
    for roofline in result.rooflines:
        whole = roofline.whole
        yield (
            f"Matrix products of {whole.system.name}, {whole.scenario}, {whole.setting}: alone "
            f"{roofline.median:.2f} of {whole.median:.2f} ms/sentence, so that the engine reaches "
            f"{roofline.share:.0%} of their speed.  "
        )


def _slot_lines(subject: DecodedModel, result: Result) -> Iterator[str]:
    for usage in _cache_usage(subject, result):
        mean, limit = statistics.fmean(usage.shares), usage.limit
        # Not a failure: the model decides how soon hypotheses of one descent win.
        verdict = f"limit {limit}" if mean <= limit else f"**over the limit of {limit}**"
        yield (
            f"Peak cache slots a sentence after {usage.steps} steps, beam {usage.beam_size}: "
            f"{mean:.2f} of beams x steps ({verdict}); worst of {len(usage.shares)} sentences "
            f"{max(usage.shares):.2f}; cache, KiB/sentence: {usage.cache_bytes / 1024:.0f}, "
            f"reordered by parent {usage.reordered_bytes / 1024:.0f}.  "
        )


def _cache_usage(subject: DecodedModel, result: Result) -> Iterator[_CacheUsage]:
    for steps, counts in result.slots.items():
        slot_sizes = [slot_bytes(subject.model, count.source_length) for count in counts]
        yield _CacheUsage(
            steps=steps,
            beam_size=SLOT_BEAM,
            limit=subject.comparison.slot_limits[steps],
            shares=[count.slots / (SLOT_BEAM * steps) for count in counts],
            cache_bytes=statistics.fmean(
                count.slots * size for count, size in zip(counts, slot_sizes, strict=True)
            ),
            reordered_bytes=SLOT_BEAM * steps * statistics.fmean(slot_sizes),
        )
