"""Guided alignment: which links a corpus tells, and how attention learns them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from serving.search.ids import PAD_ID
from tests.integration.decoding.test_alignments import pairs_by_hand
from tests.unit.training.tasks.test_lexicon import learn_slowly, prior_slowly
from training.batches.batching import collate
from training.corpora.pairs import read_pairs
from training.errors import ConfigError
from training.models import Transformer, TransformerConfig, build_model
from training.models.context import AttentionContext, KeyValue
from training.recipe.config import load_recipe
from training.tasks.guide import TENSION, Guide, guided_loss
from training.tasks.lexicon import IdPair, turned


def monotone_pairs(count: int, seed: int = 4) -> list[IdPair]:
    """The target says the source with the pieces plus 100; an article before every third piece."""
    generator = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        source = generator.integers(4, 40, generator.integers(2, 9)).tolist()
        target = [t for piece in source for t in ([99] if piece % 3 == 0 else []) + [piece + 100]]
        pairs.append((source, target))
    return pairs


def links_slowly(pairs: list[IdPair], source: list[int], target: list[int]) -> list[list[float]]:
    """Both directions' posteriors by loops, and their geometric mean."""

    def posterior(corpus: list[IdPair], given: list[int], said: list[int]) -> list[list[float]]:
        lexicon = learn_slowly(corpus, 5, TENSION)
        rows = []
        for place, t in enumerate(said):
            prior = prior_slowly(place, len(given), len(said), TENSION)
            weights = [
                (lexicon[s, t] or 1e-9) * p for s, p in zip([PAD_ID, *given], prior, strict=True)
            ]
            rows.append([weight / sum(weights) for weight in weights[1:]])
        return rows

    forward, backward = posterior(pairs, source, target), posterior(turned(pairs), target, source)
    found = [
        [(forward[t][s] * backward[s][t]) ** 0.5 for s in range(len(source))]
        for t in range(len(target))
    ]
    return [[each / max(sum(row), 1.0) for each in row] for row in found]


def test_links_equal_the_slow_loop() -> None:
    pairs = monotone_pairs(20)
    guide = Guide(pairs)
    for source, target in [*pairs[:5], ([5, 7], [105, 300])]:
        found = guide.links(source, target)
        assert found == pytest.approx(np.array(links_slowly(pairs, source, target)), abs=1e-9)


def test_pieces_are_linked_to_what_they_translate_and_unknown_ones_to_nothing() -> None:
    guide = Guide(monotone_pairs(300))
    links = guide.links([5, 7, 8, 4], [105, 107, 300, 108, 104])
    assert links[[0, 1, 3, 4]].argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert (links[[0, 1, 3, 4]].max(axis=1) > 0.7).all()
    assert links[2].sum() < 0.1
    assert (links.sum(axis=1) <= 1 + 1e-9).all()


def test_a_batch_has_links_where_its_labels_are() -> None:
    pairs = monotone_pairs(6)
    guide = Guide(pairs)
    batch, links = collate(pairs), guide.batch(pairs)
    assert links.shape == (*batch.labels_BT.shape, batch.source_BS.shape[1])
    for row, (source, target) in enumerate(pairs):
        assert links[row, : len(target), : len(source)].numpy() == pytest.approx(
            guide.links(source, target), abs=1e-6
        )
        assert not links[row, len(target) :].any()
        assert not links[row, :, len(source) :].any()


def test_the_loss_equals_a_loop_over_links() -> None:
    torch.manual_seed(0)
    heads, size = 2, 3
    query, keys = torch.randn(2, 4, heads * size), torch.randn(2, 5, heads * size)
    mask = torch.zeros(2, 1, 1, 5)
    mask[1, ..., 3:] = -torch.inf
    links = torch.rand(2, 4, 5) * (mask[:, 0] == 0)
    context = AttentionContext(source=KeyValue(keys, keys), source_mask=mask, source_query=query)
    wanted = 0.0
    for b in range(2):
        for t in range(4):
            attention = torch.zeros(5)
            for h in range(heads):
                own = slice(h * size, (h + 1) * size)
                scores = keys[b, :, own] @ query[b, t, own] / size**0.5 + mask[b, 0, 0]
                attention += torch.softmax(scores, 0) / heads
            wanted -= sum(
                float(links[b, t, s] * attention[s].log()) for s in range(5) if links[b, t, s] > 0
            )
    assert float(guided_loss(context, links, heads)) == pytest.approx(wanted, rel=1e-5)


def model_and_batch() -> tuple[Transformer, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    pairs = monotone_pairs(40)
    config = TransformerConfig(
        model_dim=32, num_heads=4, ffn_dim=64, num_encoder_layers=1, num_decoder_layers=2,
        vocab_size=160, dropout=0.0,
    )  # fmt: skip
    batch = collate(pairs)
    model = build_model(config)
    assert isinstance(model, Transformer)
    return model, batch.source_BS, batch.target_BT, Guide(pairs).batch(pairs)


def test_attention_learns_the_links() -> None:
    model, source, target, links = model_and_batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        _, context = model.aligned_states(source, target)
        loss = guided_loss(context, links, 4) / links.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_the_gradient_is_the_same_with_activation_checkpointing() -> None:
    gradients = []
    for checkpointing in (False, True):
        model, source, target, links = model_and_batch()
        model.checkpointing = checkpointing
        states, context = model.train().aligned_states(source, target)
        (states.logsumexp(-1).sum() + guided_loss(context, links, 4)).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None
        torch.testing.assert_close(gradients[1][name], gradient)


def test_a_block_that_leaves_no_query_is_reported() -> None:
    keys = torch.zeros(1, 2, 4)
    context = AttentionContext(source=KeyValue(keys, keys), source_mask=None)
    with pytest.raises(ConfigError, match=r"^optim\.alignment_weight needs the queries"):
        guided_loss(context, torch.zeros(1, 3, 2), 2)


@pytest.mark.parametrize("recipe", ["joint-fast-de-en", "lm-wikitext2-cascade"])
def test_other_architectures_are_refused(recipe: str) -> None:
    with pytest.raises(ConfigError, match=r"^optim.alignment_weight is for the source attention"):
        load_recipe(recipe, ["optim.alignment_weight=0.1"])


def test_a_compiled_model_is_not_guided() -> None:
    with pytest.raises(ConfigError, match="needs the attention too; turn one of the two off"):
        load_recipe("macaron-de-en", ["optim.alignment_weight=0.1", "loop.compile=true"])


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif("MACARON_DATA" not in os.environ, reason="MACARON_DATA is not set")
def test_links_by_hand_are_found() -> None:
    """Alignment error rate (Och & Ney 2003) of links that the corpus alone tells, by words."""
    folder = Path(os.environ["MACARON_DATA"]) / "tatoeba_en_de"
    corpus = read_pairs(folder / "train.de.gz", folder / "train.en.gz")[::4]
    words: dict[str, int] = {}

    def ids(text: str) -> list[int]:
        split = text.lower().replace(".", " .").replace(",", " ,").replace("?", " ?").split()
        return [words.setdefault(word, len(words) + 4) for word in split]

    guide = Guide([(ids(source), ids(target)) for source, target in corpus])
    found = sure = found_sure = found_possible = 0
    for source, target, sure_links, possible_links in pairs_by_hand():
        links_TS = guide.links(ids(source), ids(target))
        links = {(int(s), t) for t, s in enumerate(links_TS.argmax(axis=1)) if links_TS[t, s] > 0.2}
        found, sure = found + len(links), sure + len(sure_links)
        found_sure += len(links & sure_links)
        found_possible += len(links & possible_links)
    rate = 1 - (found_sure + found_possible) / (found + sure)
    print(f"{rate:.3f} of {found} links")
    assert rate < 0.08
