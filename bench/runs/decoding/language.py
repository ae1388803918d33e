"""`python -m bench language`: generation beside rivals, long contexts, long outputs."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.errors import BenchError
from bench.machine.memory import current_rss
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.subjects.job import ID_MANIFEST, BenchJob, id_token
from bench.subjects.language_models import (
    convert_language_model,
    random_language_model,
    random_prompts,
    write_gpu_graphs,
    write_int8_graphs,
)
from bench.subjects.materials import folder_name
from bench.subjects.models import save_model
from bench.subjects.scenarios import Scenario, Setting, System, settings
from bench.systems.processes.repetitions import Measured, Progress, best, repeat
from bench.systems.processes.worker import Worker
from export.graphs.writing import write_language_graphs
from serving.runtime.language_stepper import LanguageStepper
from serving.search.sampling.batch import GenerationBatch, SampledOutput
from serving.search.sampling.drawing import Uniforms
from serving.search.sampling_options import GenerationOptions
from training.models import CausalLanguageModel
from training.models.configs.language_model import ATTENTIONS

EAGER = System("PyTorch eager", "lm-eager", "fp32")
OUR_FP32 = System("this engine", "lm-onnx", "fp32")
OUR_INT8 = System("this engine", "lm-onnx", "int8")
PEER_FP32 = System("CTranslate2", "lm-ctranslate2", "float32")
PEER_INT8 = System("CTranslate2", "lm-ctranslate2", "int8")
GPU_EAGER = System("PyTorch eager", "lm-eager", "fp16", device="cuda")
GPU_FP16 = System("this engine", "lm-onnx", "fp16", device="cuda")
GPU_FP16_GRAPHS = replace(GPU_FP16, graphs=True)
GPU_BF16_GRAPHS = replace(GPU_FP16_GRAPHS, precision="bf16")
GPU_PEER = System("CTranslate2", "lm-ctranslate2", "float16", device="cuda")
SYSTEMS = {
    "cpu": (EAGER, OUR_FP32, OUR_INT8, PEER_FP32, PEER_INT8),
    "cuda": (GPU_EAGER, GPU_FP16, GPU_FP16_GRAPHS, GPU_BF16_GRAPHS, GPU_PEER),
}
"""The compared systems by device."""
RIVALS = {"cpu": (EAGER, PEER_INT8), "cuda": (GPU_EAGER, GPU_PEER)}
"""The systems relative to which the table gives all speeds."""
MAY_BE_MISSING = (GPU_PEER,)
"""The system whose GPU library exists only for some versions of CUDA."""
GENERATED = 64
"""Tokens per output in the comparison with rivals."""
PROMPT_VOCABULARY = 8000
"""Prompts use ids below this, which every size has."""
MILESTONES = (1_000, 10_000, 100_000)
_PROMPTS = 64
_LONG_STEPS = 32


@dataclass(frozen=True)
class ContextTime:
    """Steps of one kind of attention after a long prompt."""

    attention: str
    precision: str
    threads: int
    milliseconds: list[float]
    """Time of a step of the whole batch, one entry per repetition."""
    cache_bytes: int
    """Bytes of the caches of the whole batch."""


@dataclass
class Compared:
    """Whole calls of the systems of one device."""

    device: str
    measured: list[Measured] = field(default_factory=list)
    left_out: dict[System, str] = field(default_factory=dict)
    """Systems that could not be loaded on this machine, with the reason."""

    def there(self, systems: Sequence[System]) -> list[System]:
        """The systems that are not left out."""
        return [system for system in systems if system not in self.left_out]


@dataclass(frozen=True)
class Milestone:
    """The cost of a long output up to a number of tokens."""

    steps: int
    ms_per_token: float
    """Median of the last 1,000 steps."""
    rss: int
    """Resident memory of the process in bytes."""
    slots: int
    """Number of slots that the cache has room for."""


def compare_rivals(
    preset: str,
    seed: int,
    scenarios: Sequence[Scenario],
    repetitions: int,
    cores: int,
    progress: Progress,
    device: str = "cpu",
    systems: Sequence[System] = (),
) -> Compared:
    """Whole calls of `systems` with `GENERATED` tokens per output and full attention. The default
    is all systems of a device (`cpu`, `cuda`)."""
    systems = systems or SYSTEMS[device]
    model = random_language_model(preset, "full", seed)
    prompts = random_prompts(model.config.vocab_size, _PROMPTS, seed)
    found = Compared(device)
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        progress("exporting and converting the model")
        for system in systems:
            _write(model, system, folder)
        workers: dict[tuple[System, Setting], Worker] = {}
        for scenario in scenarios:
            chosen = [
                (system, setting)
                for system in systems
                for setting in _settings(system, scenario.batch, cores)
            ]
            for system, setting in chosen:
                if system in found.left_out or (system, setting) in workers:
                    continue
                label = f"{system.name}, {setting} threads"
                progress(f"loading {label}")
                job = _job(system, setting, folder)
                try:
                    worker = Worker(label, job, prompts)
                except BenchError as error:
                    if system not in MAY_BE_MISSING:
                        raise
                    found.left_out[system] = str(error)
                    continue
                workers[system, setting] = stack.enter_context(worker)
            found.measured += repeat(
                scenario,
                {key: workers[key] for key in chosen if key in workers},
                repetitions,
                [n % _PROMPTS for n in range(max(8, 2 * scenario.batch))],
                GENERATED,
                progress,
                forced=True,
            )
    return found


def time_context(
    preset: str,
    seed: int,
    *,
    batch: int,
    context: int,
    repetitions: int,
    cores: int,
    progress: Progress,
) -> list[ContextTime]:
    """Milliseconds of a step after `context` tokens, full and light attention, int8.

    All rows continue one prompt, each with different tokens. Every thread setting is tried.
    """
    prompt = random_prompts(PROMPT_VOCABULARY, 1, seed)[0]
    prompt = [prompt[0], *(prompt[1:] * context)[: context - 1]]
    found = []
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name:
        for attention in ATTENTIONS:
            model = random_language_model(preset, attention, seed)
            folder = Path(name) / attention
            folder.mkdir()
            manifest = write_int8_graphs(model, folder)
            for threads in sorted({1, cores}):
                progress(f"{attention}, {context} tokens of context, {threads} threads")
                stepper = LanguageStepper(folder, manifest, threads)
                running = GenerationBatch(stepper)
                running.add([_row(n, prompt) for n in range(batch)])
                running.step()
                times = []
                for _ in range(repetitions):
                    start = time.perf_counter()
                    for _ in range(_LONG_STEPS):
                        running.step()
                    times.append((time.perf_counter() - start) / _LONG_STEPS * 1000)
                slots = running.capacity
                running.close()
                size = stepper.cache_bytes(batch, 0, slots) // 2
                found.append(ContextTime(attention, "int8", threads, times, size))
    return found


def time_long_output(
    preset: str, attention: str, seed: int, steps: int, cores: int, progress: Progress
) -> list[Milestone]:
    """Measure time and memory during one output of `steps` tokens at batch 1."""
    model = random_language_model(preset, attention, seed)
    found = []
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name:
        manifest = write_int8_graphs(model, Path(name))
        del model
        stepper = LanguageStepper(Path(name), manifest, cores)
        batch = GenerationBatch(stepper)
        batch.add([_row(0, random_prompts(PROMPT_VOCABULARY, 1, seed)[0])])
        last: list[float] = []
        for step in range(1, steps + 1):
            start = time.perf_counter()
            batch.step()
            last.append(time.perf_counter() - start)
            del last[:-1000]
            if step in MILESTONES or step == steps:
                progress(f"{step} steps")
                milliseconds = statistics.median(last) * 1000
                found.append(Milestone(step, milliseconds, current_rss(), batch.capacity))
        batch.close()
    return found


def rivals_markdown(command: str, machine: Machine, subject: str, found: Compared) -> str:
    """`compare_rivals` as Markdown: a row per scenario and system, with speeds relative to the
    rivals."""
    lines = [*head_lines(command, machine, subject), ""]
    columns = ["batch", "top-k", "system", "workers x threads", "ms/output (min-max)", "tokens/s"]
    rivals = found.there(RIVALS[found.device])
    columns += ["peak RSS, MiB" if found.device == "cpu" else "GPU memory, MiB"]
    columns += [f"speed / {_short(rival)}" for rival in rivals]
    kinds = ["---:", "---:", "---", "---", *["---:"] * (len(columns) - 4)]
    lines += [table_line(columns), table_line(kinds)]
    for scenario in dict.fromkeys(measured.scenario for measured in found.measured):
        systems = found.there(SYSTEMS[found.device])
        fastest = {system: best(found.measured, system, scenario) for system in systems}
        for system, measured in fastest.items():
            times = measured.ms_per_sentence
            lines.append(
                table_line(
                    [
                        str(scenario.batch),
                        "greedy" if scenario.top_k == 1 else str(scenario.top_k),
                        system.name,
                        str(measured.setting),
                        f"{measured.median:.1f} ({min(times):.1f}-{max(times):.1f})",
                        f"{measured.tokens_per_second:.0f}",
                        f"{measured.peak_memory / 2**20:.0f}",
                        *(f"{fastest[r].median / measured.median:.2f}" for r in rivals),
                    ]
                )
            )
    if found.left_out:
        lines.append("")
    lines += [f"{system.name} is left out: {reason}." for system, reason in found.left_out.items()]
    return "\n".join(lines)


def context_markdown(
    command: str, machine: Machine, subject: str, batch: int, found: Sequence[ContextTime]
) -> str:
    """`time_context` as Markdown: a row per context length, with the best run of each attention."""
    best = {
        attention: min(
            (f for f in found if f.attention == attention),
            key=lambda f: statistics.median(f.milliseconds),
        )
        for attention in ATTENTIONS
    }
    full = statistics.median(best["full"].milliseconds)
    lines = [*head_lines(command, machine, subject), ""]
    columns = ["attention", "threads", "ms/step (min-max)", "tokens/s", "cache, MiB"]
    columns += ["speed / full"]
    lines += table_head(columns)
    for attention, time_ in best.items():
        times = time_.milliseconds
        median = statistics.median(times)
        lines.append(
            table_line(
                [
                    attention,
                    str(time_.threads),
                    f"{median:.1f} ({min(times):.1f}-{max(times):.1f})",
                    f"{1000 * batch / median:.0f}",
                    f"{time_.cache_bytes / 2**20:.3g}",
                    f"{full / median:.1f}",
                ]
            )
        )
    return "\n".join(lines)


def long_markdown(command: str, machine: Machine, subject: str, found: Sequence[Milestone]) -> str:
    """`time_long_output` as Markdown: time and memory by number of steps, which should not grow."""
    lines = [*head_lines(command, machine, subject), ""]
    columns = ["steps", "ms/token (median of the last 1,000)", "RSS, MiB", "cache slots"]
    lines += [table_line(columns), table_line(["---:"] * 4)]
    lines += [
        table_line([f"{m.steps:,}", f"{m.ms_per_token:.3f}", f"{m.rss / 2**20:.1f}", str(m.slots)])
        for m in found
    ]
    return "\n".join(lines)


def _row(key: int, prompt: list[int]) -> SampledOutput:
    options = GenerationOptions(max_length=10**6, sampling_top_k=10)
    return SampledOutput(key, prompt, options, Uniforms(1, key))


def _plain(system: System) -> str:
    return system.kind.removeprefix("lm-")


def _short(rival: System) -> str:
    """A rival's name in a column header."""
    return rival.engine if _plain(rival) == "eager" else f"{rival.engine} {rival.precision}"


def _settings(system: System, batch: int, cores: int) -> list[Setting]:
    return [Setting(1, 1)] if system.on_gpu else settings(_plain(system), batch, cores)


def _job(system: System, setting: Setting, folder: Path) -> BenchJob:
    return BenchJob(
        system.kind,
        str(folder / folder_name(system)),
        system.precision,
        workers=setting.workers,
        threads=setting.threads,
        tokenizer_file=None,
        device=system.device,
        graphs=system.graphs,
    )


def _write(model: CausalLanguageModel, system: System, folder: Path) -> None:
    place = folder / folder_name(system)
    if place.exists():  # with and without CUDA graphs
        return
    if system.kind == "lm-eager":
        save_model(model, place)
    elif system.kind == "lm-ctranslate2":
        vocabulary = [id_token(token_id) for token_id in range(model.config.vocab_size)]
        convert_language_model(model, vocabulary, place, system.precision)
    else:
        place.mkdir()
        if system.precision == "int8":
            manifest = write_int8_graphs(model, place)
        elif system.on_gpu:
            manifest = write_gpu_graphs(model, place, system.precision)
        else:
            manifest = write_language_graphs(model, place, name="bench", precision="fp32")
        (place / ID_MANIFEST).write_text(manifest.model_dump_json())
