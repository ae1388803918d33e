"""Encoders against a reference with loops and `transformers`, and what is read from them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig as ForeignConfig
from transformers import BertForPreTraining, BertForSequenceClassification, BertModel

from export.importing.encoders.config import encoder_config
from export.importing.encoders.family import FAMILIES
from export.importing.encoders.weights import EncoderWeights, load_encoder
from export.importing.folder import Weights
from tests.unit.training.models import reference_blocks as reference
from tests.unit.training.tiny_encoder import TINY_BERT, tiny_bert, tiny_classifier, tiny_embedder
from training.models import PRESETS, Bert, build_network
from training.models.sublayers.attention import Packing

IDS, SEGMENTS = [2, 9, 30, 7, 11, 3, 8, 3], [0, 0, 0, 0, 0, 0, 1, 1]
TEXTS = [IDS, [2, 5, 3], [2, 3], [2, *range(4, 24), 3]]
POSITIONS = ("learnt", "sinusoid", "relative", "rotary")


def padded(texts: list[list[int]]) -> torch.Tensor:
    width = max(map(len, texts))
    return torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])


def packing(texts: list[list[int]]) -> Packing:
    width = max(map(len, texts))
    starts = np.cumsum([0, *map(len, texts)])
    slots = [[starts[i] + min(s, len(t) - 1) for s in range(width)] for i, t in enumerate(texts)]
    hidden = [[0.0 if s < len(t) else -math.inf for s in range(width)] for t in texts]
    rows = [i * width + s for i, text in enumerate(texts) for s in range(len(text))]
    return Packing(
        slots_BS=torch.tensor(np.array(slots)),
        mask_BS=torch.tensor(hidden),
        rows_M=torch.tensor(rows),
        positions_1M=torch.tensor([[place for text in texts for place in range(len(text))]]),
    )


def reference_states(model: Bert, ids: list[int], segments: list[int]) -> reference.Array:
    """States [S,D] of one text, in loops."""
    weights, config = reference.weights_of(model.encoder), model.config
    rows = []
    for place, (id_, segment) in enumerate(zip(ids, segments, strict=True)):
        token = weights["embedding.weight"][id_]
        if config.embedding_scale == "token":
            token = token * math.sqrt(config.model_dim)
        if config.positions == "learnt":
            token = token + weights["embedding.positions.weight"][place]
        elif config.positions == "sinusoid":
            token = token + reference.sinusoid(place, config.model_dim)
        rows.append(token + weights["embedding.segments.weight"][segment])
    x = np.stack(rows)
    if config.norm == "post":
        x = reference.normalise(x, reference.part(weights, "embedding.norm"), config)
    for layer in range(config.num_encoder_layers):
        x = reference.ReferenceLayer(reference.part(weights, f"layers.{layer}"), config)(x, None)
    if config.norm == "pre":
        x = reference.normalise(x, reference.part(weights, "norm"), config)
    return x


def weights_of(foreign: torch.nn.Module) -> EncoderWeights:
    weights = Weights(Path("a folder"), dict(foreign.state_dict()))
    return EncoderWeights(weights, FAMILIES["bert"])


@pytest.mark.parametrize(
    ("block", "norm", "positions"),
    list(product(reference.ORDERS, ("pre", "post"), POSITIONS)),
)
def test_states_and_heads_equal_the_loop_written_reference(
    block: str, norm: str, positions: str
) -> None:
    model = tiny_bert(block=block, norm=norm, positions=positions, max_relative_distance=3)
    wanted = reference_states(model, IDS, SEGMENTS)
    ids, segments = torch.tensor([IDS]), torch.tensor([SEGMENTS])
    found = model.encode(ids, segments)
    np.testing.assert_allclose(found[0].detach().numpy(), wanted, rtol=0, atol=2e-4)

    weights = reference.weights_of(model)
    hidden = reference.linear(wanted, weights, "mlm_dense")
    hidden = np.array([[reference.activate(float(x), "gelu") for x in row] for row in hidden])
    hidden = reference.normalise(hidden, reference.part(weights, "mlm_norm"), model.config)
    logits = hidden @ weights["encoder.embedding.weight"].T + weights["output_bias"]
    np.testing.assert_allclose(model(ids, segments)[0].detach().numpy(), logits, rtol=0, atol=1e-3)

    pooled = np.tanh(reference.linear(wanted[:1], weights, "pooler.dense"))
    follows = reference.linear(pooled, weights, "next_sentence")[0]
    np.testing.assert_allclose(
        model.next_sentence_logits(found).detach().numpy(), follows, rtol=0, atol=1e-3
    )


def test_the_released_codes_form_equals_the_loop_written_reference() -> None:
    changes = replace(PRESETS["macaron_bert_base_released"]).__dict__ | {
        name: getattr(TINY_BERT, name)
        for name in ("model_dim", "num_heads", "ffn_dim", "num_encoder_layers", "vocab_size")
    }
    model = tiny_bert(**changes)
    assert model.config.first_activation == "relu"
    assert not any("norm" in name for name, _ in model.encoder.named_parameters())
    assert model.output_bias is None
    found = model.encode(torch.tensor([IDS]), torch.tensor([SEGMENTS]))[0].detach().numpy()
    np.testing.assert_allclose(found, reference_states(model, IDS, SEGMENTS), rtol=0, atol=2e-4)
    first = model.encode(torch.tensor([IDS]))[:, 0]  # no dense layer lies between
    wanted = torch.nn.functional.linear(
        first, model.next_sentence.weight, model.next_sentence.bias
    )[:, 0]
    found = model.next_sentence_logits(model.encode(torch.tensor([IDS])))
    torch.testing.assert_close(found, wanted)


def foreign_config() -> ForeignConfig:
    return ForeignConfig(
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=40,
        vocab_size=37,
        max_position_embeddings=24,
        initializer_range=0.3,
        num_labels=3,
    )


def test_bert_agrees_with_transformers_on_the_same_weights() -> None:
    torch.manual_seed(1)
    foreign = BertForPreTraining(foreign_config()).eval()
    model = build_network(encoder_config(foreign.config.to_dict(), Path("config.json")))
    assert isinstance(model, Bert)
    weights = weights_of(foreign)
    load_encoder(model.encoder, weights, FAMILIES["bert"], 0)
    assert model.pooler.dense is not None
    weights.copy(model.pooler.dense, "pooler.dense")
    weights.copy(model.mlm_dense, "cls.predictions.transform.dense")
    weights.copy(model.mlm_norm, "cls.predictions.transform.LayerNorm")
    assert model.output_bias is not None
    weights.assign(model.output_bias, "cls.predictions.bias")
    with torch.no_grad():  # two logits whose difference is the one of this project
        two, bias = foreign.cls.seq_relationship.weight, foreign.cls.seq_relationship.bias
        model.next_sentence.weight.copy_(two[:1] - two[1:])
        model.next_sentence.bias.copy_(bias[:1] - bias[1:])
    model.eval()

    ids = padded(TEXTS)
    segments = torch.randint(0, 2, ids.shape)
    kept = (ids != 0).long()
    wanted = foreign(ids, attention_mask=kept, token_type_ids=segments, output_hidden_states=True)
    states = model.encode(ids, segments)
    real = kept.bool()
    torch.testing.assert_close(states[real], wanted.hidden_states[-1][real], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        model(ids, segments)[real], wanted.prediction_logits[real], rtol=1e-4, atol=1e-4
    )
    two_logits = wanted.seq_relationship_logits
    torch.testing.assert_close(
        model.next_sentence_logits(states), two_logits[:, 0] - two_logits[:, 1]
    )


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_packed_texts_have_the_vectors_of_padded_ones_and_of_each_alone(
    pooling: str, positions: str
) -> None:
    model = tiny_embedder(pooling, block="macaron", positions=positions)
    whole = model(padded(TEXTS))
    alone = torch.cat([model(torch.tensor([text])) for text in TEXTS])
    torch.testing.assert_close(whole, alone, rtol=1e-4, atol=1e-5)
    ids = torch.tensor([[id_ for text in TEXTS for id_ in text]])
    packed = model.read_packed(ids, torch.zeros_like(ids), packing(TEXTS))
    torch.testing.assert_close(packed, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(packed.norm(dim=-1), torch.ones(len(TEXTS)))


def test_pooling_is_of_the_tokens_alone() -> None:
    model = tiny_embedder("mean", normalised=False)
    states = model.encoder(torch.tensor([IDS]))
    longer = model(padded([IDS, TEXTS[3]]))[:1]
    torch.testing.assert_close(longer, states.mean(1), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"pooling must be one of .*, got 'max'"):
        tiny_embedder("max")


def test_a_classifier_agrees_with_transformers() -> None:
    torch.manual_seed(2)
    foreign = BertForSequenceClassification(foreign_config()).eval()
    model = tiny_classifier(3, num_encoder_layers=3, ffn_dim=40, max_positions=24)
    weights = weights_of(foreign)
    load_encoder(model.encoder, weights, FAMILIES["bert"], 0)
    weights.copy(model.output, "classifier")
    assert model.pooler.dense is not None
    weights.copy(model.pooler.dense, "pooler.dense")
    ids = padded(TEXTS)
    wanted = foreign(ids, attention_mask=(ids != 0).long()).logits
    torch.testing.assert_close(model(ids), wanted, rtol=1e-4, atol=1e-5)


def test_a_sentence_embedding_is_the_mean_of_what_transformers_gives() -> None:
    torch.manual_seed(3)
    foreign = BertModel(foreign_config()).eval()
    model = tiny_embedder("mean", num_encoder_layers=3, ffn_dim=40, max_positions=24)
    weights = weights_of(foreign)
    load_encoder(model.encoder, weights, FAMILIES["bert"], 0)
    for text in TEXTS:
        states = foreign(torch.tensor([text])).last_hidden_state[0]
        wanted = torch.nn.functional.normalize(states.mean(0), dim=0)
        torch.testing.assert_close(model(torch.tensor([text]))[0], wanted, rtol=1e-4, atol=1e-5)


def test_weights_begin_as_the_configuration_says() -> None:
    torch.manual_seed(0)
    sizes = {"model_dim": 256, "ffn_dim": 512, "num_heads": 4, "block": "macaron"}
    spreads = {
        "normal": (0.02, 0.02, 0.02),
        "kaiming": (1 / 16, 1 / 16, (2 / 512) ** 0.5),
    }
    for init, wanted in spreads.items():
        model = build_network(replace(TINY_BERT, attention_init=init, **sizes))
        assert isinstance(model, Bert)
        layer = model.encoder.layers[0]
        found = [
            layer.get_submodule(name).weight.std().item()
            for name in ("self_attention.in_proj", "first_ffn.up_proj", "ffn.down_proj")
        ]
        assert found == pytest.approx(wanted, rel=0.03)
    relative = replace(TINY_BERT, positions="relative", max_relative_distance=500)
    attention = build_network(relative).get_submodule("encoder.layers.0.self_attention")
    tables = attention.get_submodule("relative").parameters()
    assert [table.std().item() for table in tables] == pytest.approx([0.02, 0.02], rel=0.03)
    model = tiny_classifier()
    fresh = type(model)(model.encoder, 5)
    assert not fresh.eval()(torch.tensor([IDS])).any()
