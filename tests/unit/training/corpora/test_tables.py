"""Pairs out of TSV and Parquet files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from training.corpora.tables import Column, Table, iterate_table, read_table
from training.errors import CorpusError

TEXT = 'Hallo\thello\t1\n"ja"\tyes, "really\t2\n'
PAIRS = [("Hallo", "hello"), ('"ja"', 'yes, "really')]


@pytest.mark.parametrize("suffix", ["tsv", "tsv.gz", "tsv.zst"])
def test_the_first_two_columns_of_a_tsv_file_without_quoting(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pairs.{suffix}"
    compress = {"tsv.gz": gzip.compress, "tsv.zst": zstandard.compress}.get(suffix, bytes)
    path.write_bytes(compress(TEXT.encode()))
    assert read_table(path, None) == Table(PAIRS)


def test_columns_by_number(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(TEXT)
    found = read_table(tmp_path / "pairs.tsv", (3, 1))
    assert found == Table([("1", "Hallo"), ("2", '"ja"')])


def test_columns_by_name_stand_in_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("id\ten\tde\n7\thello\tHallo\n")
    assert read_table(tmp_path / "pairs.tsv", ("de", "en")) == Table([("Hallo", "hello")], 2)
    assert read_table(tmp_path / "pairs.tsv", ("de", 2)) == Table([("Hallo", "hello")], 2)


@pytest.mark.parametrize("head", ["", "de\ten\tkind\tonly\n"])
def test_a_line_for_another_direction_is_empty(tmp_path: Path, head: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{head}Hallo\thello\tword\nHalm\tstraw\tword\tde>en\nHut\that\tword\t\n")
    column = "only" if head else 4
    found = {
        direction: list(iterate_table(path, None, (column, direction)))
        for direction in ("de>en", "en>de")
    }
    assert found["de>en"] == [("Hallo", "hello"), ("Halm", "straw"), ("Hut", "hat")]
    assert found["en>de"] == [("Hallo", "hello"), ("", ""), ("Hut", "hat")]


def test_a_column_of_directions_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("de\ten\nHallo\thello\n")
    with pytest.raises(CorpusError, match=r"pairs\.tsv:1: no column 'only'"):
        list(iterate_table(tmp_path / "pairs.tsv", None, ("only", "de>en")))


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("a\tb\na\n", None, r"pairs\.tsv:2: 1 columns separated by tabs, column 2 is wanted"),
        ("de\ten\na\n", ("de", "en"), r"pairs\.tsv:2: 1 columns"),
        (
            "de\teng\na\tb\n",
            ("de", "en"),
            r"pairs\.tsv:1: no column 'en'; did you mean 'eng'\?; the",
        ),
        ("", None, r"pairs\.tsv:1: the file has no pairs"),
        ("de\ten\n", ("de", "en"), r"pairs\.tsv:2: the file has no pairs"),
        ("", ("de", "en"), r"pairs\.tsv:1: no column 'de'; there are \[\]"),
    ],
)
def test_what_is_wrong_with_a_tsv_file_is_named_with_its_line(
    tmp_path: Path, content: str, columns: tuple[Column, Column] | None, message: str
) -> None:
    (tmp_path / "pairs.tsv").write_text(content)
    with pytest.raises(CorpusError, match=message):
        read_table(tmp_path / "pairs.tsv", columns)


def test_a_wrong_encoding_in_a_tsv_file_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes(
        "Grüße\thello\n".encode() + "Grüße\thi\n".encode("latin-1")
    )
    with pytest.raises(CorpusError, match=r"pairs\.tsv:2: not UTF-8"):
        read_table(tmp_path / "pairs.tsv", None)


def test_a_text_of_several_lines_becomes_one(tmp_path: Path) -> None:
    columns = {"de": pyarrow.array(["eins\nzwei\r\ndrei"]), "en": pyarrow.array(["one two three"])}
    parquet.write_table(pyarrow.table(columns), tmp_path / "pairs.parquet")
    found = read_table(tmp_path / "pairs.parquet", ("de", "en"))
    assert found == Table([("eins zwei drei", "one two three")])


def write_parquet(path: Path) -> None:
    columns = {
        "en": pyarrow.array(["hello", None]),
        "id": pyarrow.array([1, 2]),
        "de": pyarrow.array(["Hallo", "Hallo"]).dictionary_encode(),
    }
    parquet.write_table(pyarrow.table(columns), path)


def test_named_columns_of_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs.parquet"
    write_parquet(path)
    assert read_table(path, ("de", "en")) == Table([("Hallo", "hello"), ("Hallo", "")])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("de", "eng"), r"pairs\.parquet: no column 'eng'; did you mean 'en'\?; there are"),
        (("id", "en"), r"pairs\.parquet: column 'id' must hold text, it holds int64"),
    ],
)
def test_what_is_wrong_with_a_column_of_a_parquet_file_is_named(
    tmp_path: Path, columns: tuple[Column, Column], message: str
) -> None:
    write_parquet(tmp_path / "pairs.parquet")
    with pytest.raises(CorpusError, match=message):
        read_table(tmp_path / "pairs.parquet", columns)


def test_a_parquet_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1 but no more")
    for name in ("pairs", "nowhere"):
        with pytest.raises(CorpusError, match=rf"{name}\.parquet: cannot be read"):
            read_table(tmp_path / f"{name}.parquet", ("de", "en"))


def test_a_parquet_file_without_rows_is_an_error(tmp_path: Path) -> None:
    empty = pyarrow.table({"de": pyarrow.array([], "string"), "en": pyarrow.array([], "string")})
    parquet.write_table(empty, tmp_path / "pairs.parquet")
    with pytest.raises(CorpusError, match=r"pairs\.parquet:1: the file has no pairs"):
        read_table(tmp_path / "pairs.parquet", ("de", "en"))
