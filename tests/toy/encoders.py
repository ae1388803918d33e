"""A Hugging Face folder of a tiny BERT with random weights, and lines of its words."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

_WORDS = "the a cat dog bird sat ran flew on over mat hill tree big small red and then"
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *_WORDS.split(),
    "##s",
    "##ed",
    ".",
    ",",
    "!",
    "-",
]
LABELS = ("no", "perhaps", "yes")
LINES = [
    f"{a} {b} {c} {v} {p} the {o}."
    for n, (a, b, v, p) in enumerate(
        (a, b, v, p)
        for a in ("The", "a")
        for b in ("big", "small red")
        for v in ("sat", "ran", "flew")
        for p in ("on", "over")
    )
    for c, o in [(("cat", "dog", "bird")[n % 3], ("mat", "hill", "tree")[n % 2])]
]
"""24 texts."""


def save_encoder(folder: Path, labels: tuple[str, ...] = ()) -> Path:
    """Save a model and its pieces, with a classifier if there are labels."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=len(PIECES),
        max_position_embeddings=24,
        initializer_range=0.3,
        id2label=dict(enumerate(labels)) if labels else None,
    )
    kind = BertForSequenceClassification if labels else BertModel
    kind(config).eval().save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return folder


def write_lines(folder: Path) -> Path:
    """Write the lines to a file."""
    path = folder / "lines.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path
