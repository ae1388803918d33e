"""What is measured: shapes, batches and beams, systems and their thread settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "demo": ("transformer_small", {}),
    "demo-6-2": ("transformer_small_6_2", {}),
    "demo-12-1": ("transformer_small_12_1", {}),
    "base": ("transformer_base", {}),
    "opus-mt": ("transformer_base", {"vocab_size": 58101}),
    "m2m100": (
        "transformer_big",
        {"vocab_size": 128112, "num_encoder_layers": 3, "num_decoder_layers": 3},
    ),
    "iwslt": ("transformer_iwslt_small", {}),
    "joint-small": ("joint_fast_small", {}),
    "iwslt-joint-base": ("joint_base_iwslt", {}),
    "iwslt-joint-fast": ("joint_fast_iwslt", {}),
    "tiny": ("transformer_tiny", {}),
    "joint-tiny": ("joint_fast_tiny", {}),
}
"""Presets and what is changed of them, by shape. `opus-mt` is as large as models of OPUS-MT are;
`m2m100` is as wide and has as many pieces as M2M100's of 418 M parameters, and a quarter of its
layers: the systems that are compared lie in memory side by side; the tiny
ones are for tests."""
FORCED_LENGTH = 25
"""Tokens of every output of a random model."""
MAX_LENGTH = 256
"""Tokens generated at most for real sentences, eos included; CTranslate2's default."""
SLOT_STEPS = (25, 50, 100)
SLOT_BEAM = 5
LEAST_IDENTICAL = 0.99
"""Share of real sentences that must come out as the rival's, on the same fp32 weights."""


@dataclass(frozen=True)
class System:
    """One engine at one precision."""

    engine: str
    kind: str
    """`eager`, `compiled`, `onnx` or `ctranslate2`."""
    precision: str
    """As the engine calls it."""
    shortlist: bool = False
    """Whether it chooses from a vocabulary shortlist."""
    device: str = "cpu"
    """`cpu`, `cuda`, or `tensorrt`, which is this engine's other way to run on a GPU."""
    graphs: bool = False
    """Whether steps are captured as CUDA graphs."""
    streams: int = 1
    """Batches of a call that a GPU computes at once."""

    @property
    def name(self) -> str:
        """As the rows of tables name the system."""
        also = [
            word
            for word, true in (
                ("shortlist", self.shortlist),
                ("TensorRT", self.device == "tensorrt"),
                ("CUDA graphs", self.graphs),
                (f"{self.streams} streams", self.streams > 1),
            )
            if true
        ]
        return ", ".join([self.engine, self.precision, *also])

    @property
    def on_gpu(self) -> bool:
        """Whether it computes on a GPU."""
        return self.device != "cpu"


EAGER = System("PyTorch eager", "eager", "fp32")
COMPILED = System("PyTorch compiled", "compiled", "fp32")
OUR_FP32 = System("this engine", "onnx", "fp32")
OUR_INT8 = System("this engine", "onnx", "int8")
PEER_FP32 = System("CTranslate2", "ctranslate2", "float32")
PEER_INT8 = System("CTranslate2", "ctranslate2", "int8")
OUR_SHORTLIST = replace(OUR_INT8, shortlist=True)
PEER_SHORTLIST = replace(PEER_INT8, shortlist=True)
LIKE = {OUR_FP32: PEER_FP32, OUR_INT8: PEER_INT8, OUR_SHORTLIST: PEER_SHORTLIST}
"""CTranslate2 with the same weights, precision and choice of pieces."""
GPU_EAGER = System("PyTorch eager", "eager", "fp16", device="cuda")
GPU_COMPILED = System("PyTorch compiled", "compiled", "fp16", device="cuda")
GPU_FP16 = System("this engine", "onnx", "fp16", device="cuda")
GPU_FP16_GRAPHS = replace(GPU_FP16, graphs=True)
GPU_FP16_STREAMS = replace(GPU_FP16_GRAPHS, streams=2)
GPU_BF16_GRAPHS = replace(GPU_FP16_GRAPHS, precision="bf16")
GPU_TENSORRT = replace(GPU_FP16, device="tensorrt")
GPU_TENSORRT_GRAPHS = replace(GPU_TENSORRT, graphs=True)
GPU_PEER = System("CTranslate2", "ctranslate2", "float16", device="cuda")
COMPILED_PAIRS = ((COMPILED, EAGER), (GPU_COMPILED, GPU_EAGER))
"""Whose outputs should be the same."""
MAY_BE_MISSING = (GPU_TENSORRT, GPU_TENSORRT_GRAPHS, GPU_PEER)
"""Their libraries for a GPU are not on the package index, or only for some versions of CUDA."""


@dataclass(frozen=True)
class Comparison:
    """What models of one kind are measured beside and held to."""

    systems: tuple[System, ...]
    ours: System
    """Whose outputs are compared."""
    rival: System
    """With this one's."""
    beside: tuple[System, ...]
    """Those over which a table gives the speed of all."""
    slot_limits: dict[int, float]
    """Cache slots that a sentence may have used after t steps, as a share of beams times t."""


_CROSS_SLOTS = {25: 0.7, 50: 0.5, 100: 0.35}
_JOINT_SLOTS = {25: 0.5, 50: 0.35, 100: 0.3}
_OURS_ON_GPU = (
    GPU_FP16,
    GPU_FP16_GRAPHS,
    GPU_FP16_STREAMS,
    GPU_BF16_GRAPHS,
    GPU_TENSORRT,
    GPU_TENSORRT_GRAPHS,
)
COMPARISONS = {
    ("cross", "cpu"): Comparison(
        systems=(EAGER, OUR_FP32, OUR_INT8, PEER_FP32, PEER_INT8),
        ours=OUR_FP32,
        rival=PEER_FP32,
        beside=(EAGER, PEER_INT8),
        slot_limits=_CROSS_SLOTS,
    ),
    # CTranslate2 has no such architecture.
    ("joint", "cpu"): Comparison(
        systems=(EAGER, OUR_FP32, OUR_INT8),
        ours=OUR_FP32,
        rival=EAGER,
        beside=(EAGER,),
        slot_limits=_JOINT_SLOTS,
    ),
    ("cross", "cuda"): Comparison(
        systems=(GPU_EAGER, *_OURS_ON_GPU, GPU_PEER),
        ours=GPU_FP16,
        rival=GPU_EAGER,
        beside=(GPU_EAGER, GPU_PEER),
        slot_limits=_CROSS_SLOTS,
    ),
    ("joint", "cuda"): Comparison(
        systems=(GPU_EAGER, *_OURS_ON_GPU),
        ours=GPU_FP16,
        rival=GPU_EAGER,
        beside=(GPU_EAGER,),
        slot_limits=_JOINT_SLOTS,
    ),
}
"""By the model's kind of decoder and the device."""


@dataclass(frozen=True)
class Setting:
    """How a system uses the cores: workers that share a batch, and threads of each."""

    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}"


@dataclass(frozen=True)
class Scenario:
    """Calls of `batch` sentences each."""

    batch: int
    beam_size: int
    top_k: int = 0
    """Of language models, which draw from so many; 1 is greedy."""

    def __str__(self) -> str:
        if self.top_k:
            return f"batch {self.batch}, top {self.top_k}"
        return f"batch {self.batch}, beam {self.beam_size}"


def order_scenarios(batches: tuple[int, ...], beams: tuple[int, ...]) -> list[Scenario]:
    """All combinations, least memory first, so that a row's peak RSS is its own doing."""
    scenarios = {Scenario(batch, beam) for batch in batches for beam in beams}
    return sorted(scenarios, key=lambda s: (s.batch * s.beam_size, s.batch))


def settings(kind: str, batch: int, cores: int) -> list[Setting]:
    """Thread settings worth trying for calls of that size on a CPU.

    One thread and all cores for every system. This engine and CTranslate2 can also share a batch
    among workers, and there powers of two are tried in between.
    """
    if kind in ("eager", "compiled"):
        return [Setting(1, threads) for threads in sorted({1, cores})]
    powers = [1 << n for n in range(cores.bit_length()) if 1 << n < cores] + [cores]
    tried = [Setting(1, threads) for threads in powers]
    tried += [
        Setting(workers, cores // workers) for workers in powers if 1 < workers <= min(batch, cores)
    ]
    return tried


def sentences_per_repetition(batch: int, *, forced: bool) -> int:
    """Sentences decoded in one repetition: a second or two of the slower systems.

    Real sentences differ in length, so they need more.
    """
    return max(8, 2 * batch) if forced else max(32, 4 * batch)


def spread_rows(count: int, available: int) -> list[int]:
    """`count` indices into `available` sentences, evenly spread, repeated where there are fewer."""
    if count > available:
        return [index % available for index in range(count)]
    return [index * available // count for index in range(count)]
