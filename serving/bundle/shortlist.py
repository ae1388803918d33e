"""Shortlists: the target pieces that a source may become; the output layer leaves out the others.

Shape letters: V source pieces, T target pieces of all of them, C common pieces.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serving.arrays import Ints
from serving.errors import BundleError


class Shortlist:
    """A lexicon by source piece, and common pieces that any source may become.

    A list depends on its source alone, so a sentence's translation does not depend on the batch.
    """

    def __init__(self, common_C: Ints, start_V1: Ints, target_T: Ints) -> None:
        """The pieces of source piece v are `target[start[v] : start[v + 1]]`."""
        self._common_C, self._start_V1, self._target_T = common_C, start_V1, target_T
        self._size = 1 + max(common_C.max(initial=0), target_T.max(initial=0))

    def of(self, source: Sequence[int]) -> Ints:
        """The target pieces of a source, in order, each once."""
        listed = np.zeros(self._size, dtype=np.bool_)
        listed[np.concatenate([self._common_C, *map(self.own, set(source))])] = True
        return np.flatnonzero(listed)

    def own(self, piece: int) -> Ints:
        """The target pieces of one source piece, without the common ones."""
        return self._target_T[self._start_V1[piece] : self._start_V1[piece + 1]]

    def save(self, path: Path) -> None:
        """Write the file that `load_shortlist` reads."""
        arrays = (self._common_C, self._start_V1, self._target_T)
        names = ("common", "start", "target")
        small = {n: a.astype(np.uint32) for n, a in zip(names, arrays, strict=True)}
        np.savez_compressed(path, allow_pickle=False, **small)


def load_shortlist(path: Path, vocab_size: int, eos: int, source_size: int) -> Shortlist:
    """Read a shortlist for vocabularies of these sizes and this end of a target; raises BundleError
    if the file is damaged or belongs to other vocabularies."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            common, start, target = (
                file[name].astype(np.int64) for name in ("common", "start", "target")
            )
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise BundleError(f"{path}: not a readable shortlist ({error})") from error
    fits = start.size == source_size + 1 and start[0] == 0 and start[-1] == len(target)
    fits = fits and bool(np.all(np.diff(start) >= 0))
    pieces = np.concatenate([common, target])
    if not (fits and np.all((pieces >= 0) & (pieces < vocab_size))):
        own = "" if source_size == vocab_size else f" and {source_size} of the source"
        raise BundleError(
            f"{path}: the shortlist does not fit a vocabulary of {vocab_size} pieces{own}"
        )
    if eos not in common:
        raise BundleError(f"{path}: eos ({eos}) is not among the common pieces, so nothing ends")
    return Shortlist(common, start, target)
