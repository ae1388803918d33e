"""Curves of runs in one page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from training.__main__ import main
from training.errors import CheckpointError
from training.results.report import draw, read_curves, write_report


def write_run(run: Path, bleu: bool = True, slower: float = 1.0) -> Path:
    records: list[dict[str, Any]] = []
    for step in range(10, 60, 10):
        records.append(
            {
                "kind": "train", "step": step, "time": 1e9 + step * slower, "loss": 5 - step / 20,
                "lr": step / 1e5, "labels_per_second": 900.0 / slower,
            }
        )  # fmt: skip
        records.append({"kind": "validation", "step": step, "loss": 4.0 + (step - 30) ** 2 / 1e3})
        if bleu:
            records[-1] |= {"bleu": step / 2, "chrf": step / 1.0}
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


class Cells(HTMLParser):
    """Rows of the table, and the addresses that the page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.loaded: list[str] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = True
        self.loaded += [v or "" for k, v in attributes if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.rows[-1].append(data)


def test_a_page_needs_no_other_file_and_has_a_row_a_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "first"), write_run(tmp_path / "<second>", slower=2.0)]
    write_report(runs, tmp_path / "report.html")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    page = Cells((tmp_path / "report.html").read_text())
    assert all(address.startswith("#") for address in page.loaded)
    head, first, second = page.rows
    assert first == [
        "first", "50", "2.500", "4.000 at 30", "25.0 at 50", "50.0 at 50", "900", "0.01",
    ]  # fmt: skip
    assert second[0] == "<second>"
    assert dict(zip(head, second, strict=True))["labels/s (median)"] == "450"


def test_there_is_a_panel_for_what_was_logged_and_a_line_a_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", bleu=False)]
    panels = draw(read_curves(runs)).axes
    titles = [panel.get_title() for panel in panels]
    assert titles == [
        "Training loss (nats a label)", "Validation loss (nats a label)", "Validation BLEU",
        "Learning rate", "Labels per second",
    ]  # fmt: skip
    assert [list(line.get_xdata()) for line in panels[2].lines] == [[10, 20, 30, 40, 50], []]
    assert list(panels[1].lines[0].get_ydata()) == [4.4, 4.1, 4.0, 4.1, 4.4]
    without = draw(read_curves(runs[1:])).axes
    assert [panel.get_title() for panel in without] == [t for t in titles if "BLEU" not in t]


def test_twenty_runs_are_distinguished_by_colour_and_stroke(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run-{number}") for number in range(20)]
    figure = draw(read_curves(runs))
    for panel in figure.axes:
        looks = {(str(line.get_color()), str(line.get_linestyle())) for line in panel.lines}
        assert len(looks) == len(runs)


def test_runs_of_one_name_are_distinguished_by_their_path(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a/run"), write_run(tmp_path / "b/run")]
    assert [run.name for run in read_curves(runs)] == [str(run) for run in runs]


def test_the_same_figures_give_the_same_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for name in ("one", "two"):
        write_report([run], tmp_path / f"{name}.html")
    for suffix in ("html", "png"):
        one, two = (tmp_path / f"{name}.{suffix}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_run_that_has_just_begun_has_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    first = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (run / "metrics.jsonl").write_text(first)
    write_report([run], tmp_path / "report.html")
    assert Cells((tmp_path / "report.html").read_text()).rows[1] == [
        "run", "10", "4.500", "–", "–", "–", "900", "–",
    ]  # fmt: skip
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(CheckpointError, match="hold no record yet"):
        write_report([run], tmp_path / "report.html")


@pytest.mark.slow
def test_the_command_writes_into_the_first_run_or_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    for _ in range(2):  # its own page is replaced
        assert main(["report", str(run)]) == 0
        assert capsys.readouterr().out == f"{run}/report.html\n"
    page = tmp_path / "pages" / "all.html"
    command = ["report", str(run), "--output", str(page)]
    assert main(command) == 0
    page.unlink()
    assert main(command) == 1
    assert "all.png exists already; give --force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    for arguments, message in (
        ([str(run), "--output", "x.pdf"], "the page's file must end in .html"),
        ([str(tmp_path)], "metrics.jsonl: cannot be read"),
    ):
        assert main(["report", *arguments]) == 1
        assert message in capsys.readouterr().err
