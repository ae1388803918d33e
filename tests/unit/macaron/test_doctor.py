"""`macaron doctor`: what is found, what is advised, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from macaron import doctor
from macaron.doctor import Finding
from serving.hub.cache import Entry, Note
from serving.runtime.gpu import cuda_driver

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT / "models"
WELL = [Finding("cores", "2"), Finding("memory", "plenty")]
ILL = [*WELL, Finding("kernels", "none", "install a compiler")]


def run(findings: list[Finding], monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(doctor, "examine", lambda bundle: iter(findings))
    return doctor.main(list(words), "macaron doctor")


def test_says_that_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(WELL, monkeypatch) == 0
    assert capsys.readouterr().out == "cores   2\nmemory  plenty\nall is well\n"


def test_advice_stands_under_what_it_is_for_and_the_status_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(ILL, monkeypatch) == 1
    assert "kernels  none\n         -> install a compiler\n" in capsys.readouterr().out


@pytest.mark.parametrize(("findings", "well"), [(WELL, True), (ILL, False)])
def test_json(
    findings: list[Finding],
    well: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(findings, monkeypatch, "--json") == (0 if well else 1)
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is well
    assert answer["findings"][0] == {"name": "cores", "found": "2", "advice": None}


def test_the_processor_is_reported_with_the_instructions_that_matter() -> None:
    told = doctor.processor("model name\t: Some CPU\nflags\t\t: fpu avx2 avx512_vnni mmx\n")
    assert told.found == "Some CPU with AVX-512 VNNI; avx2, avx512_vnni"
    arm = doctor.processor("Features\t: fp asimd asimddp i8mm\n")
    assert arm.found.endswith("; asimd, asimddp, i8mm")


@pytest.mark.parametrize(
    ("limit", "advised"), [(None, False), ("max\n", False), (str(2**33), False), ("1000000", True)]
)
def test_little_memory_is_advised_against(tmp_path: Path, limit: str | None, advised: bool) -> None:
    meminfo, bound = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n")
    if limit is not None:
        bound.write_text(limit)
    found = doctor.memory(bound, meminfo)
    assert (found.advice is not None) == advised
    assert ("this container may have" in found.found) == (limit not in (None, "max\n"))


def test_memory_is_not_known_everywhere(tmp_path: Path) -> None:
    assert doctor.memory(tmp_path / "a", tmp_path / "b").found.startswith("not known on ")


@pytest.mark.parametrize(
    ("library", "origin"),
    [(doctor.SHIPPED / "x.so", "came with the package"), (Path("/cache/x.so"), "compiled here")],
)
def test_kernels_are_reported_with_where_they_come_from(
    library: Path, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "native_library", lambda: library)
    assert doctor.kernels() == Finding("kernels", f"native, {origin}: {library}")


@pytest.mark.parametrize(
    ("platform", "switch", "compiler", "advice"),
    [
        ("linux", "", None, "install a C++ compiler"),
        ("linux", "", "g++", "the line on stderr says why g++ fails"),
        ("linux", "off", "g++", "unset MACARON_NATIVE_KERNELS"),
        ("darwin", "", "c++", None),
        ("win32", "", None, None),
    ],
)
def test_where_there_are_no_kernels_the_advice_is_what_would_help(
    platform: str,
    switch: str,
    compiler: str | None,
    advice: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "native_library", lambda: None)
    monkeypatch.setattr(doctor, "find_compiler", lambda environment: compiler)
    monkeypatch.setattr(doctor.sys, "platform", platform)
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", switch)
    found = doctor.kernels()
    assert found.found.startswith("standard operators")
    assert (found.advice or "").startswith(advice or "")
    assert (found.advice is None) == (advice is None)


def test_a_switch_that_is_neither_on_nor_off_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "native_library", doctor.native_library.__wrapped__)
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", "maybe")
    assert "must be on or off" in doctor.kernels().found


@pytest.mark.parametrize(
    ("installed", "advised"),
    [
        ({}, True),
        ({"onnxruntime": "1.31.1"}, False),
        ({"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}, True),
    ],
)
def test_one_onnx_runtime_is_right(
    installed: dict[str, str], advised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", installed.get)
    assert (doctor.runtime().advice is not None) == advised


def test_a_gpu_is_reported_with_its_driver_and_none_is_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = cuda_driver.Gpu("Some GPU", (13, 0), (9, 0), 2**30, 2**31)
    monkeypatch.setattr(cuda_driver, "look", lambda: seen)
    told = doctor.gpu()
    assert told.found.startswith("Some GPU, 1024 MiB of 2048 MiB free; its driver runs CUDA 13.0")
    assert told.advice is None

    def none() -> cuda_driver.Gpu:
        raise cuda_driver.DriverError("no driver")

    monkeypatch.setattr(cuda_driver, "look", none)
    assert doctor.gpu() == Finding("gpu", "none: no driver")


def test_models_of_the_cache_are_counted(tmp_path: Path) -> None:
    assert doctor.cache([], tmp_path).found == f"0 models, 0 MiB, in {tmp_path}"
    bundle = tmp_path / "opus-de-en"
    bundle.mkdir()
    (bundle / "weights.onnx").write_bytes(bytes(3 * 2**20))
    note = Note("Helsinki-NLP/opus-mt-de-en", "0123", "auto", None, "2026-01-01T00:00:00+00:00")
    found = doctor.cache([Entry(note, bundle)], tmp_path).found
    assert found == f"1 models, 3 MiB, in {tmp_path}: Helsinki-NLP/opus-mt-de-en"


def test_a_bundle_that_translates_is_tried_first(tmp_path: Path) -> None:
    assert doctor.first_bundle(tmp_path) is None
    for name, task in (("a", "generate"), ("b", "translate"), ("c", "translate")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(f'{{\n "task": "{task}"\n}}')
    assert doctor.first_bundle(tmp_path) == tmp_path / "b"


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("macaron-de-en", "'Guten Morgen!' is 'Good morning!'"),
        ("lm-cascade", "'Good morning!' goes on with "),
        ("intents", "'Good morning!' was read as 151 numbers"),
    ],
)
def test_bundles_of_each_task_are_tried(name: str, done: str) -> None:
    found = doctor.trial(MODELS / name)
    assert done in found.found
    assert found.advice is None


def test_a_wrong_folder_of_bundles_is_advised_on_and_a_missing_default_is_not() -> None:
    wrong = doctor.untried(Path("/nowhere"))
    assert wrong.found.startswith("/nowhere has no bundle to try")
    assert wrong.advice == "set MACARON_BUNDLES to a folder of bundles"
    assert doctor.untried(Path("models")).advice is None


def test_what_is_no_bundle_or_a_broken_one_is_reported(tmp_path: Path) -> None:
    assert doctor.trial(tmp_path).advice == "name a folder with a manifest.json"
    (tmp_path / "manifest.json").write_text("{}")
    found = doctor.trial(tmp_path)
    assert found.found.endswith("does not work")
    assert found.advice


def test_everything_is_looked_at_here() -> None:
    names = [finding.name for finding in doctor.examine(MODELS / "macaron-de-en")]
    wanted = "python processor cores memory kernels onnxruntime gpu cache check"
    assert names == wanted.split()
