"""Compiling the native operators; what they compute: tests/integration/test_kernels.py."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from serving import kernels


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """`native_library` remembers its answer for the process."""
    monkeypatch.setattr(kernels, "native_library", kernels.native_library.__wrapped__)


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


def test_other_sources_or_processors_are_compiled_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ntouch "$2"\n')
    compiler.chmod(0o755)
    first = kernels.build_library(str(compiler), tmp_path)
    assert kernels.build_library(str(compiler), tmp_path) == first
    monkeypatch.setattr(kernels, "_processor", lambda: "another")
    second = kernels.build_library(str(compiler), tmp_path)
    assert second != first
    assert {first, second} <= set(tmp_path.iterdir())
