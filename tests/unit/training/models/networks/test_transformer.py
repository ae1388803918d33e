"""Transformers against a reference with loops: blocks and norms, the systems that Macaron Net is
compared with, its ablations, and embeddings of one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.toy.recipe import write_toy_recipe
from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.models.sample_networks import (
    BLOCKS_AND_NORMS,
    PAIRS,
    SOURCE,
    TARGET,
    losses_of_updates,
)
from tests.unit.training.tiny import TINY, randomised, tiny_model
from training.__main__ import main
from training.batches.batching import collate
from training.models import Transformer, TransformerConfig, build_model
from training.models.sublayers.embedding import settled
from training.tasks.loss import label_smoothed_loss

PAPERS: dict[str, TransformerConfig] = {
    "attention_ffn_attention": replace(TINY, block="attention_ffn_attention"),
    "two_hidden": replace(TINY, ffn_hidden_layers=2, norm="post"),
    "weighted": replace(TINY, block="weighted"),
    "weighted_two_hidden": replace(TINY, block="weighted", ffn_hidden_layers=2, norm="post"),
    "universal": replace(TINY, share_layers=True, num_encoder_layers=3, norm="post"),
    "universal_macaron": replace(TINY, share_layers=True, block="macaron", num_decoder_layers=3),
    "halting": replace(
        TINY, share_layers=True, halting=True, num_encoder_layers=4, num_decoder_layers=3
    ),
    "relative": replace(TINY, positions="relative", max_relative_distance=2),
    "relative_universal": replace(TINY, positions="relative", share_layers=True, norm="post"),
    "rotary": replace(TINY, positions="rotary", block="attention_ffn_attention"),
    "relative_bias": replace(TINY, positions="relative_bias", num_buckets=8, max_distance=5),
    "relative_bias_universal": replace(
        TINY, positions="relative_bias", num_buckets=4, max_distance=3, share_layers=True
    ),
    "t5gemma": replace(
        TINY,
        encoder_dim=20,
        encoder_heads=3,
        encoder_ffn_dim=28,
        head_dim=6,
        source_vocab_size=37,
        positions="rotary",
    ),
    "t5": replace(
        TINY,
        positions="relative_bias",
        num_buckets=8,
        max_distance=11,
        head_dim=6,
        norm_type="rms",
        activation="geglu_tanh",
        attention_bias=False,
        ffn_bias=False,
        tie_embeddings=False,
        embedding_scale="none",
    ),
}
EMBEDDINGS: dict[str, dict[str, Any]] = {
    "source": {"source_vocab_size": 53},
    "output": {"tie_embeddings": False},
    "all": {"source_vocab_size": 53, "tie_embeddings": False, "output_bias": True},
}


def logits(model: torch.nn.Module, source: list[int] = SOURCE) -> np.ndarray:
    return model(torch.tensor([source]), torch.tensor([TARGET]))[0].detach().numpy()


# Blocks and norms


@pytest.mark.parametrize(("block", "norm"), BLOCKS_AND_NORMS)
def test_logits_of_blocks_and_norms_equal_the_loop_written_reference(block: str, norm: str) -> None:
    model = tiny_model(block, norm)
    expected = reference.logits(SOURCE, TARGET, model)
    np.testing.assert_allclose(logits(model), expected, rtol=0, atol=2e-4)


def test_positions_start_at_zero_whatever_the_padding() -> None:
    model = tiny_model()
    alone = model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    padded = model(torch.tensor([[*SOURCE, 0, 0, 0]]), torch.tensor([[*TARGET, 0, 0]]))
    torch.testing.assert_close(padded[:, : len(TARGET)], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("block", "norm"), BLOCKS_AND_NORMS)
def test_padding_changes_neither_logits_nor_gradients(block: str, norm: str) -> None:
    def gradients(batches: list[list[tuple[list[int], list[int]]]]) -> dict[str, torch.Tensor]:
        model = tiny_model(block, norm)
        for pairs in batches:
            batch = collate(pairs)
            states = model.states(batch.source_BS, batch.target_BT)
            label_smoothed_loss(model, states, batch.labels_BT, 0.1).backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    together, alone = gradients([PAIRS]), gradients([[pair] for pair in PAIRS])
    assert together.keys() == dict(tiny_model(block, norm).named_parameters()).keys()
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, alone[name], rtol=1e-3, atol=1e-3, msg=name)


def test_a_target_position_sees_no_later_one() -> None:
    model = tiny_model()
    source = torch.tensor([SOURCE])
    changed = [*TARGET[:3], 1, 1]
    before = model(source, torch.tensor([TARGET]))[:, :3]
    torch.testing.assert_close(model(source, torch.tensor([changed]))[:, :3], before)


@pytest.mark.parametrize(("block", "norm"), BLOCKS_AND_NORMS)
def test_there_is_a_final_norm_for_pre_norm_only(block: str, norm: str) -> None:
    names = {name.split(".")[0] for name, _ in tiny_model(block, norm).named_parameters()}
    assert ("encoder_norm" in names, "decoder_norm" in names) == ((norm == "pre",) * 2)


# Systems of papers


@pytest.mark.parametrize("config", PAPERS.values(), ids=PAPERS)
def test_logits_of_a_papers_system_equal_the_loop_written_reference(
    config: TransformerConfig,
) -> None:
    model = randomised(config)
    expected = reference.logits(SOURCE, TARGET, model)
    np.testing.assert_allclose(logits(model), expected, rtol=1e-4, atol=1e-3)
    assert np.abs(logits(settled(model)) - expected).max() < 1e-3


@pytest.mark.parametrize("config", PAPERS.values(), ids=PAPERS)
def test_a_few_updates_teach_a_papers_system_a_sentence(config: TransformerConfig) -> None:
    losses = losses_of_updates(config)
    assert losses[-1] < 0.5 * losses[0]


def test_padding_changes_nothing_in_a_papers_system() -> None:
    for config in PAPERS.values():
        model = randomised(config)
        padded = model(torch.tensor([[*SOURCE, 0, 0, 0]]), torch.tensor([[*TARGET, 0, 0]]))
        found = padded[0, : len(TARGET)].detach().numpy()
        np.testing.assert_allclose(found, logits(model), atol=1e-5)


def test_a_universal_transformer_has_the_weights_of_one_layer_and_caches_for_each_step() -> None:
    model = build_model(PAPERS["universal_macaron"])
    assert isinstance(model, Transformer)
    assert (len(model.encoder), len(model.decoder)) == (1, 1)
    assert (len(model.caches), model.num_sources, model.alignment_layer) == (6, 2, 0)


def test_steps_cost_what_their_weight_says() -> None:
    model = build_model(PAPERS["halting"]).train()
    with torch.no_grad():
        model.encoder_halting.bias.fill_(50.0)  # one step: N = 1 and all of it left
        model.decoder_halting.bias.fill_(-50.0)  # all three, and all of it left
    model.states(torch.tensor([[*SOURCE, 0, 0]]), torch.tensor([TARGET]))
    assert float(model.penalty.detach()) == pytest.approx(0.01 * ((1 + 1) + (3 + 1)), rel=1e-5)


# Embeddings


@pytest.mark.parametrize("form", EMBEDDINGS)
def test_logits_by_embeddings_of_ones_own_equal_the_loop_written_reference(form: str) -> None:
    model = randomised(replace(TINY, **EMBEDDINGS[form]))
    source = [5, 9, 50, 7, 52, 3] if model.config.source_vocab_size else SOURCE
    wanted = reference.logits(source, TARGET, model)
    np.testing.assert_allclose(logits(model, source), wanted, rtol=1e-4, atol=1e-3)


def test_what_is_not_shared_is_all_that_is_new() -> None:
    one = build_model(TINY)
    assert isinstance(one, Transformer)
    for form, names in {
        "source": {"source_embedding.weight"},
        "output": {"output_matrix"},
        "all": {"source_embedding.weight", "output_matrix", "output_bias"},
    }.items():
        other = build_model(replace(TINY, **EMBEDDINGS[form]))
        assert other.state_dict().keys() - one.state_dict().keys() == names


def test_a_recipe_trains_embeddings_of_their_own_and_one_vocabulary(tmp_path: Path) -> None:
    recipe = write_toy_recipe(tmp_path)
    overrides = ["loop.max_steps=2", "loop.validate_every=2", "loop.checkpoint_every=2"]
    command = ["train", str(recipe), *overrides, "loop.log_every=2", "--threads", "1"]
    command += ["model.tie_embeddings=false"]
    run = ["--run", str(tmp_path / "run")]
    assert main([*command, "model.source_vocab_size=7", *run]) == 1
    size = toy_size(recipe)
    assert main([*command, f"model.source_vocab_size={size}", "--run", str(tmp_path / "b")]) == 0


def toy_size(recipe: Path) -> int:
    line = next(line for line in recipe.read_text().splitlines() if "vocab_size" in line)
    return int(line.rpartition(":")[2])
