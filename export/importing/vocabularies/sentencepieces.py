"""SentencePiece models beside a checkpoint."""

from __future__ import annotations

from pathlib import Path

from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from export.errors import ExportError
from export.importing.pointers import refuse_pointer


def read_sentencepiece(path: Path) -> SentencePieceProcessor:
    """The SentencePiece model in a file; raises ExportError if it holds none."""
    refuse_pointer(path)
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ExportError(f"{path}: no usable SentencePiece model: {reason}") from error


def pieces_of(model: SentencePieceProcessor) -> list[str]:
    """The written form of each id."""
    return [str(model.id_to_piece(i)) for i in range(model.vocab_size())]


def read_unigram(path: Path) -> tuple[list[tuple[str, float]], bytes]:
    """The pieces of a unigram model with their scores, and its compiled rules of normalisation;
    raises ExportError if the file is not such a model."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(read_sentencepiece(path).serialized_model_proto())
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise ExportError(f"{path}: must be a SentencePiece model of the type unigram, got another")
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    return pieces, proto.normalizer_spec.precompiled_charsmap
