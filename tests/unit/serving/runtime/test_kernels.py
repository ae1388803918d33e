"""Compiling the native operators; what they compute: tests/integration/test_kernels.py."""

from __future__ import annotations

import _ctypes
import errno
import logging
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
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


@pytest.mark.slow
@needs_compiler
def test_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = kernels.native_library()
    assert library is not None
    assert library.parent == tmp_path / "macaron"
    made = library.stat()
    assert kernels.native_library() == library
    assert library.stat().st_mtime_ns == made.st_mtime_ns
    assert {file.name for file in library.parent.iterdir()} == {library.name, "kernels.lock"}


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
    assert [file.name for file in (tmp_path / "macaron").iterdir()] == ["kernels.lock"]


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
    first = kernels.build_library(str(compiler), tmp_path, "flags : avx2")
    assert kernels.build_library(str(compiler), tmp_path, "flags : avx2") == first
    second = kernels.build_library(str(compiler), tmp_path, "flags : avx2 avx512f")
    assert second != first
    assert {first, second} <= set(tmp_path.iterdir())


def test_one_of_several_compiles_and_the_others_wait(tmp_path: Path) -> None:
    """Each call has a lock of its own, as processes have."""
    compiler, calls = pretended_compiler(tmp_path), tmp_path / "calls"
    slow = f"#!/bin/sh\necho >> {calls}\nsleep 0.5"
    compiler.write_text(compiler.read_text().replace("#!/bin/sh", slow))
    with ThreadPoolExecutor(4) as pool:
        built = [pool.submit(kernels.build_library, str(compiler), tmp_path, "") for _ in range(4)]
        assert len({each.result() for each in built}) == 1
    assert calls.read_text() == "\n"


@pytest.mark.parametrize("error", [OSError(errno.ENOLCK, "No locks"), NotImplementedError()])
def test_a_folder_without_locks_gets_its_library(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(kernels.FileLock, "acquire", refuse)
    compiler = pretended_compiler(tmp_path)
    assert kernels.build_library(str(compiler), tmp_path, "").is_file()


def test_compiled_while_something_else_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(pretended_compiler(tmp_path)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with kernels.compiled_meanwhile():
        end = time.monotonic() + 30
        while not list(tmp_path.glob("macaron/kernels-*.so")):
            assert time.monotonic() < end
            time.sleep(0.01)


def test_what_cannot_be_compiled_is_told_by_the_first_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", "maybe")
    with kernels.compiled_meanwhile():
        pass
    with pytest.raises(kernels.SettingsError):
        kernels.native_library()


def pretended_compiler(folder: Path, machine: str = "x86_64") -> Path:
    """A shell script that takes the arguments of a compiler for a machine and makes an empty output
    file. The program that it names as `objcopy` does nothing."""
    compiler = folder / "compiler"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = -dumpmachine ] && echo {machine}-linux-gnu && exit\n'
        '[ "$1" = -print-prog-name=objcopy ] && echo true && exit\n'
        'while [ "$1" != -o ]; do shift; done\n: > "$2"\n'
    )
    compiler.chmod(0o755)
    return compiler


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library that can be loaded where `native_library` looks for one; there is no compiler."""
    monkeypatch.setattr(kernels.platform, "machine", lambda: "x86_64")
    library = kernels.ship_library(str(pretended_compiler(tmp_path)), kernels.SHIPPED)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert library is not None
    shutil.copy(_ctypes.__file__, library)
    return library


def test_what_was_shipped_is_taken(shipped: Path) -> None:
    assert kernels.native_library() == shipped


def test_a_shipped_library_is_not_taken_where_it_is_switched_off(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", "off")
    assert kernels.native_library() is None


def test_a_shipped_library_that_cannot_be_loaded_is_reported_and_not_taken(
    shipped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shipped.write_bytes(b"of another machine")
    with caplog.at_level(logging.WARNING):
        assert kernels.native_library() is None
    assert "the native kernels that were shipped cannot be loaded" in caplog.text


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_than_linux_have_the_standard_operators_without_a_word(
    shipped: Path,
    platform: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(kernels.sys, "platform", platform)
    assert kernels.native_library() is None
    assert kernels.ship_library("nothing", shipped.parent) is None
    assert not caplog.records


def test_a_shipped_library_of_other_sources_is_not_taken(shipped: Path, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    for file in kernels.SOURCES.iterdir():
        if file.is_file():
            (sources / file.name).write_bytes(file.read_bytes())
    assert kernels.shipped_library(kernels.SHIPPED, sources) == shipped
    with (sources / "operators.cpp").open("a") as changed:
        changed.write("\n")
    assert kernels.shipped_library(kernels.SHIPPED, sources) is None


def test_a_shipped_library_of_another_machine_is_not_taken(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels.platform, "machine", lambda: "aarch64")
    assert kernels.native_library() is None


def test_nothing_is_shipped_for_other_machines(tmp_path: Path) -> None:
    compiler = str(pretended_compiler(tmp_path, "riscv64"))
    assert kernels.ship_library(compiler, tmp_path / "built") is None
    assert not (tmp_path / "built").exists()


def test_a_cross_compiler_ships_the_library_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels.platform, "machine", lambda: "x86_64")
    made = kernels.ship_library(str(pretended_compiler(tmp_path, "aarch64")), kernels.SHIPPED)
    assert made is not None
    assert made.name.startswith("kernels-aarch64-")
    shutil.copy(_ctypes.__file__, made)
    assert kernels.shipped_library(kernels.SHIPPED) is None
    monkeypatch.setattr(kernels.platform, "machine", lambda: "aarch64")
    assert kernels.shipped_library(kernels.SHIPPED) == made


def test_shipping_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", str(pretended_compiler(tmp_path)))
    assert kernels.main([]) == 0
    assert capsys.readouterr().out.split() == [str(p) for p in kernels.SHIPPED.iterdir()]
    assert kernels.main([str(tmp_path / "built")]) == 0
    assert capsys.readouterr().out.split() == [str(p) for p in (tmp_path / "built").iterdir()]
    monkeypatch.setenv("CXX", "false")
    assert kernels.main([]) == 1
    assert "false failed" in capsys.readouterr().err
    monkeypatch.setenv("CXX", "nowhere")
    assert kernels.main([]) == 1
    assert "no C++ compiler" in capsys.readouterr().err
    monkeypatch.setenv("MACARON_NATIVE_KERNELS", "off")
    assert kernels.main([]) == 0
    assert "MACARON_NATIVE_KERNELS is off" in capsys.readouterr().out
