"""Small checkpoints of `transformers` with random weights, laid out as OPUS-MT is published."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from tests.toy.corpus import toy_pairs

PAIRS = toy_pairs(300, seed=4)


def write_sentencepiece(path: Path, texts: Sequence[str], size: int, kind: str = "unigram") -> None:
    """A SentencePiece model with the special ids that its trainer has by default, and no bytes."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=buffer,
        vocab_size=size,
        model_type=kind,
        minloglevel=2,
    )
    path.write_bytes(buffer.getvalue())


def pieces_of(path: Path) -> list[str]:
    """The pieces of a SentencePiece model that texts are written with."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(i) for i in range(3, model.vocab_size())]


def randomise(model: torch.nn.Module, seed: int = 7) -> None:
    """Give every parameter noise: fresh ones have zero biases, which hide mistakes, and matrices so
    small that all sources have one output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" not in name and "shared" not in name:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise * (0.5 if parameter.dim() == 2 else 0.1))


def write_opus(folder: Path, tags: Sequence[str] = (), **changed: Any) -> Any:
    """A MarianMT of two layers a side with separate SentencePiece models over one vocabulary;
    returns the model. `changed` are options of its configuration."""
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True, exist_ok=True)
    for side, name in enumerate(("source.spm", "target.spm")):
        write_sentencepiece(folder / name, [pair[side] for pair in PAIRS], 80 + 5 * side)
    shared = dict.fromkeys(
        piece for name in ("source.spm", "target.spm") for piece in pieces_of(folder / name)
    )
    written = ["</s>", "<unk>", *shared, *(f">>{tag}<<" for tag in tags), "<pad>"]
    pad = len(written) - 1
    ids = {piece: i for i, piece in enumerate(written)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"source_lang": "deu", "target_lang": "en"}')
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# A toy\n")
    options = {
        "vocab_size": len(written),
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 64,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "bad_words_ids": [[pad]],
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "normalize_before": False,
        "static_position_embeddings": True,
        **changed,
    }
    torch.manual_seed(5)
    model = MarianMTModel(MarianConfig(**options)).eval()
    randomise(model)
    with torch.no_grad():
        model.final_logits_bias.normal_(0.0, 0.5)
        model.final_logits_bias[0, 0] = 2.0  # some outputs end
        model.model.shared.weight.normal_(0.0, 0.1)
        model.model.shared.weight[pad] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    return model
