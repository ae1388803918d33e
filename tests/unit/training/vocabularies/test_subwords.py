"""Subword sampling: the distribution of the paper, and the same draws in every process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece

from serving.bundle.tokenizer import Tokenizer
from tests.toy.corpus import toy_pairs
from training.vocabularies.sentence_pieces import train_tokenizer
from training.vocabularies.subwords import BpeSampler, UnigramSampler

ROOT = Path(__file__).resolve().parents[4]
TEXTS = [text for pair in toy_pairs(100, seed=3) for text in pair]
STRANGE = [
    "",
    " ",
    "日本語 🎉",
    "  Der   Hund\t",
    "\uff46\uff55ll width",
    "a\u2581b",
    "Ωmega\u200b x",
    "!?.",
]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "toy.model"
    train_tokenizer((t for p in toy_pairs(300, seed=1) for t in p), path, vocab_size=360)
    return path


@pytest.fixture(scope="module")
def tokenizer(model_file: Path) -> Tokenizer:
    return Tokenizer(model_file)


def test_with_a_large_alpha_only_the_best_segmentation_is_left(tokenizer: Tokenizer) -> None:
    sampled = UnigramSampler(tokenizer, alpha=1000.0).sample(TEXTS + STRANGE, "seed")
    assert sampled == tokenizer.encode_batch(TEXTS + STRANGE)


def test_every_sample_spells_its_text(tokenizer: Tokenizer) -> None:
    sampled = UnigramSampler(tokenizer, alpha=0.05).sample(TEXTS + STRANGE, "seed")
    best = tokenizer.encode_batch(TEXTS + STRANGE)
    assert [tokenizer.decode(ids) for ids in sampled] == [tokenizer.decode(ids) for ids in best]
    assert sum(map(len, sampled)) > 1.2 * sum(map(len, best))  # more and shorter pieces


def segmentations(tokenizer: Tokenizer, word: str) -> dict[tuple[str, ...], float]:
    """Every way to spell a word in pieces, with its log-probability."""
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.serialized())
    every: dict[tuple[str, ...], float] = {}

    def split(rest: str, done: tuple[str, ...], score: float) -> None:
        if not rest:
            every[done] = score
        for end in range(1, len(rest) + 1):
            id_ = model.piece_to_id(rest[:end])
            if id_ != model.unk_id():
                split(rest[end:], (*done, rest[:end]), score + model.get_score(id_))

    split("\u2581" + word, (), 0.0)
    return every


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_segmentations_come_as_often_as_the_paper_says(tokenizer: Tokenizer, alpha: float) -> None:
    words = {word for text in TEXTS for word in text.split()}
    word = max(sorted(words), key=lambda word: len(segmentations(tokenizer, word)))
    every = segmentations(tokenizer, word)
    assert len(every) > 6
    count = 20_000
    samples = UnigramSampler(tokenizer, alpha).sample([word] * count, "seed")
    found = Counter(tuple(tokenizer.pieces(ids)) for ids in samples)
    assert set(found) <= set(every)
    weights = {pieces: math.exp(alpha * score) for pieces, score in every.items()}
    for pieces, weight in weights.items():
        expected = weight / sum(weights.values())
        tolerance = 5 * math.sqrt(expected * (1 - expected) / count) + 1e-9
        assert found[pieces] / count == pytest.approx(expected, abs=tolerance), pieces


def test_the_seed_alone_decides(tokenizer: Tokenizer) -> None:
    one, other = UnigramSampler(tokenizer, 0.2), UnigramSampler(tokenizer, 0.2)
    first = one.sample(TEXTS, "1 0 0")
    assert one.sample(TEXTS, "1 1 0") != first
    assert one.sample(TEXTS, "1 0 0") == first
    assert other.sample(TEXTS, "1 0 0") == first
    assert UnigramSampler(tokenizer, 0.3).sample(TEXTS, "1 0 0") != first


def test_every_process_draws_the_same(model_file: Path, tokenizer: Tokenizer) -> None:
    script = (
        "import json, sys\n"
        "from serving.bundle.tokenizer import Tokenizer\n"
        "from training.vocabularies.subwords import UnigramSampler\n"
        "sampler = UnigramSampler(Tokenizer(sys.argv[1]), 0.2)\n"
        "print(json.dumps(sampler.sample(json.load(sys.stdin), 'seed')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(model_file)],
        cwd=ROOT,
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == UnigramSampler(tokenizer, 0.2).sample(TEXTS, "seed")


# BPE-dropout


@pytest.fixture(scope="module")
def bpe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "bpe.model"
    texts = (t for p in toy_pairs(300, seed=1) for t in p)
    train_tokenizer(texts, path, vocab_size=440, model_type="bpe")
    return path


@pytest.fixture(scope="module")
def bpe(bpe_file: Path) -> Tokenizer:
    return Tokenizer(bpe_file)


def test_without_dropout_every_merge_is_made(bpe: Tokenizer) -> None:
    assert BpeSampler(bpe, 0.0).sample(TEXTS + STRANGE, "seed") == bpe.encode_batch(TEXTS + STRANGE)


def test_with_a_dropout_of_one_only_characters_are_left(bpe: Tokenizer) -> None:
    (ids,) = BpeSampler(bpe, 1.0).sample(["Der Hund"], "seed")
    assert bpe.pieces(ids) == list("\u2581Der\u2581Hund")


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_every_bpe_sample_spells_its_text(bpe: Tokenizer, dropout: float) -> None:
    sampled = BpeSampler(bpe, dropout).sample(TEXTS + STRANGE, "seed")
    best = bpe.encode_batch(TEXTS + STRANGE)
    assert [bpe.decode(ids) for ids in sampled] == [bpe.decode(ids) for ids in best]
    assert sum(map(len, sampled)) > 1.05 * sum(map(len, best))


def test_a_merge_is_left_out_as_often_as_the_paper_says(tmp_path: Path) -> None:
    """Of the word "\u2581ab" one merge is possible, then one more: each stays out by itself."""
    train_tokenizer(
        ["ab"] * 50 + ["abc"] * 20 + ["c"], tmp_path / "m", vocab_size=266, model_type="bpe"
    )
    tokenizer = Tokenizer(tmp_path / "m")
    assert tokenizer.pieces(tokenizer.encode("ab")) == ["\u2581ab"]
    count, dropout = 20_000, 0.3
    samples = BpeSampler(tokenizer, dropout).sample(["ab"] * count, "seed")
    found = Counter(tuple(tokenizer.pieces(ids)) for ids in samples)
    whole = found["\u2581ab",] / count
    merges = {"\u2581a": ("\u2581a", "b"), "ab": ("\u2581", "ab")}
    (first,) = (pieces for merge, pieces in merges.items() if pieces in found)
    assert set(found) == {("\u2581ab",), first, ("\u2581", "a", "b")}
    tolerance = 5 * math.sqrt(0.25 / count)
    assert found["\u2581", "a", "b"] / count == pytest.approx(dropout, abs=tolerance)
    assert found[first] / count == pytest.approx((1 - dropout) * dropout, abs=tolerance)
    assert whole == pytest.approx((1 - dropout) ** 2, abs=tolerance)


def test_every_process_leaves_out_the_same_merges(bpe_file: Path, bpe: Tokenizer) -> None:
    script = (
        "import json, sys\n"
        "from serving.bundle.tokenizer import Tokenizer\n"
        "from training.vocabularies.subwords import BpeSampler\n"
        "sampler = BpeSampler(Tokenizer(sys.argv[1]), 0.2)\n"
        "print(json.dumps(sampler.sample(json.load(sys.stdin), 'seed')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(bpe_file)],
        cwd=ROOT,
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == BpeSampler(bpe, 0.2).sample(TEXTS, "seed")
