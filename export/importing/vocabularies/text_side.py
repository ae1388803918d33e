"""The text side of an imported translation model: its vocabulary, and the vocabulary's files for
the bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from export.errors import ExportError
from export.importing.model import (
    SOURCE_MODEL,
    SOURCE_RULES,
    SOURCE_VOCABULARY,
    TARGET_MODEL,
    TARGET_RULES,
    VOCABULARY,
    FastTokenizerFile,
    Pieces,
)
from export.texts.vocabulary import Vocabulary
from serving.bundle.fast_vocabulary import FastVocabulary
from serving.bundle.manifest import TokenizerFiles
from serving.bundle.pieces import PieceVocabulary, vocabulary_file
from serving.search.ids import SpecialIds

TOKENIZER = "tokenizer.json"
"""Name of a file of the `tokenizers` library, in checkpoints and in bundles."""


@dataclass(frozen=True)
class TextSide:
    """A vocabulary as it is used, and in the form that a bundle holds."""

    vocabulary: Vocabulary
    files: Mapping[str, bytes]
    tokenizer: TokenizerFiles


def text_side(
    pieces: Pieces | FastTokenizerFile,
    special_ids: SpecialIds,
    vocab_size: int,
    source: Path,
    *,
    source_end: bool = True,
) -> TextSide:
    """The text side of a checkpoint at `source`, whose sources end with eos if `source_end` is set;
    raises ExportError if one of its files is not such a vocabulary."""
    if isinstance(pieces, FastTokenizerFile):
        both = fast_vocabulary(pieces.content, vocab_size, special_ids, source)
        return TextSide(
            Vocabulary(both, both, special_ids, source_end),
            {TOKENIZER: pieces.content},
            TokenizerFiles(
                kind="tokenizers",
                source_file=TOKENIZER,
                target_file=TOKENIZER,
                source_end=source_end,
            ),
        )
    return _of_pieces(pieces, special_ids, source_end=source_end)


def fast_vocabulary(
    content: bytes, vocab_size: int, special_ids: SpecialIds, source: Path
) -> FastVocabulary:
    """The vocabulary in a file of the `tokenizers` library with this content, which was read at
    `source`; raises ExportError if it is not one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER
        path.write_bytes(content)
        try:
            return FastVocabulary(path, vocab_size, special_ids)
        except Exception as error:  # the library raises nothing more special
            reason = " ".join(str(error).split())
            raise ExportError(f"{source}: {TOKENIZER}: no usable tokenizer: {reason}") from error


def _of_pieces(pieces: Pieces, special_ids: SpecialIds, *, source_end: bool) -> TextSide:
    content = vocabulary_file(pieces.written, pieces.control)
    files, source_vocabulary = {VOCABULARY: content}, None
    if pieces.source_written is not None:
        source_vocabulary = SOURCE_VOCABULARY
        files[source_vocabulary] = vocabulary_file(pieces.source_written, pieces.source_control)
    if pieces.moses is not None:
        source_file, target_file = SOURCE_RULES, TARGET_RULES
        files |= {source_file: pieces.moses[0], target_file: pieces.moses[1]}
    else:
        source_file = target_file = SOURCE_MODEL
        files[source_file] = pieces.source_model.read_bytes()
        if pieces.target_model != pieces.source_model:
            files[TARGET_MODEL], target_file = pieces.target_model.read_bytes(), TARGET_MODEL
    source_content = files[source_vocabulary or VOCABULARY]
    return TextSide(
        _vocabulary(pieces, source_content, content, special_ids, source_end=source_end),
        files,
        TokenizerFiles(
            kind="moses" if pieces.moses else "pieces",
            source_file=source_file,
            target_file=target_file,
            vocabulary_file=VOCABULARY,
            source_vocabulary_file=source_vocabulary,
            source_end=source_end,
        ),
    )


def _vocabulary(
    pieces: Pieces,
    source_content: bytes,
    content: bytes,
    special_ids: SpecialIds,
    *,
    source_end: bool,
) -> Vocabulary:
    """The tokenizers of both sides, each of the content of its vocabulary."""
    if pieces.moses is not None:
        from serving.bundle.moses import MosesVocabulary  # its imports need an extra

        return Vocabulary(
            MosesVocabulary(pieces.moses[0], source_content, special_ids),
            MosesVocabulary(pieces.moses[1], content, special_ids),
            special_ids,
            source_end,
        )

    def read(model: Path, content: bytes) -> PieceVocabulary:
        try:
            return PieceVocabulary(model, content, special_ids)
        except (OSError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ExportError(f"{model}: no usable SentencePiece model: {reason}") from error

    source = read(pieces.source_model, source_content)
    target = read(pieces.target_model, content)
    return Vocabulary(source, target, special_ids, source_end)
