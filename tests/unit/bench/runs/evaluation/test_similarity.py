"""Retrieval and similarity of embedding models, beside loops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import spearmanr

from bench.runs.evaluation.similarity import (
    SimilarityResult,
    measure_similarity,
    similarity_markdown,
)
from serving.encoding.reader import Embedder
from training.errors import CorpusError


class LetterEmbedder:
    """Counts letters: a vector of length other than one."""

    def embed(self, texts: Sequence[str], *, truncate: bool) -> Any:
        assert truncate
        return np.array([[text.count(letter) for letter in "abcde"] for text in texts], np.float32)


def cosine(first: str, second: str) -> float:
    """Of two texts, by a loop."""
    one, other = LetterEmbedder().embed([first, second], truncate=True)
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


PAIRS = [("aab", "baa"), ("abc", "cab"), ("dde", "eed"), ("ad", "ade"), ("be", "bee"), ("ae", "bb")]
SCORED = [("aab", "abb", 3.5), ("abc", "cba", 5.0), ("aaa", "ab", 2.0), ("dde", "aae", 1.0)]


def test_both_measures_equal_those_of_loops(tmp_path: Path) -> None:
    pairs, scored = tmp_path / "pairs.tsv", tmp_path / "scored.tsv"
    repeated = [(PAIRS[0][0], "c"), ("c", PAIRS[1][1].upper())]  # neither has one right answer
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in [*PAIRS, *repeated]))
    rows = [f"{number}\t{a}\t{b}\t{score}\n" for number, (a, b, score) in enumerate(SCORED)]
    scored.write_text("index\tsentence1\tsentence2\tscore\n" + "".join(rows))
    hits = 0
    for column in (0, 1):
        for number, pair in enumerate(PAIRS):
            near = [cosine(pair[column], other[1 - column]) for other in PAIRS]
            hits += int(np.argmax(near)) == number
    wanted = spearmanr(
        [cosine(a, b) for a, b, _ in SCORED], [score for *_, score in SCORED]
    ).statistic
    messages: list[str] = []
    found = measure_similarity(
        {"letters": cast(Embedder, LetterEmbedder())}, {"p": pairs}, {"s": scored}, messages.append
    )
    assert found == [
        SimilarityResult("letters", "p", 6, hits / 12),
        SimilarityResult("letters", "s", 4, float(wanted)),
    ]
    assert 0 < hits < 12
    assert messages == ["p: letters", "s: letters"]
    assert f"| p | 6 | {100 * hits / 12:.1f} |" in similarity_markdown(found)


def test_a_table_that_is_not_recognised_is_said_before_the_measurement(tmp_path: Path) -> None:
    pairs, wide = tmp_path / "pairs.tsv", tmp_path / "wide.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    wide.write_text("1\ta\tb\t2.5\n2\tc\td\t3.5\n")
    systems, messages = {"letters": cast(Embedder, LetterEmbedder())}, list[str]()
    for tables in (({"w": wide}, {}), ({"p": pairs}, {"w": wide})):
        with pytest.raises(CorpusError, match="cannot be guessed; give a table of") as error:
            measure_similarity(systems, *tables, messages.append)
        assert "--columns" not in str(error.value)  # which this bench does not have
    assert messages == []
