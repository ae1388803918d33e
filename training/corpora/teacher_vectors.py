"""A file of a teacher's vectors for texts, from which a student learns."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats
from training.errors import CorpusError

_HASH_BYTES = 8


class TeacherVectors:
    """Vectors of length one, looked up by their text; white space in the text does not matter."""

    def __init__(self, hashes_N: NDArray[np.uint64], vectors_ND: NDArray[np.float16]) -> None:
        self._hashes_N, self._vectors_ND = hashes_N, vectors_ND
        self._rows = {int(key): row for row, key in enumerate(hashes_N)}

    @classmethod
    def of(cls, texts: Iterable[str], vectors_ND: Floats) -> TeacherVectors:
        """The vectors of these texts, kept in 16 bits."""
        hashes_N = np.array([_hash(text) for text in texts], np.uint64)
        return cls(hashes_N, vectors_ND.astype(np.float16))

    @classmethod
    def read(cls, path: Path) -> TeacherVectors:
        """Read the vectors of a file; raises CorpusError if it is missing or not a file of
        vectors."""
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                return cls(file["hashes"], file["vectors"])
        except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise CorpusError(
                f"{path}: not a file of a teacher's vectors ({error}); make one with `python -m "
                "macaron vectors TEACHER TEXTS OUT.npz`"
            ) from error

    def content(self) -> bytes:
        """The bytes of an .npz file that `read` can read."""
        file = io.BytesIO()
        np.savez(file, hashes=self._hashes_N, vectors=self._vectors_ND)
        return file.getvalue()

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self._vectors_ND.shape[1])

    def __len__(self) -> int:
        return len(self._vectors_ND)

    def get(self, text: str) -> NDArray[np.float16] | None:
        """The vector [D] of a text; None if the teacher has not read it."""
        row = self._rows.get(_hash(text))
        return None if row is None else self._vectors_ND[row]


def _hash(text: str) -> int:
    plain = " ".join(text.split()).encode()
    return int.from_bytes(hashlib.blake2b(plain, digest_size=_HASH_BYTES).digest(), "little")
