"""Pointers of Git LFS in place of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.errors import ExportError
from export.importing.pointers import is_pointer, refuse_pointer

POINTER = b"""version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (POINTER, True),
        (POINTER.replace(b"v1", b"v2"), True),
        (b"", False),
        (POINTER[:20], False),
        (b"\n" + POINTER, False),
        (b"\x80\x02}q", False),
    ],
)
def test_a_pointer_is_known_by_its_first_line(content: bytes, found: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    assert is_pointer(path) is found
    if not found:
        refuse_pointer(path)
        return
    with pytest.raises(ExportError, match=r"model\.bin: is a pointer of Git LFS.*git lfs pull"):
        refuse_pointer(path)


def test_what_is_no_file_is_no_pointer(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        assert not is_pointer(path)
        refuse_pointer(path)
