"""Language models against a reference with loops, and decoding against teacher forcing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.unit.training.models import reference_blocks as reference
from training.errors import ConfigError
from training.models import (
    PRESETS,
    CausalLanguageModel,
    LanguageModelConfig,
    ModelConfig,
    build_model,
    build_network,
)
from training.models.embedding import gluon_sinusoid
from training.models.language_model import PlacedTokens
from training.models.light_attention import layer_offsets, layer_reach

TINY_LM = LanguageModelConfig(
    model_dim=16,
    num_heads=2,
    ffn_dim=24,
    num_decoder_layers=3,
    vocab_size=37,
    first_window=2,
    dropout=0.0,
    attention_bias=False,
    output_bias=True,
)
KINDS = ["full", "dilated", "dilated_memory", "cascade"]
FORMS = [
    (kind, block, norm)
    for kind in KINDS
    for block in ("standard", "macaron")
    for norm in ("pre", "post", "none")
]


def tiny_lm(seed: int = 0, **changes: Any) -> CausalLanguageModel:
    """In evaluation mode, all parameters random."""
    model = randomised_lm(replace(TINY_LM, **changes), seed)
    assert isinstance(model, CausalLanguageModel)
    return model


def randomised_lm(config: LanguageModelConfig, seed: int = 0) -> CausalLanguageModel:
    torch.manual_seed(seed)
    model = build_network(config)
    assert isinstance(model, CausalLanguageModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def reference_logits(ids: list[int], model: CausalLanguageModel) -> reference.Array:
    """Logits [T,V]: query by query, key by key."""
    config, weights = model.config, reference.weights_of(model)
    table, dim = reference.vectors_of(weights, config), config.model_dim
    absolute = config.positions == "sinusoid"
    x = reference.embed(ids, table, config.embedding_scale, positions=absolute)
    if config.norm == "post":
        x = reference.normalise(x, reference.part(weights, "embedding_norm"), config)

    def sublayer(layer: reference.Weights, name: str, scale: float, function: Any) -> None:
        nonlocal x
        norm = reference.part(layer, f"{name}_residual.norm")
        inner = reference.normalise(x, norm, config) if config.norm == "pre" else x
        x = x + scale * function(inner)
        if config.norm == "post":
            x = reference.normalise(x, norm, config)

    macaron = config.block == "macaron"
    for number, offsets in enumerate(layer_offsets(config)):
        layer = reference.part(weights, f"layers.{number}")
        if macaron:
            first = reference.part(layer, "first_ffn")
            sublayer(
                layer, "first_ffn", 0.5, lambda y, w=first: reference.feed_forward(y, w, config)
            )

        def attend(
            y: reference.Array,
            layer: reference.Weights = layer,
            offsets: tuple[int, ...] | None = offsets,
        ) -> reference.Array:
            projected = y @ layer["self_attention.in_proj.weight"].T
            own = reference.part(layer, "self_attention")
            if config.positions == "relative":  # which full attention alone may have
                out = reference.attend_to_itself(projected, own, config, causal=True)
                return out @ own["out_proj.weight"].T
            query, key, value = (projected[:, i * dim : (i + 1) * dim] for i in range(3))
            if config.positions == "rotary":
                query, key = (reference.turn(side, config.num_heads) for side in (query, key))
            rows = []
            for t in range(len(y)):
                seen = [s for s in range(t + 1) if offsets is None or t - s in offsets]
                row = reference.attend(
                    query[t : t + 1], key[seen], value[seen], config.num_heads, causal=False
                )
                rows.append(row[0])
            return np.stack(rows) @ layer["self_attention.out_proj.weight"].T

        sublayer(layer, "self_attention", 1.0, attend)
        ffn = reference.part(layer, "ffn")
        scale = 0.5 if macaron else 1.0
        sublayer(layer, "ffn", scale, lambda y, w=ffn: reference.feed_forward(y, w, config))
    last = reference.part(weights, "norm")
    x = reference.normalise_output(x, last, config, norm=config.norm == "pre")
    return x @ table.T + weights["output_bias"]


@pytest.mark.parametrize(("kind", "block", "norm"), FORMS)
def test_logits_equal_the_loop_written_reference(kind: str, block: str, norm: str) -> None:
    model = tiny_lm(attention=kind, block=block, norm=norm)
    ids = [int(i) for i in torch.randint(37, (13,))]
    found = model(torch.tensor([ids]))[0].detach().double().numpy()
    expected = reference_logits(ids, model)
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
    np.testing.assert_allclose(found, reference_logits(ids, model), rtol=1e-4, atol=1e-3)


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


def parameters(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_network(config).parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_parameter_counts_of_the_authors_code(kind: str) -> None:
    """The mask changes no weight: what differs between the paper's rows is not to be found."""
    wikitext2 = PRESETS[f"lm_wikitext2_{kind}"]
    assert parameters(replace(wikitext2, norm="none")) == 15_757_998
    assert parameters(replace(wikitext2, norm="none", vocab_size=10_000)) == 8_285_760
    assert parameters(replace(wikitext2, norm="post", vocab_size=10_000)) == 8_285_760 + 4_480


def test_the_small_model_fits_ten_megabytes_in_int8() -> None:
    assert parameters(PRESETS["lm_small"]) < 6.8e6


def test_gluon_positions_follow_the_authors_formula() -> None:
    dim = 10
    for position in (0, 1, 7, 300):
        expected = [
            (math.sin if j % 2 == 0 else math.cos)(position / 10000 ** (2 * j / dim))
            for j in range(dim)
        ]
        found = gluon_sinusoid(torch.tensor(position), dim)
        np.testing.assert_allclose(found, expected, atol=2e-5)
    one, other = tiny_lm(), tiny_lm(positions="gluon")
    ids = torch.tensor([[3, 4, 5]])
    assert not torch.equal(one(ids), other(ids))


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


@pytest.mark.parametrize(
    "change",
    [
        {"norm": "middle"},
        {"attention": "sparse"},
        {"block": "tests:OWN"},
        {"positions": "learned"},
        {"max_positions": 5},
        {"positions": "learnt", "max_positions": 0},
        {"num_kv_heads": 3},
        {"num_kv_heads": 1, "positions": "relative"},
        {"rotary_base": 1.0},
        {"tie_embeddings": False, "fix_norm": True},
        {"dropout_layers": "first"},
        {"num_encoder_layers": 1},
        {"kernel_size": 0},
        {"first_window": 0},
        {"output_dropout": 1.0},
    ],
)
def test_a_value_out_of_range_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(TINY_LM, **change)
    assert all(name in str(refused.value) for name in change)


def test_a_language_model_is_no_translation_model() -> None:
    with pytest.raises(ConfigError, match=r"a translation model is needed.*got 'lm'"):
        build_model(TINY_LM)
