"""Files in blocks: what is cut, read, written and joined again is the file with its results."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.bulk.blocks import RowBlock, check_columns, cut, join, kind_of, read, written
from serving.errors import InvalidTextError

LINES = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))


def upper(path: Path, folder: Path, rows: int, column: str = "text") -> bytes:
    """The file with each text in capitals, block by block."""
    kind, parts = kind_of(path), []
    for block in cut(path, rows):
        found, table = read(path, block, [column], "capitals")
        results = [row.texts[0].upper() if row.texts else None for row in found]
        part = folder / f"{block.number}.part"
        part.write_bytes(written(path, block, (found, table), results, "capitals", form="text"))
        parts.append(part)
    whole = io.BytesIO()
    join(kind, parts, whole)
    return whole.getvalue()


@given(lines=LINES, rows=st.integers(1, 5), ended=st.booleans())
def test_each_line_becomes_one_line_in_its_place(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], rows: int, ended: bool
) -> None:
    folder = tmp_path_factory.mktemp("bulk")
    path = folder / "in.de"
    ended = ended or lines[-1:] == [""]  # an empty last line is one only where something ends it
    path.write_bytes(("\n".join(lines) + ("\n" if ended and lines else "")).encode())
    out = upper(path, folder, rows).decode()
    assert out == "".join(f"{line.upper()}\n" for line in lines)


@given(texts=st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
def test_objects_keep_what_else_they_hold(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None]
) -> None:
    folder = tmp_path_factory.mktemp("bulk")
    path = folder / "in.jsonl"
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    out = upper(path, folder, 2).decode()
    assert [json.loads(line) for line in out.split("\n")[:-1]] == [
        row | {"capitals": None if text is None else text.upper()}
        for row, text in zip(rows, texts, strict=True)
    ]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@given(rows=st.lists(st.tuples(CELLS, CELLS)), size=st.integers(1, 3))
def test_a_csv_table_keeps_its_cells_whatever_is_quoted_in_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("bulk")
    path = folder / "in.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        # Alone in its row, an empty cell would be a blank line.
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    out = upper(path, folder, size).decode()
    found = list(csv.reader(io.StringIO(out, newline="")))
    lines = [" ".join(text.upper().split("\n")) for _, text in rows]
    assert [row[:2] for row in found] == [["id", "text"], *map(list, rows)]
    assert [row[2] for row in found] == ["capitals", *lines]


def test_a_tsv_table_has_no_quotes_and_names_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "in.tsv"
    path.write_bytes(b'\xef\xbb\xbfid\ttext\r\n1\tsay "a\r\n2\n\n3\tb\n')
    out = upper(path, tmp_path, 1)
    assert out == b'id\ttext\tcapitals\n1\tsay "a\tSAY "A\n2\t\t\n\t\t\n3\tb\tB\n'
    (block,) = cut(path, 100)
    rows, _ = read(path, block, ["text"], "capitals")
    assert [row.error for row in rows if row.error] == [
        "the first line names 2 columns, this one has 1"
    ]


def test_no_row_is_lost_where_a_cell_of_a_csv_table_has_odd_signs(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    long = "x" * 200_000
    rows = ['5" pipe,a', 'say "hi",b', '"q"r"",c', "d\re,d", f'"{long}",e', '"f\ng",f', "h,g"]
    path.write_bytes("\n".join(["text,id", *rows]).encode())
    out = upper(path, tmp_path, 2).decode()
    assert out.count(long) == out.count(long.upper()) == 1
    short = out.replace(long, "").replace(long.upper(), "")
    found = list(csv.reader(io.StringIO(short, newline="")))
    assert [row[1] for row in found] == ["id", *"abcdefg"]
    texts = ['5" pipe', 'say "hi"', 'qr""', "d\re", "", "f\ng", "h"]
    assert [row[0] for row in found] == ["text", *texts]


def test_a_csv_table_whose_last_quotes_are_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('text\na\n"b\nc\n')
    with pytest.raises(InvalidTextError, match=r"row 3 .* not closed"):
        cut(path, 10)


def test_cells_of_a_tsv_table_keep_signs_that_elsewhere_end_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.tsv"
    path.write_text("id\ttext\nx\u2028y\x0c\ta\x85\n", encoding="utf-8")
    out = upper(path, tmp_path, 1).decode()
    assert out == "id\ttext\tcapitals\nx\u2028y\x0c\ta\x85\tA\x85\n"


def test_an_object_is_written_back_to_the_letter(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"n":1.10, "n":1e400,"u":"\\u00e4","text":"a"  } \r\n')
    out = upper(path, tmp_path, 1)
    assert out == b'{"n":1.10, "n":1e400,"u":"\\u00e4","text":"a", "capitals": "A"}\n'


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("id,text\n", ["words"], "no column 'words', there are id, text; name one with --column"),
        ("id,to\n", ["id"], "a column 'to' already"),
        ("", ["text"], "the first line must name the columns"),
        ("a,a\n1,2\n", ["a"], "each another name"),
    ],
)
def test_a_table_that_lacks_a_column_is_refused_before_the_work(
    tmp_path: Path, content: str, columns: list[str], message: str
) -> None:
    (tmp_path / "in.csv").write_text(content)
    with pytest.raises(InvalidTextError, match=message):
        check_columns(tmp_path / "in.csv", columns, "to")


def test_a_compressed_file_is_read_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(b'{"text": "a"}\n\n{"text": "b"}\n')
    out = upper(path, tmp_path, 2)
    assert out == b'{"text": "a", "capitals": "A"}\n\n{"text": "b", "capitals": "B"}\n'
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InvalidTextError, match="not a whole gzip file"):
        cut(path, 2)


@pytest.mark.parametrize("group", [1, 3, 100])
def test_a_table_gets_one_column_more(tmp_path: Path, group: int) -> None:
    table = pa.table({"id": range(7), "text": ["a", None, "c", "ä", "e", "f", ""]})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=group)
    out = upper(tmp_path / "in.parquet", tmp_path, 2)
    column = pa.array(["A", None, "C", "Ä", "E", "F", ""])
    assert pq.read_table(io.BytesIO(out)).equals(table.append_column("capitals", column))


def test_a_table_without_rows_stays_a_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "in.parquet")
    out = pq.read_table(io.BytesIO(upper(tmp_path / "in.parquet", tmp_path, 2)))
    assert out.num_rows == 0
    assert out.column_names == ["text", "capitals"]


def test_rows_that_cannot_be_read_say_why_and_do_not_move_the_others(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    lines = [b'{"text": "a"}', b"nonsense", b"[1]", b'{"t": "b"}', b'{"text": 3}', b"\xff"]
    lines += [b"[" * 100_000, b'{"text": "h", "to": 1}', b'{"text": "i"}', b""]
    path.write_bytes(b"\n".join(lines))
    (block,) = cut(path, 100)
    rows, _ = read(path, block, ["text"], "to")
    assert [row.texts for row in rows] == [("a",), *[None] * 7, ("i",)]
    reasons = ["", "not JSON", "must be a JSON object", "no 'text'", "a string", "line 6"]
    reasons += ["not JSON", "a member 'to' already", ""]
    for row, reason in zip(rows, reasons, strict=True):
        assert reason in row.error
        assert bool(reason) == bool(row.error)
    out = written(path, block, (rows, None), ["A", *[None] * 7, "I"], "to", form="text")
    made = [json.loads(line) for line in out.splitlines()]
    assert made[7] == {"text": "h", "to": 1}  # what was there stays
    assert made[1] == {"to": None}


def test_what_utf_8_cannot_spell_stays_spelt_as_json(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "ja \\ud83d", "id": "\\ude42 \xc3\xa4"}\n')
    out = upper(path, tmp_path, 2)
    (row,) = map(json.loads, out.splitlines())
    assert row == {"text": "ja \ud83d", "id": "\ude42 ä", "capitals": "JA \ud83d"}


def test_source_and_translation_are_two_columns_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\tb\nno tab\na\tb\tc\n \n")
    block = RowBlock(0, 0, 4, 0, path.stat().st_size)
    rows, _ = read(path, block, ["source", "translation"], "score")
    assert [row.texts for row in rows] == [("a", "b"), None, ("a", "b\tc"), ("", "")]
    assert "tab" in rows[1].error


def test_columns_that_are_not_there_are_named_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": ["x"], "n": [1]}), path)
    check_columns(path, ["a"], "translation")
    for columns, into, message in (
        (["text"], "t", "no column 'text', there are a, n"),
        (["n"], "t", "'n' must be of strings, it is int64"),
        (["a"], "n", "a column 'n' already"),
    ):
        with pytest.raises(InvalidTextError, match=message):
            check_columns(path, columns, into)
    (tmp_path / "b.parquet").write_text("no table")
    with pytest.raises(InvalidTextError, match="not a Parquet file"):
        cut(tmp_path / "b.parquet", 5)
