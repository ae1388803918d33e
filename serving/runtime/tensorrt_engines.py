"""A bundle's engines: whether they fit this machine, and how one is loaded and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from serving.bundle.engines import ANY_GPU, EngineFile
from serving.bundle.manifest import Manifest, file_hash
from serving.errors import BundleError
from serving.runtime.cuda_driver import Gpu
from serving.runtime.tensorrt_library import TensorRT, find_tensorrt


class EngineError(Exception):
    """Engines of a bundle do not fit this machine, or are not what they were when they were built:
    its graphs are run in their place. The message says why, in one clause."""


class LoadedEngine:
    """An engine in a context, which runs for one batch after the other."""

    def __init__(self, engine: EngineFile, loaded: Any, context: Any, log: Any) -> None:
        """`loaded` and `context` are the library's; `log` is the logger that they write to."""
        self.engine = engine
        # The context does not keep alive the engine that it comes of.
        self._loaded, self._context, self._log = loaded, context, log
        names = [loaded.get_tensor_name(place) for place in range(loaded.num_io_tensors)]
        self.names = frozenset(names)
        """Of all inputs and outputs."""
        self._aliases = {
            name: cache for name in names if (cache := loaded.get_aliased_input_tensor(name))
        }
        """By output, the input whose memory it must have."""

    def run(
        self, shapes: Mapping[str, Sequence[int]], addresses: Mapping[str, int], stream: int
    ) -> None:
        """Run it on inputs of these shapes; `addresses` are those of all inputs and outputs on the
        device. Returns once the work waits in that stream of CUDA.

        Raises RuntimeError with what the library says against it, and for a cache that would not be
        written in place.
        """
        for output, cache in self._aliases.items():
            if addresses[output] != addresses[cache]:
                raise RuntimeError(f"{self.engine.file}: {output} does not lie where {cache} does")
        context = self._context
        taken = all(context.set_input_shape(name, tuple(shape)) for name, shape in shapes.items())
        taken = taken and all(context.set_tensor_address(*each) for each in addresses.items())
        if not (taken and context.execute_async_v3(stream)):
            reasons = "; ".join(self._log.errors) or "no reason given"
            self._log.errors.clear()
            raise RuntimeError(
                f"{self.engine.file}: {self.engine.library} refuses to run: {reasons}"
            )


def fitting_library(manifest: Manifest, gpu: Gpu) -> TensorRT:
    """The library that runs a bundle's engines on that GPU; raises EngineError where there are no
    engines, or one was built by another library or version, or for another GPU."""
    if not manifest.engines:
        raise EngineError("the bundle has no engines (`python -m macaron export engine` adds them)")
    try:
        tensorrt = find_tensorrt(manifest.engines[0].library)
    except BundleError as error:
        raise EngineError(str(error)) from error
    here = tensorrt.name, tensorrt.version
    for engine in manifest.engines:
        built = engine.library, engine.version
        if built != here:
            raise EngineError(
                f"{engine.file} was built by {' '.join(built)}, and {' '.join(here)} is installed"
            )
        known = engine.gpu, engine.compute_capability
        if engine.gpu != ANY_GPU and known != (gpu.name, capability_name(gpu)):
            raise EngineError(
                f"{engine.file} was built for {engine.gpu} ({engine.compute_capability}), and this "
                f"GPU is {gpu.name} ({capability_name(gpu)})"
            )
    return tensorrt


def load_engine(folder: Path, engine: EngineFile, tensorrt: TensorRT) -> LoadedEngine:
    """One engine of a bundle; raises EngineError where its file is missing, damaged or refused."""
    check_file(folder, engine)
    module: Any = tensorrt.module
    log = tensorrt.logger()
    loaded = module.Runtime(log).deserialize_cuda_engine((folder / engine.file).read_bytes())
    context = None if loaded is None else loaded.create_execution_context()
    if context is None:
        raise EngineError(
            f"{engine.file} is refused by {engine.library} {engine.version}: "
            f"{'; '.join(log.errors) or 'no reason given'}"
        )
    return LoadedEngine(engine, loaded, context, log)


def check_file(folder: Path, engine: EngineFile) -> None:
    """Raise EngineError where an engine's file is missing or damaged."""
    try:
        found = file_hash(folder / engine.file)
    except OSError as error:
        raise EngineError(f"{engine.file} cannot be read ({error.strerror})") from error
    if found != engine.sha256:
        raise EngineError(
            f"{engine.file} is damaged: its sha256 is {found[:12]}, the manifest says "
            f"{engine.sha256[:12]}"
        )


def capability_name(gpu: Gpu) -> str:
    """The compute capability of a GPU as manifests have it, such as 9.0."""
    return ".".join(map(str, gpu.compute_capability))
