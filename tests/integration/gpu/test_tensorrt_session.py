"""TensorRT engines against a recorded device: real searches give what the CPU session gives, by
engines where these take the sizes and by the graph elsewhere."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.__main__ import main
from export.engines.engine import export_engines
from serving.bundle.folder import file_hash, read_manifest, write_manifest
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.queue.limits import BatchLimits
from serving.runtime.device import open_device
from serving.runtime.device_switch import SWITCH
from serving.runtime.gpu.cuda_driver import Gpu, Stream
from serving.runtime.gpu.cuda_memory import on_gpu
from serving.runtime.gpu.cuda_switches import GRAPHS_SWITCH, STREAMS_SWITCH
from serving.runtime.gpu.tensorrt_engines import EngineContext, load_engine
from serving.runtime.gpu.tensorrt_library import find_tensorrt
from serving.runtime.language_stepper import LanguageStepper
from serving.runtime.session import DeviceUse
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.translation.offline import decode_in_batches
from tests.integration.decoding.test_language_decoding import random_ids
from tests.integration.export.test_bundle import decode_joining, every_hypothesis, random_sentences
from tests.integration.export.test_engines import bundle_of
from tests.integration.gpu.test_cuda_session import sample, with_prefixes
from tests.recorded_device import Recorded, recorded_gpu
from tests.recorded_tensorrt import VERSION, Runs, recorded_tensorrt

pytestmark = pytest.mark.usefixtures("traced_once")

LANGUAGE = ["full standard pre", "cascade macaron post"]
PROFILE = "rows=4:16,capacity=64,128"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Runs]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with recorded_gpu() as recorded, recorded_tensorrt(recorded) as runs:
        yield runs


def with_engines(bundles: Path, name: str, precision: str = "fp16", profile: str = PROFILE) -> Path:
    bundle = bundle_of(bundles, name, precision)
    out = bundles / "engines" / f"{bundle.name} {profile}"
    if not out.exists():
        export_engines(bundle, out, profile=profile, library="tensorrt")
    return out


def on_cpu(folder: Path) -> Any:
    manifest = read_manifest(folder).model_copy(update={"target": "cpu", "engines": ()})
    return stepper_of(folder, manifest)[0]


def stepper_of(folder: Path, manifest: Manifest | None = None) -> tuple[Any, DeviceUse]:
    manifest = manifest or read_manifest(folder)
    device = open_device(folder, manifest)
    if manifest.task == "generate":
        return LanguageStepper(folder, manifest, 1, device), device.use
    return OnnxStepper(folder, manifest, 1, device=device), device.use


def steps_of(gpu: Recorded) -> int:
    """How often the step's graph was run by ONNX Runtime."""
    return sum("write_index" in shapes for shapes in gpu.shapes)


@pytest.mark.parametrize(
    ("name", "precision"),
    [("standard", "fp16"), ("macaron", "fp32"), ("joint fast", "fp16"), ("joint fast", "fp32")],
)
@pytest.mark.parametrize("beam_size", [1, 5])
def test_whole_searches_by_engines_are_equal_to_the_bit(
    bundles: Path, runs: Runs, name: str, precision: str, beam_size: int
) -> None:
    folder = with_engines(bundles, name, precision)
    stepper, use = stepper_of(folder)
    reason = f"Recorded GPU, engines of tensorrt {VERSION}, CUDA graphs"
    assert use == DeviceUse("tensorrt", reason)
    sentences = with_prefixes(11, every_hypothesis(beam_size))
    wanted = [finished.hypotheses for finished in decode(on_cpu(folder), sentences)]
    assert not runs.shapes
    assert [finished.hypotheses for finished in decode(stepper, sentences)] == wanted
    assert decode_joining(stepper, list(sentences)) == wanted
    assert len(runs.shapes) > 40
    assert not runs.recorded.unfinished
    # Neither the encoder's graph nor the step's: all is in the engines.
    assert not runs.recorded.shapes
    steps = [shapes for shapes in runs.shapes if "write_index" in shapes]
    assert {shapes["visible"][3] for shapes in steps} <= {64, 128}
    assert {len(shapes["self_key_0"]) for shapes in steps} == {4}
    assert runs.captured > 1
    assert runs.driver.launches > runs.captured


@pytest.mark.parametrize("name", LANGUAGE)
def test_outputs_of_language_models_by_engines_are_equal_to_the_bit(
    bundles: Path, runs: Runs, name: str
) -> None:
    folder = with_engines(bundles, name, profile="rows=16,capacity=64,128,256")
    stepper, use = stepper_of(folder)
    assert use.name == "tensorrt"
    assert sample(stepper) == sample(on_cpu(folder))
    options = SearchOptions(beam_size=4, num_hypotheses=4, max_length=20, loop_guard=False)
    sentences = [Sentence([], options, random_ids(length)) for length in (1, 30, 9)]
    found = [
        [finished.hypotheses for finished in decode(each, sentences)]
        for each in (stepper, on_cpu(folder))
    ]
    assert found[0] == found[1]
    assert len(runs.shapes) > 40
    assert steps_of(runs.recorded) == 0


def test_what_no_engine_takes_is_computed_by_the_graph(bundles: Path, runs: Runs) -> None:
    folder = with_engines(bundles, "macaron", profile="rows=4,source=16,capacity=32")
    stepper, _ = stepper_of(folder)
    options = SearchOptions(beam_size=4, max_length=60, min_length=50, loop_guard=False)
    sentences = [Sentence(s.source, options) for s in random_sentences(7)]
    wanted = [finished.hypotheses for finished in decode(on_cpu(folder), sentences)]
    for count in (3, 7):
        found = [finished.hypotheses for finished in decode(stepper, sentences[:count])]
        assert found == wanted[:count]
    assert {shapes["visible"][3] for shapes in runs.shapes if "visible" in shapes} == {32}
    assert {shapes["source_mask"][0] for shapes in runs.shapes} <= {1, 2, 3, 4}
    assert steps_of(runs.recorded) > 20


@pytest.mark.slow
def test_memory_is_flat_over_many_requests(bundles: Path, runs: Runs) -> None:
    stepper, _ = stepper_of(with_engines(bundles, "macaron"))

    def serve() -> None:
        decode_joining(stepper, with_prefixes(7, every_hypothesis(4)))

    for _ in range(2):
        serve()
    kept = runs.recorded.live_bytes
    for _ in range(6):
        serve()
    assert runs.recorded.live_bytes == kept


def test_several_threads_take_turns(bundles: Path, runs: Runs) -> None:
    folder = with_engines(bundles, "macaron")
    stepper, _ = stepper_of(folder)
    sentences = dict(enumerate(with_prefixes(24, every_hypothesis(4))))
    wanted = {key: each.hypotheses for key, each in decode_in_batches(on_cpu(folder), sentences)}
    found = dict(decode_in_batches(stepper, sentences, 3, BatchLimits(max_rows=5)))
    assert {key: each.hypotheses for key, each in found.items()} == wanted
    assert steps_of(runs.recorded) == 0


def test_cuda_graphs_of_engines_can_be_turned_off(
    bundles: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sentences = with_prefixes(7, every_hypothesis(3))
    found = []
    for switch in ("on", "off"):
        monkeypatch.setenv(GRAPHS_SWITCH, switch)
        with recorded_gpu() as recorded, recorded_tensorrt(recorded) as runs:
            stepper, use = stepper_of(with_engines(bundles, "macaron"))
            found.append([f.hypotheses for f in decode(stepper, sentences)])
            rows = {shapes["visible"][0] for shapes in runs.shapes if "visible" in shapes}
            assert (7 in rows, 8 in rows) == (switch == "off", switch == "on")
            assert (runs.driver.launches > 0) == (switch == "on")
            assert use.reason.endswith(
                ", CUDA graphs" if switch == "on" else "no CUDA graphs (MACARON_CUDA_GRAPHS=off)"
            )
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["macaron", "joint fast"])
def test_rows_are_not_filled_up_beyond_what_engines_take(
    bundles: Path, runs: Runs, name: str
) -> None:
    stepper, _ = stepper_of(with_engines(bundles, name, profile="rows=7,source=64,capacity=64,128"))
    sentences = with_prefixes(7, every_hypothesis(3))
    decode(stepper, sentences)
    rows = {shapes["visible"][0] for shapes in runs.shapes if "visible" in shapes}
    assert 7 in rows
    assert steps_of(runs.recorded) == 0
    assert (5 in rows) <= (name == "joint fast")  # whose rows have no buckets


@pytest.mark.parametrize("case", ["refused", "waits", "no context"])
def test_an_engine_that_cannot_be_captured_runs_without_a_graph(
    bundles: Path,
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    case: str,
) -> None:
    folder = with_engines(bundles, "macaron")
    stepper, _ = stepper_of(folder)
    if case == "refused":
        runs.capturable, reason = False, "the engine cannot be captured"
    elif case == "waits":

        def wait(self: Any, stream: int) -> None:
            runs.driver.cuStreamSynchronize(ctypes.c_void_p(stream))

        monkeypatch.setattr(EngineContext, "run_captured", wait)
        reason = "cuStreamEndCapture returned error 901"
    else:
        runs.contexts, reason = False, "is refused by tensorrt 11.4.0: no room for a context"
    sentences = with_prefixes(11, every_hypothesis(4))
    wanted = [finished.hypotheses for finished in decode(on_cpu(folder), sentences)]
    for _ in range(2):
        assert [finished.hypotheses for finished in decode(stepper, sentences)] == wanted
    assert not runs.driver.launches
    (warning,) = [each.message for each in caplog.records if "without CUDA graphs" in each.message]
    assert reason in warning


def test_batches_run_in_streams_of_their_own(
    bundles: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STREAMS_SWITCH, "2")
    runs.recorded.linger_s = 0.0005
    folder = with_engines(bundles, "macaron")
    manifest = read_manifest(folder)
    device = open_device(folder, manifest, 0, 2)
    assert device.use.reason.endswith(", CUDA graphs, 2 streams")
    stepper = OnnxStepper(folder, manifest, 1, device=device)
    sentences = dict(enumerate(with_prefixes(24, every_hypothesis(4))))
    wanted = {key: each.hypotheses for key, each in decode_in_batches(on_cpu(folder), sentences)}
    for threads in (2, 3):
        found = dict(decode_in_batches(stepper, sentences, threads, BatchLimits(max_rows=5)))
        assert {key: each.hypotheses for key, each in found.items()} == wanted
    assert runs.recorded.most_at_once == 2
    assert len(runs.driver.streams) == 2
    assert runs.driver.launches > 20
    assert not runs.recorded.unfinished


def test_a_replay_fails_on_the_recorded_gpu_once_its_context_or_memory_has_changed(
    bundles: Path, runs: Runs
) -> None:
    engine = read_manifest(with_engines(bundles, "macaron")).engines[0]
    loaded = load_engine(with_engines(bundles, "macaron"), engine, find_tensorrt("tensorrt"))
    stream, activations = Stream(), on_gpu(4096)
    context = loaded.context(activations.data_ptr())
    shapes = dict.fromkeys(("source_ids", "source_mask"), (2, 8))
    values = {name: on_gpu(4096) for name in loaded.loaded.dtypes}
    for value in values.values():
        value.update_inplace(np.zeros(4096, np.uint8))
    addresses = {name: value.data_ptr() for name, value in values.items()}
    context.bind(shapes, addresses)
    with pytest.raises(RuntimeError, match="shapes have changed since the last run"):
        stream.capture(lambda: context.run_captured(stream.handle))
    context.run(stream.handle)
    with pytest.raises(AssertionError, match="is read before the stream that writes it"):
        next(reversed(values.values())).numpy()
    stream.wait()
    graph = stream.capture(lambda: context.run_captured(stream.handle))
    graph.launch()
    stream.wait()
    del values["source_ids"], value
    gc.collect()
    with pytest.raises(AssertionError, match="given back or never taken"):
        graph.launch()
    values["source_ids"] = on_gpu(4096)
    context.bind(shapes, {name: value.data_ptr() for name, value in values.items()})
    with pytest.raises(AssertionError, match="the context of a captured graph has changed"):
        graph.launch()


def changed(folder: Path, tmp_path: Path, **fields: Any) -> Path:
    """A copy of a bundle whose manifest says something else of its last engine."""
    copy = tmp_path / "changed"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    manifest = read_manifest(copy)
    *engines, last = manifest.engines
    engines.append(last.model_copy(update=fields))
    write_manifest(copy, manifest.model_copy(update={"engines": tuple(engines)}))
    return copy


def damage(runs: Runs, folder: Path) -> None:
    (folder / "step-128.engine").write_bytes(b"something else")


def refuse(runs: Runs, folder: Path) -> None:
    """A file that is what the manifest says, and that the library does not read."""
    damage(runs, folder)
    tree = json.loads((folder / "manifest.json").read_text())
    tree["engines"][-1]["sha256"] = file_hash(folder / "step-128.engine")
    (folder / "manifest.json").write_text(json.dumps(tree))


@pytest.mark.parametrize(
    ("fields", "change", "reason"),
    [
        (
            {"version": "11.3.0"},
            None,
            r"step-128.engine was built by tensorrt 11.3.0, and tensorrt 11.4.0 is installed",
        ),
        ({"library": "tensorrt_rtx"}, None, r"was built by tensorrt_rtx 11.4.0, and tensorrt 11.4"),
        (
            {"gpu": "NVIDIA A100", "compute_capability": "8.0"},
            None,
            r"was built for NVIDIA A100 \(8.0\), and this GPU is Recorded GPU \(9.0\)",
        ),
        ({"bytes": 1 << 40}, None, r"its engines take 1,048,576 MiB, and \d,\d+ MiB are free"),
        (
            {},
            lambda runs, folder: setattr(runs, "contexts", False),
            r"is refused by tensorrt 11.4.0: no room for a context",
        ),
        (
            {},
            lambda runs, folder: setattr(runs, "activation_bytes", 1 << 40),
            r"its engines and what they make take 1,048,576 MiB, and \d,\d+ MiB are free",
        ),
        ({}, damage, r"step-128.engine is damaged: its sha256 is \w{12}, the manifest says \w{12}"),
        (
            {},
            refuse,
            r"step-128.engine is refused by tensorrt 11.4.0: Serialization assertion magicTag ==",
        ),
        (
            {},
            lambda runs, folder: (folder / "step-128.engine").unlink(),
            r"step-128.engine cannot be read \(No such file or directory\)",
        ),
    ],
)
def test_engines_that_do_not_fit_are_not_used_and_the_device_says_why(
    bundles: Path, runs: Runs, tmp_path: Path, fields: dict[str, Any], change: Any, reason: str
) -> None:
    folder = changed(with_engines(bundles, "macaron"), tmp_path, **fields)
    if change is not None:
        change(runs, folder)
    stepper, use = stepper_of(folder)
    assert use.name == "cuda"
    assert use.reason.startswith("Recorded GPU, CUDA graphs; without TensorRT: ")
    assert "\n" not in use.reason
    assert re.search(reason, use.reason), use.reason
    sentences = with_prefixes(3, every_hypothesis(3))
    wanted = [finished.hypotheses for finished in decode(on_cpu(folder), sentences)]
    assert [finished.hypotheses for finished in decode(stepper, sentences)] == wanted
    assert not runs.shapes


def test_verify_names_a_damaged_engine(
    bundles: Path, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = changed(with_engines(bundles, "macaron"), tmp_path)
    damage(runs, folder)
    assert main(["verify", str(folder)]) == 1
    error = capsys.readouterr().err
    assert "step-128.engine is damaged" in error
    assert "`python -m macaron export engine`" in error
    assert error.count("\n") == 1


def test_a_machine_without_the_library_runs_the_graphs(bundles: Path, runs: Runs) -> None:
    folder = with_engines(bundles, "macaron")
    runs.installed = False
    _, use = stepper_of(folder)
    assert use.name == "cuda"
    assert "tensorrt cannot be imported" in use.reason
    assert "pip install tensorrt-cu13" in use.reason
    assert "licence" in use.reason


def test_the_switch_says_whether_engines_are_used(
    bundles: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines, none = with_engines(bundles, "macaron"), bundle_of(bundles, "macaron", "fp16")
    found = {}
    for switch in ("auto", "cuda", "tensorrt", "cpu"):
        monkeypatch.setenv(SWITCH, switch)
        found[switch] = [stepper_of(folder)[1] for folder in (engines, none)]
    assert [use.name for use in found["auto"]] == ["tensorrt", "cuda"]
    assert [use.name for use in found["cuda"]] == ["cuda", "cuda"]
    assert [use.name for use in found["tensorrt"]] == ["tensorrt", "cuda"]
    assert "the bundle has no engines (`python -m macaron export" in found["tensorrt"][1].reason
    assert [use.name for use in found["cpu"]] == ["cpu", "cpu"]
    monkeypatch.setenv(SWITCH, "tensorrt")
    manifest = read_manifest(none).model_copy(update={"target": "cpu"})
    with pytest.raises(BundleError, match=r"tensorrt, and the bundle is for the CPU;.*cuda"):
        open_device(none, manifest)


def test_what_the_library_refuses_is_an_error_that_says_why(bundles: Path, runs: Runs) -> None:
    folder = with_engines(bundles, "macaron")
    encoder, step = read_manifest(folder).engines[:2]
    loaded = load_engine(folder, encoder, find_tensorrt("tensorrt"))
    addresses = dict.fromkeys(loaded.loaded.dtypes, 1 << 40)
    shapes = dict.fromkeys(("source_ids", "source_mask"), (2, 8))
    for wrong, reason in (
        ((shapes | {"source_ids": (17, 8)}, addresses), r"\(17, 8\) is outside \[1, 8\] to \[16,"),
        ((shapes, addresses | {"source_ids": 0}), "source_ids has no address"),
        ((shapes, addresses | {"source_ids": 264}), "source_ids does not begin at a multiple"),
    ):
        context = loaded.context(4096)
        with pytest.raises(RuntimeError, match=f"encoder.engine: tensorrt refuses.*{reason}"):
            run(context, *wrong)
    loaded = load_engine(folder, step, find_tensorrt("tensorrt"))
    addresses = {name: place << 40 for place, name in enumerate(loaded.loaded.dtypes, 1)}
    with pytest.raises(RuntimeError, match="self_key_0_out does not lie where self_key_0 does"):
        loaded.context(4096).bind({}, addresses)


def run(context: EngineContext, shapes: dict[str, Any], addresses: dict[str, int]) -> None:
    context.bind(shapes, addresses)
    context.run(Stream().handle)


def test_a_gpu_is_named_by_its_compute_capability(bundles: Path, runs: Runs) -> None:
    engine = read_manifest(with_engines(bundles, "macaron")).engines[0]
    assert (engine.gpu, engine.compute_capability) == ("Recorded GPU", "9.0")
    other = Gpu("Recorded GPU", (13, 0), (12, 0), 8 * 2**30, 16 * 2**30)
    runs.recorded.gpu = dataclasses.replace(other)
    _, use = stepper_of(with_engines(bundles, "macaron"))
    assert "built for Recorded GPU (9.0), and this GPU is Recorded GPU (12.0)" in use.reason


def test_what_has_been_timed_is_kept_for_the_next_build(
    bundles: Path, runs: Runs, tmp_path: Path
) -> None:
    with_engines(bundles, "macaron", profile="rows=2,capacity=64")
    for number, timings in ((1, tmp_path / "own"), (2, tmp_path / "own")):
        out = tmp_path / str(number)
        bundle = bundle_of(bundles, "macaron", "fp16")
        export_engines(bundle, out, profile="capacity=64", library="tensorrt", timing_cache=timings)
    assert (tmp_path / "own").read_bytes() == b"...."  # of two engines, twice
    (kept,) = (tmp_path / "cache" / "macaron").iterdir()
    assert kept.name == f"tensorrt-{VERSION}-9.0.timing"
