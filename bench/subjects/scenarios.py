"""The scenarios of measurements: shapes, batches, beam sizes, systems and their thread settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "demo": ("transformer_small", {}),
    "demo-6-2": ("transformer_small_6_2", {}),
    "demo-12-1": ("transformer_small_12_1", {}),
    "demo-relative": ("transformer_small", {"positions": "relative"}),
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
"""A preset and its changes for each shape. `opus-mt` has the size of OPUS-MT models. `m2m100` has
the width and vocabulary of M2M100 with 418 M parameters and a quarter of its layers, because all
compared systems are in memory together. The tiny ones are for tests."""
FORCED_LENGTH = 25
"""Tokens per output of a random model."""
MAX_LENGTH = 256
"""Largest number of tokens for real sentences, eos included; CTranslate2's default."""
SLOT_STEPS = (25, 50, 100)
SLOT_BEAM = 5
LEAST_IDENTICAL = 0.99
"""Smallest share of real sentences whose output equals that of the rival, on the same fp32
weights."""


@dataclass(frozen=True)
class System:
    """An engine at one precision."""

    engine: str
    kind: str
    """`eager`, `compiled`, `onnx` or `ctranslate2`."""
    precision: str
    """The precision in the engine's own spelling."""
    shortlist: bool = False
    """Whether it uses a vocabulary shortlist."""
    device: str = "cpu"
    """`cpu`, `cuda`, or `tensorrt`, this engine's other way to run on a GPU."""
    graphs: bool = False
    """Whether steps run as CUDA graphs."""
    streams: int = 1
    """Number of batches of a call that a GPU computes at once."""

    @property
    def name(self) -> str:
        """The name in the rows of tables."""
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
        """Whether it runs on a GPU."""
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
"""The CTranslate2 system with the same weights, precision and choice of pieces, for each of
ours."""
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
"""Pairs of systems whose outputs should be equal."""
MAY_BE_MISSING = (GPU_TENSORRT, GPU_TENSORRT_GRAPHS, GPU_PEER)
"""Systems whose GPU libraries are not on the package index, or only for some versions of CUDA."""


@dataclass(frozen=True)
class Comparison:
    """The rivals of a kind of model, and its requirements."""

    systems: tuple[System, ...]
    ours: System
    """The system whose outputs are compared."""
    rival: System
    """The system that they are compared with."""
    beside: tuple[System, ...]
    """The systems relative to which a table gives all speeds."""
    slot_limits: dict[int, float]
    """Largest number of cache slots per sentence after t steps, as a share of beams times t, by
    t."""


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
"""The comparisons by the model's kind of decoder and the device."""


@dataclass(frozen=True)
class Setting:
    """The use of the cores by a system: workers that share a batch, and threads per worker."""

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
    """The number of tokens to sample from, for language models; 1 is greedy."""

    def __str__(self) -> str:
        if self.top_k:
            return f"batch {self.batch}, top {self.top_k}"
        return f"batch {self.batch}, beam {self.beam_size}"


def order_scenarios(batches: tuple[int, ...], beams: tuple[int, ...]) -> list[Scenario]:
    """All combinations, those with the least memory first, so that the peak memory of a row is its
    own."""
    scenarios = {Scenario(batch, beam) for batch in batches for beam in beams}
    return sorted(scenarios, key=lambda s: (s.batch * s.beam_size, s.batch))


def settings(kind: str, batch: int, cores: int) -> list[Setting]:
    """Thread settings to try for calls of this size on a CPU.

    Every system is tried with one thread and with all cores. This engine and CTranslate2 can also
    split a batch among workers; for them, powers of two in between are tried too.
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
    """Number of sentences per repetition: one or two seconds of the slower systems.

    Real sentences differ in length and need more.
    """
    return max(8, 2 * batch) if forced else max(32, 4 * batch)


def spread_rows(count: int, available: int) -> list[int]:
    """`count` indices into `available` sentences, evenly spread; they repeat if there are too
    few."""
    if count > available:
        return [index % available for index in range(count)]
    return [index * available // count for index in range(count)]
