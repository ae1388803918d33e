"""Models with the options of the papers: their graphs against the modules, and in any batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.arithmetic.quantize import quantized_twin
from export.comparison.translation import PairedStepper, search_all
from export.graphs.writing import write_graphs
from serving.bundle.manifest import Manifest
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import BeamSearch, decode
from serving.search.beams.sentence import Hypothesis, Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from training.decoding.stepper import TorchStepper
from training.models import JointConfig, ModelConfig, TransformerConfig, build_model

pytestmark = pytest.mark.usefixtures("traced_once")

SIZES: dict[str, Any] = {"model_dim": 32, "num_heads": 2, "ffn_dim": 48, "vocab_size": 96}
SIZES |= {"num_encoder_layers": 2, "num_decoder_layers": 2}
BASE = TransformerConfig(**SIZES)
MODELS: dict[str, ModelConfig] = {
    "attention ffn attention": replace(BASE, block="attention_ffn_attention", ffn_hidden_layers=2),
    "weighted": replace(BASE, block="weighted"),
    "universal": replace(BASE, share_layers=True, block="macaron", num_decoder_layers=3),
    "relative": replace(BASE, positions="relative", max_relative_distance=3),
    "t5": replace(
        BASE,
        positions="relative_bias",
        num_buckets=16,
        max_distance=20,
        head_dim=12,
        block="macaron",
        norm_type="rms",
        activation="geglu_tanh",
        attention_bias=False,
        ffn_bias=False,
        tie_embeddings=False,
        embedding_scale="none",
    ),
    "rotary": replace(BASE, positions="rotary", block="macaron"),
    "halting": replace(BASE, share_layers=True, halting=True, num_encoder_layers=3),
    "joint rotary": JointConfig(**SIZES, positions="rotary"),
    "joint relative": JointConfig(
        **(SIZES | {"num_encoder_layers": 0}), positions="relative", max_relative_distance=3
    ),
}
OPTIONS = SearchOptions(beam_size=3, num_hypotheses=3, max_length=14, loop_guard=False)


def written(name: str, precision: str, folder: Path) -> tuple[Any, Manifest]:
    """A model whose every parameter is random, and the manifest of its graphs."""
    torch.manual_seed(3)
    model = build_model(MODELS[name])
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key not in ("embedding.weight", "output_matrix"):
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval(), write_graphs(model, folder, name="random", precision=precision)


def sentences_of_many_lengths() -> list[Sentence]:
    generator = np.random.default_rng(5)
    lengths = [3, 17, 8, 1, 70, 12, 9, 18, 5]
    return [
        Sentence(
            [*generator.integers(4, 96, length), EOS_ID],
            OPTIONS,
            target_prefix=[7, 30, 12][: i % 4],
        )
        for i, length in enumerate(lengths)
    ]


def decode_joining(stepper: OnnxStepper, sentences: list[Sentence]) -> list[tuple[Hypothesis, ...]]:
    """One or two sentences join a running batch every three steps."""
    search, waiting = BeamSearch(stepper, sentences[:1]), sentences[1:]
    found: dict[int, tuple[Hypothesis, ...]] = {}
    step = 0
    while search.live or waiting:
        if waiting and step % 3 == 0:
            search.add(waiting[: 1 + step % 2])
            del waiting[: 1 + step % 2]
        found |= {finished.index: finished.hypotheses for finished in search.step()}
        step += 1
    return [found[number] for number in range(len(sentences))]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_graphs_equal_the_modules_and_a_sentence_itself_in_any_batch(
    tmp_path: Path, name: str, precision: str
) -> None:
    model, manifest = written(name, precision, tmp_path)
    stepper, sentences = OnnxStepper(tmp_path, manifest, 1), sentences_of_many_lengths()
    reference = quantized_twin(model) if precision == "int8" else model
    paired = PairedStepper(TorchStepper(reference), stepper)
    search_all(paired, sentences)
    assert paired.count > 500
    assert paired.total / paired.count < (1e-5 if precision == "fp32" else 5e-3)
    assert paired.largest < (1e-3 if precision == "fp32" else np.inf)
    alone = [decode(stepper, [sentence])[0].hypotheses for sentence in sentences]
    assert [finished.hypotheses for finished in decode(stepper, sentences)] == alone
    assert decode_joining(stepper, sentences) == alone


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("int8", 1)])
def test_the_weights_of_shared_layers_are_stored_once(
    tmp_path: Path, precision: str, size: int
) -> None:
    steps = {"num_encoder_layers": 3, "num_decoder_layers": 3}
    config = replace(BASE, model_dim=256, ffn_dim=1024, share_layers=True, **steps)
    manifest = write_graphs(
        build_model(config).eval(), tmp_path, name="random", precision=precision
    )
    assert manifest.sizes.num_parameters > 28 * 256**2
    stored = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert stored < 1.4 * size * manifest.sizes.num_parameters
