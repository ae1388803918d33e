"""Vectors of a teacher in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training.corpora.teacher_vectors import TeacherVectors
from training.errors import CorpusError

TEXTS = ["The dog sleeps.", "Where is the station?", "Ja."]
VECTORS = np.eye(3, 4, dtype=np.float32)
NPY = (
    b"\x93NUMPY\x01\x00F\x00{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }".ljust(79)
    + b"\n"
)


def test_a_text_has_its_vector_whatever_its_spaces(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npz"
    path.write_bytes(TeacherVectors.of(TEXTS, VECTORS).content())
    found = TeacherVectors.read(path)
    assert (len(found), found.width) == (3, 4)
    for text, vector in zip(TEXTS, VECTORS, strict=True):
        given = found.get("  " + text.replace(" ", "  "))
        assert given is not None
        np.testing.assert_array_equal(given, vector)
    assert found.get("the dog sleeps.") is None


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"PK\x03\x04 cut off", NPY])
def test_what_is_no_such_file_is_reported(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "vectors.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"not a file of a teacher's vectors .* macaron vectors"):
        TeacherVectors.read(path)


def test_an_archive_of_other_arrays_is_reported(tmp_path: Path) -> None:
    np.savez(tmp_path / "vectors.npz", weights=VECTORS)
    with pytest.raises(CorpusError, match="not a file of a teacher's vectors"):
        TeacherVectors.read(tmp_path / "vectors.npz")
