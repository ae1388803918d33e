"""The index of a memory finds what comparing all would find."""

from __future__ import annotations

import random
import time

from rapidfuzz.distance import Levenshtein

from serving.text.memory import index as module
from serving.text.memory.index import SegmentIndex

WORDS = ["".join(random.Random(n).choices("etaoinshrdluöß語", k=3 + n % 7)) for n in range(2000)]


def _sentences(count: int, seed: int = 0) -> list[str]:
    choose = random.Random(seed)
    return [" ".join(choose.choices(WORDS, k=choose.randint(1, 14))) for _ in range(count)]


def _edited(sentence: str, choose: random.Random) -> str:
    words = sentence.split()
    words[choose.randrange(len(words))] = choose.choice(WORDS)
    return " ".join(words)


def test_the_best_of_all_is_found() -> None:
    keys = _sentences(4000)
    index, choose = SegmentIndex(keys), random.Random(1)
    asked = [_edited(choose.choice(keys), choose) for _ in range(300)]
    missed = wanted = 0
    for key in asked:
        best = max(100 * Levenshtein.normalized_similarity(key, each) for each in keys)
        found = index.similar(key, 75, 3)
        assert all(
            score == 100 * Levenshtein.normalized_similarity(key, keys[n]) for score, n in found
        )
        if best >= 75:
            wanted += 1
            missed += not found or found[0][0] < best
    assert wanted > 150
    assert missed <= wanted // 50


def test_what_is_added_in_parts_is_found_as_if_it_came_at_once(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "_SHARD", 64)
    keys = _sentences(300)
    whole, grown = SegmentIndex(keys), SegmentIndex()
    for begin in range(0, 300, 37):
        grown = grown.extended(keys[begin : begin + 37])
    assert len(grown) == 300
    for number, key in enumerate(keys):
        assert number in whole.exact(key, 300)
        assert grown.exact(key, 300) == whole.exact(key, 300)
        assert grown.similar(key, 75, 5) == whole.similar(key, 75, 5)


def test_of_a_key_that_many_have_the_last_ones_are_read_alone(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "_SHARD", 64)
    index, read = SegmentIndex(["\x01", "other"] * 500), []
    one = module._Shard.key
    monkeypatch.setattr(module._Shard, "key", lambda shard, n: (read.append(n), one(shard, n))[1])
    assert index.exact("\x01", 50) == list(range(998, 898, -2))
    assert len(read) == 50


def test_short_keys_and_no_keys_do_no_harm() -> None:
    assert SegmentIndex().similar("anything at all", 75, 3) == []
    index = SegmentIndex(["", "a", "ab", "abc", "語"])
    assert [index.exact(key, 5) for key in ("", "a", "ab", "abc", "語", "b")] == [
        *([n] for n in range(5)),
        [],
    ]
    assert index.similar("abc", 75, 3) == [(100.0, 3)]


def test_long_keys_are_found_by_their_beginning_and_few_take_few_bytes() -> None:
    keys = _sentences(400)
    long = [" ".join(keys[begin : begin + 100]) for begin in range(0, 400, 100)]
    index = SegmentIndex(long)
    assert index.num_bytes < 2 * sum(len(key.encode()) for key in long)
    assert index.similar(long[2] + " and more", 75, 1)[0][1] == 2
    assert index.similar(long[3][:-9], 75, 1)[0][1] == 3
    assert SegmentIndex(["one"]).num_bytes < 200


def test_a_lookup_among_many_takes_little_time_and_memory() -> None:
    keys = _sentences(50_000)
    index = SegmentIndex(keys)
    assert index.num_bytes < 800 * len(keys)  # a million in less than 1 GB
    choose = random.Random(2)
    asked = [_edited(choose.choice(keys), choose) for _ in range(100)]
    times = []
    for key in asked:
        begin = time.perf_counter()
        index.similar(key, 75, 5)
        times.append(time.perf_counter() - begin)
    assert sorted(times)[50] < 0.02
