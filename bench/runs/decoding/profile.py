"""`python -m bench profile`: shows where decoding spends its time.

Calls of this engine are run twice: first with clocks around the encoder, the step graph and the
moves of cache slots, then with ONNX Runtime's profiler. The profiler's shares of operators are
applied to the step graph's time of the first pass, because profiling makes small operators look
slower than they are.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.reports.report import Machine, head_lines, table_line
from bench.subjects.job import read_id_manifest
from bench.subjects.materials import DecodedModel, folder_name, write_materials
from bench.subjects.scenarios import OUR_INT8, OUR_SHORTLIST, sentences_per_repetition, spread_rows
from serving.arrays import Floats, Int32s
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.search.prefix_tree import Repack
from serving.search.stepper import (
    BeamArrays,
    BoundSteps,
    State,
    StepInputs,
    StepOutputs,
    Stepper,
)

_PARTS = {
    "matrix products": (
        "MatMulIntegerToFloat",
        "BiasedProduct",
        "WideProduct",
        "BiasedWideProduct",
        "TiedProduct",
        "BiasedTiedProduct",
        "TiedWideProduct",
        "BiasedTiedWideProduct",
        "MatMul",
        "Gemm",
        "FusedMatMul",
        "MatMulNBits",
        "ShortlistLogits",
        "ShortlistLogitsInteger",
        "BiasedShortlistLogits",
        "BiasedShortlistLogitsInteger",
    ),
    "rounding to int8": (
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "DequantizeLinear",
        "QuantizeRows",
        "QuantizeReluRows",
        "QuantizeRowsTwice",
        "QuantizeReluRowsTwice",
    ),
    "attention": (
        "Attention",
        "Softmax",
        *(
            f"{kind}Attention{rounded}"
            for kind in ("Tree", "BiasedTree", "RelativeTree", "Masked", "Packed")
            for rounded in ("", "Quantize", "QuantizeRows")
        ),
    ),
    "writing to the caches": ("TensorScatter",),
    "residuals, norms, activations": (
        "Add",
        "LayerNormalization",
        "Relu",
        "Mul",
        "Gelu",
        "AddNormQuantize",
        "AddNormQuantizeRows",
        "AddPostNorm",
        "AddPostNormQuantize",
        "AddPostNormQuantizeRows",
        "GeluQuantize",
        "GeluQuantizeRows",
    ),
    "choosing candidates": (
        "LogSoftmax",
        "TopK",
        "ReduceMax",
        "GatherElements",
        "Div",
        "Mod",
        "ArgMax",
        "Candidates",
        "ShortlistCandidates",
    ),
}
"""Operators by part. The others change layouts, look up embeddings or compute positions."""
_OTHER = "layouts, embedding, positions"


@dataclass
class Clocks:
    """Seconds and calls of the parts of decoding."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start
            self.calls[part] += 1


@dataclass(frozen=True)
class Profile:
    """Milliseconds of one step of a batch, and their parts."""

    step_ms: float
    """Total time of decoding divided by the number of steps."""
    outside_ms: dict[str, float]
    """Parts outside the step graph; the encoder's time is divided among the steps too."""
    graph_ms: dict[str, float]
    """Parts of the step graph."""
    operators: dict[str, int]
    """Number of operators of each part in the graph."""
    steps: int


def profile_decoding(
    subject: DecodedModel, batch: int, beam_size: int, repetitions: int, *, shortlist: bool
) -> Profile:
    """Profile int8 decoding on one thread, in calls of `batch` sentences; the results are
    medians."""
    system = OUR_SHORTLIST if shortlist else OUR_INT8
    options = SearchOptions(
        beam_size=beam_size,
        max_length=subject.max_length,
        loop_guard=False,
        verify=False,
        shortlist=shortlist,
    )
    calls = _calls(subject, batch, options)
    with tempfile.TemporaryDirectory(prefix="macaron-bench-") as name:
        folder = Path(name)
        write_materials(subject, [system], folder)
        place = folder / folder_name(system)
        manifest = _manifest(subject, place)
        load = ShortlistStepper if shortlist else OnnxStepper
        stepper = _Clocked(load(place, manifest, 1))
        runs = []
        for _ in range(repetitions + 1):
            stepper.clocks = Clocks()
            start = time.perf_counter()
            for call in calls:
                decode(stepper, call)
            runs.append((time.perf_counter() - start, stepper.clocks))
        profiled = load(place, manifest, 1, profile_prefix=folder / "profile")
        for call in calls:
            decode(profiled, call)
        del profiled  # writes the profile
        (profile,) = folder.glob("profile*")
        shares, operators = _shares(profile)
    steps = runs[0][1].calls["step"]

    def median_ms(part: str) -> float:
        return statistics.median(clocks.seconds[part] for _, clocks in runs[1:]) / steps * 1e3

    step_ms = statistics.median(seconds for seconds, _ in runs[1:]) / steps * 1e3
    outside = {"encoder": median_ms("encode"), "moves of cache slots": median_ms("repack")}
    graph_ms = median_ms("step")
    outside["search and bookkeeping"] = step_ms - graph_ms - sum(outside.values())
    return Profile(
        step_ms,
        outside,
        {part: share * graph_ms for part, share in shares.items()},
        operators,
        steps,
    )


def profile_markdown(command: str, machine: Machine, subject: str, found: Profile) -> str:
    """The table of one run."""
    lines = [*head_lines(command, machine, subject), ""]
    lines += [table_line(["part", "operators", "ms/step", "share"]), "| --- | ---: | ---: | ---: |"]
    rows = [
        (f"step graph: {part}", found.operators[part], ms) for part, ms in found.graph_ms.items()
    ]
    rows.sort(key=lambda row: -row[2])
    for name, count, ms in [*rows, *((name, 0, ms) for name, ms in found.outside_ms.items())]:
        share = f"{ms / found.step_ms:.0%}"
        lines.append(table_line([name, str(count or ""), f"{ms:.3f}", share]))
    total = sum(found.operators.values())
    lines.append(table_line(["a whole step", str(total), f"{found.step_ms:.3f}", "100%"]))
    lines += [
        "",
        f"One thread, {found.steps} steps a repetition; the encoder's time is spread over them.",
    ]
    return "\n".join(lines)


class _Clocked:
    """A stepper that records the duration of each of its calls."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper, self.clocks = stepper, Clocks()
        self.repack_every, self.most_states = stepper.repack_every, stepper.most_states
        self.reach, self.lookback = stepper.reach, stepper.lookback
        self.spare_slots = stepper.spare_slots
        self.cache_bytes = stepper.cache_bytes
        self.one_query_first = stepper.one_query_first
        self.prefill, self.extend, self.free = stepper.prefill, stepper.extend, stepper.free

    def encode(self, sources: Sequence[Sequence[int]]) -> State:
        with self.clocks.time("encode"):
            return self._stepper.encode(sources)

    def step(
        self,
        state: State,
        inputs: StepInputs,
        *,
        want_logits: bool,
        attention_rows: Sequence[int] = (),
    ) -> StepOutputs:
        with self.clocks.time("step"):
            return self._stepper.step(
                state, inputs, want_logits=want_logits, attention_rows=attention_rows
            )

    def bind(self, state: State, beams: BeamArrays) -> BoundSteps | None:
        steps = self._stepper.bind(state, beams)
        return None if steps is None else _ClockedSteps(steps, self)

    def repack(self, state: State, repack: Repack) -> None:
        with self.clocks.time("repack"):
            self._stepper.repack(state, repack)

    def trim(self, state: State, source_length: int) -> None:
        with self.clocks.time("repack"):
            self._stepper.trim(state, source_length)


class _ClockedSteps:
    """Bound steps of a stepper, with clocks around them."""

    def __init__(self, steps: BoundSteps, stepper: _Clocked) -> None:
        self._steps, self._stepper = steps, stepper
        self.grow, self.plan, self.move = steps.grow, steps.plan, steps.move
        self.choose, self.is_current = steps.choose, steps.is_current

    @property
    def found(self) -> tuple[Floats, Int32s, Int32s]:
        return self._steps.found

    def run(self) -> None:
        with self._stepper.clocks.time("step"):
            self._steps.run()

    def go_on(self, place: int, most: int) -> tuple[int, bool]:
        """Steps in a row; the moves of the beams between them count as the step graph's."""
        with self._stepper.clocks.time("step"):
            gone, waiting = self._steps.go_on(place, most)
        self._stepper.clocks.calls["step"] += gone + waiting - 1
        return gone, waiting

    def pack(self) -> None:
        with self._stepper.clocks.time("repack"):
            self._steps.pack()


def _calls(subject: DecodedModel, batch: int, options: SearchOptions) -> list[list[Sentence]]:
    """Sentences in calls of equal size."""
    rows = spread_rows(sentences_per_repetition(batch, forced=subject.forced), len(subject.sources))
    sentences = [Sentence(subject.ids(subject.sources[row]), options) for row in rows]
    return [sentences[start : start + batch] for start in range(0, len(sentences), batch)]


def _manifest(subject: DecodedModel, place: Path) -> Manifest:
    if subject.tokenizer is not None:
        return read_manifest(place)
    return read_id_manifest(str(place))


def _shares(profile: Path) -> tuple[dict[str, float], dict[str, int]]:
    """The share of the graph's time and the number of operators, by part."""
    seconds: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for event in json.loads(profile.read_text()):
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            operator = event["args"]["op_name"]
            part = next((p for p, operators in _PARTS.items() if operator in operators), _OTHER)
            seconds[part] += event["dur"]
            nodes.setdefault(part, set()).add(event["name"])
    total = sum(seconds.values())
    shares = {part: value / total for part, value in seconds.items()}
    return shares, {part: len(names) for part, names in nodes.items()}
