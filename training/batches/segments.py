"""Training rows of a language model: a text in columns, or packed documents.

Shape letters: B rows, T tokens of a row, N tokens of a column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from serving.arrays import Int32s
from serving.search.ids import EOS_ID


def join_documents(documents: Iterable[list[int]]) -> Int32s:
    """Documents one after the other, an eos after each."""
    return np.array([id_ for ids in documents for id_ in (*ids, EOS_ID)], dtype=np.int32)


def cut_columns(stream: Int32s, batch_size: int, segment_length: int) -> list[Int32s]:
    """Segments [B,T+1] of a text in `batch_size` contiguous columns; labels are one to the right.

    The rest that does not fill the columns is dropped; the last segment may be shorter (section 4
    of Merity et al. 2018, "Regularizing and Optimizing LSTM Language Models", whose scripts later
    ones followed).
    """
    length = len(stream) // batch_size
    columns_BN = stream[: batch_size * length].reshape(batch_size, length)
    return [
        columns_BN[:, start : start + segment_length + 1]
        for start in range(0, length - 1, segment_length)
    ]


class TextCorpus:
    """The batches of each epoch, as arrays [B,T+1]: inputs are all tokens but the last, labels all
    but the first.

    The order depends only on (seed, epoch), so a resumed run sees what an unbroken one would.
    """

    def __init__(
        self,
        documents: list[list[int]],
        *,
        batching: str,
        batch_size: int,
        segment_length: int,
        seed: int = 1,
    ) -> None:
        """`batching` is `columns` or `documents`, see TextConfig."""
        self._stream = join_documents(documents)
        self._ends = np.cumsum([len(ids) + 1 for ids in documents])
        self._batching, self._batch_size = batching, batch_size
        self._segment_length, self._seed = segment_length, seed

    @property
    def num_tokens(self) -> int:
        """Tokens of the text, an eos for each document included."""
        return len(self._stream)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the ids: a run resumed on other text would not repeat the unbroken one."""
        return hashlib.sha256(self._stream.astype("<u4").tobytes()).hexdigest()

    def epoch(self, epoch: int) -> list[Int32s]:
        """The batches of an epoch."""
        if self._batching == "columns":
            return cut_columns(self._stream, self._batch_size, self._segment_length)
        return self._pack(epoch)

    def _pack(self, epoch: int) -> list[Int32s]:
        """Documents in a new order, cut into full rows; a row may begin within a document."""
        order = np.random.default_rng((self._seed, epoch)).permutation(len(self._ends))
        documents = np.split(self._stream, self._ends[:-1])
        start = np.array([EOS_ID], dtype=np.int32)  # the first document's first token follows it
        stream = np.concatenate([start, *(documents[i] for i in order)])
        length = self._segment_length
        count = (len(stream) - 1) // length
        rows = [stream[i * length : (i + 1) * length + 1] for i in range(count)]
        return [np.stack(rows[i : i + self._batch_size]) for i in range(0, count, self._batch_size)]
