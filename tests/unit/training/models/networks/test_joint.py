"""The joint representation: its arithmetic against loops, and its noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.unit.training.models import reference_joint as reference
from tests.unit.training.models.reference_blocks import weights_of
from tests.unit.training.models.sample_networks import PAIRS, SOURCE, TARGET
from tests.unit.training.tiny import TINY_JOINT, tiny_joint_model
from training.batches.batching import IdPair, collate
from training.models import JointModel, build_model
from training.models.context import CacheContext
from training.models.dropout import Dropout
from training.models.networks.joint import JointLayer, Reduction
from training.tasks.loss import label_smoothed_loss

SUBLAYERS = ("target_attention", "first_ffn", "source_attention", "ffn")
VARIANTS = [
    {},
    {"num_encoder_layers": 0, "tie_embeddings": False, "embedding_scale": "sum"},
    {"positions": "rotary"},
    {"positions": "relative", "max_relative_distance": 2, "tie_embeddings": False},
]
# fp32 against fp64: logits reach about 7 and were at most 4e-6 off.
ATOL = 3e-5

ids = st.lists(st.integers(1, 36), min_size=1, max_size=5)
configurations = st.fixed_dictionaries(
    {
        "num_encoder_layers": st.integers(0, 2),
        "num_decoder_layers": st.integers(1, 2),
        "num_heads": st.sampled_from([1, 2, 4]),
        "tie_embeddings": st.booleans(),
        "embedding_scale": st.sampled_from(["token", "sum"]),
        "positions": st.sampled_from(["sinusoid", "relative", "rotary"]),
        "max_relative_distance": st.integers(1, 3),
    }
)


def tiny_layer(seed: int = 0, **changes: Any) -> JointLayer:
    layer = tiny_joint_model(seed, **changes).layers[0]
    assert isinstance(layer, JointLayer)
    return layer


def keep_only(layer: JointLayer, sublayer: str) -> None:
    """Make the other sublayers add nothing."""
    for name in set(SUBLAYERS) - {sublayer}:
        module = getattr(layer, name)
        last = module.out_proj if name.endswith("attention") else module.down_proj
        with torch.no_grad():
            last.weight.zero_()
            last.bias.zero_()


# What it computes


@settings(max_examples=25, deadline=None)
@given(ids, ids, configurations, st.integers(0, 1000))
def test_logits_equal_the_loop_written_reference(
    source: list[int], target: list[int], options: dict[str, Any], seed: int
) -> None:
    model = tiny_joint_model(seed, **options)
    found = model(torch.tensor([source]), torch.tensor([target]))[0].detach().numpy()
    expected, _ = reference.decode(source, target, model)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", SUBLAYERS)
def test_each_sublayer_equals_the_loop_written_reference(name: str) -> None:
    layer = tiny_layer(seed=3)
    keep_only(layer, name)
    x_BSQD = torch.randn(2, 5, 4, 16)
    found = layer(x_BSQD, CacheContext(), None).detach().numpy()
    twin = reference.ReferenceJointLayer(weights_of(layer), TINY_JOINT)
    for row, x_SQD in enumerate(x_BSQD.double().numpy()):
        expected = twin.sublayer(x_SQD.transpose(1, 0, 2), name)
        np.testing.assert_allclose(found[row], expected, rtol=0, atol=2e-5)


def test_a_layer_runs_its_sublayers_in_the_order_of_the_paper() -> None:
    layer = tiny_layer(seed=4)
    order: list[str] = []
    for name in SUBLAYERS:
        residual = getattr(layer, f"{name}_residual")
        residual.register_forward_hook(lambda *_, name=name: order.append(name))
    x_BSQD = torch.randn(1, 3, 4, 16)
    found = layer(x_BSQD, CacheContext(), None)[0].detach().numpy()
    assert tuple(order) == SUBLAYERS
    twin = reference.ReferenceJointLayer(weights_of(layer), TINY_JOINT)
    expected = twin(x_BSQD[0].double().numpy().transpose(1, 0, 2))
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5)


def random_reduction(dim: int = 16) -> Reduction:
    torch.manual_seed(0)
    reduction = Reduction(replace(TINY_JOINT, model_dim=dim, num_heads=1))
    with torch.no_grad():
        for parameter in reduction.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return reduction


def test_reduction_equals_the_loop_written_reference() -> None:
    reduction, x_BQSD = random_reduction(), torch.randn(2, 3, 5, 16)
    mask_BS = torch.zeros(2, 5)
    mask_BS[1, 3:] = -torch.inf
    y_BQD, weights_BQSD = reduction(x_BQSD, mask_BS)
    for row, length in enumerate((5, 3)):
        x_QSD = x_BQSD[row, :, :length].double().numpy()
        y, shares = reference.reduction(x_QSD, weights_of(reduction), TINY_JOINT)
        np.testing.assert_allclose(y_BQD[row].detach(), y, rtol=0, atol=1e-5)
        found = weights_BQSD[row].detach()
        np.testing.assert_allclose(found[:, :length], shares, rtol=0, atol=1e-6)
        assert not found[:, length:].any()


def test_the_softmax_of_reduction_runs_in_fp32_whatever_the_rest() -> None:
    # In bf16 the 40 weights of a feature would sum to 1 within 1e-2 only.
    reduction = random_reduction()
    with torch.autocast("cpu", torch.bfloat16):
        x_BQSD = nn.functional.linear(torch.randn(2, 3, 40, 16), torch.eye(16))
        y_BQD, weights_BQSD = reduction(x_BQSD, None)
    assert x_BQSD.dtype is torch.bfloat16
    assert y_BQD.dtype is weights_BQSD.dtype is torch.float32
    torch.testing.assert_close(weights_BQSD.sum(2), torch.ones(2, 3, 16), rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", VARIANTS)
def test_padding_changes_neither_logits_nor_gradients(options: dict[str, Any]) -> None:
    def results(batches: list[list[IdPair]]) -> tuple[list[Tensor], dict[str, Tensor]]:
        model, kept = tiny_joint_model(**options), []
        for pairs in batches:
            batch = collate(pairs)
            states = model.states(batch.source_BS, batch.target_BT)
            logits = model.output_logits(states)
            kept += [row[: len(target) + 1] for row, (_, target) in zip(logits, pairs, strict=True)]
            torch.autograd.backward(label_smoothed_loss(model, states, batch.labels_BT, 0.1))
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        assert len(gradients) == len(list(model.parameters()))
        return kept, gradients

    logits, gradients = results([PAIRS])
    logits_alone, gradients_alone = results([[pair] for pair in PAIRS])
    for one, other in zip(logits, logits_alone, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=ATOL)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_alone[name], rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize("options", VARIANTS)
def test_a_target_position_sees_no_later_one_and_the_whole_source(options: dict[str, Any]) -> None:
    model = tiny_joint_model(**options)

    def logits(source: list[int], target: list[int]) -> Tensor:
        found: Tensor = model(torch.tensor([source]), torch.tensor([target]))[0]
        return found.detach()

    before = logits(SOURCE, TARGET)
    torch.testing.assert_close(logits(SOURCE, [*TARGET[:3], 1, 1])[:3], before[:3])
    for changed in range(len(SOURCE)):
        other = logits([*SOURCE[:changed], 17, *SOURCE[changed + 1 :]], TARGET)
        assert (other - before).abs().amax(-1).min() > 1e-3


def test_a_model_without_prenet_has_no_encoder_norm() -> None:
    def parts(layers: int) -> set[str]:
        model = tiny_joint_model(num_encoder_layers=layers)
        return {name.split(".")[0] for name, _ in model.named_parameters()}

    assert parts(2) - parts(0) == {"encoder", "encoder_norm"}


def test_tied_and_untied_embeddings() -> None:
    tied, untied = tiny_joint_model(), tiny_joint_model(tie_embeddings=False)
    assert tied.output_weight is tied.embedding.weight
    three = [untied.output_weight, untied.embedding.weight, untied.source_embedding.weight]  # type: ignore[union-attr]
    assert len({id(weight) for weight in three}) == 3
    assert sum(weight.numel() for weight in three) == 3 * 37 * 16


def test_matrices_begin_as_the_authors_do() -> None:
    # N(0, D^-0.5); 4096 and more draws vary by a hundredth.
    torch.manual_seed(0)
    model = build_model(replace(TINY_JOINT, tie_embeddings=False, model_dim=64, vocab_size=500))
    assert isinstance(model, JointModel)
    assert model.source_embedding is not None
    for weight in (
        model.reduction.scores.weight,
        model.output_weight,
        model.embedding.weight,
        model.source_embedding.weight,
    ):
        assert weight.std().item() == pytest.approx(64**-0.5, rel=0.04)


# Noise


NOISE = {
    "target_attention_residual": "S",
    "source_attention_residual": "T",
    "first_ffn_residual": "ST",
    "ffn_residual": "ST",
    "first_ffn": "ST",
    "ffn": "ST",
}
LETTERS = {3: "B", 5: "S", 4: "T", 16: "D", 24: "H"}


def noise_of(model: nn.Module) -> dict[str, list[Tensor]]:
    """What each Dropout of a model in training multiplies its input by, call by call."""
    noise: dict[str, list[Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            calls = noise.setdefault(name, [])
            module.register_forward_pre_hook(lambda _, inputs: (torch.ones_like(inputs[0]),))
            module.register_forward_hook(lambda *given, calls=calls: calls.append(given[2]))
    model.train()(torch.randint(1, 37, (3, 5)), torch.randint(1, 37, (3, 4)))
    return noise


def shared_axes(noise: Tensor) -> str:
    """Letters of the axes along which all elements are equal."""
    return "".join(
        LETTERS[size]
        for axis, size in enumerate(noise.shape)
        if torch.equal(noise, noise.narrow(axis, 0, 1).expand_as(noise))
    )


@pytest.mark.parametrize("joint_dropout", ["shared", "ordinary"])
def test_noise_is_shared_along_the_axes_of_section_3_4(joint_dropout: str) -> None:
    model = tiny_joint_model(
        dropout=0.5, activation_dropout=0.5, tie_embeddings=False, joint_dropout=joint_dropout
    )
    expected = {"embedding.dropout": "", "source_embedding.dropout": ""}
    for layer in range(2):
        for place in ("self_attention_residual", "ffn_residual", "ffn"):
            expected[f"encoder.{layer}.{place}.dropout"] = ""
        for place, axes in NOISE.items():
            shared = axes if joint_dropout == "shared" else ""
            expected[f"layers.{layer}.{place}.dropout"] = shared
    found = {name: "".join(map(shared_axes, calls)) for name, calls in noise_of(model).items()}
    assert {name: set(axes) for name, axes in found.items()} == {
        name: set(axes) for name, axes in expected.items()
    }


def test_a_tied_embedding_drops_source_and_target_apart() -> None:
    source, target = noise_of(tiny_joint_model(dropout=0.5))["embedding.dropout"]
    assert source.shape[1:] == (5, 16)
    assert target.shape[1:] == (4, 16)
    assert not torch.equal(source[:, :4], target)


def test_shared_noise_keeps_the_mean() -> None:
    noise = noise_of(tiny_joint_model(dropout=0.25, activation_dropout=0.75))
    for name, calls in noise.items():
        kept = 4 / 3 if "residual" in name or "embedding" in name else 4.0
        for call in calls:
            assert np.unique(call.numpy()) == pytest.approx([0.0, kept]), name
    torch.manual_seed(0)
    dropout = Dropout(0.25, shared_axes=(1, 2)).train()
    assert dropout(torch.ones(1, 2, 3, 100_001)).mean().item() == pytest.approx(1.0, abs=0.01)


def test_there_is_no_noise_in_evaluation() -> None:
    model = tiny_joint_model(dropout=0.5, activation_dropout=0.5, attention_dropout=0.5)
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET])
    expected, _ = reference.decode(SOURCE, TARGET, model)
    np.testing.assert_allclose(model(source, target)[0].detach(), expected, rtol=0, atol=ATOL)
    assert not torch.equal(model.train()(source, target), model(source, target))


@pytest.mark.parametrize("joint_dropout", ["shared", "ordinary"])
@pytest.mark.parametrize("name", ["target_attention", "source_attention"])
def test_attention_drops_alike_along_the_axis_that_it_does_not_aggregate(
    name: str, joint_dropout: str
) -> None:
    layer = tiny_layer(attention_dropout=0.5, joint_dropout=joint_dropout)
    keep_only(layer, name)
    layer.train()
    # Only the aggregated axis varies, so what differs along another one is noise.
    varied = (1, 1, 4, 16) if name == "target_attention" else (1, 5, 1, 16)
    x_BSQD = torch.randn(varied).expand(3, 5, 4, 16)
    out_BQSD = layer(x_BSQD, CacheContext(), None)
    idle = "S" if name == "target_attention" else "T"
    # Products of unlike rows may round differently: equal to 1e-6, while noise is above 1e-2.
    rounded = (out_BQSD * 1e4).round()
    assert shared_axes(rounded) == (idle if joint_dropout == "shared" else "")


def test_attention_of_the_prenet_drops_each_row_by_itself() -> None:
    model = tiny_joint_model(attention_dropout=0.5)
    out_BSD = model.encoder[0].train()(torch.randn(1, 5, 16).expand(3, 5, 16), None)
    assert not torch.allclose(out_BSD[0], out_BSD[1], atol=1e-2)
