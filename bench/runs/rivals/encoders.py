"""A sentence embedder beside the products that people run it with: from texts to vectors of length
one.

The rivals' files are made from the model's folder: an ONNX graph in fp32, two kinds of int8 that
ONNX Runtime makes from it, and OpenVINO's, which NNCF fits to the texts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np
from onnxruntime.quantization import QuantType, quantize_dynamic

from bench.errors import BenchError
from bench.reports.report import Machine, head_lines, table_head, table_line
from bench.runs.rivals.turns import (
    RivalTurns,
    RivalWork,
    rivals_markdown,
    take_turns,
    versions_line,
)
from bench.subjects.encoders import export_encoder
from bench.systems.processes.repetitions import Progress
from bench.systems.processes.rivals import ENGINE, Rival, all_started, started
from serving.bundle.folder import read_manifest

FASTEMBED, OPENVINO, RUNTIME, SENTENCES = (
    "fastembed",
    "openvino",
    "onnxruntime",
    "sentence-transformers",
)
PRODUCTS = (FASTEMBED, OPENVINO, RUNTIME, SENTENCES)
REFERENCE = {"cpu": "ONNX Runtime, fp32", "cuda": "sentence-transformers, fp32"}
"""The model itself, by device; all other vectors are compared with its vectors."""
_FP32, _SIGNED, _UNSIGNED, _OPENVINO = "fp32.onnx", "int8.onnx", "uint8.onnx", "int8.xml"
_FITTED = 300
"""Largest number of texts to which NNCF fits scales; its own default."""
_COMPARED = 256
"""Largest number of texts whose vectors are compared."""


@dataclass(frozen=True)
class EncoderRivalsPlan:
    """The parameters of a comparison of encoders with other products."""

    source: Path
    """The folder of a BERT with mean pooling, from which the rivals' files are made."""
    bundle: Path
    """The same model, imported."""
    texts: Mapping[str, Sequence[str]]
    """Texts by the name of their file; each file is a work of its own."""
    batches: Sequence[int]
    pythons: Mapping[str, Path]
    """The Python of each rival's environment, by product."""
    repetitions: int
    threads: int
    device: str = "cpu"
    """Where all systems run: `cpu`, or `cuda` for the first GPU, where only sentence-transformers
    is beside this engine."""


@dataclass(frozen=True)
class EncoderSystem:
    """The figures of a system that do not depend on the number of texts per call."""

    system: str
    peak_memory: int
    """Bytes, after all works."""
    cosine: float | None
    """Mean cosine of its vectors with the reference's; None if the reference is left out."""


@dataclass
class EncoderRivals:
    """The results of a comparison of encoders with other products."""

    turns: list[RivalTurns] = field(default_factory=list)
    systems: list[EncoderSystem] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    versions: str = ""


def compare_encoders(plan: EncoderRivalsPlan, folder: Path, progress: Progress) -> EncoderRivals:
    """Time calls of all sizes by all systems, in turns. The rivals' files are in `folder`, or are
    made there.

    Raises BenchError for a folder without `tokenizer.json`, with which rivals read texts, and for a
    bundle for another device.
    """
    found = EncoderRivals()
    if not (plan.source / "tokenizer.json").is_file():
        raise BenchError(f"--source {plan.source}: it has no tokenizer.json; add it")
    target = read_manifest(plan.bundle).target
    if target != plan.device:
        raise BenchError(
            f"--bundle {plan.bundle}: it is for {target}, and --device is {plan.device}; import it "
            f"with --target {plan.device}"
        )
    if plan.device == "cpu":
        progress("making the rivals' files")
        make_files(plan, folder, found.left_out)
    with all_started(
        rivals_of(plan, folder), plan.pythons, plan.threads, found.left_out
    ) as processes:
        found.versions = versions_line(processes)
        works = [
            RivalWork(
                f"{name}, {batch} a call", "read", {"texts": texts, "batch": batch}, len(texts)
            )
            for name, texts in plan.texts.items()
            for batch in plan.batches
        ]
        found.turns = take_turns(processes, works, plan.repetitions, progress, found.left_out)
        peaks = {name: process.peak_memory for name, process in processes.items()}
        progress("comparing the vectors")
        vectors = {
            name: np.array(process.ask("vectors", texts=_all_texts(plan)[:_COMPARED]).result)
            for name, process in processes.items()
        }
    reference = vectors.get(REFERENCE[plan.device])
    for name, vectors_BD in vectors.items():
        cosine = None if reference is None else mean_cosine(vectors_BD, reference)
        found.systems.append(EncoderSystem(name, peaks[name], cosine))
    return found


def _all_texts(plan: EncoderRivalsPlan) -> list[str]:
    """The texts of all files: one of each file in turn."""
    rows = zip_longest(*plan.texts.values())
    return [text for row in rows for text in row if text is not None]


def mean_cosine(first_BD: np.ndarray, second_BD: np.ndarray) -> float:
    """Mean cosine of the two systems' vectors of the same texts; raises BenchError if their shapes
    differ."""
    if first_BD.shape != second_BD.shape:
        raise BenchError(
            f"vectors must have the shape of the model's, {second_BD.shape}, got {first_BD.shape}; "
            "give the bundle of the same encoder"
        )
    lengths_B = np.linalg.norm(first_BD, axis=1) * np.linalg.norm(second_BD, axis=1)
    return float(((first_BD * second_BD).sum(axis=1) / lengths_B).mean())


def rivals_of(plan: EncoderRivalsPlan, folder: Path) -> list[Rival]:
    """This engine, then the rivals, on the files in `folder` if they run on a CPU."""
    source, threads = str(plan.source), plan.threads
    ours = {"bundle": str(plan.bundle), "threads": threads}
    engine = Rival(ENGINE, ENGINE, "engine", "EngineEncoder", ours)

    def embedder(name: str, product: str, kind: str, arguments: dict[str, object]) -> Rival:
        return Rival(name, product, "embedders", kind, arguments)

    def sentences(*, half: bool) -> Rival:
        name = f"sentence-transformers, {'fp16' if half else 'fp32'}"
        given = {"folder": source, "threads": threads, "device": plan.device, "half": half}
        return embedder(name, SENTENCES, "SentenceTransformers", given)

    if plan.device == "cuda":
        return [engine, sentences(half=True), sentences(half=False)]
    size = json.loads((plan.source / "config.json").read_text())["hidden_size"]

    def file(name: str) -> dict[str, object]:
        return {
            "file": str(folder / name),
            "tokenizer": str(plan.source / "tokenizer.json"),
            "threads": threads,
        }

    def fastembed(name: str, graph: str) -> Rival:
        arguments = {"folder": str(folder), "file": graph, "size": size, "threads": threads}
        return embedder(name, FASTEMBED, "FastEmbed", arguments)

    return [
        engine,
        embedder(REFERENCE["cpu"], RUNTIME, "Runtime", file(_FP32)),
        embedder("ONNX Runtime, int8", RUNTIME, "Runtime", file(_SIGNED)),
        embedder("ONNX Runtime, uint8", RUNTIME, "Runtime", file(_UNSIGNED)),
        fastembed("FastEmbed, fp32", _FP32),
        fastembed("FastEmbed, uint8", _UNSIGNED),
        embedder("OpenVINO, fp32", OPENVINO, "OpenVino", file(_FP32)),
        embedder("OpenVINO, int8", OPENVINO, "OpenVino", file(_OPENVINO)),
        sentences(half=False),
    ]


def make_files(plan: EncoderRivalsPlan, folder: Path, left_out: dict[str, str]) -> None:
    """Make the files that the rivals read from the model's folder; files that exist already stay.

    `left_out` gets the reason if OpenVINO's int8 cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in plan.source.iterdir():
        if file.suffix in (".json", ".txt"):  # FastEmbed reads these beside a graph
            shutil.copy(file, folder / file.name)
    graph = folder / _FP32
    if not graph.exists():
        export_encoder(plan.source, graph, attention="sdpa")
    if not (folder / _SIGNED).exists():
        quantize_dynamic(
            graph,
            folder / _SIGNED,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,  # exact without VNNI as well
        )
    if not (folder / _UNSIGNED).exists():
        quantize_dynamic(graph, folder / _UNSIGNED, weight_type=QuantType.QUInt8)
    if not (folder / _OPENVINO).exists():
        _fit_openvino(plan, folder, left_out)


def _fit_openvino(plan: EncoderRivalsPlan, folder: Path, left_out: dict[str, str]) -> None:
    rival = Rival("NNCF", OPENVINO, "embedders", "OpenVinoQuantiser")
    try:
        with started(rival, plan.pythons.get(OPENVINO), plan.threads) as quantiser:
            quantiser.ask(
                "quantise",
                source=str(folder / _FP32),
                target=str(folder / _OPENVINO),
                tokenizer=str(plan.source / "tokenizer.json"),
                texts=_all_texts(plan)[:_FITTED],
            )
    except BenchError as error:
        left_out["NNCF, which makes OpenVINO's int8,"] = str(error).removeprefix("NNCF: ")


def encoder_rivals_markdown(
    command: str, machine: Machine, plan: EncoderRivalsPlan, found: EncoderRivals
) -> str:
    """Format two tables: speeds by texts per call, and the figures that do not depend on it."""
    counts = " and ".join(str(len(texts)) for texts in plan.texts.values())
    subject = (
        f"{counts} texts through the encoder of {plan.source.name}, from texts to "
        f"vectors; {plan.threads} thread{'s' if plan.threads > 1 else ''}; median of "
        f"{plan.repetitions}, in turns."
    )
    head = [*head_lines(command, machine, subject), "", found.versions]
    rest = _systems_lines(found.systems, REFERENCE[plan.device])
    return rivals_markdown(head, found.turns, "texts", rest, found.left_out)


def _systems_lines(systems: Sequence[EncoderSystem], reference: str) -> Iterator[str]:
    yield from table_head(["system", "peak memory, MiB", f"cosine with {reference}"])
    for each in systems:
        cosine = "" if each.cosine is None else f"{each.cosine:.4f}"
        yield table_line([each.system, f"{each.peak_memory / 2**20:.0f}", cosine])
