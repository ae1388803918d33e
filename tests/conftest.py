"""Tiny models and traced graphs, made once a test run and shared by its processes."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

import serving  # noqa: F401  # before ONNX Runtime, whose reports it turns off
from serving.runtime import kernels
from serving.threads import default_threads
from tests.stores import running_postgresql

if TYPE_CHECKING:
    from serving.generation.generator import Generator

TESTS = Path(__file__).parent
LONGEST = (
    "system/test_replicas.py",
    "integration/importing/test_smollm2.py",
    "integration/decoding/test_sanitised.py",
    "system/test_replicas_proxy.py",
    "system/test_student.py",
    "unit/serving/server/work/documents/test_memory.py",
    "system/test_own_block.py",
    "system/test_installed.py",
    "integration/bench/test_students.py",
    "system/test_readme.py",
)
"""Files that take over a minute, in the order in which processes begin them, before all others: one
that began last would end alone. The replicas wait most of their time."""
OVERRIDES = [
    "model.vocab_size=300",
    "model.model_dim=64",
    "model.ffn_dim=128",
    "model.dropout=0.0",
    "model.num_encoder_layers=2",
    "model.num_decoder_layers=2",
    "data.token_budget=1024",
    "optim.peak_lr=4e-3",
    "optim.warmup_steps=50",
    "optim.schedule=cosine",
    "optim.label_smoothing=0.0",
    "loop.bf16=false",
    "loop.max_steps=500",
    "loop.seed=2",  # with some seeds a model this small has not learnt it all by then
    "loop.validate_every=250",
    "loop.checkpoint_every=250",
    "loop.bleu_sentences=0",
]


def pytest_collection() -> None:
    """Switch the garbage collector off during collection: all that is imported and collected stays
    until the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Use one thread in PyTorch, since the run has as many processes as cores already. Exempt
    everything imported and collected from garbage collection: it stays until the end."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For the slow tests, not the files without any: each process of the run would import them all,
    which takes longer than most slow tests do."""
    if config.getoption("markexpr") != "slow" or not collection_path.name.startswith("test_"):
        return None
    return None if "mark.slow" in collection_path.read_text(encoding="utf-8") else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests in whole files: the longest first, then tests that wait for servers among tests
    that compute. The processes of a run begin them in this order, and those that wait leave the
    cores to the others. Unit tests, whose files are short, come last, so that all processes end at
    the same time."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    first = [path for path in (TESTS / name for name in LONGEST) if path in files]
    rooms = {path: path.relative_to(TESTS).parts[0] for path in files if path not in first}
    waiting = [path for path, room in rooms.items() if room == "system"]
    last = [path for path, room in rooms.items() if room == "unit"]
    computing = [path for path, room in rooms.items() if room not in ("system", "unit")]
    spread = sorted(
        (number / len(group), path)
        for group in (waiting, computing)
        for number, path in enumerate(group)
    )
    order = (*first, *(path for _, path in spread), *last)
    items[:] = [item for path in order for item in files[path]]


@pytest.fixture(scope="session", autouse=True)
def one_processor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this process a quota of one processor, as a container has. A test that sets no number of
    threads then gets one thread of ONNX Runtime, which does not spin beside the other processes of
    the run."""
    quota = tmp_path_factory.mktemp("quota") / "cpu.max"
    quota.write_text("100000 100000\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default_threads, "__defaults__", (quota,))
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Use one TLS context for all requests. Otherwise each would read the machine's certificates
    anew, which takes longer than most answers, although the tests speak plain HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from more threads, and equal threads make equal bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch on one thread, for the tests of a module."""
    with single_thread():
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of all processes of the test run."""
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session")
def shipped_kernels(shared_folder: Path) -> Path:
    """The native kernels as wheels and images have them, compiled once for all processes of a
    run."""
    compiler = kernels.find_compiler(os.environ)
    if compiler is None or sys.platform != "linux":
        pytest.skip("kernels are shipped for Linux, and need a C++ compiler")
    with FileLock(shared_folder / "shipped_kernels.lock"):
        built = shared_folder / "shipped_kernels"
        library = kernels.shipped_library(built) or kernels.ship_library(compiler, built)
    assert library is not None
    return library


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str | None]:
    """The URL of a PostgreSQL server of this process; None if it cannot be started."""
    with running_postgresql() as url:
        yield url


@pytest.fixture(scope="session")
def traced_once(pytestconfig: pytest.Config) -> Iterator[None]:
    """Let torch.export trace each graph only once, whatever its weights, until the traced code
    changes; traces are kept for the next test run.

    Tracing is nearly all of the time of an export. Everything made from the graph is made anew each
    time.
    """
    from export.graphs import onnx_graph
    from export.graphs.tracing import trace_graph
    from tests.toy.tracing import kept_from_run_to_run, remembering

    assert pytestconfig.cache is not None
    folder = kept_from_run_to_run(pytestconfig.cache.mkdir("traced"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_graph, "trace_graph", remembering(trace_graph, folder))
        yield


@dataclass(frozen=True)
class TinyModel:
    """A model that copies its input, and its two bundles."""

    run: Path
    fp32: Path
    int8: Path


@pytest.fixture(scope="session")
def tiny_model(shared_folder: Path, traced_once: None) -> TinyModel:
    """Train the copying task (`tests/toy`) and export it at both precisions."""
    folder = shared_folder / "tiny_model"
    model = TinyModel(folder / "run", folder / "bundles" / "tiny", folder / "int8" / "tiny-int8")
    with FileLock(shared_folder / "tiny_model.lock"):
        if not model.int8.exists():
            _make(folder, model)
    return model


def _make(folder: Path, model: TinyModel) -> None:
    from export.bundles.run import export_run
    from export.bundles.subject import Form
    from tests.toy.recipe import write_toy_recipe
    from training.loop.trainer import train
    from training.recipe.config import load_recipe

    recipe = write_toy_recipe(folder, pairs=3000, seed=1, task="copy")
    with single_thread():
        train(load_recipe(str(recipe), OVERRIDES), model.run)
    for precision, out in (("fp32", model.fp32), ("int8", model.int8)):
        export_run(model.run, out, Form(precision))


@pytest.fixture(scope="session")
def tiny_bundle(tiny_model: TinyModel) -> Path:
    """An fp32 bundle, de to en, with no other in its folder."""
    return tiny_model.fp32


@pytest.fixture(scope="session")
def tiny_bundle_int8(tiny_model: TinyModel) -> Path:
    """The same as int8."""
    return tiny_model.int8


@dataclass(frozen=True)
class TinyLanguageModel:
    """A language model that has seen little, its two bundles and its validation text."""

    run: Path
    fp32: Path
    int8: Path
    text: Path


@pytest.fixture(scope="session")
def tiny_language_model(shared_folder: Path, traced_once: None) -> TinyLanguageModel:
    """Train on a toy text, with pieces, and export at both precisions."""
    folder = shared_folder / "tiny_language_model"
    model = TinyLanguageModel(
        folder / "run", folder / "fp32" / "lm", folder / "int8" / "lm-int8", folder / "valid.txt"
    )
    with FileLock(shared_folder / "tiny_language_model.lock"):
        if not model.int8.exists():
            _make_language_model(folder, model)
    return model


def _make_language_model(folder: Path, model: TinyLanguageModel) -> None:
    from export.bundles.run import export_run
    from export.bundles.subject import Form
    from tests.toy.text import write_toy_text
    from training.loop.trainer import train
    from training.recipe.config import load_recipe

    recipe = write_toy_text(folder, "sentencepiece")
    with single_thread():
        train(load_recipe(str(recipe), ["loop.max_steps=60"]), model.run)
    for precision, out in (("fp32", model.fp32), ("int8", model.int8)):
        export_run(model.run, out, Form(precision))


@pytest.fixture(scope="session")
def generator(tiny_language_model: TinyLanguageModel) -> Generator:
    """The fp32 bundle of the tiny language model, loaded."""
    from serving.generation.generator import Generator

    return Generator(tiny_language_model.fp32, threads=1)


@dataclass(frozen=True)
class TinyEncoders:
    """Two encoders with random weights, as Hugging Face folders and as bundles in one folder."""

    embedder: Path
    classifier: Path
    bundles: Path
    """Holds `tiny-embedder` (int8) and `tiny-classifier` (fp32)."""


@pytest.fixture(scope="session")
def tiny_encoders(shared_folder: Path, traced_once: None) -> TinyEncoders:
    """Save both and make their bundles."""
    folder = shared_folder / "tiny_encoders"
    model = TinyEncoders(folder / "embedder", folder / "classifier", folder / "bundles")
    with FileLock(shared_folder / "tiny_encoders.lock"):
        if not (model.bundles / "tiny-classifier").exists():
            _make_encoders(folder, model)
    return model


def _make_encoders(folder: Path, model: TinyEncoders) -> None:
    from export.bundles.subject import Form
    from export.importing.bundle import import_bundle
    from export.importing.model import Declared
    from export.texts.texts import Texts
    from tests.toy.encoders import LABELS, save_encoder, write_lines

    save_encoder(model.embedder)
    save_encoder(model.classifier, LABELS)
    text = write_lines(folder)
    with single_thread():
        import_bundle(
            model.embedder,
            model.bundles / "tiny-embedder",
            Form("int8"),
            Texts(text=text),
            Declared(pooling="mean"),
        )
        import_bundle(
            model.classifier, model.bundles / "tiny-classifier", Form("fp32"), Texts(text=text)
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the notes of tests that passed (`record_property("told", ...)`), from every process of
    the run."""
    told = [
        str(line)
        for report in terminalreporter.getreports("passed")
        for name, line in report.user_properties
        if name == "told"
    ]
    if told:
        terminalreporter.section("told by tests")
        for line in sorted(told):
            terminalreporter.write_line(line)
