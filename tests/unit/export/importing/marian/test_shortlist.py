"""Marian's binary shortlists as ours."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export.errors import ExportError
from export.importing.marian.shortlist import is_shortlist, read_marian_shortlist
from tests.toy.marian_files import write_lexicon

LISTS = [[1, 3], [0], [], [2, 3, 4], [4]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_lexicon(tmp_path / "lex.bin", LISTS, 2)
    return tmp_path / "lex.bin"


def test_a_piece_of_a_shared_vocabulary_may_stay_as_it_is(path: Path) -> None:
    assert is_shortlist(path)
    found = read_marian_shortlist(path, 5, eos=4)
    assert found.of([]).tolist() == [0, 1, 4]
    for piece, pieces in enumerate(LISTS):
        assert sorted(set(found.own(piece).tolist())) == sorted({piece, *pieces})
    assert found.own(5).tolist() == []  # the decoder's start


def test_a_piece_of_a_source_s_own_has_its_list_alone(path: Path) -> None:
    found = read_marian_shortlist(path, 9, eos=0, source_size=5)
    assert found.of([]).tolist() == [0, 1]
    assert [found.own(piece).tolist() for piece in range(5)] == LISTS


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 8), unique=True).map(sorted), min_size=1, max_size=9))
def test_lists_of_any_lengths_are_the_same_behind(lists: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lex.bin"
        write_lexicon(path, lists, 3)
        found = read_marian_shortlist(path, 9, eos=8, source_size=len(lists))
    assert [found.own(piece).tolist() for piece in range(len(lists))] == lists


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((6, None), "a vocabulary of 6 pieces: it is for 5 of the source, and has translations up"),
        ((4, 5), "a vocabulary of 4 pieces and 5 of the source: .* translations up to 4"),
        ((9, 6), "and 6 of the source: it is for 5 of the source"),
    ],
)
def test_lists_of_another_vocabulary_are_refused(
    path: Path, sizes: tuple[int, int | None], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read_marian_shortlist(path, sizes[0], 0, sizes[1])


def test_what_is_damaged_is_refused(path: Path) -> None:
    content = path.read_bytes()
    changed = bytearray(content)
    changed[48 + 8] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ExportError, match=r"lex\.bin: damaged: its checksum does not fit"):
        read_marian_shortlist(path, 5, 0)
    path.write_bytes(content[:-4])
    with pytest.raises(ExportError, match=f"{len(content)} bytes expected, got {len(content) - 4}"):
        read_marian_shortlist(path, 5, 0)
    path.write_bytes(content[:20])
    with pytest.raises(ExportError, match="cannot be read as a shortlist"):
        read_marian_shortlist(path, 5, 0)
    path.write_bytes(struct.pack("<Q", 7) + content[8:])
    assert not is_shortlist(path)
    with pytest.raises(ExportError, match="not a binary shortlist; convert it with"):
        read_marian_shortlist(path, 5, 0)
    with pytest.raises(ExportError, match="No such file"):
        read_marian_shortlist(path.with_name("nothing"), 5, 0)
    assert not is_shortlist(path.with_name("nothing"))


def test_a_file_without_a_checksum_is_taken_at_its_word(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:8] + bytes(8) + content[16:])
    found = read_marian_shortlist(path, 9, 0, 5)
    assert [found.own(piece).tolist() for piece in range(5)] == LISTS
