"""SentencePiece models of a few sentences."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import sentencepiece

SENTENCES = ["das haus ist alt", "the house is old", "ein altes haus", "an old house"]


def write_pieces(path: Path, size: int = 30, **ids: Any) -> list[str]:
    """A model of `size` pieces, with special ids by the names of the trainer's options; returns its
    pieces."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 5),
        model_writer=buffer,
        vocab_size=size,
        model_type="bpe",
        minloglevel=2,
        **ids,
    )
    path.write_bytes(buffer.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    return [model.id_to_piece(i) for i in range(model.vocab_size())]
