"""Tables of a document, replaced by what their commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import BenchError
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


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "benchmarks.md"
    path.write_text(DOCUMENT)
    return path


def test_only_the_tables_change(document: Path) -> None:
    lines: list[str] = []

    def run(arguments: list[str]) -> str:
        return f"\nprinted by {arguments}, \\0\n\n"

    assert refresh_tables(document, "", lines.append, run) == 2
    assert document.read_text() == (
        "# Title\n"
        "<!-- run: python -m bench engine --shape 'a b' -->\n"
        "printed by ['engine', '--shape', 'a b'], \\0\n"
        "<!-- end -->\n"
        "text \\1 between\n"
        "<!-- run: python -m bench server -->\n"
        "printed by ['server'], \\0\n"
        "<!-- end -->\n"
        "end\n"
    )
    assert [line.split(":")[0] for line in lines] == ["table 1 of 2", "table 2 of 2"]


def test_tables_can_be_chosen_and_those_made_are_kept(document: Path) -> None:
    def fail(arguments: list[str]) -> str:
        if arguments == ["server"]:
            raise BenchError("no")
        return "new"

    with pytest.raises(BenchError, match="no"):
        refresh_tables(document, "", lambda _: None, fail)
    kept = document.read_text()
    assert "old" not in kept
    assert "new" in kept
    assert refresh_tables(document, "server", lambda _: None, lambda _: "served") == 1
    assert document.read_text() == kept.replace("server -->\n", "server -->\nserved\n")


def test_what_cannot_be_run_is_said(document: Path) -> None:
    with pytest.raises(BenchError, match="no table whose command contains 'nothing', of 2"):
        refresh_tables(document, "nothing", lambda _: None)
    with pytest.raises(BenchError, match="is no file"):
        refresh_tables(document.parent, "", lambda _: None)
    document.write_text("<!-- run: rm -rf / -->\n<!-- end -->")
    with pytest.raises(BenchError, match="must begin with 'python -m bench '"):
        refresh_tables(document, "", lambda _: None)
    document.write_text("<!-- run: python -m bench nothing -->\n<!-- end -->")
    with pytest.raises(BenchError, match="ended with status 2"):
        refresh_tables(document, "", lambda _: None)
