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
from training.subwords import SubwordSampler
from training.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[3]
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
    sampled = SubwordSampler(tokenizer, alpha=1000.0).sample(TEXTS + STRANGE, "seed")
    assert sampled == tokenizer.encode_batch(TEXTS + STRANGE)


def test_every_sample_spells_its_text(tokenizer: Tokenizer) -> None:
    sampled = SubwordSampler(tokenizer, alpha=0.05).sample(TEXTS + STRANGE, "seed")
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
    samples = SubwordSampler(tokenizer, alpha).sample([word] * count, "seed")
    found = Counter(tuple(tokenizer.pieces(ids)) for ids in samples)
    assert set(found) <= set(every)
    weights = {pieces: math.exp(alpha * score) for pieces, score in every.items()}
    for pieces, weight in weights.items():
        expected = weight / sum(weights.values())
        tolerance = 5 * math.sqrt(expected * (1 - expected) / count) + 1e-9
        assert found[pieces] / count == pytest.approx(expected, abs=tolerance), pieces


def test_the_seed_alone_decides(tokenizer: Tokenizer) -> None:
    one, other = SubwordSampler(tokenizer, 0.2), SubwordSampler(tokenizer, 0.2)
    first = one.sample(TEXTS, "1 0 0")
    assert one.sample(TEXTS, "1 1 0") != first
    assert one.sample(TEXTS, "1 0 0") == first
    assert other.sample(TEXTS, "1 0 0") == first
    assert SubwordSampler(tokenizer, 0.3).sample(TEXTS, "1 0 0") != first


def test_every_process_draws_the_same(model_file: Path, tokenizer: Tokenizer) -> None:
    script = (
        "import json, sys\n"
        "from serving.bundle.tokenizer import Tokenizer\n"
        "from training.subwords import SubwordSampler\n"
        "sampler = SubwordSampler(Tokenizer(sys.argv[1]), 0.2)\n"
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
    assert json.loads(done.stdout) == SubwordSampler(tokenizer, 0.2).sample(TEXTS, "seed")
