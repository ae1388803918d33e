"""Batches: every pair once an epoch, within the budget, in an order that seed and epoch fix."""

from __future__ import annotations

import hashlib
import operator
from collections import Counter
from dataclasses import fields
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.bundle.tokenizer import Tokenizer
from serving.search.ids import BOS_ID, EOS_ID, PAD_ID
from tests.toy.corpus import toy_pairs
from training.batches.batching import (
    BatchedCorpus,
    CorpusOptions,
    Cost,
    IdPair,
    collate,
    cut_by_budget,
    encode_prefix,
)
from training.errors import ConfigError
from training.recipe.sections import NoiseConfig
from training.vocabularies.sentence_pieces import train_tokenizer


class Characters:
    """A tokenizer that gives each character's code."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(c) for c in text] for text in texts]


OPTIONS = {field.name for field in fields(CorpusOptions)}


def cut(pairs: list[tuple[str, str]], tokenizer: Tokenizer, **told: Any) -> BatchedCorpus:
    """A corpus of these pairs; what is told is of its options or of the pairs."""
    options = CorpusOptions(**{name: told[name] for name in told if name in OPTIONS})
    rest = {name: value for name, value in told.items() if name not in OPTIONS}
    return BatchedCorpus(pairs, tokenizer, options, **rest)


def corpus(pairs: list[tuple[str, str]], **options: Any) -> BatchedCorpus:
    settings_ = {"token_budget": 40, "max_pieces": 30} | options
    return cut(pairs, cast(Tokenizer, Characters()), **settings_)


def ids_of(pair: tuple[str, str]) -> IdPair:
    return [ord(c) for c in pair[0]], [ord(c) for c in pair[1]]


letters = st.text("abcde", min_size=1, max_size=30)
text_pairs = st.lists(st.tuples(letters, letters), min_size=1, max_size=60)


COSTS: dict[str, Cost] = {"longer side": max, "cells": operator.mul}


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
@settings(max_examples=60, deadline=None)
@given(
    pairs=text_pairs,
    token_budget=st.integers(1, 900),
    epoch=st.integers(0, 5),
    seed=st.integers(0, 100),
)
def test_an_epoch_holds_every_pair_once_within_the_budget(
    cost: Cost, pairs: list[tuple[str, str]], token_budget: int, epoch: int, seed: int
) -> None:
    batches = corpus(pairs, token_budget=token_budget, cost=cost, seed=seed).epoch(epoch)
    found = Counter((tuple(s), tuple(t)) for batch in batches for s, t in batch)
    assert found == Counter((tuple(s), tuple(t)) for s, t in map(ids_of, pairs))
    for batch in batches:
        tensors = collate(batch)
        rows, source = tensors.source_BS.shape
        assert rows == len(batch) > 0
        assert rows == 1 or rows * cost(source, tensors.target_BT.shape[1]) <= token_budget


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=80),
    budget=st.integers(1, 3000),
)
def test_cutting_keeps_the_order_and_fills_batches(
    cost: Cost, sizes: list[tuple[int, int]], budget: int
) -> None:
    def total(batch: list[int]) -> int:
        longest = (max(sizes[i][side] for i in batch) for side in (0, 1))
        return len(batch) * cost(*longest)

    order = list(range(len(sizes)))[::-1]
    batches = cut_by_budget(order, sizes, budget, cost)
    assert [i for batch in batches for i in batch] == order
    assert all(len(batch) == 1 or total(batch) <= budget for batch in batches)
    for batch, following in pairwise(batches):
        assert total([*batch, following[0]]) > budget


def test_the_cost_of_a_batch_follows_from_the_longest_of_each_side() -> None:
    # Two rows of 5 x 5 hold 50 cells, though no pair has more than 5.
    sizes = [(1, 5), (5, 1)]
    assert cut_by_budget([0, 1], sizes, 49, operator.mul) == [[0], [1]]
    assert cut_by_budget([0, 1], sizes, 50, operator.mul) == [[0, 1]]
    assert cut_by_budget([0, 1], sizes, 10) == [[0, 1]]  # the longer side alone


def test_joint_batches_pad_little_on_mixed_lengths() -> None:
    rng = np.random.default_rng(0)
    sources = rng.lognormal(2.5, 0.5, 4000)
    lengths = np.clip(np.stack([sources, sources * rng.lognormal(0, 0.2, 4000)]), 1, 60).astype(int)
    pairs = [("a" * source, "b" * target) for source, target in lengths.T]
    cells = padded = 0
    for batch in corpus(pairs, max_pieces=60, token_budget=4096, cost=operator.mul).epoch(0):
        tensors = collate(batch)
        padded += len(batch) * tensors.source_BS.shape[1] * tensors.target_BT.shape[1]
        cells += sum((len(source) + 1) * (len(target) + 1) for source, target in batch)
    # 6 %; ordered by the longer side alone it would be 14 %, at random 54 %.
    assert 1 - cells / padded < 0.1


def test_seed_and_epoch_fix_the_order_and_nothing_else_does() -> None:
    pairs = toy_pairs(200, seed=1)
    one, other = corpus(pairs, max_pieces=100), corpus(pairs, max_pieces=100)
    first = one.epoch(0)
    one.epoch(1)
    assert one.epoch(2) == other.epoch(2)  # whatever was asked for before
    assert first == other.epoch(0)
    assert first != one.epoch(1)
    assert first != corpus(pairs, max_pieces=100, seed=2).epoch(0)


def test_batches_hold_pairs_of_like_length_and_other_neighbours_each_epoch() -> None:
    pairs = [(chr(i) * n, "b" * n) for n in range(1, 30) for i in range(97, 117)]
    batched = corpus(pairs, token_budget=200)
    spreads = [max(map(len2, b)) - min(map(len2, b)) for b in batched.epoch(0)]
    assert np.mean(spreads) < 5
    neighbours = [{frozenset(chr(s[0]) for s, _ in b) for b in batched.epoch(e)} for e in (0, 1)]
    assert len(neighbours[0] & neighbours[1]) < len(neighbours[0]) / 2


def len2(pair: IdPair) -> int:
    return len(pair[0])


def test_short_and_long_batches_are_mixed() -> None:
    pairs = [("a" * n, "b" * n) for n in range(1, 30) for _ in range(20)]
    lengths = [len(batch[0][0]) for batch in corpus(pairs).epoch(0)]
    assert lengths != sorted(lengths)


@settings(max_examples=60, deadline=None)
@given(pairs=text_pairs, data=st.data())
def test_a_weight_is_how_often_a_pair_comes(
    pairs: list[tuple[str, str]], data: st.DataObject
) -> None:
    pairs = list(dict.fromkeys(pairs))
    weights = data.draw(
        st.lists(st.floats(0, 3), min_size=len(pairs), max_size=len(pairs)), label="weights"
    )
    batches = corpus(pairs, weights=weights, token_budget=50).epoch(data.draw(st.integers(0, 9)))
    found = Counter((tuple(s), tuple(t)) for batch in batches for s, t in batch)
    for (source, target), weight in zip(map(ids_of, pairs), weights, strict=True):
        assert found[tuple(source), tuple(target)] in (int(weight), -int(-weight // 1))


def test_fractions_of_weights_are_drawn_anew_each_epoch_and_come_true_in_the_mean() -> None:
    pairs = [(chr(100 + i), "a") for i in range(1000)]
    weighted = corpus(pairs, weights=[1.25] * 1000)
    epochs = [weighted.epoch(epoch) for epoch in range(2)]
    sources = [Counter(s[0] for batch in batches for s, _ in batch) for batches in epochs]
    assert sources[0] != sources[1]
    assert all(1200 <= found.total() <= 1300 for found in sources)
    assert corpus(pairs, weights=[1.25] * 1000).epoch(1) == epochs[1]


def test_weights_of_one_change_nothing_and_others_are_another_corpus() -> None:
    pairs = toy_pairs(50, seed=1)
    plain, ones = corpus(pairs, max_pieces=99), corpus(pairs, max_pieces=99, weights=[1.0] * 50)
    assert plain.epoch(3) == ones.epoch(3)
    assert plain.digest == ones.digest
    assert plain.digest != corpus(pairs, max_pieces=99, weights=[2.0] * 50).digest


def test_pairs_out_of_range_are_counted() -> None:
    pairs = [("a", "b" * 31), ("a" * 31, "b"), ("", "b"), ("a", ""), ("a" * 30, "b" * 30)]
    batched = corpus(pairs)
    assert batched.dropped == {0: {"too many pieces": 2, "no piece": 2}}
    assert batched.epoch(0) == [[ids_of(pairs[-1])]]


def test_the_digest_tells_corpora_apart() -> None:
    pairs = [("ab", "c"), ("d", "e")]
    digest = corpus(pairs).digest
    assert digest == corpus(pairs, seed=9, token_budget=7).digest
    assert digest != corpus(pairs[::-1]).digest
    assert digest != corpus([("a", "bc"), ("d", "e")]).digest


def test_the_digest_is_that_of_earlier_versions() -> None:
    """Runs that they began go on."""
    pairs = [(source[:9], target[:9]) for source, target in toy_pairs(70, seed=1) * 150]
    hasher = hashlib.sha256()
    for source, target in map(ids_of, pairs):
        hasher.update(np.array([*source, EOS_ID, *target, EOS_ID], dtype="<u4").tobytes())
    assert corpus(pairs, max_pieces=99).digest == hasher.hexdigest()


def test_collated_ids_are_padded_on_the_right() -> None:
    batch = collate([([7, 8, 9], [5]), ([6], [10, 11])])
    assert batch.source_BS.tolist() == [[7, 8, 9, EOS_ID], [6, EOS_ID, PAD_ID, PAD_ID]]
    assert batch.target_BT.tolist() == [[BOS_ID, 5, PAD_ID], [BOS_ID, 10, 11]]
    assert batch.labels_BT.tolist() == [[5, EOS_ID, PAD_ID], [10, 11, EOS_ID]]
    assert batch.num_labels == 5
    assert batch.to(torch.device("cpu")).labels_BT.equal(batch.labels_BT)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "toy.model"
    train_tokenizer((t for p in toy_pairs(300, seed=1) for t in p), path, vocab_size=340)
    return Tokenizer(path)


def test_subword_sampling_depends_on_seed_and_epoch_only(tokenizer: Tokenizer) -> None:
    pairs = toy_pairs(60, seed=1)

    def sampled(seed: int = 1) -> BatchedCorpus:
        return cut(pairs, tokenizer, token_budget=500, max_pieces=100, subword_alpha=0.2, seed=seed)

    unbroken, resumed = sampled(), sampled()
    epochs = [unbroken.epoch(epoch) for epoch in range(3)]
    assert resumed.epoch(2) == epochs[2]
    assert epochs[0] != epochs[1]
    assert sampled(seed=2).epoch(0) != epochs[0]
    texts = Counter(tokenizer.decode(s) for batch in epochs[1] for s, _ in batch)
    assert texts == Counter(source for source, _ in pairs)
    plain = {tuple(ids) for ids in tokenizer.encode_batch([source for source, _ in pairs])}
    assert len(plain & {tuple(s) for batch in epochs[1] for s, _ in batch}) < 30
    copies = cut(
        pairs[:1], tokenizer, token_budget=500, max_pieces=100, subword_alpha=0.1, weights=[20.0]
    ).epoch(0)
    assert len({tuple(s) for batch in copies for s, _ in batch}) > 5  # each copy has its own


def test_a_sampled_side_that_grew_too_long_keeps_its_best_segmentation(
    tokenizer: Tokenizer,
) -> None:
    pairs = toy_pairs(60, seed=1)
    best = tokenizer.encode_batch([source for source, _ in pairs])
    longest = max(map(len, best + tokenizer.encode_batch([target for _, target in pairs])))
    batched = cut(pairs, tokenizer, token_budget=500, max_pieces=longest, subword_alpha=0.01)
    found = [pair for batch in batched.epoch(0) for pair in batch]
    assert len(found) == len(pairs)
    assert max(max(len(s), len(t)) for s, t in found) <= longest


NOISE = NoiseConfig(
    lower=0.2, title=0.1, typos=0.2, punctuation=0.2, accents=0.2, join=0.3, copy=0.1
)


def with_noise(tokenizer: Tokenizer, noise: NoiseConfig = NOISE, **options: Any) -> BatchedCorpus:
    settings_: dict[str, Any] = {"token_budget": 500, "max_pieces": 60} | options
    return cut(toy_pairs(200, seed=1), tokenizer, noise=noise, **settings_)


def spelt(tokenizer: Tokenizer, batches: list[list[IdPair]]) -> Counter[tuple[str, str]]:
    return Counter(
        (tokenizer.decode(source), tokenizer.decode(target))
        for batch in batches
        for source, target in batch
    )


@pytest.mark.parametrize("options", [{}, {"subword_alpha": 0.2}, {"weights": [1.5] * 200}])
def test_noise_depends_on_seed_and_epoch_only(
    tokenizer: Tokenizer, options: dict[str, Any]
) -> None:
    unbroken, resumed = with_noise(tokenizer, **options), with_noise(tokenizer, **options)
    epochs = [unbroken.epoch(epoch) for epoch in range(3)]
    assert resumed.epoch(2) == epochs[2]
    assert spelt(tokenizer, epochs[0]) != spelt(tokenizer, epochs[1])
    assert with_noise(tokenizer, seed=2, **options).epoch(0) != epochs[0]
    assert unbroken.digest == with_noise(tokenizer, NoiseConfig(), **options).digest


@pytest.mark.parametrize("subword_alpha", [0.0, 0.2])
def test_pairs_without_noise_stay_and_changed_ones_are_encoded_anew(
    tokenizer: Tokenizer, subword_alpha: float
) -> None:
    some = with_noise(tokenizer, NoiseConfig(lower=0.3), subword_alpha=subword_alpha)
    found = spelt(tokenizer, some.epoch(0))
    plain = set(toy_pairs(200, seed=1))
    kept, changed = ({pair for pair in found if (pair in plain) is same} for same in (True, False))
    assert 100 < len(kept) < 180
    assert len(kept) + len(changed) == 200
    assert {(source.lower(), target) for source, target in plain} > changed


def test_a_joined_line_has_the_pieces_of_its_text(tokenizer: Tokenizer) -> None:
    some = with_noise(tokenizer, NoiseConfig(join=0.5), max_pieces=200)
    batches = some.epoch(0)
    lengths = Counter(
        text.count(".") + text.count("?") for text, _ in spelt(tokenizer, batches).elements()
    )
    assert set(lengths) == {1, 2, 3}
    assert sum(size * count for size, count in lengths.items()) == 200  # each pair comes once
    for batch in batches:
        for sides in batch:
            for ids in sides:
                assert ids == tokenizer.encode(tokenizer.decode(ids))


def test_pairs_are_not_joined_beyond_the_pieces_allowed(tokenizer: Tokenizer) -> None:
    longest = max(
        len(ids) for pair in toy_pairs(200, seed=1) for ids in tokenizer.encode_batch(list(pair))
    )
    some = with_noise(tokenizer, NoiseConfig(join=1.0), max_pieces=longest)
    batches = some.epoch(0)
    assert max(len(ids) for batch in batches for sides in batch for ids in sides) <= longest
    assert sum(map(len, batches)) > 100


def test_noise_that_makes_a_side_too_long_is_left_out(tokenizer: Tokenizer) -> None:
    pairs = [("Ja.", "Yes, yes, yes, of course, at once."), ("Nein.", "No.")]
    most = max(len(tokenizer.encode(pairs[0][1])), 1)
    for alpha in (0.0, 0.1):
        some = cut(
            pairs, tokenizer, token_budget=500, max_pieces=most, noise=NoiseConfig(copy=1.0),
            subword_alpha=alpha,
        )  # fmt: skip
        found = [pair for batch in some.epoch(0) for pair in batch]
        assert len(found) == 2
        assert max(map(len, (ids for pair in found for ids in pair))) <= most


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tagged") / "toy.model"
    texts = (t for p in toy_pairs(300, seed=1) for t in p)
    train_tokenizer(texts, path, vocab_size=340, symbols=("<web>", "<old>"))
    return Tokenizer(path)


def test_a_tag_stands_before_each_source_of_its_corpus_as_in_text(tagged: Tokenizer) -> None:
    pairs = toy_pairs(90, seed=1)
    origins = [n % 3 for n in range(90)]
    tags = ["<web>", None, "<old>"]
    for options in ({}, {"subword_alpha": 0.1}, {"noise": NoiseConfig(lower=0.5, join=0.3)}):
        settings_: dict[str, Any] = {"token_budget": 500, "max_pieces": 99} | options
        prefixes = [encode_prefix(tagged, None, tag) for tag in tags]
        some = cut(pairs, tagged, origins=origins, prefixes=prefixes, **settings_)
        prefix = [f"{tags[origin] or ''} ".lstrip() for origin in origins]
        if not options:
            assert some.ids == [
                (tagged.encode(before + source), tagged.encode(target))
                for before, (source, target) in zip(prefix, pairs, strict=True)
            ]
        where = {source.lower(): before for before, (source, _) in zip(prefix, pairs, strict=True)}
        for source, target in spelt(tagged, some.epoch(0)):
            assert not target.startswith("<")
            assert source.count("<") <= 1  # a joined line has one
            first = source.rpartition("> ")[2].lower()
            if first in where:
                assert source.lower() == where[first] + first


def test_a_tag_that_is_no_piece_is_refused(tagged: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"the tag '<new>' of data\.train is not a piece"):
        encode_prefix(tagged, None, "<new>")
