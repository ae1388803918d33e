"""The systems that Macaron Net is compared with, and its ablations, against loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.training.models import reference_blocks
from tests.unit.training.models.test_language_model import TINY_LM
from tests.unit.training.tiny import TINY, randomised
from training.errors import ConfigError
from training.loop.optim import build_optimizer, set_rates
from training.models import PRESETS, Transformer, TransformerConfig, build_model
from training.models.attention import SelfAttention
from training.models.branches import Branches
from training.models.context import CacheContext
from training.models.embedding import settled
from training.models.positions import RelativePositions, RotaryPositions
from training.models.stack import Halted, Halting
from training.recipe.config import OptimConfig
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
}
PAPERS |= {
    "relative": replace(TINY, positions="relative", max_relative_distance=2),
    "relative_universal": replace(TINY, positions="relative", share_layers=True, norm="post"),
    "rotary": replace(TINY, positions="rotary", block="attention_ffn_attention"),
    "relative_bias": replace(TINY, positions="relative_bias", num_buckets=8, max_distance=5),
    "relative_bias_universal": replace(
        TINY, positions="relative_bias", num_buckets=4, max_distance=3, share_layers=True
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
SOURCE, TARGET = [5, 9, 30, 7, 11, 3], [2, 8, 6, 33, 20]
LABELS = torch.tensor([[8, 6, 33, 20, 3]])


def logits(model: torch.nn.Module) -> np.ndarray:
    return model(torch.tensor([SOURCE]), torch.tensor([TARGET]))[0].detach().numpy()


@pytest.mark.parametrize("config", PAPERS.values(), ids=PAPERS)
def test_logits_equal_the_loop_written_reference(config: TransformerConfig) -> None:
    model = randomised(config)
    expected = reference_blocks.logits(SOURCE, TARGET, model)
    np.testing.assert_allclose(logits(model), expected, rtol=1e-4, atol=1e-3)
    assert np.abs(logits(settled(model)) - expected).max() < 1e-3


@pytest.mark.parametrize("config", PAPERS.values(), ids=PAPERS)
def test_a_few_updates_teach_a_sentence(config: TransformerConfig) -> None:
    torch.manual_seed(0)
    model = build_model(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        states = model.states(torch.tensor([SOURCE]), torch.tensor([TARGET]))
        loss = label_smoothed_loss(model, states, LABELS, 0.0)
        optimizer.zero_grad()
        (loss + (model.penalty or 0.0)).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_padding_changes_nothing() -> None:
    for config in PAPERS.values():
        model = randomised(config)
        padded = model(torch.tensor([[*SOURCE, 0, 0, 0]]), torch.tensor([[*TARGET, 0, 0]]))
        found = padded[0, : len(TARGET)].detach().numpy()
        np.testing.assert_allclose(found, logits(model), atol=1e-5)


# Sizes


def parameters(config: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(config).parameters())


@pytest.mark.parametrize(
    "size", ["tiny", "small", "small_6_2", "small_12_1", "iwslt_small", "base", "big"]
)
@pytest.mark.parametrize(
    "family",
    ["macaron", "attention_ffn_attention", "two_hidden", "weighted", "universal", "relative"],
)
def test_all_families_of_a_size_have_the_parameters_of_the_baseline(family: str, size: str) -> None:
    config, baseline = PRESETS[f"{family}_{size}"], PRESETS[f"transformer_{size}"]
    assert isinstance(config, TransformerConfig)
    assert isinstance(baseline, TransformerConfig)
    close = {"universal": 0.035, "relative": 0.01}.get(family, 0.005)
    assert parameters(config) == pytest.approx(parameters(baseline), rel=close)


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("transformer_base", 65),
        ("transformer_big", 213),
        ("macaron_base", 65),
        ("macaron_big", 213),
        ("weighted_base", 65),
        ("weighted_big", 213),
        ("universal_base", 65),
        ("relative_base", 65),
        ("relative_big", 213),
    ],
)
def test_parameters_are_those_that_the_papers_tell(preset: str, millions: float) -> None:
    """With the vocabulary of 37,000 pieces; the tables round to a million or more."""
    config = replace(PRESETS[preset], vocab_size=37000)
    assert isinstance(config, TransformerConfig)
    assert parameters(config) / 1e6 == pytest.approx(millions, rel=0.04)


@pytest.mark.parametrize("depth", [8, 10])
def test_deeper_baselines_are_the_baseline_but_for_their_depth(depth: int) -> None:
    """The paper's 284 and 355 million for 8 and 10 layers count the embedding once a layer."""
    big = PRESETS["transformer_big"]
    deeper = PRESETS[f"transformer_big_{depth}_{depth}"]
    assert deeper == replace(big, num_encoder_layers=depth, num_decoder_layers=depth)
    assert isinstance(big, TransformerConfig)
    assert isinstance(deeper, TransformerConfig)
    embedding = 1024 * 32768
    layers = (parameters(big) - embedding) / 6
    assert parameters(deeper) == pytest.approx(embedding + depth * layers, rel=1e-4)
    published = {8: 284e6, 10: 355e6}[depth]
    assert 213e6 / 6 * depth == pytest.approx(published, rel=1e-3)


# Weighted Transformer


def test_the_gradient_of_branches_is_that_of_their_formula() -> None:
    torch.manual_seed(0)
    branches = Branches(replace(TINY, model_dim=4, ffn_dim=6, dropout=0.0)).double()
    with torch.no_grad():
        branches.kappa_logits.copy_(torch.tensor([0.3, -0.5]))
        branches.alpha_logits.copy_(torch.tensor([-0.2, 0.9]))
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(branches, x)
    names = ["kappa_logits", "alpha_logits"]
    assert torch.autograd.gradcheck(
        lambda *values: torch.func.functional_call(
            branches, dict(zip(names, values, strict=True)), (x.detach(),)
        ),
        tuple(getattr(branches, name).detach().clone().requires_grad_() for name in names),
    )


def test_weights_of_branches_have_a_warm_up_of_their_own_and_are_frozen_at_last() -> None:
    model = build_model(PAPERS["weighted"])
    optim = OptimConfig(warmup_steps=100, branch_warmup_steps=10, branch_frozen_steps=20)
    optimizer = build_optimizer(model, optim)
    rates = {}
    for step in (5, 10, 100, 980, 981):
        rate = set_rates(optimizer, step, optim, 1000)
        ordinary, branches = optimizer.param_groups
        assert ordinary["lr"] == rate
        assert len(branches["params"]) == 2 * 4
        rates[step] = branches["lr"] / optim.peak_lr, rate / optim.peak_lr
    assert rates[5] == (0.5, 0.05)
    assert rates[10] == (1.0, 0.1)
    assert rates[980][0] > 0.0
    assert rates[981][0] == 0.0
    assert rates[981][1] > 0.0
    ((alone,)) = build_optimizer(build_model(TINY), optim).param_groups
    assert len(alone["params"]) == len(list(build_model(TINY).parameters()))


# Universal Transformer


def test_a_universal_transformer_has_the_weights_of_one_layer_and_caches_for_each_step() -> None:
    model = build_model(PAPERS["universal_macaron"])
    assert isinstance(model, Transformer)
    assert (len(model.encoder), len(model.decoder)) == (1, 1)
    assert (len(model.caches), model.num_sources, model.alignment_layer) == (6, 2, 0)


def test_the_gradient_of_halting_is_that_of_its_formula() -> None:
    torch.manual_seed(1)
    halting = Halting(4, 0.99).double()
    with torch.no_grad():
        halting.weight.mul_(4.0)
        halting.bias.fill_(-1.0)
    x = torch.randn(1, 5, 4, dtype=torch.float64, requires_grad=True)

    def run(x_BTD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        halted, state = Halted(halting, x_BTD, 4), x_BTD
        for step in range(4):
            state = halted.step(step, state, state, state * 1.5 + 0.2)
        return halted.mean_BTD, halted.ponder_BT1

    steps = run(x)[1].floor()
    assert len(steps.unique()) > 1  # positions halt at different steps
    assert torch.autograd.gradcheck(run, x)


def test_steps_cost_what_their_weight_says() -> None:
    model = build_model(PAPERS["halting"]).train()
    with torch.no_grad():
        model.encoder_halting.bias.fill_(50.0)  # one step: N = 1 and all of it left
        model.decoder_halting.bias.fill_(-50.0)  # all three, and all of it left
    model.states(torch.tensor([[*SOURCE, 0, 0]]), torch.tensor([TARGET]))
    assert float(model.penalty.detach()) == pytest.approx(0.01 * ((1 + 1) + (3 + 1)), rel=1e-5)


# Positions


def test_the_gradients_of_position_schemes_are_those_of_their_formulas() -> None:
    torch.manual_seed(0)
    relative = RelativePositions(4, 2)
    attention = SelfAttention(8, 2, 0.0, positions=relative).double()
    x = torch.randn(1, 4, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: attention.decode(x, CacheContext()), x)
    for name in ("relative.keys_1RE", "relative.values_1RE"):
        assert torch.autograd.gradcheck(
            lambda value, name=name: torch.func.functional_call(
                attention, {name: value}, (x.detach(),)
            ),
            attention.get_parameter(name).detach().clone().requires_grad_(),
        )
    projected = torch.randn(1, 4, 24, dtype=torch.float64, requires_grad=True)
    positions = torch.tensor([[0, 1, 2, 7]])
    assert torch.autograd.gradcheck(lambda x: RotaryPositions(2)(x, positions), projected)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    rotary, x = RotaryPositions(2), torch.randn(1, 1, 24).expand(1, 9, 24)
    query, key, value = rotary(x, torch.arange(9)[None]).chunk(3, -1)
    scores = query[0] @ key[0].T
    for distance in range(-8, 9):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert torch.equal(value, x.chunk(3, -1)[2])


# What cannot work


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"halting": True}, "halting.*share_layers"),
        ({"halting_threshold": 1.0}, "halting_threshold must be in"),
        ({"ponder_weight": -1.0}, "ponder_weight must be >= 0"),
        ({"block": "weighted", "ffn_dim": 25}, "weighted.*ffn_dim.*num_heads = 2, got 25"),
        ({"share_layers": True, "encoder_layerdrop": 0.2}, "encoder_layerdrop.*share_layers"),
        ({"share_layers": True, "decoder_layerdrop": 0.2}, "decoder_layerdrop.*share_layers"),
        ({"learns_layerdrop": True}, "learns_layerdrop.*encoder_layerdrop.*decoder_layerdrop"),
        ({"encoder_layerdrop": 1.0}, r"encoder_layerdrop must be in \[0, 1\)"),
        ({"head_dropout": -0.1}, r"head_dropout must be in \[0, 1\)"),
        ({"head_dropout_schedule": "w"}, "head_dropout_schedule .*'constant', 'v'.*got 'w'"),
        (
            {"share_layers": True, "decoder_mixing": "light_conv"},
            "share_layers.*decoder_mixing: light_conv",
        ),
        ({"block": "weighted", "encoder_mixing": "light_conv"}, "weighted.*encoder_mixing"),
        ({"positions": "alibi"}, "positions .*'relative', 'rotary'.*got 'alibi'"),
        ({"max_relative_distance": 0}, "max_relative_distance must be >= 1, got 0"),
        ({"ffn_hidden_layers": 3}, r"ffn_hidden_layers .*\(1, 2\), got 3"),
    ],
)
def test_what_cannot_work_is_one_error_that_names_it(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **change)


def test_vectors_of_distances_have_no_place_in_sparse_attention() -> None:
    with pytest.raises(ConfigError, match=r"positions: relative .*attention: full.*cascade"):
        replace(TINY_LM, attention="cascade", positions="relative")
