"""A language model in a GGUF file beside llama.cpp, which reads the same file.

llama.cpp runs the file unchanged, and the files that its own quantiser makes from it as Q4_0 and
Q8_0. All decode greedily, on the same ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.runs.rivals.turns import (
    RivalTurns,
    RivalWork,
    rivals_markdown,
    take_turns,
    versions_line,
)
from bench.systems.processes.repetitions import Progress
from bench.systems.processes.rivals import (
    ENGINE,
    Rival,
    RivalProcess,
    all_started,
    started,
)

LLAMA = "llama.cpp"
MADE = ("Q4_0", "Q8_0")
"""Quantised types that llama.cpp makes of the file."""
STREAMS, PROMPT, GENERATED, LONG = 8, 32, 128, 512
"""Streams at once; ids of a prompt, of an output, and of the long prompt."""


@dataclass(frozen=True)
class LanguageRivalsPlan:
    """The parameters of a comparison of language models with other products."""

    file: Path
    """The GGUF file of the model."""
    bundle: Path
    """The same model, imported."""
    texts: Sequence[str]
    """Texts from which the prompts are made."""
    pythons: Mapping[str, Path]
    """The Python of each rival's environment, by product."""
    repetitions: int
    threads: int
    generated: int = GENERATED


@dataclass(frozen=True)
class LanguageSystem:
    """The figures of a system that do not depend on the work."""

    system: str
    bytes: int
    """Size of the file, or of all files of the bundle."""
    peak_memory: int
    """Bytes, after all works."""
    perplexity: float
    """Perplexity of the long prompt."""
    equal: float | None
    """Number of generated tokens before the first that differs from ours, the mean over the
    streams; None if the streams were left out."""


@dataclass
class LanguageRivals:
    """The results of a comparison of language models with other products."""

    turns: list[RivalTurns] = field(default_factory=list)
    systems: list[LanguageSystem] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    versions: str = ""


def compare_language(plan: LanguageRivalsPlan, folder: Path, progress: Progress) -> LanguageRivals:
    """Time all works by all systems, in turns; llama.cpp's files are made in `folder`.

    Raises BenchError if the texts are too few for the prompts.
    """
    found = LanguageRivals()
    files = {plan.file.name: plan.file, **_made(plan, folder, progress, found.left_out)}
    paths = {ENGINE: plan.bundle, **{f"{LLAMA}, {name}": file for name, file in files.items()}}
    progress("loading the systems")
    with all_started(
        _rivals(paths, plan.threads), plan.pythons, plan.threads, found.left_out
    ) as processes:
        found.versions = versions_line(processes)
        streams, long = _prompts(processes[ENGINE], plan.texts)
        works = _works(streams, long, plan.generated)
        found.turns = take_turns(processes, works, plan.repetitions, progress, found.left_out)
        peaks = {name: process.peak_memory for name, process in processes.items()}
        progress("comparing the outputs")
        several = works[1]
        outputs = {turns.system: turns.result for turns in found.turns if turns.work is several}
        for name, process in processes.items():
            own = outputs.get(name)
            found.systems.append(
                LanguageSystem(
                    system=name,
                    bytes=_size(paths[name]),
                    peak_memory=peaks[name],
                    perplexity=math.exp(process.ask("loss", ids=long).result),
                    equal=None if own is None else equal_until(own, outputs[ENGINE]),
                )
            )
    return found


def equal_until(outputs: Sequence[Sequence[int]], ours: Sequence[Sequence[int]]) -> float:
    """Ids of each output before the first that differs from ours, the mean over outputs."""
    counts = []
    for output, own in zip(outputs, ours, strict=True):
        pairs = enumerate(zip(output, own, strict=False))
        counts.append(next((n for n, (a, b) in pairs if a != b), min(len(output), len(own))))
    return sum(counts) / len(counts)


def _rivals(paths: Mapping[str, Path], threads: int) -> list[Rival]:
    """This engine on its bundle, and llama.cpp on each file."""
    ours, *theirs = paths.items()
    (name, bundle), made = ours, {"threads": threads}
    return [
        Rival(name, ENGINE, "engine", "EngineLanguage", {"bundle": str(bundle), **made}),
        *(
            Rival(name, LLAMA, "languages", "LlamaCpp", {"file": str(file), **made})
            for name, file in theirs
        ),
    ]


def _made(
    plan: LanguageRivalsPlan, folder: Path, progress: Progress, left_out: dict[str, str]
) -> dict[str, Path]:
    """The file in llama.cpp's other forms, if llama.cpp is installed."""
    progress(f"{LLAMA} makes {' and '.join(MADE)}")
    files = {kind: folder / f"{kind}.gguf" for kind in MADE}
    rival = Rival(LLAMA, LLAMA, "languages", "LlamaQuantiser")
    try:
        with started(rival, plan.pythons.get(LLAMA), plan.threads) as quantiser:
            for kind, file in files.items():
                quantiser.ask(
                    "quantise",
                    source=str(plan.file),
                    target=str(file),
                    kind=kind,
                    threads=plan.threads,
                )
    except BenchError as error:
        left_out[f"{LLAMA}, {' and '.join(MADE)}"] = str(error).removeprefix(f"{LLAMA}: ")
        return {}
    return files


def _prompts(engine: RivalProcess, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
    """The prompts of the streams, each the beginning of a text, and the long one, of further
    texts."""
    found = [engine.ask("tokenize", text=text).result for text in texts]
    long_enough = [ids for ids in found if len(ids) >= PROMPT]
    streams = [ids[:PROMPT] for ids in long_enough[:STREAMS]]
    long: list[int] = list(chain.from_iterable(long_enough[STREAMS:]))[:LONG]
    if len(streams) < STREAMS or len(long) < LONG:
        raise BenchError(
            f"--texts must have {STREAMS} texts of at least {PROMPT} ids and further ones with "
            f"{LONG} ids together, got {len(streams)} and {len(long)} ids"
        )
    return streams, long


def _works(streams: list[list[int]], long: list[int], generated: int) -> list[RivalWork]:
    def work(name: str, prompts: list[list[int]], tokens: int, amount: int) -> RivalWork:
        return RivalWork(name, "generate", {"prompts": prompts, "tokens": tokens}, amount)

    return [
        work("one stream", streams[:1], generated, generated),
        work(f"{STREAMS} streams", streams, generated, STREAMS * generated),
        work(f"prompt of {LONG}", [long], 1, LONG),
    ]


def _size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def language_rivals_markdown(
    command: str, machine: Machine, plan: LanguageRivalsPlan, found: LanguageRivals
) -> str:
    """Format two tables: speeds by work, and the figures that do not depend on the work."""
    subject = (
        f"{plan.file.name}, greedy; prompts of {PROMPT} ids, {plan.generated} generated; "
        f"{plan.threads} thread{'s' if plan.threads > 1 else ''}; median of {plan.repetitions}, in "
        "turns. The tokens of a prompt are those that it has."
    )
    head = [*head_lines(command, machine, subject), "", found.versions]
    rest = _systems_lines(found.systems)
    return rivals_markdown(head, found.turns, "tokens", rest, found.left_out)


def _systems_lines(systems: Sequence[LanguageSystem]) -> Iterator[str]:
    columns = ["system", "file, MB", "peak memory, MiB", f"perplexity of {LONG} ids"]
    yield from table_head([*columns, "tokens equal to ours, of an output"])
    for each in systems:
        yield table_line(
            [
                each.system,
                f"{each.bytes / 1e6:.0f}",
                f"{each.peak_memory / 2**20:.0f}",
                f"{each.perplexity:.2f}",
                "" if each.equal is None else f"{each.equal:.1f}",
            ]
        )
