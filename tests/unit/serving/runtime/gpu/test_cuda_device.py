"""What a machine says on which a bundle for CUDA cannot run, each in one line with a way out; and
what the recorded GPU of the tests does not allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.bundle.folder import parse_manifest
from serving.bundle.manifest import Manifest
from serving.errors import BundleError, SettingsError
from serving.runtime.device import batches_at_once, computes_on_cpu, open_device
from serving.runtime.gpu import cuda_device, cuda_driver, cuda_memory, cuda_switches
from serving.runtime.gpu.cuda_driver import DriverError, Gpu, first_uuid, look, visible_gpus
from tests.recorded_device import GPU, recorded_gpu

BUNDLE = Path(__file__).resolve().parents[5] / "models" / "macaron-de-en"


@pytest.fixture(autouse=True)
def _auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MACARON_DEVICE", raising=False)


def bundle() -> Manifest:
    return parse_manifest(BUNDLE).model_copy(update={"target": "cuda", "precision": "fp16"})


def refusal(cache_bytes: int = 0) -> str:
    with pytest.raises(BundleError) as error:
        open_device(BUNDLE, bundle(), cache_bytes)
    message = str(error.value)
    assert "\n" not in message
    assert "--target cpu, or set MACARON_DEVICE=cpu" in message
    return message


def test_a_gpu_is_used_and_named() -> None:
    with recorded_gpu():
        device = open_device(BUNDLE, bundle(), 2**30)
        assert not computes_on_cpu(bundle())
    assert (device.use.name, device.use.reason) == ("cuda", "Recorded GPU, CUDA graphs")


@pytest.mark.parametrize("switch", ["auto", "cuda"])
def test_the_cpu_is_not_taken_in_its_place(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv("MACARON_DEVICE", switch)
    with recorded_gpu(replace(GPU, free_bytes=2**20)):
        refusal()


def test_the_cpu_computes_where_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    with recorded_gpu() as gpu:
        device = open_device(BUNDLE, bundle())
        assert computes_on_cpu(bundle())
        assert not gpu.allocated
    assert device.use.reason == "the bundle is for cuda, but MACARON_DEVICE=cpu"


def test_a_bundle_that_does_not_fit_is_refused_before_it_takes_memory() -> None:
    with recorded_gpu(replace(GPU, free_bytes=1200 * 2**20)) as gpu:
        open_device(BUNDLE, bundle(), 300 * 2**20)
        allocated = gpu.allocated
        message = refusal(600 * 2**20)
        assert gpu.allocated == allocated == 0
    sizes = {file.name: file.stat().st_size for file in BUNDLE.iterdir()}
    # Each graph's session has its own copy of what they share.
    weights = (sizes["encoder.onnx"] + sizes["step.onnx"] + 2 * sizes["shared.bin"]) / 2**20
    for part in (
        "1,200 MiB of 16,384 MiB of Recorded GPU",
        f"{1712 + weights:,.0f} MiB are needed",
    ):
        assert part in message
    assert f"{weights:,.0f} MiB for weights, 1,200 MiB for what batches may take" in message


def test_a_driver_that_is_too_old_is_named_with_what_is_needed() -> None:
    with recorded_gpu(replace(GPU, cuda=(12, 8))):
        message = refusal()
    assert "the NVIDIA driver runs CUDA 12.8 at most" in message
    assert "onnxruntime-gpu 1.31.1 needs CUDA 13.0" in message


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise OSError("libcublasLt.so.13: cannot open shared object file: No such file")

    with recorded_gpu():
        fake: Any = cuda_device.onnxruntime
        opened = fake.InferenceSession

        def without_cuda(*arguments: Any, **options: Any) -> Any:
            session = opened(*arguments, **options)
            session.get_providers = lambda: ["CPUExecutionProvider"]
            return session

        monkeypatch.setattr(fake, "InferenceSession", without_cuda)
        monkeypatch.setattr(cuda_device.ctypes, "CDLL", refuse)
        message = refusal()
    assert "but libcublasLt.so.13: cannot open shared object file" in message
    assert "pip install '.[serve-cuda]'" in message


def test_cudnn_is_missed_before_a_step_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded_gpu():
        monkeypatch.setattr(cuda_device, "has_cudnn", lambda: False)
        message = refusal()
    assert "cuDNN 9 is not found (libcudnn.so.9)" in message
    assert "pip install '.[serve-cuda]'" in message


def test_a_graph_that_cannot_be_captured_runs_without_cuda_graphs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded_gpu():
        fake: Any = cuda_device.onnxruntime
        opened = fake.InferenceSession

        def refuse_graphs(path: Path, *arguments: Any, providers: Any, **options: Any) -> Any:
            if "enable_cuda_graph" in providers[0][1]:
                raise RuntimeError("This session cannot use the graph capture feature")
            return opened(path, *arguments, providers=providers, **options)

        monkeypatch.setattr(fake, "InferenceSession", refuse_graphs)
        options = fake.SessionOptions()
        _, captures = cuda_device._capturing(cuda_memory.move_files()[False], options, graphs=True)
    assert not captures
    assert "runs without CUDA graphs: This session cannot" in caplog.text


def test_what_turns_cuda_graphs_off_is_on_or_off() -> None:
    assert cuda_switches.graphs_wanted({})
    assert not cuda_switches.graphs_wanted({"MACARON_CUDA_GRAPHS": " OFF"})
    with pytest.raises(SettingsError, match="MACARON_CUDA_GRAPHS must be on or off, got '0'"):
        cuda_switches.graphs_wanted({"MACARON_CUDA_GRAPHS": "0"})


def test_the_number_of_streams_is_one_unless_it_is_set() -> None:
    assert cuda_switches.streams_wanted({}) == 1
    assert cuda_switches.streams_wanted({"MACARON_CUDA_STREAMS": " 3 "}) == 3
    for wrong in ("0", "9", "two", "-1", "1.5"):
        with pytest.raises(
            SettingsError, match=f"MACARON_CUDA_STREAMS must be a number from 1 to 8, got '{wrong}'"
        ):
            cuda_switches.streams_wanted({"MACARON_CUDA_STREAMS": wrong})


def test_each_stream_needs_memory_for_a_step_graph_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, three = (cuda_device.weight_bytes(BUNDLE, bundle(), batches) for batches in (1, 3))
    step = sum((BUNDLE / name).stat().st_size for name in ("step.onnx", "shared.bin"))
    assert three - one == 2 * step
    monkeypatch.setenv("MACARON_CUDA_STREAMS", "3")
    assert batches_at_once(bundle(), 8) == 3
    assert batches_at_once(bundle(), 2) == 2
    with recorded_gpu():
        use = open_device(BUNDLE, bundle(), 0, 3).use
        assert use.reason == "Recorded GPU, CUDA graphs, 3 streams"
    monkeypatch.setenv("MACARON_DEVICE", "cpu")
    assert batches_at_once(bundle(), 8) == 8


def test_a_machine_without_a_driver_says_so() -> None:
    with pytest.raises(DriverError, match=r"no NVIDIA driver is installed \(libnone.so.1 is not"):
        look("libnone.so.1")


class Driver:
    """Some of libcuda's functions, each of which may fail with an error."""

    def __init__(self, devices: int = 1, **errors: int) -> None:
        self._devices, self._errors = devices, errors

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name in self._errors:
                return self._errors[name]
            values: dict[str, tuple[Any, ...]] = {
                "cuDriverGetVersion": (13010,),
                "cuDeviceGetCount": (self._devices,),
                "cuDeviceGet": (0,),
                "cuDeviceGetAttribute": (9,),
                "cuDevicePrimaryCtxRetain": (1,),
                "cuMemGetInfo_v2": (7 * 2**30, 8 * 2**30),
            }
            for argument, value in zip(arguments, values.get(name, ()), strict=False):
                argument._obj.value = value
            if name == "cuDeviceGetUuid":
                arguments[0]._obj[:] = range(16)
            if name == "cuDeviceGetName":
                arguments[0].value = b"Some GPU"
            return 0

        return call


def test_a_driver_tells_of_its_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda _: Driver())
    assert look() == Gpu("Some GPU", (13, 1), (9, 9), 7 * 2**30, 8 * 2**30)


def test_a_driver_names_its_first_gpu_as_nvidia_smi_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda _: Driver())
    assert first_uuid() == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("variable", "driver", "wanted"),
    [
        (None, Driver(devices=3), ["0", "1", "2"]),
        (None, Driver(devices=0), []),
        (None, Driver(cuInit=100), []),
        ("2, GPU-b", Driver(devices=2), ["2", "GPU-b"]),
        ("2, GPU-b", Driver(cuInit=100), ["2", "GPU-b"]),
        ("1,9", Driver(devices=1), ["1"]),
        ("1,-1,0", Driver(devices=1), ["1"]),
        ("", Driver(devices=9), []),
    ],
)
def test_those_gpus_are_used_that_cuda_shows(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, driver: Driver, wanted: list[str]
) -> None:
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda _: driver)
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert visible_gpus(environ) == wanted


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (Driver(devices=0), "finds no GPU .*CUDA_VISIBLE_DEVICES"),
        (Driver(cuInit=100), "finds no GPU"),
        (Driver(cuInit=35), "too old for this system .it runs CUDA 13.1"),
        (Driver(cuInit=803), "CUDA 13.1 does not fit the driver .* restart the machine"),
        (Driver(cuDevicePrimaryCtxRetain=2), "cuDevicePrimaryCtxRetain returned error 2"),
    ],
)
def test_a_driver_that_fails_is_reported_in_one_clause(
    monkeypatch: pytest.MonkeyPatch, driver: Driver, message: str
) -> None:
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda _: driver)
    with pytest.raises(DriverError, match=message):
        look()


def bound(io: Any, address: int, other: int, rows: int = 2) -> None:
    io.bind_input("rows", "cuda", 0, np.int32, [1, 2, 4], address)
    io.bind_cpu_input("index", np.zeros(rows, np.int64))
    io.bind_output("moved", "cuda", 0, np.int32, [1, rows, 4], other)


def test_the_recorded_gpu_fails_on_what_a_gpu_would_not_allow() -> None:
    with recorded_gpu():
        fake: Any = cuda_device.onnxruntime
        one, two = (cuda_memory.on_gpu(32) for _ in range(2))
        session = cuda_device._session(
            cuda_memory.move_files()[False], fake.SessionOptions(), graphs=True
        )
        without_graph = fake.RunOptions()
        without_graph.add_run_config_entry("gpu_graph_id", "-1")
        io = session.io_binding()
        bound(io, one.data_ptr(), two.data_ptr())
        session.run_with_iobinding(io, without_graph)
        assert two.numpy().tolist() == [0xFF] * 32  # nobody has written the first
        with pytest.raises(AssertionError, match="is no array"):
            np.asarray(two)
        bound(io, one.data_ptr(), one.data_ptr())
        with pytest.raises(AssertionError, match="lies over"):
            session.run_with_iobinding(io, without_graph)
        with pytest.raises(AssertionError, match="does not see what lies on the host"):
            session.run_with_iobinding(io, fake.RunOptions())
        bound(io, one.data_ptr(), two.data_ptr(), 3)
        with pytest.raises(AssertionError, match="over the end"):
            session.run_with_iobinding(io, without_graph)
        del two
        bound(io, one.data_ptr(), 2 << 40)
        with pytest.raises(AssertionError, match="given back or never taken"):
            session.run_with_iobinding(io, without_graph)


def test_a_captured_graph_is_bound_to_its_addresses() -> None:
    with recorded_gpu():
        fake: Any = cuda_device.onnxruntime
        values = [cuda_memory.on_gpu(32) for _ in range(4)]
        session = cuda_device._session(
            cuda_memory.move_files()[False], fake.SessionOptions(), graphs=True
        )
        values[2].update_inplace(np.zeros(32, np.uint8))
        options = fake.RunOptions()
        options.add_run_config_entry("gpu_graph_id", "5")
        io = session.io_binding()

        def bind(rows: Any, moved: Any) -> None:
            io.bind_input("rows", "cuda", 0, np.int32, [1, 2, 4], rows.data_ptr())
            io.bind_input("index", "cuda", 0, np.int64, [2], values[2].data_ptr())
            io.bind_output("moved", "cuda", 0, np.int32, [1, 2, 4], moved.data_ptr())

        bind(values[0], values[1])
        for _ in range(3):
            session.run_with_iobinding(io, options)
        bind(values[3], values[1])
        with pytest.raises(AssertionError, match="on other addresses"):
            session.run_with_iobinding(io, options)
