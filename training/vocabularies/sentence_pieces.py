"""Training a SentencePiece model on both sides of a corpus."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from serving.search.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from training.errors import ConfigError
from training.runs.checkpoint import write_atomically

_TOO_MANY = re.compile(r"Vocabulary size too high .* value <= (\d+)")
_TOO_FEW = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


def train_tokenizer(
    texts: Iterable[str],
    path: Path,
    *,
    vocab_size: int,
    model_type: str = "unigram",
    character_coverage: float = 1.0,
    max_sentences: int = 250_000,
    symbols: Sequence[str] = (),
    controls: Sequence[str] = (),
) -> None:
    """Write a SentencePiece model with nmt_nfkc normalisation and byte fallback.

    Each of the `symbols` is a piece of its own that no other piece contains; each of the `controls`
    is a piece that no text is encoded to. At most `max_sentences` texts, drawn at random, are used.
    SentencePiece draws with a fixed seed: equal arguments give equal files.

    Raises ConfigError if SentencePiece refuses, for example a vocab_size that the text cannot fill.
    """
    buffer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=buffer,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            input_sentence_size=max_sentences,
            shuffle_input_sentence=True,
            user_defined_symbols=list(symbols),
            control_symbols=list(controls),
            byte_fallback=True,
            normalization_rule_name="nmt_nfkc",
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(_refusal(vocab_size, str(error))) from error
    write_atomically(path, buffer.getvalue())


def _refusal(vocab_size: int, error: str) -> str:
    """An error of SentencePiece in terms of a recipe, whose keys are not its options."""
    if found := _TOO_MANY.search(error):
        return (
            f"model.vocab_size must be at most {found[1]}, as this text has no more pieces, got "
            f"{vocab_size}; lower it or add text"
        )
    if found := _TOO_FEW.search(error):
        return (
            f"model.vocab_size must be at least {found[1]}, a piece for each byte and character of "
            f"this text, got {vocab_size}; raise it or lower tokenizer.character_coverage"
        )
    return f"SentencePiece, model.vocab_size={vocab_size}: {error}"
