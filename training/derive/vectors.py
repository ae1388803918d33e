"""Stores a teacher's vectors of texts, for a smaller or multilingual embedder to learn from:
`python -m training vectors`.

A student learns to give the teacher's vector to a text and to its translations (Reimers and
Gurevych 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from serving.arrays import Floats
from serving.progress import ProgressLine
from training.corpora.pairs import iterate_lines
from training.corpora.teacher_vectors import TeacherVectors
from training.errors import ConfigError, CorpusError
from training.runs.checkpoint import write_atomically
from training.runs.replacing import check_free

Reader = Callable[[Sequence[str]], Floats]
"""Returns the vectors [B,D] of texts; texts that are too long are cut."""
_READ_TOGETHER = 256
"""Number of texts of similar length that the teacher reads at once."""
_SAMPLE = 20_000
"""Number of texts from which the rotation and the narrower space are computed."""


@dataclass(frozen=True)
class MadeVectors:
    """A file that was written."""

    out: Path
    texts: int
    """Number of different texts that have a vector."""
    width: int
    kept: float
    """The share of the teacher's squares that the narrower vectors keep; 1 at the same width."""


def make_vectors(
    teacher: Reader,
    files: Sequence[Path],
    out: Path,
    *,
    width: int | None = None,
    like: Reader | None = None,
    force: bool = False,
) -> MadeVectors:
    """Write the teacher's vectors of the lines of `files`, each of length one.

    With `width` they have fewer numbers: the components in which a sample of them has most of its
    squares, so that cosines are kept as well as possible. `like` is the student that training
    begins with: the vectors then have its width, and are rotated to be as near to its own vectors
    as a rotation allows (the orthogonal Procrustes problem, Schönemann 1966). The student then has
    to learn only meaning, and not a new orientation.

    Raises ConfigError if `out` cannot be written or is not an .npz file, or the width is larger
    than the teacher's; CorpusError for text that cannot be read.
    """
    if out.suffix != ".npz":
        raise ConfigError(f"OUT must end in .npz, got {out}")
    check_free(out, files, force=force)
    found = {" ".join(line.split()): None for path in files for line in iterate_lines(path)}
    texts = sorted(filter(None, found), key=lambda text: (len(text), text))
    if not texts:
        raise CorpusError(f"{', '.join(map(str, files))}: these files hold no text")
    own = teacher(texts[:1]).shape[1]
    width = width or (own if like is None else like(texts[:1]).shape[1])
    if not 1 <= width <= own:
        raise ConfigError(
            f"the width must be 1 to {own}, which is the teacher's, got {width}; choose another "
            "teacher or a narrower student"
        )
    vectors_ND = _read(teacher, texts)
    chosen = np.random.default_rng(0).permutation(len(texts))[:_SAMPLE]
    sample_ND = vectors_ND[chosen]
    basis_DW = _principal(sample_ND, width)
    kept = float(np.square(sample_ND @ basis_DW).sum() / np.square(sample_ND).sum())
    if like is not None:
        student_NW = _read(like, [texts[number] for number in chosen])
        basis_DW = basis_DW @ _rotation(sample_ND @ basis_DW, student_NW)
    narrow_NW = vectors_ND @ basis_DW
    narrow_NW /= np.maximum(np.linalg.norm(narrow_NW, axis=1, keepdims=True), 1e-12)
    write_atomically(out, TeacherVectors.of(texts, narrow_NW).content())
    return MadeVectors(out, len(texts), width, round(kept, 4))


def _read(read: Reader, texts: Sequence[str]) -> Floats:
    """The vectors of texts; the number of texts read so far is shown on stderr."""
    rows, progress = [], ProgressLine(len(texts), "texts")
    for start in range(0, len(texts), _READ_TOGETHER):
        rows.append(read(texts[start : start + _READ_TOGETHER]))
        progress.add(len(rows[-1]))
    progress.finish()
    return np.concatenate(rows).astype(np.float32)


def _principal(vectors_ND: Floats, width: int) -> Floats:
    """An orthonormal basis [D,W] of the directions with most of the squares; the identity at the
    same width. The mean is not subtracted, because that would change the cosines."""
    own = vectors_ND.shape[1]
    if width == own:
        return np.eye(own, dtype=np.float32)
    _, directions_DD = np.linalg.eigh(vectors_ND.T @ vectors_ND)
    basis_DW: Floats = directions_DD[:, ::-1][:, :width].astype(np.float32)
    return basis_DW


def _rotation(from_NW: Floats, to_NW: Floats) -> Floats:
    """The orthogonal matrix [W,W] that brings the first vectors nearest to the second."""
    left_WW, _, right_WW = np.linalg.svd(from_NW.T @ to_NW)
    turned_WW: Floats = (left_WW @ right_WW).astype(np.float32)
    return turned_WW
