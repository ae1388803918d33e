"""llama.cpp's C interface, driven by hand, on a stand-in that goes on from each id by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.systems.processes.rivals import Rival, RivalProcess, started
from tests.unit.bench.stand_ins import install, llama_package

LLAMA = "llama.cpp"


def model(file: Path) -> Rival:
    return Rival(LLAMA, LLAMA, "languages", "LlamaCpp", {"file": str(file), "threads": 1})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LLAMA_CPP_LIB_PATH", raising=False)
    install(tmp_path / "site", llama_package(), monkeypatch)
    path = tmp_path / "model.gguf"
    path.write_text("gguf")
    return path


@pytest.fixture
def llama(file: Path) -> Iterator[RivalProcess]:
    with started(model(file), None, 1) as process:
        yield process


def test_streams_go_on_each_by_itself(llama: RivalProcess) -> None:
    assert llama.version == "llama-cpp-python 8.8"
    found = llama.ask("generate", prompts=[[1, 2, 3], [10], [7, 5]], tokens=4).result
    assert found == [[4, 5, 6, 7], [11, 12, 13, 14], [6, 7, 8, 9]]


def test_a_context_is_emptied_and_grows(llama: RivalProcess) -> None:
    short = llama.ask("generate", prompts=[[1]], tokens=2).result
    long = llama.ask("generate", prompts=[[1] * 600], tokens=2).result
    assert llama.ask("generate", prompts=[[1]], tokens=2).result == short == long == [[2, 3]]


def test_the_loss_is_that_of_the_ids_after_the_first(llama: RivalProcess) -> None:
    assert llama.ask("loss", ids=[3, 4, 5]).result == pytest.approx(math.log(2))
    rare = math.log(2 * (2**16 - 1))  # the other half is shared by all ids that are not the next
    assert llama.ask("loss", ids=[3, 4, 9]).result == pytest.approx((math.log(2) + rare) / 2)


def test_texts_are_read_as_they_are(llama: RivalProcess) -> None:
    assert llama.ask("tokenize", text="ab").result == [1, 2]


def test_files_are_made_of_a_file(file: Path, tmp_path: Path) -> None:
    quantiser = Rival(LLAMA, LLAMA, "languages", "LlamaQuantiser")
    target = tmp_path / "made.gguf"
    with started(quantiser, None, 1) as process:
        process.ask("quantise", source=str(file), target=str(target), kind="Q8_0", threads=1)
    assert target.read_text() == "gguf"


def test_a_file_of_another_kind_is_said(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_text("no model")
    with pytest.raises(BenchError, match=r"llama.cpp does not read .*other\.gguf"):
        RivalProcess(model(other), None, 1)


def test_structures_of_another_library_are_found(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = llama_package()
    api = package["llama_cpp/llama_cpp.py"].replace("main_gpu=0", "main_gpu=1")
    install(tmp_path / "other", {**package, "llama_cpp/llama_cpp.py": api}, monkeypatch)
    with pytest.raises(BenchError, match="take versions that belong together"):
        RivalProcess(model(file), None, 1)
