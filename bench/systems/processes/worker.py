"""A process for each system and thread setting, which lives as long as the run.

So each system has its own threads and memory, and repetitions of several systems can be
interleaved. Parent and worker exchange lines of JSON; the worker measures the time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine.gpu import used_memory
from bench.machine.memory import peak_rss
from bench.machine.processor import child_environment
from bench.subjects.job import BenchJob, LoadedSystem, Search, Sources, SystemOutput
from bench.subjects.scenarios import SLOT_BEAM, SLOT_STEPS, Scenario
from bench.systems.by_kind import load
from bench.systems.processes.conversation import Conversation
from serving.errors import ServingError

_ROOT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder from which this package is imported: the repository, or site-packages."""


@dataclass(frozen=True)
class RepetitionTime:
    """The cost of one repetition of a scenario."""

    seconds: float
    sentences: int
    tokens: int
    """Generated tokens of the best outputs, without eos."""
    peak_memory: int
    """Peak memory of the process since its start, in bytes; on a GPU, of the GPU's memory."""


@dataclass(frozen=True)
class SlotCount:
    """Cache slots of one sentence."""

    slots: int
    """Largest number in use at a time."""
    source_length: int
    """Ids of the sentence's source, eos included."""


class Worker:
    """The parent's end. Use it in a `with` statement: leaving ends the process."""

    def __init__(self, name: str, job: BenchJob, sources: Sources) -> None:
        """Start the process and wait until its model is loaded."""
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        self._conversation = Conversation(
            name,
            [sys.executable, "-m", __name__],
            {**child_environment(job.precision), **_on_device(job), "PYTHONPATH": path},
        )
        try:
            self._ask(job=asdict(job), sources=list(sources))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; unanswered requests are lost."""
        self._conversation.close()

    def measure(self, scenario: Scenario, max_length: int, rows: Sequence[int]) -> RepetitionTime:
        """Time calls on the sources with these indices."""
        answer = self._ask(do="measure", **asdict(scenario), max_length=max_length, rows=list(rows))
        return RepetitionTime(**answer)

    def outputs(self, scenario: Scenario, max_length: int) -> list[SystemOutput]:
        """Outputs of all sources, with scores."""
        answer = self._ask(do="outputs", **asdict(scenario), max_length=max_length)
        return [
            SystemOutput(tuple(tokens), score, text) for tokens, score, text in answer["outputs"]
        ]

    def slots(self, rows: Sequence[int]) -> dict[int, list[SlotCount]]:
        """Cache slots that each sentence has needed after each number of steps."""
        answer = self._ask(do="slots", rows=list(rows))
        return {
            int(step): [SlotCount(*count) for count in counts]
            for step, counts in answer["slots"].items()
        }

    def products(
        self, scenario: Scenario, max_length: int, rows: Sequence[int], repetitions: int
    ) -> list[float]:
        """Seconds of only the int8 products of the same calls, in each repetition.

        For this engine on ids only, and for outputs that all have the longest length.
        """
        answer = self._ask(
            do="products",
            **asdict(scenario),
            max_length=max_length,
            rows=list(rows),
            repetitions=repetitions,
        )
        seconds: list[float] = answer["seconds"]
        return seconds

    def _ask(self, **request: Any) -> dict[str, Any]:
        return self._conversation.ask(request)


def _on_device(job: BenchJob) -> dict[str, str]:
    """Settings with which this engine runs a job's graphs on the named device."""
    if job.device == "cpu":
        return {}
    return {
        "MACARON_DEVICE": job.device,
        "MACARON_CUDA_GRAPHS": "on" if job.graphs else "off",
        "MACARON_CUDA_STREAMS": str(job.streams),
    }


class _Memory:
    """Memory of the system's device, while no other system works."""

    def __init__(self, device: str) -> None:
        self._device, self._held = device, 0
        self._before = 0 if device == "cpu" else used_memory()

    def begin(self) -> None:
        """Note the present use, which other processes may have changed."""
        if self._device != "cpu":
            self._before = used_memory()

    def peak(self) -> int:
        """Peak memory in bytes so far; libraries keep what they once allocated on a GPU."""
        if self._device == "cpu":
            return peak_rss()
        now = used_memory()
        self._held += now - self._before
        self._before = now
        return self._held


def _calls(sources: list[Any], request: dict[str, Any]) -> list[list[Any]]:
    """The chosen sources as calls of one batch each."""
    rows, batch = request["rows"], request["batch"]
    chosen = [sources[row] for row in rows]
    return [chosen[start : start + batch] for start in range(0, len(rows), batch)]


def _measure(system: LoadedSystem, sources: list[Any], request: dict[str, Any]) -> dict[str, Any]:
    search = Search(request["beam_size"], request["max_length"], request["top_k"])
    calls = _calls(sources, request)
    seconds, tokens = 0.0, 0
    for call in calls:
        start = time.perf_counter()
        results = system.call(call, search)
        seconds += time.perf_counter() - start
        tokens += sum(len(output.tokens) for output in system.outputs(results))
    sentences = sum(map(len, calls))
    return {"seconds": seconds, "sentences": sentences, "tokens": tokens}


def _outputs(system: LoadedSystem, sources: list[Any], request: dict[str, Any]) -> dict[str, Any]:
    search = Search(request["beam_size"], request["max_length"], request["top_k"])
    outputs: list[SystemOutput] = []
    for start in range(0, len(sources), request["batch"]):
        outputs += system.scored(sources[start : start + request["batch"]], search)
    return {"outputs": [(o.tokens, o.score, o.text) for o in outputs]}


def _slots(system: Any, sources: list[Any], request: dict[str, Any]) -> dict[str, Any]:
    """Beam search that cannot end before the last requested step."""
    from serving.search.beams.beam import BeamSearch
    from serving.search.beams.sentence import Sentence
    from serving.search.options import SearchOptions
    from serving.translation.ticket import Request

    steps = max(SLOT_STEPS)
    chosen = [sources[row] for row in request["rows"]]
    options = SearchOptions(
        beam_size=SLOT_BEAM,
        min_length=steps if isinstance(chosen[0], str) else 0,  # random models do not end
        max_length=steps + 1,
        loop_guard=False,
        verify=False,
    )
    sentences = [
        system.translator.texts.prepare(Request(text=source, options=options))
        if isinstance(source, str)
        else Sentence(source, options)
        for source in chosen
    ]
    prepared = [sentence for sentence in sentences if sentence]
    search = BeamSearch(system.stepper, prepared)
    counts: dict[int, list[tuple[int, int]]] = {}
    for step in range(1, steps + 1):
        search.step(most=1)
        if step in SLOT_STEPS:
            peaks = search.peak_slots.items()
            counts[step] = [(peak, len(prepared[index].source)) for index, peak in peaks]
    return {"slots": counts}


def _products(system: Any, sources: list[Any], request: dict[str, Any]) -> dict[str, Any]:
    from bench.machine.roofline import time_products

    seconds = time_products(
        Path(system.job.folder),
        system.manifest,
        _calls(sources, request),
        Search(request["beam_size"], request["max_length"]).options(),
        workers=system.job.workers,
        threads=system.job.threads,
        repetitions=request["repetitions"],
    )
    return {"seconds": seconds}


_VERBS = {"measure": _measure, "outputs": _outputs, "slots": _slots, "products": _products}


def main() -> None:
    """The worker's end: load, then answer requests until stdin ends."""
    # Libraries may write to stdout; the answers must not mix with that.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    first = json.loads(sys.stdin.readline())
    job = BenchJob(**first["job"])
    try:
        memory = _Memory(job.device)
        system = load(job)
        sources = system.prepare(first["sources"])
        if job.device != "cpu":  # some systems notice a missing library only at the first call
            system.call(sources[:1], Search(beam_size=1, max_length=2))
        memory.peak()
    except (BenchError, ServingError, RuntimeError, ValueError, OSError) as error:
        print(json.dumps({"error": str(error)}), file=answers, flush=True)
        return
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        memory.begin()
        try:
            answer = _VERBS[request["do"]](system, sources, request)
            answer["peak_memory"] = memory.peak()
        except (ServingError, RuntimeError, ValueError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
