"""A small T5Gemma with random weights, as `transformers` saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers

from tests.toy.checkpoints import PAIRS

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
ROWS = 160
SIDE = {
    "vocab_size": ROWS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "query_pre_attn_scalar": 9,
    "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0,
}  # fmt: skip


def write_t5gemma(
    folder: Path, encoder: dict[str, Any] | None = None, *, tied: bool = True, shared: bool = False
) -> Any:
    """Write a T5Gemma with two encoder and three decoder layers; returns the model. `encoder` are
    sizes of the encoder; with `shared`, both sides share an embedding."""
    from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration, T5GemmaModuleConfig

    folder.mkdir(parents=True, exist_ok=True)
    config = T5GemmaConfig(
        encoder=T5GemmaModuleConfig(**SIDE | (encoder or {})),
        decoder=T5GemmaModuleConfig(**SIDE | {"num_hidden_layers": 3}),
        vocab_size=ROWS,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    torch.manual_seed(5)
    model = T5GemmaForConditionalGeneration(config).eval()
    if not tied:
        model.lm_head.out_proj.weight = torch.nn.Parameter(torch.empty(ROWS, 32))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            wide = 0.1 if "norm" in name else 0.15 if "embed" in name else 0.25
            parameter.normal_(0.0, wide)
        if shared:
            embedding = model.model.decoder.embed_tokens.weight
            model.model.encoder.embed_tokens.weight.copy_(embedding)
    model.save_pretrained(folder)
    _tokenizer().save(str(folder / "tokenizer.json"))
    return model


def _tokenizer() -> Tokenizer:
    """A BPE over characters with a mark for spaces, as Gemma's."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    trainer = trainers.BpeTrainer(
        vocab_size=120,
        special_tokens=[AddedToken(piece, special=True) for piece in SPECIAL],
        show_progress=False,
    )
    tokenizer.train_from_iterator([text for pair in PAIRS for text in pair], trainer)
    return tokenizer
