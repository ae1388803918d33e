"""What all models have in common: checkpointing of activations, heads that fall, padding."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit.training.models.sample_networks import (
    DEEP,
    PAIRS,
    SOURCE,
    TARGET,
    inputs_of,
    random_network,
)
from tests.unit.training.tiny import TINY, TINY_JOINT, randomised, tiny_joint_model
from training.batches.batching import collate
from training.models import ModelConfig
from training.models.base import padding_mask
from training.tasks.loss import label_smoothed_loss


@pytest.mark.parametrize(
    "config", [TINY_JOINT, replace(TINY, block="macaron")], ids=lambda config: config.architecture
)
def test_checkpointing_computes_layers_again_and_gives_the_same_gradients(
    config: ModelConfig,
) -> None:
    noisy = replace(config, dropout=0.3, attention_dropout=0.2, activation_dropout=0.2)
    batch = collate(PAIRS)

    def gradients(*, checkpointing: bool) -> tuple[dict[str, Tensor], set[int]]:
        model = randomised(noisy).train()
        model.checkpointing = checkpointing
        calls: Counter[str] = Counter()
        for name, module in model.named_modules():
            if name.split(".")[0] in ("encoder", "decoder", "layers") and name.count(".") == 1:
                module.register_forward_pre_hook(lambda *_, name=name: calls.update([name]))
        torch.manual_seed(7)
        states = model.states(batch.source_BS, batch.target_BT)
        torch.autograd.backward(label_smoothed_loss(model, states, batch.labels_BT, 0.1))
        assert len(calls) == 4
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return found, set(calls.values())

    plain, once = gradients(checkpointing=False)
    again, twice = gradients(checkpointing=True)
    assert (once, twice) == ({1}, {2})
    assert plain.keys() == again.keys()
    for name, gradient in plain.items():
        # Only the order of sums into the shared embedding may differ.
        torch.testing.assert_close(again[name], gradient, rtol=1e-5, atol=1e-5, msg=name)


def test_evaluation_checkpoints_nothing() -> None:
    model = tiny_joint_model()
    model.checkpointing = True
    calls: list[int] = []
    model.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    model(torch.tensor([SOURCE]), torch.tensor([TARGET])).sum().backward()
    assert len(calls) == 1


@pytest.mark.parametrize("config", DEEP, ids=lambda config: config.family)
def test_training_drops_heads_of_every_attention(config: ModelConfig) -> None:
    model = random_network(config).train()
    inputs = inputs_of(config)
    kept = model(*inputs)
    assert torch.equal(model(*inputs), kept)
    model.drop_heads(0.5)
    torch.manual_seed(1)
    assert not torch.equal(model(*inputs), kept)
    assert torch.equal(model.eval()(*inputs), kept)


def test_a_mask_hides_padding_and_there_is_none_without() -> None:
    assert padding_mask(torch.tensor([[5, 3], [4, 3]])) is None
    mask = padding_mask(torch.tensor([[5, 6, 3], [4, 3, 0]]))
    assert mask is not None
    assert mask.tolist() == [[[[0.0, 0.0, 0.0]]], [[[0.0, 0.0, -torch.inf]]]]
