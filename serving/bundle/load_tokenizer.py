"""The vocabularies in a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from serving.bundle.tokenizer import TextTokenizer, Tokenizer
from serving.bundle.words import WordVocabulary
from serving.errors import BundleError


def load_tokenizer(
    path: Path, kind: Literal["sentencepiece", "words"], vocab_size: int
) -> TextTokenizer:
    """Raises BundleError where the file is no vocabulary of that kind and size."""
    try:
        tokenizer: TextTokenizer = WordVocabulary(path) if kind == "words" else Tokenizer(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise BundleError(" ".join(f"{path}: not a tokenizer: {error}".split())) from error
    if tokenizer.vocab_size != vocab_size:
        raise BundleError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} ids, the model {vocab_size}"
        )
    return tokenizer
