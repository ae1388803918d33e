"""Language models against a reference with loops, and decoding against teacher forcing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.unit.training.models import reference_language as reference
from tests.unit.training.tiny_language import tiny_lm
from training.models import CausalLanguageModel
from training.models.networks.language_model import PlacedTokens
from training.models.sublayers.light_attention import layer_reach

KINDS = ["full", "dilated", "dilated_memory", "cascade"]
FORMS = [
    (kind, block, norm)
    for kind in KINDS
    for block in ("standard", "macaron")
    for norm in ("pre", "post", "none")
]


@pytest.mark.parametrize(("kind", "block", "norm"), FORMS)
def test_logits_equal_the_loop_written_reference(kind: str, block: str, norm: str) -> None:
    model = tiny_lm(attention=kind, block=block, norm=norm)
    ids = [int(i) for i in torch.randint(37, (13,))]
    found = model(torch.tensor([ids]))[0].detach().double().numpy()
    expected = reference.logits(ids, model)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "relative", "max_relative_distance": 3},
        {"positions": "rotary", "attention": "full"},
        {"positions": "rotary", "attention": "cascade"},
        {"positions": "rotary", "attention": "dilated"},
    ],
)
def test_logits_of_other_positions_equal_the_loop_written_reference(
    options: dict[str, Any],
) -> None:
    model = tiny_lm(**options)
    ids = [int(i) for i in torch.randint(37, (13,))]
    found = model(torch.tensor([ids]))[0].detach().double().numpy()
    np.testing.assert_allclose(found, reference.logits(ids, model), rtol=1e-4, atol=1e-3)


def empty_caches(model: CausalLanguageModel, capacity: int) -> list[torch.Tensor]:
    sizes = {"B": 2, "C": capacity}
    return [torch.zeros(cache.shape(sizes)) for cache in model.caches]


@pytest.mark.parametrize(("kind", "block", "norm"), FORMS)
def test_decoding_token_by_token_equals_teacher_forcing(kind: str, block: str, norm: str) -> None:
    """Light kinds keep no more slots than their widest layer reaches, the new one included."""
    model = tiny_lm(attention=kind, block=block, norm=norm)
    ids_BT = torch.randint(37, (2, 21))
    expected_BTV = model(ids_BT)
    reaches = [21 if reach is None else reach for reach in layer_reach(model.config)]
    capacity = max(reaches)
    caches = empty_caches(model, capacity)
    slots_BC = torch.full((2, capacity), -1)
    for t in range(ids_BT.shape[1]):
        slot = t % capacity  # a ring: the new token takes the place of the oldest
        slots_BC[:, slot] = t
        visible = torch.where(slots_BC >= 0, 0.0, -torch.inf)[:, None, None]
        tokens = PlacedTokens(
            ids_BT[:, t : t + 1],
            torch.full((2, 1), t),
            slots_BC,
            torch.full((2,), slot),
            visible,
        )
        step = model.decode_step(tokens, caches)
        caches = step.caches
        logits_BV = model.output_logits(step.x_BQD)[:, 0]
        torch.testing.assert_close(logits_BV, expected_BTV[:, t], rtol=1e-4, atol=1e-3)
    assert capacity == {"full": 21, "dilated": 9, "dilated_memory": 9, "cascade": 8}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_prefill_then_one_more_token_equals_teacher_forcing(kind: str) -> None:
    model = tiny_lm(attention=kind)
    ids_BT = torch.randint(37, (2, 12))
    expected_BTV = model(ids_BT)
    caches = empty_caches(model, 16)
    slots_BC = torch.arange(16).expand(2, -1)
    causal = torch.full((12, 16), -torch.inf).triu(1)[None, None].expand(2, -1, -1, -1)
    start = torch.zeros(2, dtype=torch.int64)
    positions = torch.arange(11).expand(2, -1)
    given = PlacedTokens(ids_BT[:, :11], positions, slots_BC, start, causal[:, :, :11])
    step = model.decode_step(given, caches)
    found = [model.output_logits(step.x_BQD)]
    last = torch.full((2, 1), 11)
    more = PlacedTokens(ids_BT[:, 11:], last, slots_BC, start + 11, causal[:, :, 11:])
    step = model.decode_step(more, step.caches)
    found.append(model.output_logits(step.x_BQD))
    torch.testing.assert_close(torch.cat(found, 1), expected_BTV, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "history"), [("dilated", 14), ("dilated_memory", 14), ("cascade", 25)]
)
def test_the_top_layer_sees_no_further_than_the_paper_says(kind: str, history: int) -> None:
    """The paper's windows, 3 layers: 15, 15 and 26 tokens, the last one included."""
    model = tiny_lm(attention=kind, first_window=4)
    embedded: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.embedding.register_forward_hook(keep)
    model(torch.randint(37, (1, 40)))[0, -1].sum().backward()
    gradient = embedded[0].grad
    assert gradient is not None
    reached = gradient[0].abs().sum(-1).nonzero().flatten()
    assert 39 - int(reached.min()) == history


def test_dropout_stops_before_the_last_layer_where_asked_for() -> None:
    drops = {"dropout": 0.5, "attention_dropout": 0.5, "output_dropout": 0.25}
    model = tiny_lm(**drops, dropout_layers="reference")
    first, last = model.layers[0], model.layers[2]
    assert first.self_attention.dropout == 0.5
    assert first.ffn_residual.dropout.threshold == 128
    assert last.self_attention.dropout == 0.0
    assert last.ffn_residual.dropout.threshold == 0
    assert last.self_attention_residual.dropout.threshold == 0
    assert model.embedding.dropout.threshold == 128
    assert model.output_dropout.threshold == 64
    assert tiny_lm(**drops).layers[2].self_attention.dropout == 0.5


def test_checkpointing_changes_no_gradient() -> None:
    gradients = []
    for checkpointing in (False, True):
        model = tiny_lm(attention="cascade").train()
        model.checkpointing = checkpointing
        model(torch.arange(20)[None]).square().mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*gradients)
