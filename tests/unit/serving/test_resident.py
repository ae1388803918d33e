"""What is large goes back to the system when it is freed, while models are loaded."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREED = """
import contextlib, ctypes, sys
from serving.resident import large_blocks_apart, resident_bytes

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.malloc.argtypes = [ctypes.c_size_t]

def taken(size):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    return block

with large_blocks_apart() if sys.argv[1] == "apart" else contextlib.nullcontext():
    libc.free(taken(24 << 20))  # glibc takes blocks of this size into its heap from here on
    before = resident_bytes()
    large, small = taken(16 << 20), taken(100)
    libc.free(large)
    print((resident_bytes() - before) >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is about glibc's allocator")
def test_what_is_freed_while_models_are_loaded_is_free() -> None:
    held = [
        int(subprocess.check_output([sys.executable, "-c", FREED, way], text=True))
        for way in ("apart", "not")
    ]
    assert held[0] <= 1
    assert held[1] >= 15  # what lives on, however small, keeps what lies below it
