"""TensorRT's Python interface, as far as this project calls it, on a simulated GPU.

An engine is the ONNX graph and the profile that it was built from. It runs in ONNX Runtime on the
CPU, on the recorded GPU's memory at the addresses that it was given. It refuses what the library
refuses: a shape outside the profile, a tensor without an address or at a misaligned one, a cache
whose input and output are at different addresses, missing memory for activations, and the capture
of a run right after a change of shapes. A captured run fails once its context has changed, or its
memory is other memory.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from export.engines import engine as export_engine
from serving.runtime.gpu import tensorrt_device, tensorrt_library
from tests.recorded_device import GPU, Recorded
from tests.recorded_driver import RecordedDriver, recorded_driver

VERSION = "11.4.0"
_MARK = b"recorded engine\n"
_ALIGNMENT = 256
USER_MANAGED = object()
"""The strategy in which the owner of a context provides its memory for activations."""


@dataclass
class Runs:
    """A record of the engines' runs, and settings of their behaviour."""

    recorded: Recorded
    driver: RecordedDriver
    shapes: list[dict[str, tuple[int, ...]]] = field(default_factory=list)
    """The shapes of the inputs of every run, by name."""
    installed: bool = True
    """Whether the library can be imported."""
    contexts: bool = True
    """Whether another context fits into memory."""
    capturable: bool = True
    """Whether contexts state that they can be captured."""
    captured: int = 0
    """Runs that were captured."""
    activation_bytes: int = 4096
    """Bytes of memory that each engine needs while it runs."""

    def memory(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """The array at an address of the GPU's memory."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        _, found = self.recorded.find(address, max(size, 1))
        return found[:size].view(dtype).reshape(shape)


class ILogger:
    """The base class of an application's logger."""

    def log(self, severity: Any, text: str) -> None:
        raise NotImplementedError


class OnnxParser:
    def __init__(self, network: SimpleNamespace, log: ILogger) -> None:
        self._network, self.num_errors = network, 0

    def parse(self, content: bytes) -> bool:
        self._network.content = content
        return True


class Builder:
    def __init__(self, log: ILogger) -> None:
        self._log = log

    def create_network(self, flags: int) -> SimpleNamespace:
        assert flags == 1 << 1
        return SimpleNamespace(content=b"", num_layers=0)

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def create_builder_config(self) -> Config:
        return Config()

    def build_serialized_network(self, network: SimpleNamespace, config: Config) -> bytes | None:
        model = onnx.load_model_from_string(network.content)
        (profile,) = config.profiles
        for value in model.graph.input:
            dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for shape in profile.shapes[value.name]:
                if any(a and a != b for a, b in zip(dims, shape, strict=True)):
                    self._log.log(Logger.ERROR, f"{value.name}: {shape} does not fit {dims}")
                    return None
        return _MARK + json.dumps(profile.shapes).encode() + b"\n" + network.content


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[tuple[int, ...]]] = {}

    def set_shape(self, name: str, *shapes: tuple[int, ...]) -> None:
        least, usual, largest = (np.array(shape) for shape in shapes)
        assert np.all(least <= usual)
        assert np.all(usual <= largest)
        self.shapes[name] = list(shapes)


class Config:
    def __init__(self) -> None:
        self.profiles: list[Profile] = []

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> SimpleNamespace:
        return SimpleNamespace(serialize=lambda: content + b".")

    def set_timing_cache(self, cache: SimpleNamespace, *, ignore_mismatch: bool) -> bool:
        return not ignore_mismatch


class Runtime:
    def __init__(self, runs: Runs, log: ILogger) -> None:
        self._runs, self._log = runs, log

    def deserialize_cuda_engine(self, content: bytes) -> RecordedEngine | None:
        if not content.startswith(_MARK):
            self._log.log(Logger.ERROR, "Serialization assertion\nmagicTag == kTAG failed")
            return None
        _, shapes, model = content.split(b"\n", 2)
        loaded = onnx.load_model_from_string(model)
        return RecordedEngine(self._runs, self._log, json.loads(shapes), loaded)


class RecordedEngine:
    def __init__(
        self, runs: Runs, log: ILogger, shapes: dict[str, Any], model: onnx.ModelProto
    ) -> None:
        self.runs, self.log, self.shapes = runs, log, shapes
        self.device_memory_size_v2 = runs.activation_bytes
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        graph = model.graph
        self.outputs = [value.name for value in graph.output]
        self.dtypes = {
            value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            for value in (*graph.input, *graph.output)
        }
        self.aliases = {
            node.output[0]: node.input[0]
            for node in graph.node
            if node.op_type == "TensorScatter" and node.output[0] in self.dtypes
        }

    @property
    def num_io_tensors(self) -> int:
        return len(self.dtypes)

    def get_tensor_name(self, place: int) -> str:
        return list(self.dtypes)[place]

    def get_aliased_input_tensor(self, name: str) -> str | None:
        return self.aliases.get(name)

    def create_execution_context(self, strategy: object) -> RecordedContext | None:
        assert strategy is USER_MANAGED
        if not self.runs.contexts:
            self.log.log(Logger.ERROR, "no room for a context")
            return None
        return RecordedContext(self)


class RecordedContext:
    """A context keeps shapes and addresses from run to run, as the library's does."""

    def __init__(self, engine: RecordedEngine) -> None:
        self._engine = engine
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._activations = 0
        self._changes = 0
        self._ran_with: dict[str, tuple[int, ...]] = {}
        """The shapes of the last run that was not part of a capture."""

    def set_device_memory(self, memory: int, size: int) -> None:
        assert size >= self._engine.device_memory_size_v2
        assert memory % _ALIGNMENT == 0
        self._activations = memory
        self._changes += 1

    def is_stream_capturable(self, stream: int) -> bool:
        return self._engine.runs.capturable

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        least, _, largest = np.array(self._engine.shapes[name])
        if len(least) != len(shape) or np.any(shape < least) or np.any(shape > largest):
            return self._refuse(
                f"{name}: {shape} is outside {least.tolist()} to {largest.tolist()}"
            )
        self._shapes[name] = tuple(shape)
        self._changes += 1
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        if name not in self._engine.dtypes:
            return self._refuse(f"no tensor {name}")
        if address % _ALIGNMENT:
            return self._refuse(f"{name} does not begin at a multiple of {_ALIGNMENT} bytes")
        self._addresses[name] = address
        self._changes += 1
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        engine, runs = self._engine, self._engine.runs
        for name in engine.dtypes:
            if not self._addresses.get(name):
                return self._refuse(f"{name} has no address")
        for name in engine.shapes:
            if name not in self._shapes:
                return self._refuse(f"{name} has no shape")
        for output, cache in engine.aliases.items():
            if self._addresses[output] != self._addresses[cache]:
                return self._refuse(f"{output} does not lie where {cache} does")
        if not self._activations:
            return self._refuse("there is no memory for activations")
        captures = runs.recorded.capturing is not None
        if captures and self._ran_with != self._shapes:
            return self._refuse("shapes have changed since the last run: it cannot be captured")
        runs.captured += captures
        if not captures:
            self._ran_with = dict(self._shapes)
        changes, memory = self._changes, self._memory()

        def compute(stream: int) -> None:
            assert self._changes == changes, "the context of a captured graph has changed"
            assert self._memory() == memory, "a captured graph is run on other memory"
            self._compute(stream)

        runs.driver.put(stream_handle, compute)
        return True

    def _memory(self) -> list[int]:
        """The allocations of all that it reads and writes."""
        places = (*self._addresses.values(), self._activations)
        return [self._engine.runs.recorded.find(address, 1)[0] for address in places]

    def _compute(self, stream: int) -> None:
        engine, runs = self._engine, self._engine.runs
        inputs = {
            name: runs.memory(self._addresses[name], shape, engine.dtypes[name])
            for name, shape in self._shapes.items()
        }
        found = engine.session.run(engine.outputs, inputs)
        writes = [(self._activations, self._activations + engine.device_memory_size_v2)]
        for name, array in zip(engine.outputs, found, strict=True):
            writes.append((self._addresses[name], self._addresses[name] + array.nbytes))
        reads = [
            (self._addresses[name], self._addresses[name] + array.nbytes)
            for name, array in inputs.items()
        ]
        with runs.recorded.call():
            runs.recorded.begin(stream, reads, writes)
            for name, array in zip(engine.outputs, found, strict=True):
                runs.memory(self._addresses[name], array.shape, array.dtype)[...] = array
            time.sleep(runs.recorded.linger_s)
        runs.shapes.append(dict(self._shapes))

    def _refuse(self, reason: str) -> bool:
        self._engine.log.log(Logger.ERROR, reason)
        return False


Logger = SimpleNamespace(INTERNAL_ERROR=0, ERROR=1, WARNING=2)


@contextmanager
def recorded_tensorrt(recorded: Recorded) -> Iterator[Runs]:
    """TensorRT is installed, on a machine with that GPU."""
    module = SimpleNamespace(
        __version__=VERSION,
        ILogger=ILogger,
        Logger=Logger,
        NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=1),
        Builder=Builder,
        BuilderFlag=SimpleNamespace(),
        OnnxParser=OnnxParser,
        Runtime=lambda log: Runtime(runs, log),
        ExecutionContextAllocationStrategy=SimpleNamespace(USER_MANAGED=USER_MANAGED),
    )

    def imported(name: str) -> Any:
        if name != "tensorrt" or not runs.installed:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return module

    with recorded_driver(recorded) as driver, pytest.MonkeyPatch.context() as patch:
        runs = Runs(recorded, driver)
        patch.setattr(tensorrt_library, "importlib", SimpleNamespace(import_module=imported))
        patch.setattr(export_engine, "look", lambda: GPU)
        patch.setattr(tensorrt_device, "look", lambda: recorded.gpu)
        yield runs
