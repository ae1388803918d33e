"""Lexical shortlists of Marian, `lex.s2t.bin`, converted to shortlists of this project.

The layout and the checksum are those of browsermt/marian-dev (`data/shortlist.cpp`,
`common/hash.h`), tried on the files of published students. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from export.errors import ExportError
from serving.bundle.shortlist import Shortlist

_MAGIC = 0xF11A48D5013417F5


def is_shortlist(path: Path) -> bool:
    """Whether a file begins as a binary shortlist."""
    try:
        with path.open("rb") as file:
            return file.read(8) == struct.pack("<Q", _MAGIC)
    except OSError:
        return False


def read_marian_shortlist(
    path: Path, vocab_size: int, eos: int, source_size: int | None = None
) -> Shortlist:
    """Read the binary shortlist (`lex.s2t.bin`) of a model whose source and target share a
    vocabulary of that size; the result has one more piece, the decoder's start. As in Marian, a
    piece may then always stay unchanged. With `source_size` the source has a separate vocabulary of
    that size.

    u64 magic, checksum, number of most frequent pieces, of translations kept at most, of starts, of
    translations; the starts, u64, of each piece and one more; the translations, u32. Marian adds up
    to seven more pieces to a batch, so that its lists have lengths that suit its kernels; here a
    list follows only from the source. Raises ExportError if it is damaged or fits another
    vocabulary.
    """
    try:
        content = path.read_bytes()
        magic, checksum, first, _, starts, pieces = struct.unpack_from("<6Q", content)
        if magic != _MAGIC:
            raise ValueError("it is not a binary shortlist; convert it with Marian's marian-conv")
        if len(content) != 48 + 8 * starts + 4 * pieces:
            raise ValueError(f"{48 + 8 * starts + 4 * pieces} bytes expected, got {len(content)}")
    except (OSError, struct.error, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ExportError(f"{path}: cannot be read as a shortlist: {reason}") from error
    if checksum and checksum != _checksum(content):
        raise ExportError(f"{path}: damaged: its checksum does not fit")
    start = np.frombuffer(content, "<u8", starts, 48).astype(np.int64)
    target = np.frombuffer(content, "<u4", pieces, 48 + 8 * starts).astype(np.int64)
    own = source_size is not None
    source_size = vocab_size if source_size is None else source_size
    fits = starts == source_size + 1 and start[0] == 0 and start[-1] == pieces
    if not (fits and (np.diff(start) >= 0).all() and (target < vocab_size).all()):
        raise ExportError(
            f"{path}: does not fit a vocabulary of {vocab_size} pieces"
            f"{f' and {source_size} of the source' if own else ''}: it is for "
            f"{max(starts - 1, 0)} of the source, and has translations up to "
            f"{target.max(initial=0)}"
        )
    common = np.union1d(np.arange(min(first, vocab_size)), [eos])
    if own:
        return Shortlist(common, start, target)
    pieces_V = np.arange(vocab_size)
    sources = np.concatenate([np.repeat(pieces_V, np.diff(start)), pieces_V])
    targets = np.concatenate([target, pieces_V])
    by_source = np.lexsort((targets, sources))
    starts_V2 = np.searchsorted(sources[by_source], np.arange(vocab_size + 2))
    return Shortlist(common, starts_V2, targets[by_source])


def _checksum(content: bytes) -> int:
    """Marian's hash of all that follows the checksum, in whole words of 64 bits."""
    mask, seed = 2**64 - 1, 0
    for word in np.frombuffer(content, "<u8", (len(content) - 16) // 8, 16).tolist():
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & mask
    return seed
