"""Language models for the benchmark: random weights of a given size, and their form for
CTranslate2."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bench.subjects.ctranslate2 import (
    BOS,
    EOS,
    UNK,
    array_of,
    set_ffn,
    set_norm,
    set_self_attention,
)
from bench.subjects.models import draw_vectors, forbid_eos, random_ids
from export.arithmetic.activation_ranges import measure_ranges
from export.arithmetic.half import fit_half
from export.arithmetic.quantize import Products, quantized_twin
from export.graphs.writing import write_language_graphs
from serving.bundle.manifest import Manifest
from serving.search.ids import EOS_ID
from training.models import PRESETS, CausalLanguageModel, LanguageModelConfig

SHORTEST_PROMPT, LONGEST_PROMPT = 12, 28
_RANGE_PROMPTS = 16


def random_language_model(preset: str, attention: str, seed: int) -> CausalLanguageModel:
    """A model of a preset's size with random weights, norms and biases, which never ends a text
    (see `bench.subjects.models.random_model`)."""
    torch.manual_seed(seed)
    config = PRESETS[preset]
    assert isinstance(config, LanguageModelConfig)
    model = CausalLanguageModel(replace(config, attention=attention, dropout=0.0))
    with torch.no_grad():
        draw_vectors(model)
        assert isinstance(model.norm, torch.nn.LayerNorm)
        forbid_eos(model.norm, model.output_weight)
    return model.eval()


def random_prompts(vocab_size: int, count: int, seed: int) -> list[list[int]]:
    """Prompts of plain ids, after the end-of-text id."""
    generator = random.Random(seed)
    return [
        [EOS_ID, *random_ids(generator, vocab_size, SHORTEST_PROMPT, LONGEST_PROMPT)]
        for _ in range(count)
    ]


def write_int8_graphs(model: CausalLanguageModel, folder: Path) -> Manifest:
    """Write the int8 step graph, with static activations from random prompts."""
    twin = quantized_twin(model)
    prompts = random_prompts(model.config.vocab_size, _RANGE_PROMPTS, seed=0)
    ids = torch.tensor([prompt[:SHORTEST_PROMPT] for prompt in prompts])
    ranges = measure_ranges(twin, lambda: twin(ids))
    products = Products(ranges)
    return write_language_graphs(model, folder, name="bench", precision="int8", products=products)


def write_gpu_graphs(model: CausalLanguageModel, folder: Path, precision: str) -> Manifest:
    """Write the step graph for a GPU in 16 bits; values too large for fp16 stay in fp32."""
    prompts = random_prompts(model.config.vocab_size, _RANGE_PROMPTS, seed=0)
    ids = torch.tensor([prompt[:SHORTEST_PROMPT] for prompt in prompts])
    fit = fit_half(model, precision, lambda copied: copied(ids))
    return write_language_graphs(
        model,
        folder,
        name="bench",
        precision=precision,
        target="cuda",
        products=Products(exact=fit.exact),
    )


def convert_language_model(
    model: CausalLanguageModel, vocabulary: Sequence[str], folder: Path, quantization: str
) -> None:
    """Save a model with full attention, standard layers and pre-norm in CTranslate2's format."""
    import ctranslate2

    config = model.config
    assert (config.attention, config.block, config.norm) == ("full", "standard", "pre")
    spec = ctranslate2.specs.TransformerDecoderModelSpec.from_config(
        config.num_decoder_layers, config.num_heads
    )
    embedding = array_of(model.embedding.weight)
    # The scale of embeddings and the sinusoids are CTranslate2's own, as in `ctranslate2`.
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    set_norm(spec.decoder.layer_norm, model.norm)
    for layer_spec, layer in zip(spec.decoder.layer, model.layers, strict=True):
        set_self_attention(layer_spec.self_attention, layer)
        set_ffn(layer_spec.ffn, layer)
    spec.register_vocabulary(list(vocabulary))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = BOS, EOS, UNK
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
