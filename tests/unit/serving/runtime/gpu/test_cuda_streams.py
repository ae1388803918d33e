"""Streams and captured graphs of the driver; and that the recorded GPU of the tests fails on what a
GPU would do wrong in silence."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from serving.runtime.gpu import cuda_device, cuda_memory
from serving.runtime.gpu.cuda_driver import DriverError, Stream
from tests.recorded_device import Recorded, recorded_gpu
from tests.recorded_driver import RecordedDriver, recorded_driver


@pytest.fixture
def gpu() -> Iterator[Recorded]:
    with recorded_gpu() as recorded:
        yield recorded


@pytest.fixture
def driver(gpu: Recorded) -> Iterator[RecordedDriver]:
    with recorded_driver(gpu) as driver:
        yield driver


def test_what_is_captured_is_done_at_each_launch_and_not_before(driver: RecordedDriver) -> None:
    stream, done = Stream(), []

    def work() -> None:
        driver.put(stream.handle, lambda _: done.append(1))
        driver.put(stream.handle, lambda _: done.append(2))

    graph = stream.capture(work)
    assert done == []
    for _ in range(2):
        graph.launch()
        stream.wait()
    assert done == [1, 2, 1, 2]
    assert not driver.graphs
    assert len(driver.instances) == 1
    del graph
    gc.collect()
    assert not driver.instances


def test_work_that_waits_cannot_be_captured_and_the_stream_stays_of_use(
    driver: RecordedDriver,
) -> None:
    stream, done = Stream(), []
    with pytest.raises(DriverError, match="cuStreamSynchronize returned error 900"):
        stream.capture(stream.wait)
    driver.put(stream.handle, lambda _: done.append(1))
    stream.wait()
    assert done == [1]
    assert not driver.graphs

    def fail() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        stream.capture(fail)
    stream.capture(lambda: None).launch()
    assert len(driver.graphs) == 0


def test_a_capture_that_breaks_in_silence_is_reported_at_its_end(driver: RecordedDriver) -> None:
    stream = Stream()

    def work() -> None:
        assert driver.capture is not None
        driver.capture.broken = True

    with pytest.raises(DriverError, match="cuStreamEndCapture returned error 901"):
        stream.capture(work)
    stream.wait()


def test_nothing_copies_allocates_or_runs_while_a_graph_is_captured(
    driver: RecordedDriver,
) -> None:
    fake: Any = cuda_device.onnxruntime
    value = cuda_memory.on_gpu(32)
    session = cuda_device._session(
        cuda_memory.move_files()[False], fake.SessionOptions(), graphs=False
    )
    for work, reason in (
        (lambda: value.update_inplace(np.zeros(32, np.uint8)), "copied while"),
        (value.numpy, "copied while"),
        (lambda: cuda_memory.on_gpu(8), "allocated while"),
        (lambda: session.run_with_iobinding(session.io_binding()), "runs while"),
    ):
        with pytest.raises(AssertionError, match=reason):
            Stream().capture(work)


def test_a_graph_is_not_captured_while_another_thread_uses_the_gpu(
    gpu: Recorded, driver: RecordedDriver
) -> None:
    inside, leave = threading.Event(), threading.Event()

    def use() -> None:
        with gpu.work():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=use)
    thread.start()
    inside.wait()
    with pytest.raises(AssertionError, match="while another thread uses the GPU"):
        Stream().capture(lambda: None)
    leave.set()
    thread.join()
    Stream().capture(lambda: None)


def test_memory_of_one_stream_is_not_touched_by_another_before_it_was_waited_for(
    gpu: Recorded, driver: RecordedDriver
) -> None:
    value, other = (cuda_memory.on_gpu(32) for _ in range(2))
    one, two = Stream(), Stream()
    span = value.data_ptr(), value.data_ptr() + 32
    gpu.begin(one.handle, reads=[], writes=[span])
    with pytest.raises(AssertionError, match="is read before the stream that writes it"):
        value.numpy()
    with pytest.raises(AssertionError, match="is read before the stream that writes it"):
        gpu.begin(two.handle, reads=[span], writes=[])
    two.wait()  # that is another stream
    with pytest.raises(AssertionError, match="is written before the stream that writes it"):
        value.update_inplace(np.zeros(32, np.uint8))
    other.update_inplace(np.zeros(32, np.uint8))
    one.wait()
    value.update_inplace(other)
    gpu.begin(one.handle, reads=[span], writes=[])
    value.numpy()
    with pytest.raises(AssertionError, match="is written before the stream that reads it"):
        value.update_inplace(other)


def test_a_session_with_cuda_graphs_runs_once_at_a_time(gpu: Recorded) -> None:
    fake: Any = cuda_device.onnxruntime
    session = cuda_device._session(
        cuda_memory.move_files()[False], fake.SessionOptions(), graphs=True
    )
    with session._stream, pytest.raises(AssertionError, match="one stream of a session"):
        session.run_with_iobinding(session.io_binding(), fake.RunOptions())
