"""Tables of measurements are renderings of their data files, and the README has their figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.reports.measurement import (
    MeasuredTable,
    Measurement,
    markdown,
    read,
    read_page_table,
    rendered,
)
from bench.reports.tables import MEASUREMENTS, PAGE_TABLES

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- run: ([^\n]+) -->\n(.*?)\n<!-- end -->", re.DOTALL)
PAGE_BLOCK = re.compile(r"<!-- measured: ([^\n]+) -->\n(.*?)\n<!-- end -->", re.DOTALL)
FILES = sorted(MEASUREMENTS.glob("*.json"))


def shown(block: re.Pattern[str]) -> dict[str, str]:
    """The tables of all documents, by their commands or names."""
    found: dict[str, str] = {}
    for page in sorted(ROOT.glob("docs/**/*.md")):
        for command, text in block.findall(page.read_text(encoding="utf-8")):
            assert command not in found, f"{page}: shown twice: {command}"
            found[command] = text
    return found


def test_every_table_of_a_command_is_the_rendering_of_its_data() -> None:
    data = {found.command: rendered(found) for found in map(read, FILES)}
    assert shown(BLOCK) == data, "run: python -m bench tables"
    assert all(read(path).file == path.name for path in FILES)


def test_every_table_that_was_written_by_hand_is_the_rendering_of_its_data() -> None:
    files = sorted((MEASUREMENTS / PAGE_TABLES).glob("*.json"))
    data = {path.stem: markdown(read_page_table(path).table) for path in files}
    assert shown(PAGE_BLOCK) == data, "run: python -m bench tables PAGE"
    assert all(read_page_table(path).name == path.stem for path in files)


def test_every_row_of_a_table_that_was_written_by_hand_has_all_columns() -> None:
    for path in (MEASUREMENTS / PAGE_TABLES).glob("*.json"):
        table = read_page_table(path).table
        widths = {len(row) for row in (table.columns, *table.rows)}
        assert widths == {table.rule.count("|") - 1}, path.name


def test_every_table_that_was_written_by_hand_says_since_when_it_stands() -> None:
    for path in (MEASUREMENTS / PAGE_TABLES).glob("*.json"):
        found = read_page_table(path)
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", found.date or ""), path.name
        assert re.fullmatch(r"[0-9a-f]{8}", found.commit or ""), path.name


FIGURE = re.compile(r"[~+-]?\d")


def unmarked_tables(page: Path) -> list[list[str]]:
    """The tables of a page that have no data file, as lines."""
    text = page.read_text(encoding="utf-8")
    for block in (BLOCK, PAGE_BLOCK, re.compile(r"```.*?\n```", re.DOTALL)):
        text = block.sub("", text)
    return [found.splitlines() for found in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def figures(table: list[str]) -> float:
    """The share of a table's cells that begin with a figure, without its first column."""
    rows = [re.split(r" *(?<!\\)\| *", line.strip().strip("|"))[1:] for line in table[2:]]
    cells = [cell for row in rows for cell in row if cell.strip()]
    return sum(bool(FIGURE.match(cell.strip())) for cell in cells) / max(len(cells), 1)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda path: path.name)
def test_no_table_of_measurements_is_without_a_data_file(page: Path) -> None:
    # Settings and presets are choices: nobody has measured them.
    chosen = ("| setting |", "| preset |")
    limit = 0 if page.name == "benchmarks.md" else 0.5
    found = [table for table in unmarked_tables(page) if not table[0].startswith(chosen)]
    assert [table for table in found if figures(table) > limit] == []


def measurement(begins: str) -> Measurement:
    """The one whose command begins so."""
    (found,) = [m for m in map(read, FILES) if m.command.startswith(f"python -m bench {begins}")]
    return found


def cells(found: Measurement, *first: str) -> tuple[str, ...]:
    """The row that has these cells, in the order of its columns."""
    (row,) = [
        row
        for part in found.parts
        if isinstance(part, MeasuredTable)
        for row in part.rows
        if set(first) <= set(row)
    ]
    return row


@pytest.fixture(scope="module")
def readme() -> str:
    return " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_the_readme_has_the_figures_of_the_tables(readme: str) -> None:
    base = measurement("engine --shape base --random-weights 1 --beam 5")
    ms = {
        (batch, system): float(cells(base, batch, system)[4].split()[0])
        for batch in ("1", "32")
        for system in ("this engine, int8", "CTranslate2, int8")
    }
    ours, theirs = ms["1", "this engine, int8"], ms["1", "CTranslate2, int8"]
    assert f"takes {ours:.0f} ms; CTranslate2 in int8 takes {theirs:.0f} ms" in readme
    ours, theirs = (
        float(cells(base, "32", f"{system}, int8, shortlist")[4].split()[0])
        for system in ("this engine", "CTranslate2")
    )
    assert f"batch of 32 takes {ours} ms a sentence; CTranslate2 takes {theirs} ms" in readme
    notes = "\n".join(part for part in base.parts if isinstance(part, str))
    cache = re.search(r"after 100 steps.*KiB/sentence: (\d+), reordered by parent (\d+)", notes)
    assert cache is not None
    kept, reordered = (f"{int(number):,}" for number in cache.groups())
    assert f"takes {kept} KiB a sentence; a cache that is reordered takes {reordered} KiB" in readme


def test_the_readme_has_the_figures_of_the_load_and_of_long_prompts(readme: str) -> None:
    load = measurement("server --shape base --repetitions 5")
    within = [
        cells(load, system, "1 x 2 x 1")[4].split()[0]
        for system in ("this engine, int8", "CTranslate2, int8")
    ]
    assert f"within {within[0]} ms; with CTranslate2 within {within[1]} ms" in readme
    prompt = measurement("language --shape lm_small --batch 32 --context 8192")
    times = float(cells(prompt, "cascade")[-1])
    assert (
        f"of cascade attention is {times:.0f} times as fast as a step of full attention" in readme
    )
