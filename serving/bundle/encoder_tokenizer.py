"""Tokenizes texts and pairs of texts for an encoder, with a tokenizer of the `tokenizers`
library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from serving.errors import BundleError, RequestError, TooLongError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


class EncodedText(NamedTuple):
    """The token ids of an input, and the segment (first or second text) of each."""

    ids: tuple[int, ...]
    segments: tuple[int, ...]


class EncoderTokenizer:
    """A tokenizer file with its special ids and the longest input of the model."""

    def __init__(self, path: Path, vocab_size: int, max_length: int) -> None:
        """Load the tokenizer. Raises BundleError if the file is not a tokenizer, or has more ids
        than the model."""
        from tokenizers import Tokenizer  # it takes memory

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            raise BundleError(" ".join(f"{path}: not a tokenizer: {error}".split())) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if self._tokenizer.get_vocab_size() > vocab_size:
            raise BundleError(
                f"{path}: the tokenizer has {self._tokenizer.get_vocab_size()} ids, the model "
                f"{vocab_size}"
            )
        self._vocab_size, self.max_length = vocab_size, max_length

    def encode(self, text: str, pair: str | None = None, *, truncate: bool = False) -> EncodedText:
        """Token ids of a text or of a pair, with special ones.

        With `truncate`, an input that is too long is cut at its end (a pair: the longer text
        first); otherwise it raises TooLongError.
        """
        first = self._plain(text)
        second = None if pair is None else self._plain(pair)
        lengths = [len(first), 0 if second is None else len(second)]
        room = self.max_length - self._tokenizer.num_special_tokens_to_add(second is not None)
        if sum(lengths) > room:
            if not truncate:
                self._refuse(sum(lengths) + self.max_length - room)
            kept = _shortened(lengths, room)
            first.truncate(kept[0])
            if second is not None:
                second.truncate(kept[1])
        whole = self._tokenizer.post_process(first, second)
        return EncodedText(tuple(whole.ids), tuple(whole.type_ids))

    def complete(self, ids: Sequence[int], *, truncate: bool = False) -> EncodedText:
        """Add the special ids to token ids that have none; the result is that of `encode`.

        Raises RequestError for an id that the model does not have, and TooLongError as `encode`
        does.
        """
        wrong = [number for number in ids if not 0 <= number < self._vocab_size]
        if wrong:
            raise RequestError(
                f"token ids must be from 0 to {self._vocab_size - 1}, got {wrong[0]}",
                parameter="input",
            )
        empty = self._tokenizer.encode("").ids
        before, behind = empty[: (len(empty) + 1) // 2], empty[(len(empty) + 1) // 2 :]
        room = self.max_length - len(empty)
        if len(ids) > room and not truncate:
            self._refuse(len(ids) + len(empty))
        whole = (*before, *ids[:room], *behind)
        return EncodedText(whole, (0,) * len(whole))

    def _plain(self, text: str) -> Encoding:
        return encoding_of(self._tokenizer, text)

    def _refuse(self, length: int) -> None:
        raise TooLongError(
            f"a text must have at most {self.max_length} tokens, special ones included, got "
            f"{length}; shorten it, or have its end cut off with truncate",
            parameter="input",
        )


def encoding_of(tokenizer: Tokenizer, text: str) -> Encoding:
    """The encoding of one text, without the special ids that the file adds. The library's `encode`
    would stop all threads of Python while it reads; only `encode_batch` lets them run."""
    [found] = tokenizer.encode_batch([text], add_special_tokens=False)
    return found


def _shortened(lengths: Sequence[int], room: int) -> tuple[int, int]:
    """Number of ids that each text of a pair keeps. The longer text is cut first. If both are cut,
    the longer one keeps an odd id, or the second one if both are equally long."""
    first, second = lengths
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= half:
        return room - second, second
    return (room - half, half) if first > second else (half, room - half)
