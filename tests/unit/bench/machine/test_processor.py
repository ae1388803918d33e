"""What a bench says of a processor, and gives its rivals."""

from __future__ import annotations

import pytest

from bench.machine import processor
from bench.machine.processor import USE_MKL, child_environment, cpu_name, rivals_environment


def cpuinfo(flags: str) -> str:
    return f"model name\t: A CPU\nflags\t\t: {flags}\nbugs\t\t: \n\n" * 2


@pytest.mark.parametrize(
    ("flags", "name", "with_mkl"),
    [
        ("fpu avx avx2 avx512f avx512_vnni", "A CPU with AVX-512 VNNI", False),
        ("fpu avx avx2 avx_vnni", "A CPU with AVX-VNNI", False),
        ("fpu avx avx2", "A CPU with AVX2", True),
        ("fpu sse2", "A CPU", False),
    ],
)
def test_a_processor_stands_with_what_multiplies_int8(
    flags: str, name: str, with_mkl: bool
) -> None:
    assert cpu_name(cpuinfo(flags)) == name
    assert rivals_environment(cpuinfo(flags), "int8") == ({USE_MKL: "1"} if with_mkl else {})
    assert rivals_environment(cpuinfo(flags), "float32") == {}


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "cpuinfo", lambda: cpuinfo("avx2"))
    monkeypatch.setenv(USE_MKL, "0")
    assert child_environment("int8")[USE_MKL] == "0"
    monkeypatch.delenv(USE_MKL)
    assert child_environment("int8")[USE_MKL] == "1"
