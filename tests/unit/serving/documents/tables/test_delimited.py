from __future__ import annotations

import csv
import io
import random
import subprocess
import sys
from pathlib import Path

import pytest

from serving.documents.recognition import recognised
from serving.documents.unit import ReadingWishes, Translated
from serving.errors import DocumentError, InvalidOptionError
from tests.unit.serving.documents.fakes import written


def of(content: bytes | str, *columns: str, name: str = "a.csv") -> bytes:
    """A table with its columns in capitals."""
    source = content if isinstance(content, bytes) else content.encode()
    return written(source, name, wishes=ReadingWishes(columns=columns)).content


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("id,text\n1,Haus\n2,Tor\n", "id,text\n1,HAUS\n2,TOR\n"),
        ("id,text\r\n1,Haus\r\n\r\n2,Tor", "id,text\r\n1,HAUS\r\n\r\n2,TOR"),
        ("id,text\r1,Haus\r2,Tor\r", "id,text\r1,HAUS\r2,TOR\r"),
        ('id,text\n"1","ein ""Haus"", alt"\n', 'id,text\n"1","EIN ""HAUS"", ALT"\n'),
        ("a,text,b\nx,\"eins\r\nzwei\",'y'\n", "a,text,b\nx,\"EINS\r\nZWEI\",'y'\n"),
        ('"text","b"\n"Haus", "x" \n', '"text","b"\n"HAUS", "x" \n'),
        ("text;zahl\nHaus;1,5\nTor, alt;2,5\n", "text;zahl\nHAUS;1,5\nTOR, ALT;2,5\n"),
        ("id\ttext\n1\tein, zwei\n", "id\ttext\n1\tEIN, ZWEI\n"),
        ("id|text\n1|ein, zwei\n", "id|text\n1|EIN, ZWEI\n"),
        ("id,text,b\n1\n2,Haus\n3,Tor,x,y,z\n,,\n", "id,text,b\n1\n2,HAUS\n3,TOR,x,y,z\n,,\n"),
        ("text\nHaus\n\nTor\n", "text\nHAUS\n\nTOR\n"),
        ("text,text\nHaus,Tor\n", "text,text\nHAUS,TOR\n"),
        ('\n"id","text"\n1, Haus \n', '\n"id","text"\n1, HAUS \n'),
        ("sep=;\r\na,b;text\r\nx;Haus\r\n", "sep=;\r\na,b;text\r\nx;HAUS\r\n"),
        ('"SEP=^"\n"a,b"^text\n^Haus\n', '"SEP=^"\n"a,b"^text\n^HAUS\n'),
    ],
    ids=[
        *("lf", "crlf and blank", "cr", "quotes", "breaks", "quotes stay", "semicolons", "tabs"),
        *("bars", "uneven", "one column", "one name twice", "blank first"),
        *("named", "named, of any kind"),
    ],
)
def test_a_column_is_translated_and_all_else_stays_to_the_byte(source: str, expected: str) -> None:
    assert of(source, "text") == expected.encode()


def test_columns_by_number_are_those_of_a_table_without_names() -> None:
    source = "Haus,1,Tor\nTag,2,Berg\n"
    assert of(source, "1", "3") == b"HAUS,1,TOR\nTAG,2,BERG\n"
    assert of("Haus,x\nTag,y,Berg\n", "3") == b"Haus,x\nTag,y,BERG\n"  # some row is as wide
    assert of("2,text\nHaus,Tor\n", "2") == b"2,TEXT\nHaus,TOR\n"  # it is never a name
    assert of("a,b\nHaus,Tor\n", "a", "2") == b"a,b\nHAUS,TOR\n"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(b"\xef\xbb\xbf", "utf-8"), (b"", "cp1252"), (b"\xff\xfe", "utf-16-le")],
)
def test_the_encoding_stays(mark: bytes, encoding: str) -> None:
    def table(*texts: str) -> bytes:
        rows = "".join(f"Müßige Größe {number};{text}\r\n" for number, text in enumerate(texts))
        return mark + f"text;Übersicht\r\n{rows}".encode(encoding)

    texts = ("schöne Grüße aus München", "früher Ärger über Äpfel und Öl")
    translated = table(*(text.upper() for text in texts))
    assert of(table(*texts), "Übersicht") == translated


def test_a_cell_gets_quotation_marks_only_where_it_needs_them() -> None:
    file = recognised(b"", "a.csv").read(b"a,b\nx,1\ny,2\nz,3\n", ReadingWishes(columns=("a",)))
    result = file.write([Translated("x"), Translated("y, y"), Translated('"z"')])
    assert result.content == b'a,b\nx,1\n"y, y",2\n"""z""",3\n'


def test_in_tsv_only_cells_that_end_with_a_quotation_mark_are_quoted() -> None:
    source = 'text\tb\n"Haus ""a""\n\tb"\t1\n"Tor" alt\t2\n5" lang\t3\n"offen\t4\n'
    expected = 'text\tb\n"HAUS ""A""\n\tB"\t1\n"TOR" ALT\t2\n5" LANG\t3\n"OFFEN\t4\n'
    assert of(source, "text", name="a.tsv") == expected.encode()
    file = recognised(b"", "a.tsv").read(b"Haus\tb\n", ReadingWishes(columns=("1",)))
    assert file.write([Translated("a\n\tb")]).content == b"a b\tb\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('a,text\n1,"offen\n2,x\n', "row 2, column 2: a quotation mark must be closed"),
        ('a,text\n1,"Haus" alt\n', 'row 2, column 2: .* got \'"Haus" alt'),
    ],
)
def test_a_quotation_mark_that_is_not_closed_is_refused(source: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        of(source, "text")


@pytest.mark.parametrize(
    ("columns", "got"),
    [
        ((), "got none"),
        (("body",), "got 'body'"),
        (("0",), "got '0'"),
        (("9" * 5000,), "got '9"),
        (("id", "4"), "'id', '4'"),
    ],
)
def test_a_column_that_there_is_not_is_refused_with_those_that_there_are(
    columns: tuple[str, ...], got: str
) -> None:
    with pytest.raises(InvalidOptionError, match=f"{got}.*; choose.* has 1 'id', 2 'text', 3 ''$"):
        of("id,text,\n1,Haus,\n", *columns)


def test_of_very_many_columns_the_first_are_named() -> None:
    with pytest.raises(InvalidOptionError, match=r"50 'c49', 150 more$"):
        of(",".join(f"c{number}" for number in range(200)))


def test_an_empty_table_stays() -> None:
    assert of(b"", "text") == of(b"") == b""
    assert of(b"\xef\xbb\xbf\n", "text") == b"\xef\xbb\xbf\n"


def test_columns_of_other_files_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="for csv, tsv and jsonl files, got a txt file"):
        of("Haus\n", "1", name="a.txt")


@pytest.mark.parametrize("seed", range(20))
def test_any_table_is_read_as_the_standard_library_reads_it(seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        ["".join(chance.choices('ab ,;"\n\r', k=chance.randrange(6))) + "x" for _ in range(3)]
        for _ in range(50)
    ]
    out = io.StringIO()
    quoting = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    csv.writer(out, delimiter=";", quoting=quoting, lineterminator="\r\n").writerows(rows)
    content = ("x;y;z\r\n" + out.getvalue()).encode()
    wishes = ReadingWishes(columns=("x", "y", "z"))
    file = recognised(content, "a.csv").read(content, wishes)
    assert [unit.text for unit in file.units] == [cell for row in rows for cell in row]
    upper = file.write([Translated(unit.text.upper()) for unit in file.units]).content
    expected = [[cell.upper() for cell in row] for row in rows]
    read = csv.reader(io.StringIO(upper.decode(), newline=""), delimiter=";")
    assert list(read) == [["x", "y", "z"], *expected]


GROWTH = """
import sys
from pathlib import Path
from serving.documents.recognition import recognised
from serving.documents.unit import ReadingWishes, Translated

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])

name = sys.argv[1]
wishes = ReadingWishes(columns=("text",))
row = b'{"id": 1, "text": "Satz"}\\n' if name.endswith("jsonl") else b'1,"Satz"\\n'
small = b"id,text\\n" + row if name.endswith("csv") else row
recognised(small, name).read(small, wishes)  # what is imported is no part of it
content = Path(name).read_bytes()
before = memory("VmRSS")
file = recognised(content, name).read(content, wishes)
file.write([Translated(unit.text.replace("Satz", "Sentence")) for unit in file.units])
print(len(file.units), memory("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_hundred_thousand_rows_take_less_than_120_mb(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    texts = [f"Das ist der Satz Nummer {number}, und er ist nicht lang." for number in range(10**5)]
    if suffix == "csv":
        path.write_text("id,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    else:
        path.write_text("".join(f'{{"id": {n}, "text": "{t}"}}\n' for n, t in enumerate(texts)))
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(path)], capture_output=True, text=True, check=True
    )
    count, kilobytes = map(int, done.stdout.split())
    assert count == 10**5
    assert kilobytes < 120_000
