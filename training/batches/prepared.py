"""A cache of prepared text. The name of each file is a hash of everything that its content depends
on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from serving.bundle.tokenizer import Tokenizer
from training.batches.batching import IdPair, encode_pairs
from training.batches.streaming import StoredIds, StoredText, open_ids, open_text, store_ids
from training.corpora.pairs import CleaningReport, Corpus, Pair
from training.errors import CorpusError, StorageError, reason_of
from training.recipe.config import ParallelFiles, TranslationRecipe, expand
from training.runs.checkpoint import write_atomically

logger = logging.getLogger(__name__)

_CODE = ("corpora/pairs.py", "tasks/translation.py", "recipe/filters.py", "corpora/tables.py")
"""Modules of training that decide which text is kept; a change in one of them changes the key."""
Arrays = dict[str, np.ndarray]


class PreparedText:
    """The clean text of a recipe and its ids, read from the recipe's `data.cache` if they are
    there.

    A cache file that cannot be read counts as missing. If one cannot be written, a warning is
    logged and the run goes on without it.
    """

    def __init__(self, recipe: TranslationRecipe) -> None:
        self._recipe = recipe
        self._folder = None if recipe.data.cache is None else expand(recipe.data.cache)

    def corpus(self, make: Callable[[], Corpus]) -> Corpus:
        """The clean text, made by `make` if the cache does not have it."""
        if self._folder is None:
            return make()
        path = self._folder / f"{self._key}.text.safetensors"
        arrays = _load(path)
        if arrays is not None:
            return _to_corpus(arrays)
        corpus = make()
        _save(path, _from_corpus(corpus))
        return corpus

    def ids(self, pairs: Sequence[Pair], tokenizer: Tokenizer) -> list[IdPair]:
        """The ids of the clean text's training pairs, encoded if the cache does not have them."""
        if self._folder is None:
            return encode_pairs(pairs, tokenizer)
        path = self._folder / f"{self._key}.{_maker(tokenizer)}.ids.safetensors"
        arrays = _load(path)
        if arrays is not None:
            sides = (_split(arrays[f"{side}_ids"], arrays[f"{side}_sizes"]) for side in _SIDES)
            return list(zip(*sides, strict=True))
        encoded = encode_pairs(pairs, tokenizer)
        _save(path, _from_ids(encoded))
        return encoded

    def stored_text(self, store: Callable[[Path], None]) -> StoredText:
        """The clean text on disk, written by `store` if it is missing.

        Raises StorageError if it cannot be written.
        """
        folder = self._place("text")
        if (found := open_text(folder)) is None:
            store(folder)
            found = open_text(folder)
        assert found is not None
        return found

    def stored_ids(self, text: StoredText, tokenizer: Tokenizer) -> StoredIds:
        """The ids of stored text on disk, encoded if they are missing.

        Raises StorageError if they cannot be written.
        """
        folder = self._place(f"{_maker(tokenizer)}.ids")
        if (found := open_ids(folder)) is None:
            store_ids(folder, text, tokenizer)
            found = open_ids(folder)
        assert found is not None
        return found

    def _place(self, what: str) -> Path:
        assert self._folder is not None  # without which nothing is streamed
        return self._folder / f"{self._key}.{what}"

    @cached_property
    def _key(self) -> str:
        """A digest of everything that the clean text depends on.

        Raises CorpusError for a file that cannot be read.
        """
        data = self._recipe.data
        decisive: dict[str, Any] = {
            "languages": (data.source_language, data.target_language),
            "filters": [dataclasses.asdict(step) for step in data.steps],
            "held_out": (data.held_out_pairs, self._recipe.loop.seed),
            "train": [
                (files.name, files.columns, files.tag, *_contents(files)) for files in data.corpora
            ],
            "directions": [data.direction(files) for files in data.corpora],
            "validation": data.validation
            and (data.validation.columns, *_contents(data.validation)),
            "validation_directions": [data.direction(files) for files in data.validation_corpora],
            "code": [_digest(Path(__file__).parents[1] / name) for name in _CODE],
        }
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:32]


_SIDES = ("source", "target")


def _contents(files: ParallelFiles) -> Iterable[str]:
    """Digests of a corpus' files, each after the file's suffix, which decides how the file is
    read."""
    for path in (files.file, files.source, files.target):
        if path is not None:
            yield f"{Path(path).suffix} {_digest(expand(path))}"


def _maker(tokenizer: Tokenizer) -> str:
    """A hash of all that determines the ids of a text: the tokenizer and the version of
    sentencepiece."""
    content = tokenizer.serialized() + sentencepiece.__version__.encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {reason_of(error)}") from error


def _load(path: Path) -> Arrays | None:
    if not path.exists():
        return None
    try:
        arrays: Arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        logger.warning("%s: cannot be read and is made again: %s", path, error)
        return None
    logger.info("found %s", path)
    return arrays


def _save(path: Path, arrays: Arrays) -> None:
    try:
        write_atomically(path, save(arrays))
    except StorageError as error:
        logger.warning("the cache of prepared text is not kept: %s", error)


def _from_corpus(corpus: Corpus) -> Arrays:
    return {
        "train": _from_lines(chain.from_iterable(corpus.train)),
        "origins": np.array(corpus.origins, dtype=np.int32),
        "validation": _from_lines(chain.from_iterable(corpus.validation)),
        "validation_directions": np.array(corpus.validation_directions, dtype=np.int32),
        "report": np.frombuffer(json.dumps(corpus.report.to_dict()).encode(), dtype=np.uint8),
    }


def _to_corpus(arrays: Arrays) -> Corpus:
    train, validation = (_to_lines(arrays[name]) for name in ("train", "validation"))
    return Corpus(
        list(zip(train[::2], train[1::2], strict=True)),
        arrays["origins"].tolist(),
        list(zip(validation[::2], validation[1::2], strict=True)),
        CleaningReport.from_dict(json.loads(arrays["report"].tobytes())),
        arrays["validation_directions"].tolist(),
    )


def _from_lines(texts: Iterable[str]) -> np.ndarray:
    """The texts, which have no line ends, as bytes with a line end after each; a lone surrogate is
    kept."""
    joined = "".join(f"{text}\n" for text in texts)
    return np.frombuffer(joined.encode("utf-8", "surrogatepass"), dtype=np.uint8)


def _to_lines(content: np.ndarray) -> list[str]:
    return content.tobytes().decode("utf-8", "surrogatepass").split("\n")[:-1]


def _from_ids(pairs: Sequence[IdPair]) -> Arrays:
    arrays: Arrays = {}
    for side, name in enumerate(_SIDES):
        arrays[f"{name}_sizes"] = np.array([len(pair[side]) for pair in pairs], dtype=np.int32)
        ids = chain.from_iterable(pair[side] for pair in pairs)
        arrays[f"{name}_ids"] = np.fromiter(ids, dtype=np.int32)
    return arrays


def _split(ids: np.ndarray, sizes: np.ndarray) -> list[list[int]]:
    flat, ends = ids.tolist(), np.cumsum(sizes).tolist()
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
