"""SentencePiece models beside a checkpoint."""

from __future__ import annotations

from pathlib import Path

from sentencepiece import SentencePieceProcessor

from export.errors import ExportError
from export.importing.pointers import refuse_pointer


def read_sentencepiece(path: Path) -> SentencePieceProcessor:
    """The model in a file; raises ExportError where there is none."""
    refuse_pointer(path)
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ExportError(f"{path}: no usable SentencePiece model: {reason}") from error


def pieces_of(model: SentencePieceProcessor) -> list[str]:
    """The written form of each id."""
    return [str(model.id_to_piece(i)) for i in range(model.vocab_size())]
