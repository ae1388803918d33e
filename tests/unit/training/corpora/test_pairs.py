"""Reading, cleaning and holding out parallel text."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st

from training.corpora.pairs import Cleaner, hold_out, read_lines, read_pairs
from training.errors import CorpusError
from training.recipe.filters import Filter, LengthFilter, NumbersFilter
from training.recipe.sections import DataConfig, ParallelFiles


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\r\nb\u2028b\x0bc\x85d\n\ne".encode())
    assert read_lines(path) == ["a", "b\u2028b\x0bc\x85d", "", "e"]


@pytest.mark.parametrize("name", ["text", "text.gz", "text.zst"])
def test_plain_and_compressed_text_read_alike(tmp_path: Path, name: str) -> None:
    content = "\ufeffGrüß\nGott\n".encode()
    compress = {"gz": gzip.compress, "zst": zstandard.compress}.get(name[5:], bytes)
    (tmp_path / name).write_bytes(compress(content))
    assert read_lines(tmp_path / name) == ["Grüß", "Gott"]


@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("zst", zstandard.compress)]
)
def test_archives_put_behind_one_another_are_one_text(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"text.{suffix}"
    path.write_bytes(compress(b"one\n") + compress(b"two\n"))
    assert read_lines(path) == ["one", "two"]


@pytest.mark.parametrize(
    "content",
    [b"no zstandard at all", zstandard.compress(b"x" * 9999)[:-2], zstandard.compress(b"x")[:2]],
    ids=["none", "cut", "head alone"],
)
def test_a_broken_zstandard_archive_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.zst"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"broken\.zst: cannot be read"):
        read_lines(path)


def test_wrong_encoding_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.de"
    path.write_bytes(b"gut\nGr\xfc\xdfe\nmehr\n")
    with pytest.raises(CorpusError, match=r"latin\.de:2: not UTF-8 .* byte 2"):
        read_lines(path)


@pytest.mark.parametrize(
    "content",
    [b"no gzip at all", gzip.compress(b"x" * 9999)[:-9], gzip.compress(b"x")[:12]],
    ids=["none", "cut", "head alone"],  # an archive holds the time, which names no test
)
def test_a_broken_archive_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.gz"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"broken\.gz: cannot be read"):
        read_lines(path)


def test_a_corrupt_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corrupt.gz"
    content = bytearray(gzip.compress(b"".join(b"%d\n" % n for n in range(999))))
    content[20:60] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"corrupt\.gz: cannot be read"):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError, match=r"nowhere\.de: cannot be read: No such file or directory$"
    ):
        read_lines(tmp_path / "nowhere.de")


def test_unequal_line_counts_name_the_first_line_without_a_partner(tmp_path: Path) -> None:
    source, target = tmp_path / "a.de", tmp_path / "a.en"
    source.write_text("eins\nzwei\ndrei\n")
    target.write_text("one\ntwo\n")
    message = r"a\.en:3: line missing; .*a\.de has 3 lines, .*a\.en has 2"
    with pytest.raises(CorpusError, match=message):
        read_pairs(source, target)
    with pytest.raises(CorpusError, match=r"a\.en:3: line missing"):
        read_pairs(target, source)


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    for name in ("a.de", "a.en"):
        (tmp_path / name).touch()
    with pytest.raises(CorpusError, match=r"a\.de:1: the file is empty"):
        read_pairs(tmp_path / "a.de", tmp_path / "a.en")


def cleaner(*filters: Filter) -> Cleaner:
    return Cleaner(filters or DataConfig(**REQUIRED).steps, ("de", "en"))


REQUIRED: dict[str, Any] = {
    "source_language": "de",
    "target_language": "en",
    "train": (ParallelFiles(source="a", target="b"),),
}


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("Hallo", "hello"), None),
        (("", "hello"), "empty"),
        (("Hallo", " \t "), "empty"),
        (("Ã¼ber uns", "about us"), "encoding"),
        (("â€žHallo", "hello"), "encoding"),
        (("ein \ufffd", "a"), "encoding"),
        (("Hallo\x00", "hello"), "encoding"),
        (("Hallo\ud800", "hello"), "encoding"),
        (("Ärger\tÂ", "trouble"), None),
        (("a" * 1001, "a" * 900), "length"),
        (("a" * 1000, "a" * 900), None),
        (("a" * 61, "b" * 20), "ratio"),
        (("a" * 60, "b" * 20), None),
        (("a" * 20, "b"), None),  # short text varies: "Ja." is "Yes, indeed."
    ],
)
def test_what_the_filters_of_a_recipe_that_names_none_drop(
    pair: tuple[str, str], reason: str | None
) -> None:
    for candidate in (pair, pair[::-1]):
        some = cleaner()
        kept = list(some.clean([candidate], "file"))
        assert kept == ([] if reason else [candidate])
        assert dict(some.report.dropped) == ({reason: 1} if reason else {})


def test_the_report_counts_by_corpus_and_filter_and_points_at_the_first_line() -> None:
    some = cleaner()
    first = [("a", "b"), ("", "x"), (" a", "b "), ("c", "")]
    assert list(some.clean(first, "one.de")) == [("a", "b")]
    assert list(some.clean([("a", "b"), ("a", "c"), ("d", "e")], "two.tsv", 2)) == [
        ("a", "c"),
        ("d", "e"),
    ]
    report = some.report
    report.corpora[1].dropped["too many pieces"] += 1
    assert report.to_dict() == {
        "kept": 2,
        "held_out": 0,
        "dropped": {"empty": 2, "duplicates": 2, "too many pieces": 1},
        "first_line": {"empty": "one.de:2", "duplicates": "one.de:3"},
        "corpora": [
            {
                "name": "one.de",
                "pairs": 4,
                "kept": 1,
                "dropped": {"empty": 2, "duplicates": 1},
                "first_line": {"empty": "one.de:2", "duplicates": "one.de:3"},
            },
            {
                "name": "two.tsv",
                "pairs": 3,
                "kept": 1,
                "dropped": {"duplicates": 1, "too many pieces": 1},
                "first_line": {"duplicates": "two.tsv:2"},
            },
        ],
    }
    assert str(report).splitlines() == [
        "kept 2 pairs, dropped 5 (2 empty, 2 duplicates, 1 too many pieces)",
        "  one.de: 3 (2 empty, 1 duplicates); empty first in line 2, duplicates first in line 3",
        "  two.tsv: 2 (1 duplicates, 1 too many pieces); duplicates first in line 2",
    ]


def test_filters_are_steps_in_the_order_given() -> None:
    pair = ("a" * 50, "1")
    for filters in (
        (LengthFilter(max_characters=40), NumbersFilter(min_digits=1)),
        (NumbersFilter(min_digits=1), LengthFilter(max_characters=40)),
    ):
        some = cleaner(*filters)
        assert list(some.clean([pair], "file")) == []
        assert dict(some.report.dropped) == {filters[0].name: 1}


def test_equal_sources_are_held_out_together() -> None:
    pairs = [(f"Satz {n}", f"{n}{variant}") for n in range(50) for variant in "abc"]
    pairs += [(f"satz {n}!", "x") for n in range(50)]
    train, validation = hold_out(pairs, 20, seed=1)
    assert sorted(train + validation) == sorted(pairs)
    assert 20 <= len(validation) < 24

    def numbers(some: list[tuple[str, str]]) -> set[str]:
        return {source.lower().strip("!") for source, _ in some}

    assert not numbers(train) & numbers(validation)
    assert hold_out(pairs, 20, seed=1) == (train, validation)
    assert hold_out(pairs, 20, seed=2)[1] != validation


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.text("xyz")), min_size=2, unique=True))
def test_holding_out_loses_nothing(pairs: list[tuple[str, str]]) -> None:
    assume(len({source for source, _ in pairs}) > 1)
    train, validation = hold_out(pairs, 1, seed=0)
    assert sorted(train + validation) == sorted(pairs)
    assert not {s for s, _ in train} & {s for s, _ in validation}


def test_what_stands_behind_a_pair_stays_with_it() -> None:
    pairs = [(f"Satz {n % 9}", "x", n) for n in range(30)]
    train, validation = hold_out(pairs, 5, seed=3)
    assert sorted(train + validation) == sorted(pairs)
    bare = hold_out([(source, target) for source, target, _ in pairs], 5, seed=3)
    assert ([pair[:2] for pair in train], [pair[:2] for pair in validation]) == bare


def test_at_least_one_pair_must_be_left_to_train_on() -> None:
    for pairs in ([("a", "b"), ("c", "d")], [("a", "b"), ("a", "c"), ("A!", "d")]):
        with pytest.raises(CorpusError, match="held_out_pairs = 2 leaves none of"):
            hold_out(pairs, 2, seed=1)
