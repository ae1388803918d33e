"""Adds TensorRT engines to a bundle for CUDA."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from export.bundles.card import finish
from export.bundles.folder import check_apart, check_free, new_folder
from export.engines.builder import EngineBuilder, input_shapes
from export.engines.profiles import choose_sizes
from export.engines.static_caches import drop_softmax_precision, static_caches
from export.errors import ExportError
from serving.bundle.engines import ANY_GPU, EngineFile, Library, Span
from serving.bundle.folder import file_hash, read_manifest
from serving.bundle.graph import Graph
from serving.bundle.manifest import Manifest
from serving.folders import cache_folder
from serving.runtime.gpu.cuda_driver import DriverError, look
from serving.runtime.gpu.tensorrt_engines import EngineError, capability_name, check_file
from serving.runtime.gpu.tensorrt_library import TensorRT, find_tensorrt
from training.runs.checkpoint import write_atomically

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Plan:
    """One engine to build: its graph, the capacity of its caches, and the spans of its sizes."""

    graph: Graph
    capacity: int | None
    spans: dict[str, Span]
    """Sizes of the axes of its inputs."""

    @property
    def file(self) -> str:
        stem = Path(self.graph.file).stem
        return f"{stem}.engine" if self.capacity is None else f"{stem}-{self.capacity}.engine"


@dataclass(frozen=True)
class _Machine:
    """The library and GPU of an engine, which it also needs to run."""

    tensorrt: TensorRT
    gpu: str
    compute_capability: str | None


def export_engines(
    bundle: Path,
    out: Path,
    *,
    profile: str | None = None,
    library: Library | None = None,
    timing_cache: Path | None = None,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out`: the content of `bundle`, and engines of its graphs.

    `profile` is that of `choose_sizes`; `library` defaults to the first installed one.
    `timing_cache` keeps TensorRT's timings, by default in the user's cache folder. Engines are
    built in a folder beside `out`; an interrupted call is resumed from it. Raises ExportError for a
    bundle without possible engines, and BundleError if there is no library or, for TensorRT itself,
    no GPU.
    """
    check_apart(out, [bundle])
    manifest = read_manifest(bundle)
    _check_form(bundle, manifest)
    check_free(out, force=force)
    work = out.parent / f".{out.name}.engines"
    engines = build_engines(bundle, manifest, work, profile, library, timing_cache)
    with new_folder(out) as folder:
        for name in manifest.files:
            shutil.copy2(bundle / name, folder / name)
        for engine in engines:
            shutil.copy2(work / engine.file, folder / engine.file)
        named = {"name": out.name, "engines": engines}
        finish(folder, manifest.model_copy(update=named))
    shutil.rmtree(work, ignore_errors=True)
    return read_manifest(out)


def build_engines(
    bundle: Path,
    manifest: Manifest,
    work: Path,
    profile: str | None = None,
    library: Library | None = None,
    timing_cache: Path | None = None,
) -> tuple[EngineFile, ...]:
    """Build the engines of a bundle's graphs into the folder `work`, reusing those already built;
    arguments and errors are those of `export_engines`."""
    plans = list(_plans(manifest, profile))
    machine = _machine(find_tensorrt(library))
    builder = EngineBuilder(machine.tensorrt, _timing_cache(machine, timing_cache))
    engines = []
    for number, plan in enumerate(plans, 1):
        engine, was_there = _engine(bundle, manifest, plan, machine, builder, work)
        engines.append(engine)
        _tell(engine, f"{number} of {len(plans)}", was_there=was_there)
    return tuple(engines)


def check_engines(bundle: Path, manifest: Manifest) -> None:
    """Raise ExportError if an engine's file is missing or damaged; no service would use it."""
    for engine in manifest.engines:
        try:
            check_file(bundle, engine)
        except EngineError as error:
            raise ExportError(
                f"{bundle}: {error}; build its engines again with `python -m macaron export engine`"
            ) from error


def _check_form(bundle: Path, manifest: Manifest) -> None:
    """Raise ExportError for a bundle whose graphs TensorRT does not support."""
    if manifest.target != "cuda":
        raise ExportError(
            f"{bundle}: engines are built from a bundle for cuda, and this one is for "
            f"{manifest.target} ({manifest.precision}); make one with `python -m macaron export "
            "bundle CHECKPOINT OUT --target cuda --precision fp16`"
        )
    if manifest.step is None:
        raise ExportError(
            f"{bundle}: no engines are built for an encoder; serve this bundle as it is, which "
            "needs no engines"
        )
    if any(tensor.role == "state" for tensor in manifest.caches):
        raise ExportError(
            f"{bundle}: no engines are built for a block with its own caches "
            f"({manifest.block}); serve this bundle as it is, which needs no engines"
        )
    if manifest.precision == "w8a16":
        raise ExportError(
            f"{bundle}: TensorRT does not support products with weights in blocks of int8, as in "
            "w8a16; make a bundle with `python -m macaron export bundle CHECKPOINT OUT --target "
            "cuda --precision fp16`"
        )


def _plans(manifest: Manifest, profile: str | None) -> Iterator[_Plan]:
    sizes = choose_sizes(manifest, profile)
    spans = sizes.spans()
    for graph in (manifest.encoder, manifest.step):
        if graph is not None:
            letters = {axis for tensor in graph.inputs for axis in tensor.axes}
            own = {letter: span for letter, span in spans.items() if letter in letters}
            for capacity in sizes.capacities if "C" in letters else (None,):
                yield _Plan(graph, capacity, own)


def _machine(tensorrt: TensorRT) -> _Machine:
    """The machine that engines are built for: any GPU for TensorRT-RTX, which needs none; the local
    GPU for TensorRT."""
    if tensorrt.name == "tensorrt_rtx":
        return _Machine(tensorrt, ANY_GPU, None)
    try:
        gpu = look()
    except DriverError as error:
        raise ExportError(
            f"--library {tensorrt.name} builds engines for the GPU of this machine: {error}; build "
            "them where they are to run, or with --library tensorrt_rtx, which needs no GPU"
        ) from error
    return _Machine(tensorrt, gpu.name, capability_name(gpu))


def _timing_cache(machine: _Machine, asked: Path | None) -> Path | None:
    """The timing cache file, which belongs to one version and one kind of GPU. None for
    TensorRT-RTX, whose builder keeps no timings; raises ExportError if a file is given for it."""
    library = machine.tensorrt
    if library.name == "tensorrt_rtx":
        if asked is not None:
            raise ExportError(
                "--timing-cache needs --library tensorrt: tensorrt_rtx times nothing when it "
                "builds; leave it out"
            )
        return None
    if asked is not None:
        return asked
    name = f"{library.name}-{library.version}-{machine.compute_capability or ANY_GPU}.timing"
    return cache_folder(os.environ) / name


def _engine(
    bundle: Path,
    manifest: Manifest,
    plan: _Plan,
    machine: _Machine,
    builder: EngineBuilder,
    work: Path,
) -> tuple[EngineFile, bool]:
    """The engine of a plan, its file in the folder `work`, and whether it was built earlier."""
    key, note = _key(manifest, plan, machine), work / f"{plan.file}.json"
    found = _built_before(work, note, key)
    if found is not None:
        return found, True
    model = onnx.load(bundle / plan.graph.file)
    drop_softmax_precision(model)
    if plan.capacity is not None:
        caches = [tensor.name for tensor in plan.graph.inputs if tensor.role == "self"]
        static_caches(model, caches, plan.capacity)
    axes = {tensor.name: tensor.axes for tensor in plan.graph.inputs}
    spans = plan.spans if plan.capacity is None else plan.spans | {"C": (plan.capacity,) * 3}
    built = builder.build(model, input_shapes(model, axes, spans), plan.graph.file)
    write_atomically(work / plan.file, built.content)
    engine = EngineFile.model_validate(
        {
            "file": plan.file,
            "graph": plan.graph.file,
            "capacity": plan.capacity,
            "library": machine.tensorrt.name,
            "version": machine.tensorrt.version,
            "gpu": machine.gpu,
            "compute_capability": machine.compute_capability,
            "precision": manifest.precision,
            "profile": plan.spans,
            "bytes": len(built.content),
            "build_seconds": round(built.seconds, 2),
            "sha256": hashlib.sha256(built.content).hexdigest(),
        }
    )
    noted = {"key": key, "engine": engine.model_dump(mode="json")}
    write_atomically(note, json.dumps(noted).encode())
    return engine, False


def _built_before(work: Path, note: Path, key: str) -> EngineFile | None:
    """An engine that an earlier call built from the same graph in the same way."""
    if not note.exists():
        return None
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
        if noted["key"] != key:
            return None
        engine = EngineFile.model_validate(noted["engine"])
    except (ValueError, LookupError):  # another version's
        return None
    file = work / engine.file
    return engine if file.exists() and file_hash(file) == engine.sha256 else None


def _key(manifest: Manifest, plan: _Plan, machine: _Machine) -> str:
    """A key of everything that an engine depends on."""
    library = machine.tensorrt
    parts = (
        sorted(manifest.files.items()),
        plan.file,
        sorted(plan.spans.items()),
        (library.name, library.version, machine.gpu, machine.compute_capability),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _tell(engine: EngineFile, place: str, *, was_there: bool) -> None:
    how = "built before," if was_there else f"built in {engine.build_seconds:.1f} s,"
    logger.info("%s (%s): %s %.1f MB", engine.file, place, how, engine.bytes / 1e6)
