"""Loading a bundle's vocabulary, of whichever kind it is."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.manifest import Manifest
from serving.bundle.pieces import PieceVocabulary
from serving.bundle.tokenizer import TextTokenizer, Tokenizer
from serving.bundle.words import WordVocabulary
from serving.errors import BundleError


def load_tokenizer(folder: Path, file: str, manifest: Manifest) -> TextTokenizer:
    """Read one of the tokenizers that a manifest names, by its file; raises BundleError where it is
    not one of the kind and the size that the manifest says."""
    files, vocab_size = manifest.tokenizer, manifest.sizes.vocab_size
    path = folder / file
    tokenizer: TextTokenizer
    try:
        if files.kind == "tokenizers":
            # A bundle of another kind has nothing of that library in memory.
            from serving.bundle.fast_vocabulary import FastVocabulary

            tokenizer = FastVocabulary(path, vocab_size, manifest.decoding_ids)
        elif files.vocabulary_file is not None:
            vocabulary = (folder / files.vocabulary_file).read_bytes()
            tokenizer = PieceVocabulary(path, vocabulary, manifest.decoding_ids)
        else:
            tokenizer = WordVocabulary(path) if files.kind == "words" else Tokenizer(path)
    except Exception as error:  # one of the libraries raises nothing more special
        raise BundleError(" ".join(f"{path}: not a tokenizer: {error}".split())) from error
    if tokenizer.vocab_size != vocab_size:
        raise BundleError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} ids, the model {vocab_size}"
        )
    return tokenizer
