"""Codes of BPE in the forms of subword-nmt and fastBPE, and what a vocabulary tells beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.errors import ExportError
from export.importing.vocabularies.moses import find_codes, is_cut_by_bpe, moses_rules, read_codes
from serving.bundle.moses import read_rules


def test_pieces_that_go_on_show_that_words_were_cut() -> None:
    assert is_cut_by_bpe(["Haus", "ha@@"])
    assert not is_cut_by_bpe(["▁Haus", "@@ha", "@"])


def test_codes_are_one_for_each_side_or_one_for_both(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"cut by BPE .*'@@'.*bpecodes, or as source\.codes"):
        find_codes(tmp_path, [tmp_path])
    (tmp_path / "code").touch()
    assert find_codes(tmp_path, [tmp_path]) == (tmp_path / "code", tmp_path / "code")
    for side in ("source", "target"):
        (tmp_path / f"{side}.codes").touch()
    both = (tmp_path / "source.codes", tmp_path / "target.codes")
    assert find_codes(tmp_path, [tmp_path]) == both


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("#version: 0.2\na b</w>\nc d\n", "#version: 0.2\na b</w>\nc d\n"),
        ("#version: 0.1\na b\n", "#version: 0.1\na b\n"),
        ("a b</w> 900\nc d 12\n", "#version: 0.2\na b</w>\nc d\n"),
        ("a b</w>\nc d\n", "#version: 0.1\na b</w>\nc d\n"),
        ("a b\r\nc d \r\n", "#version: 0.1\na b\nc d\n"),
        ("a b \nc d\n", "#version: 0.1\na b\nc d\n"),
        ("a b</w> 900 \r\nc d 12\r\n", "#version: 0.2\na b</w>\nc d\n"),
        ("1 2</w>\n3 4</w>\n", "#version: 0.1\n1 2</w>\n3 4</w>\n"),
        ("1 2 3\n", "#version: 0.2\n1 2\n"),
    ],
    ids=[
        "subword-nmt",
        "its first version",
        "fastBPE",
        "without a version",
        "of Windows",
        "a space after the first merge",
        "a space after the first count",
        "merges of digits",
        "counted merges of digits",
    ],
)
def test_codes_are_as_subword_nmt_writes_them(content: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "codes"
    path.write_bytes(content.encode())
    assert read_codes(path) == wanted


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a b\nc\n", "line 2 must be two pieces to merge, got 'c'"),
        (b"#version: 0.2\na b 900\n", "line 2 must be two pieces"),
        (b"a b c\n", "line 1 must be two pieces"),
        (b"a b\nc d 12\n", "line 2 must be two pieces to merge, got 'c d 12'"),
        (b"a b 900\nc d\n", "line 2 must be two pieces to merge and their count, as line 1 is"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_what_is_no_list_of_merges_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "codes"
    path.write_bytes(content)
    with pytest.raises(ExportError, match=f"codes: {words}"):
        read_codes(path)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (["haus", "ha@@"], (False, False, True)),
        (["Haus"], (False, False, False)),
        (["haus", "&apos;s"], (True, False, True)),
        (["haus", "@-@"], (False, True, True)),
        (["haus", "x@-@y"], (False, False, True)),
    ],
)
def test_the_vocabulary_says_what_was_done_to_texts(
    written: list[str], told: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    path = tmp_path / "codes"
    path.write_text("#version: 0.2\na b\n")
    rules = read_rules(moses_rules(path, "de", written))
    assert (rules.escape, rules.hyphens, rules.lowercase) == told
    assert (rules.language, rules.codes) == ("de", "#version: 0.2\na b\n")
