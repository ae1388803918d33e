"""`python -m bench server`: latency under Poisson arrivals, beside CTranslate2.

Both systems run behind the same HTTP layer. The arrival rate is a share of the rival's saturation,
and the same for both. The cost of the HTTP layer is measured by comparing this engine with its
scheduler alone.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.machine.load import Load, full_load, poisson_load
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.subjects.job import Search, id_token
from bench.subjects.materials import (
    DecodedModel,
    folder_name,
    job_for,
    static_ranges,
    write_materials,
)
from bench.subjects.scenarios import OUR_INT8, PEER_INT8, Setting, System, settings
from bench.systems.processes.direct import direct_load
from bench.systems.processes.repetitions import Progress
from bench.systems.processes.served import Served
from export.arithmetic.quantize import Products
from export.graphs.writing import write_graphs
from serving.bundle.folder import write_manifest
from serving.bundle.languages import Languages
from serving.bundle.manifest import TokenizerFiles
from serving.bundle.words import EOS, UNK

SYSTEMS = (OUR_INT8, PEER_INT8)
SHARE = 0.7
"""The arrival rate as a share of the rival's saturation."""
TAIL_EVERY, TAIL_TIMES = 20, 6
"""A long tail: one sentence in 20 is long, made of 6 sentences."""
_CLIENTS, _SATURATION_SECONDS = 64, 10.0
_LANGUAGES = ("xx", "yy")
_WORDS_FILE = "vocab.txt"


@dataclass(frozen=True)
class ServerPlan:
    """The settings of `bench server`: number and duration of repetitions, and the target
    latency."""

    repetitions: int
    seconds: float
    target_ms: float
    cores: int


@dataclass(frozen=True)
class Layout:
    """The use of the cores by a server: its number of processes, and workers and threads per
    process."""

    processes: int
    each: Setting

    def __str__(self) -> str:
        return f"{self.processes} x {self.each}"


@dataclass(frozen=True)
class Answered:
    """The loads of one system in its best layout."""

    system: System
    layout: Layout
    saturation: float
    """Largest number of requests per second that the system answers."""
    loads: list[Load]
    """Results under Poisson arrivals, one per repetition."""

    def median(self, percent: float) -> float:
        """The median over repetitions of a percentile of the latency in milliseconds."""
        return statistics.median(load.percentile(percent) for load in self.loads)


@dataclass(frozen=True)
class ServingRates:
    """This engine with or without HTTP; one entry per repetition."""

    single_ms: list[float]
    """Median latency of one request at a time."""
    rates: list[float]
    """Requests per second of many concurrent clients."""


@dataclass(frozen=True)
class ServerResult:
    """The results of both systems under the same arrivals, and of this engine without HTTP."""

    rate: float
    """Arrivals per second."""
    answered: list[Answered]
    direct: ServingRates
    over_http: ServingRates


def run_server(
    subject: DecodedModel,
    texts: Sequence[str],
    beam_size: int,
    plan: ServerPlan,
    progress: Progress,
) -> ServerResult:
    """Measure both systems on requests of one text each."""
    search = Search(beam_size, subject.max_length)
    source, target = subject.languages if subject.tokenizer else _LANGUAGES
    bodies = [{"q": text, "source": source, "target": target} for text in texts]
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        progress("exporting and converting the model")
        bundle = write_systems(subject, folder)
        chosen: dict[System, tuple[Layout, float, Served]] = {}
        for system in SYSTEMS:
            for layout in layouts(system.kind, plan.cores):
                label = f"{system.name}, {layout} threads"
                progress(f"saturation of {label}")
                job = job_for(system, layout.each, subject, folder)
                served = stack.enter_context(Served(label, job, bundle, search, layout.processes))
                seconds = min(_SATURATION_SECONDS, plan.seconds)
                full_load(served.url, bodies, _CLIENTS, seconds / 5)  # warm-up
                rate = full_load(served.url, bodies, _CLIENTS, seconds).rate
                if system not in chosen or rate > chosen[system][1]:
                    chosen[system] = (layout, rate, served)
        rate = SHARE * chosen[PEER_INT8][1]
        answered = [Answered(s, chosen[s][0], chosen[s][1], []) for s in SYSTEMS]
        for repetition in range(plan.repetitions):
            for each in answered:
                progress(f"{rate:.1f} requests/s, repetition {repetition + 1}: {each.system.name}")
                url = chosen[each.system][2].url
                shift = repetition * len(bodies) // plan.repetitions
                turned = [*bodies[shift:], *bodies[:shift]]
                each.loads.append(poisson_load(url, turned, rate, plan.seconds, repetition))
        layout, _, served = chosen[OUR_INT8]
        job = job_for(OUR_INT8, layout.each, subject, folder)
        direct, over_http = ServingRates([], []), ServingRates([], [])
        seconds = min(_SATURATION_SECONDS, plan.seconds)
        for repetition in range(plan.repetitions):
            progress(f"HTTP and the scheduler alone, repetition {repetition + 1}")
            for clients in (1, _CLIENTS):
                processes = layout.processes
                alone = direct_load(job, bundle, search, texts, clients, seconds, processes)
                served_load = full_load(served.url, bodies, clients, seconds)
                for layer, load in ((direct, alone), (over_http, served_load)):
                    if clients == 1:
                        layer.single_ms.append(load.percentile(50))
                    else:
                        layer.rates.append(load.rate)
    return ServerResult(rate, answered, direct, over_http)


def server_markdown(
    command: str, machine: Machine, subject: str, plan: ServerPlan, result: ServerResult
) -> str:
    """The table of both systems, and the table of HTTP's overhead."""
    lines = [*head_lines(command, machine, subject), ""]
    lines += [
        f"{result.rate:.1f} requests/s for {plan.seconds:g} s, {SHARE:.0%} of what CTranslate2 "
        f"answers at most; latency in ms from the moment when a request is due, median of "
        f"{plan.repetitions} interleaved repetitions.",
        "",
    ]
    columns = [
        "system",
        "processes x workers x threads",
        "at most, requests/s",
        "p50",
        "p95 (min-max)",
        "p99",
    ]
    columns += [f"within {plan.target_ms:g} ms, requests/s", "failed", "generator CPU", "p95 ratio"]
    lines += table_head(columns)
    rival = next(each for each in result.answered if each.system == PEER_INT8).median(95)
    for each in result.answered:
        p95 = [load.percentile(95) for load in each.loads]
        goodput = statistics.median(load.goodput(plan.target_ms) for load in each.loads)
        cells = [each.system.name, str(each.layout), f"{each.saturation:.1f}"]
        cells += [
            f"{each.median(50):.0f}",
            f"{each.median(95):.0f} ({min(p95):.0f}-{max(p95):.0f})",
        ]
        cells += [
            f"{each.median(99):.0f}",
            f"{goodput:.1f}",
            str(sum(load.failed for load in each.loads)),
        ]
        cells += [f"{statistics.median(load.generator_cpu for load in each.loads):.0%}"]
        cells += [f"{rival / each.median(95):.2f}"]
        lines.append(table_line(cells))
    return "\n".join([*lines, "", *_layer_lines(result)])


def _layer_lines(result: ServerResult) -> list[str]:
    """HTTP's overhead for this engine."""
    columns = ["this engine, int8", "one at a time, p50 ms", f"{_CLIENTS} at once, requests/s"]
    lines = table_head(columns)
    direct, http = (
        (statistics.median(layer.single_ms), statistics.median(layer.rates))
        for layer in (result.direct, result.over_http)
    )
    for name, (single, rate) in (("scheduler alone", direct), ("over HTTP", http)):
        lines.append(table_line([name, f"{single:.2f}", f"{rate:.1f}"]))
    lines.append(table_line(["HTTP", f"+{http[0] - direct[0]:.2f}", f"{http[1] / direct[1]:.0%}"]))
    lines += ["", "Over HTTP the cores also run the clients."]
    return lines


def layouts(kind: str, cores: int) -> list[Layout]:
    """Layouts to try: one process with every thread setting, and one process per core, so that no
    Python interpreter waits for another."""
    tried = [Layout(1, setting) for setting in settings(kind, _CLIENTS, cores)]
    return [*tried, Layout(cores, Setting(1, 1))] if cores > 1 else tried


def texts_of(subject: DecodedModel, *, long_tail: bool = False) -> list[str]:
    """The texts of the requests; for a random model ids, spelt as words.

    All texts differ, because equal concurrent requests would be decoded once. With a `long_tail`,
    every twentieth text is six texts joined to one sentence.
    """
    joint = " "
    if subject.tokenizer is not None:
        texts, joint = [str(source) for source in subject.sources], ", "
    else:
        texts = [" ".join(id_token(int(i)) for i in source[:-1]) for source in subject.sources]
    texts = list(dict.fromkeys(texts))
    if not long_tail:
        return texts
    return [
        text if number % TAIL_EVERY else _joined(texts, number, joint)
        for number, text in enumerate(texts)
    ]


def _joined(texts: list[str], first: int, joint: str) -> str:
    """Join some consecutive texts into one sentence."""
    parts = [texts[(first + n) % len(texts)] for n in range(TAIL_TIMES)]
    return joint.join([*(part.rstrip(".!?… ") for part in parts[:-1]), parts[-1]])


def write_systems(subject: DecodedModel, folder: Path) -> Path:
    """Write the materials of both systems; returns the folder of this engine's bundle."""
    if subject.tokenizer is not None:
        write_materials(subject, SYSTEMS, folder)
        return folder / folder_name(OUR_INT8)
    write_materials(subject, [PEER_INT8], folder)
    bundle = folder / folder_name(OUR_INT8)
    bundle.mkdir()
    manifest = write_graphs(
        subject.model,
        bundle,
        name="bench",
        precision=OUR_INT8.precision,
        products=Products(static_ranges(subject)),
    )
    words = [id_token(number) for number in range(subject.model.config.vocab_size)]
    words[1], words[3] = UNK, EOS
    (bundle / _WORDS_FILE).write_text("".join(f"{word}\n" for word in words))
    tokenizer = TokenizerFiles(kind="words", source_file=_WORDS_FILE, target_file=_WORDS_FILE)
    source, target = _LANGUAGES
    languages = Languages(source=(source,), target=(target,))
    write_manifest(
        bundle, manifest.model_copy(update={"tokenizer": tokenizer, "languages": languages})
    )
    return bundle
