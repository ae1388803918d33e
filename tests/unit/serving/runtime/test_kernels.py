"""Compiling the native operators; what they compute: tests/integration/test_kernels.py."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from serving.runtime import kernels


@pytest.fixture(autouse=True)
def _afresh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """`native_library` remembers its answer for the process; nothing is shipped."""
    monkeypatch.setattr(kernels, "native_library", kernels.native_library.__wrapped__)
    monkeypatch.setattr(kernels, "SHIPPED", tmp_path_factory.mktemp("built"))


needs_compiler = pytest.mark.skipif(
    kernels.find_compiler(os.environ) is None, reason="needs a C++ compiler"
)


@needs_compiler
def test_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = kernels.native_library()
    assert library is not None
    assert library.parent == tmp_path / "macaron"
    made = library.stat()
    assert kernels.native_library() == library
    assert library.stat().st_mtime_ns == made.st_mtime_ns
    assert list(library.parent.iterdir()) == [library]


def test_switched_off(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", "off")
    assert kernels.native_library() is None
    assert not caplog.records


def test_another_word_for_the_switch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", "maybe")
    with pytest.raises(kernels.SettingsError, match="MACARON_NATIVE_KERNELS must be on or off"):
        kernels.native_library()


def test_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with caplog.at_level(logging.WARNING):
        assert kernels.native_library() is None
    assert "found no C++ compiler" in caplog.text


@pytest.mark.parametrize("output", ["", "operators.cpp:1: error: no such thing"])
def test_a_compiler_that_fails(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert kernels.native_library() is None
    assert "native kernels are not used" in caplog.text
    assert output in caplog.text
    assert list((tmp_path / "macaron").iterdir()) == []


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert kernels.native_library() is None
    assert "native kernels are not used" in caplog.text


def test_other_processors_are_compiled_for_apart(tmp_path: Path) -> None:
    compiler = pretended_compiler(tmp_path)
    first = kernels.build_library(str(compiler), tmp_path, V3)
    assert kernels.build_library(str(compiler), tmp_path, V3) == first
    second = kernels.build_library(str(compiler), tmp_path, V4)
    assert second != first
    assert {first, second} <= set(tmp_path.iterdir())


def pretended_compiler(folder: Path) -> Path:
    """A shell script that takes the compiler's arguments and makes an empty output file."""
    compiler = folder / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ntouch "$2"\n')
    compiler.chmod(0o755)
    return compiler


V3 = "flags : fpu avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Libraries where `native_library` looks for them, the best first; there is no compiler."""
    monkeypatch.setattr(kernels.platform, "machine", lambda: "x86_64")
    libraries = kernels.ship_libraries(str(pretended_compiler(tmp_path)), kernels.SHIPPED)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    return libraries


@pytest.mark.parametrize(
    ("processor", "taken"),
    [(V4, 0), (V4.replace(" avx512bw", ""), 1), (V3, 1), (V3.replace(" fma", ""), None)],
)
def test_the_best_shipped_library_that_runs_is_taken(
    shipped: list[Path], processor: str, taken: int | None
) -> None:
    found = kernels.shipped_library(kernels.SHIPPED, processor)
    assert found == (None if taken is None else shipped[taken])


@pytest.mark.skipif(kernels.platform.machine() != "x86_64", reason="ships for x86-64 alone")
def test_what_is_shipped_for_this_processor_needs_no_compiler(shipped: list[Path]) -> None:
    found = kernels.shipped_library(kernels.SHIPPED, kernels.processor_features())
    assert kernels.native_library() == found
    assert found in {None, *shipped}


def test_a_shipped_library_of_other_sources_is_not_taken(
    shipped: list[Path], tmp_path: Path
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    for file in kernels.SOURCES.iterdir():
        if file.is_file():
            (sources / file.name).write_bytes(file.read_bytes())
    assert kernels.shipped_library(kernels.SHIPPED, V4, sources) == shipped[0]
    with (sources / "operators.cpp").open("a") as changed:
        changed.write("\n")
    assert kernels.shipped_library(kernels.SHIPPED, V4, sources) is None


@needs_compiler
@pytest.mark.skipif(kernels.platform.machine() != "x86_64", reason="ships for x86-64 alone")
def test_shipped_libraries_have_the_operators(tmp_path: Path) -> None:
    compiler = kernels.find_compiler(os.environ)
    assert compiler is not None
    libraries = kernels.ship_libraries(compiler, tmp_path)
    assert len(libraries) == 2
    for library in libraries:
        assert b"RegisterCustomOps" in library.read_bytes()


def test_nothing_is_shipped_for_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels.platform, "machine", lambda: "aarch64")
    assert kernels.ship_libraries(str(pretended_compiler(tmp_path)), tmp_path / "built") == []
    assert not (tmp_path / "built").exists()


@pytest.mark.skipif(kernels.platform.machine() != "x86_64", reason="ships for x86-64 alone")
def test_shipping_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", str(pretended_compiler(tmp_path)))
    assert kernels.main() == 0
    assert set(capsys.readouterr().out.split()) == {str(p) for p in kernels.SHIPPED.iterdir()}
    monkeypatch.setenv("CXX", "false")
    assert kernels.main() == 1
    assert "false failed" in capsys.readouterr().err
    monkeypatch.setenv("CXX", "nowhere")
    assert kernels.main() == 1
    assert "no C++ compiler" in capsys.readouterr().err
