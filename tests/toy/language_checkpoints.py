"""Small language models of `transformers` with random weights, laid out as they are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.toy.corpus import toy_pairs

START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = 320
ROWS = VOCABULARY + 8
"""Rows of the embedding, some without a piece."""


def write_tokenizer(folder: Path, *, begins: bool) -> None:
    """Write a byte-level BPE with three special tokens. Texts begin with the first one if
    requested."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(name, special=True) for name in ("<|end|>", START, END)]
    tokenizer.train_from_iterator(
        [text for pair in toy_pairs(300, seed=4) for text in pair],
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|end|> $A", special_tokens=[("<|end|>", 0)]
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_gpt2(folder: Path, **changed: Any) -> Any:
    """Write a GPT-2 with two layers and no chat template; returns the model."""
    from transformers import GPT2Config, GPT2LMHeadModel

    write_tokenizer(folder, begins=False)
    options = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96, "vocab_size": ROWS}
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(5)
    model = GPT2LMHeadModel(GPT2Config(**options, **ids, **changed)).eval()
    return _saved(model, folder)


def write_llama(folder: Path, kind: str = "Llama", **changed: Any) -> Any:
    """Write a Llama (or another decoder) with two layers, grouped queries and a chat template;
    returns the model. Options that are None are left out."""
    import transformers

    write_tokenizer(folder, begins=True)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A toy\n")
    options = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
        "vocab_size": ROWS,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "bos_token_id": 0,
        "eos_token_id": 2,
        **changed,
    }
    torch.manual_seed(5)
    told = {name: value for name, value in options.items() if value is not None}
    if kind == "Gemma3":
        return _saved(_with_pictures(told), folder)
    config = getattr(transformers, f"{kind}Config")(**told)
    model = getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(config).eval()
    return _saved(model, folder)


def _with_pictures(text: dict[str, Any]) -> Any:
    """A Gemma 3 with these options of its texts, and a tower of one layer that sees pictures."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    sees = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    shapes = {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    vision = {"model_type": "siglip_vision_model", "vision_use_head": False, **sees, **shapes}
    ends = {"eos_token_id": [text["eos_token_id"], 1]}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, **ends)
    return Gemma3ForConditionalGeneration(config).eval()


def _saved(model: Any, folder: Path) -> Any:
    generator = torch.Generator().manual_seed(7)
    with (
        torch.no_grad()
    ):  # fresh biases and gains hide mistakes, as do matrices that do next to nothing
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    model.save_pretrained(folder)
    return model
