"""Loads the vocabularies of a bundle, of any kind."""

from __future__ import annotations

from pathlib import Path

from serving.bundle.manifest import Manifest
from serving.bundle.pieces import PieceVocabulary
from serving.bundle.tokenizer import TextTokenizer, Tokenizer
from serving.bundle.words import WordVocabulary
from serving.errors import BundleError, install_command
from serving.search.ids import SpecialIds


def load_tokenizers(folder: Path, manifest: Manifest) -> tuple[TextTokenizer, TextTokenizer]:
    """The tokenizers of source and target, which may be the same; raises as `load_tokenizer`
    does."""
    files = manifest.tokenizer
    target = load_tokenizer(folder, files.target_file, manifest)
    if files.source_vocabulary_file is None and files.source_file == files.target_file:
        return target, target
    return load_tokenizer(folder, files.source_file, manifest, source=True), target


def load_tokenizer(
    folder: Path, file: str, manifest: Manifest, *, source: bool = False
) -> TextTokenizer:
    """Load a tokenizer that a manifest names; the `source` may have a vocabulary of its own.

    Raises BundleError if the file does not have the kind and size that the manifest says, or if it
    is the tokenizer of an encoder.
    """
    files, vocab_size = manifest.tokenizer, manifest.sizes.vocab_size
    vocabulary_file = files.vocabulary_file
    if source and files.source_vocabulary_file is not None:
        vocabulary_file, vocab_size = files.source_vocabulary_file, manifest.source_pieces
    path = folder / file
    tokenizer: TextTokenizer
    try:
        if files.kind == "tokenizers":
            # Imported here, so that bundles of other kinds do not load that library.
            from serving.bundle.fast_vocabulary import FastVocabulary

            tokenizer = FastVocabulary(path, vocab_size, manifest.decoding_ids)
        elif vocabulary_file is not None:
            vocabulary = (folder / vocabulary_file).read_bytes()
            ids = manifest.decoding_ids
            moses = files.kind == "moses"
            tokenizer = (
                _moses(path, vocabulary, ids) if moses else PieceVocabulary(path, vocabulary, ids)
            )
        else:
            tokenizer = WordVocabulary(path) if files.kind == "words" else Tokenizer(path)
    except BundleError:
        raise
    except Exception as error:  # one of the libraries raises nothing more specific
        raise BundleError(" ".join(f"{path}: not a tokenizer: {error}".split())) from error
    if tokenizer.vocab_size != vocab_size:
        raise BundleError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} ids, the model {vocab_size}"
        )
    return tokenizer


def _moses(path: Path, vocabulary: bytes, special_ids: SpecialIds) -> TextTokenizer:
    """Import the module for Moses vocabularies, whose packages other bundles do not need."""
    try:
        from serving.bundle.moses import MosesVocabulary
    except ImportError as error:
        raise BundleError(
            f"{path}: the tokenizer uses Moses' rules and BPE, which need sacremoses and "
            f"subword-nmt: {install_command('moses')} ({error})"
        ) from error
    return MosesVocabulary(path.read_bytes(), vocabulary, special_ids)
