"""A bundle's engines: whether they fit this machine, and how they are loaded and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from serving.bundle.engines import ANY_GPU, EngineFile
from serving.bundle.folder import file_hash
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.gpu.cuda_driver import Gpu
from serving.runtime.gpu.tensorrt_library import TensorRT, find_tensorrt


class EngineError(Exception):
    """A bundle's engines do not fit this machine or have changed since they were built, so its
    graphs run instead. The message gives the reason in one clause."""


class LoadedEngine:
    """An engine that runs in several contexts."""

    def __init__(self, engine: EngineFile, loaded: Any, tensorrt: TensorRT, log: Any) -> None:
        """`loaded` is the library's object; `log` is its logger."""
        self.engine, self.log = engine, log
        self.loaded, self._module = loaded, tensorrt.module
        self.activation_bytes = int(loaded.device_memory_size_v2)
        """GPU memory that a running context needs."""
        names = [loaded.get_tensor_name(place) for place in range(loaded.num_io_tensors)]
        self.aliases = {
            name: cache for name in names if (cache := loaded.get_aliased_input_tensor(name))
        }
        """For each output, the input whose memory it must share."""

    def context(self, activations: int) -> EngineContext:
        """A new context with its activations at this address, which must have enough memory. Raises
        EngineError if the library creates none."""
        self.log.errors.clear()
        strategy: Any = self._module.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self.loaded.create_execution_context(strategy)
        if context is None:
            raise EngineError(_refusal(self.engine, self.log))
        if self.activation_bytes:
            context.set_device_memory(activations, self.activation_bytes)
        return EngineContext(self, context)


class EngineContext:
    """The state of a running engine, for one batch after another or for a captured graph. A
    captured graph contains its context and is invalid after any change of it."""

    def __init__(self, loaded: LoadedEngine, context: Any) -> None:
        """`context` is the library's object."""
        # The context does not keep its engine alive.
        self._loaded, self._context = loaded, context

    def bind(self, shapes: Mapping[str, Sequence[int]], addresses: Mapping[str, int]) -> None:
        """Bind inputs of these shapes; `addresses` are those of all inputs and outputs on the GPU.

        Raises RuntimeError with the library's message if it refuses, and for a cache that would not
        be written in place.
        """
        for output, cache in self._loaded.aliases.items():
            if addresses[output] != addresses[cache]:
                file = self._loaded.engine.file
                raise RuntimeError(f"{file}: {output} does not lie where {cache} does")
        context = self._context
        taken = all(context.set_input_shape(name, tuple(shape)) for name, shape in shapes.items())
        if not (taken and all(context.set_tensor_address(*each) for each in addresses.items())):
            self._refuse()

    def run(self, stream: int) -> None:
        """Run the engine on the binding. Returns once the work is queued in the CUDA stream. Raises
        RuntimeError with the library's message."""
        if not self._context.execute_async_v3(stream):
            self._refuse()

    def run_captured(self, stream: int) -> None:
        """`run` in a stream that is being captured. Raises RuntimeError if the library does not
        support that."""
        capturable = getattr(
            self._context, "is_stream_capturable", None
        )  # only TensorRT-RTX has it
        if capturable is not None and not capturable(stream):
            raise RuntimeError("the engine cannot be captured")
        self.run(stream)

    def _refuse(self) -> None:
        engine, log = self._loaded.engine, self._loaded.log
        reasons = "; ".join(log.errors) or "no reason given"
        log.errors.clear()
        raise RuntimeError(f"{engine.file}: {engine.library} refuses to run: {reasons}")


def fitting_library(manifest: Manifest, gpu: Gpu) -> TensorRT:
    """The library that runs a bundle's engines on this GPU. Raises EngineError if there are no
    engines, or if one was built for another library, version or GPU."""
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
    """Load an engine of a bundle. Raises EngineError if its file is missing, damaged or refused."""
    check_file(folder, engine)
    module: Any = tensorrt.module
    log = tensorrt.logger()
    loaded = module.Runtime(log).deserialize_cuda_engine((folder / engine.file).read_bytes())
    if loaded is None:
        raise EngineError(_refusal(engine, log))
    return LoadedEngine(engine, loaded, tensorrt, log)


def _refusal(engine: EngineFile, log: Any) -> str:
    return (
        f"{engine.file} is refused by {engine.library} {engine.version}: "
        f"{'; '.join(log.errors) or 'no reason given'}"
    )


def check_file(folder: Path, engine: EngineFile) -> None:
    """Raise EngineError if an engine's file is missing or damaged."""
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
    """The compute capability of a GPU as in manifests, such as 9.0."""
    return ".".join(map(str, gpu.compute_capability))
