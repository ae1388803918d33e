"""Tables of a document, replaced by what their commands print, or rendered from their data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.reports.measurement import MeasuredTable, read, rendered
from bench.reports.tables import refresh_tables

DOCUMENT = """# Title
<!-- run: python -m bench engine --shape 'a b' -->
old
| table |
<!-- end -->
text \\1 between
<!-- run: python -m bench server -->
<!-- end -->
end
"""


PRINTED = """
`python -m bench {verb}`

random weights; 3 repetitions.
AMD EPYC with AVX2, 2 cores (2 used), 23.5 GiB; 0% in use before the run, 0% after it.
python 3.11.7, torch 2.13.0+cpu.

| batch | ms |
| ---: | ---: |
| 1 | \\0 |

A note.

"""


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "benchmarks.md"
    path.write_text(DOCUMENT)
    return path


def test_tables_change_alone_and_have_data_files(document: Path, tmp_path: Path) -> None:
    lines: list[str] = []

    def run(arguments: list[str]) -> str:
        return PRINTED.format(verb=arguments[0])

    assert refresh_tables(document, "", lines.append, run, tmp_path) == 2
    found = read(tmp_path / "bench-engine-shape-a-b.json")
    assert found.command == "python -m bench engine --shape 'a b'"
    assert found.printed_command == "python -m bench engine"
    assert found.machine[0].startswith("AMD EPYC with AVX2")
    assert found.versions == "python 3.11.7, torch 2.13.0+cpu."
    assert found.parts == (
        MeasuredTable(("batch", "ms"), "| ---: | ---: |", (("1", "\\0"),)),
        "A note.",
    )
    assert len(found.date) == len("2026-11-28")
    served = read(tmp_path / "bench-server.json")
    assert document.read_text() == (
        "# Title\n"
        f"<!-- run: python -m bench engine --shape 'a b' -->\n{rendered(found)}\n<!-- end -->\n"
        "text \\1 between\n"
        f"<!-- run: python -m bench server -->\n{rendered(served)}\n<!-- end -->\n"
        "end\n"
    )
    assert f"Measured on {found.date}, at commit {found.commit}." in document.read_text()
    assert [line.split(":")[0] for line in lines] == ["table 1 of 2", "table 2 of 2"]


def test_tables_can_be_chosen_and_those_made_are_kept(document: Path, tmp_path: Path) -> None:
    def fail(arguments: list[str]) -> str:
        if arguments == ["server"]:
            raise BenchError("no")
        return PRINTED.format(verb="new")

    with pytest.raises(BenchError, match="no"):
        refresh_tables(document, "", lambda _: None, fail, tmp_path)
    kept = document.read_text()
    assert "old" not in kept
    assert "new" in kept
    served = PRINTED.format(verb="served")
    assert refresh_tables(document, "server", lambda _: None, lambda _: served, tmp_path) == 1
    table = rendered(read(tmp_path / "bench-server.json"))
    assert document.read_text() == kept.replace("server -->\n", f"server -->\n{table}\n")


def test_what_cannot_be_run_is_said(document: Path) -> None:
    with pytest.raises(BenchError, match="no table whose command or name contains 'nothing', of 2"):
        refresh_tables(document, "nothing", lambda _: None)
    with pytest.raises(BenchError, match="is not a file"):
        refresh_tables(document.parent, "", lambda _: None)
    document.write_text("<!-- run: rm -rf / -->\n<!-- end -->")
    with pytest.raises(BenchError, match="must begin with 'python -m bench '"):
        refresh_tables(document, "", lambda _: None)
    document.write_text("<!-- run: python -m bench server -->\n<!-- end -->")
    with pytest.raises(BenchError, match="machine and versions must stand above the table"):
        refresh_tables(document, "", lambda _: None, lambda _: "a\n\nb\nc", document.parent)
    document.write_text("<!-- run: python -m bench nothing -->\n<!-- end -->")
    with pytest.raises(BenchError, match="ended with status 2"):
        refresh_tables(document, "", lambda _: None)


def test_a_table_written_by_hand_is_rendered_and_not_measured(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    others = "<!-- run: python -m bench server -->\nkept\n<!-- end -->\n"
    document.write_text(
        f"before\n<!-- measured: speed -->\nold\n<!-- end -->\n{others}"
        "<!-- measured: size -->\nkept\n<!-- end -->\n"
    )
    table = {"columns": ["rows", ""], "rule": "|---:|---|", "rows": [["1", "\\2"]]}
    said = {"about": "A speed.", "command": None, "date": "2026-11", "commit": None}
    data = {"name": "speed", **said, "machine": [], "versions": None, "table": table}
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "speed.json").write_text(json.dumps(data))

    def run(arguments: list[str]) -> str:
        raise AssertionError(arguments)

    assert refresh_tables(document, "speed", print, run, tmp_path) == 1
    assert document.read_text() == (
        "before\n<!-- measured: speed -->\n"
        "| rows |  |\n|---:|---|\n| 1 | \\2 |\n<!-- end -->\n"
        f"{others}<!-- measured: size -->\nkept\n<!-- end -->\n"
    )
    with pytest.raises(BenchError, match=r"the table size has no data file size\.json in tables"):
        refresh_tables(document, "size", print, run, tmp_path)
