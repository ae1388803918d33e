"""Reading, cleaning and holding out parallel text."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from training.corpus import Cleaner, hold_out, read_lines, read_pairs
from training.errors import CorpusError


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\r\nb\u2028b\x0bc\x85d\n\ne".encode())
    assert read_lines(path) == ["a", "b\u2028b\x0bc\x85d", "", "e"]


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_plain_and_gz_text_read_alike(tmp_path: Path, name: str) -> None:
    content = "\ufeffGrüß\nGott\n".encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_lines(path) == ["Grüß", "Gott"]


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
    with pytest.raises(CorpusError, match=r"nowhere\.de: cannot be read"):
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


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("Hallo", "hello"), None),
        (("", "hello"), "empty"),
        (("Hallo", " \t "), "empty"),
        (("Ã¼ber uns", "about us"), "wrong encoding"),
        (("â€žHallo", "hello"), "wrong encoding"),
        (("ein \ufffd", "a"), "wrong encoding"),
        (("Hallo\x00", "hello"), "wrong encoding"),
        (("Hallo\ud800", "hello"), "wrong encoding"),
        (("Ärger\tÂ", "trouble"), None),
        (("a" * 1001, "a" * 900), "too long"),
        (("a" * 1000, "a" * 900), None),
        (("a" * 61, "b" * 20), "length ratio"),
        (("a" * 60, "b" * 20), None),
        (("a" * 20, "b"), None),  # short text varies: "Ja." is "Yes, indeed."
    ],
)
def test_reasons_to_drop_a_pair(pair: tuple[str, str], reason: str | None) -> None:
    for candidate in (pair, pair[::-1]):
        cleaner = Cleaner()
        kept = cleaner.clean([candidate], "file")
        assert kept == ([] if reason else [candidate])
        assert dict(cleaner.report.dropped) == ({reason: 1} if reason else {})


def test_the_report_counts_by_reason_and_points_at_the_first_line() -> None:
    cleaner = Cleaner()
    first = [("a", "b"), ("", "x"), (" a", "b "), ("c", "")]
    assert cleaner.clean(first, "one.de") == [("a", "b")]
    assert cleaner.clean([("a", "b"), ("a", "c")], "two.de") == [("a", "c")]
    report = cleaner.report
    report.drop_kept("too many pieces", 1)
    report.drop_kept("no piece", 0)
    assert report.to_dict() == {
        "kept": 1,
        "held_out": 0,
        "dropped": {"empty": 2, "duplicate": 2, "too many pieces": 1},
        "first_line": {"empty": "one.de:2", "duplicate": "one.de:3"},
    }
    assert str(report) == "kept 1 pairs, dropped 5 (2 empty, 2 duplicate, 1 too many pieces)"


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


def test_at_least_one_pair_must_be_left_to_train_on() -> None:
    for pairs in ([("a", "b"), ("c", "d")], [("a", "b"), ("a", "c"), ("A!", "d")]):
        with pytest.raises(CorpusError, match="held_out_pairs = 2 leaves none of"):
            hold_out(pairs, 2, seed=1)
