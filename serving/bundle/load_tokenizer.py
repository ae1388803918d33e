"""Loading a bundle's vocabulary, of whichever kind it is."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.tokenizer import TextTokenizer, Tokenizer
from serving.bundle.words import WordVocabulary
from serving.errors import BundleError


def load_tokenizer(path: Path, kind: str, vocab_size: int) -> TextTokenizer:
    """Read a vocabulary file; raises BundleError where it is not one of that kind and size."""
    if kind not in ("sentencepiece", "words"):
        raise BundleError(f"{path}: the tokenizer must be sentencepiece or words, got {kind}")
    try:
        tokenizer: TextTokenizer = WordVocabulary(path) if kind == "words" else Tokenizer(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise BundleError(" ".join(f"{path}: not a tokenizer: {error}".split())) from error
    if tokenizer.vocab_size != vocab_size:
        raise BundleError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} ids, the model {vocab_size}"
        )
    return tokenizer
