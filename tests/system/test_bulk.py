"""`python -m serving bulk`: whole files by Ray's workers, some of which are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serving.__main__ import main
from serving.bulk.blocks import cut
from serving.bulk.worker import BulkTask, BulkWorker
from serving.search.options import SearchOptions
from serving.translation.translator import Translator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "models" / "macaron-de-en"
# Blocks of six rows, so that a small file has many.
COMMAND = (
    "import sys; import serving.bulk.run as run; run.BLOCK_ROWS = 6;"
    "from serving.__main__ import main; sys.exit(main(['bulk', *sys.argv[1:]]))"
)
DYING = """
import os, sys
import serving.bulk.run as run

class Dying(run.BulkWorker):
    def __call__(self, row):
        if row["number"] == 1:
            os._exit(1)
        return super().__call__(row)

run.BLOCK_ROWS, run.BulkWorker = 6, Dying
from serving.__main__ import main
sys.exit(main(["bulk", *sys.argv[1:]]))
"""
TEXTS = [
    "Guten Morgen!",
    "Wie geht es dir? Mir geht es gut.",
    "",
    "Bis bald 🙂",
    "Das ist ein Haus.",
    "7",
    "Ich habe {count} Bücher gelesen.",
] * 6


@pytest.fixture(scope="module")
def expected() -> list[str]:
    translator = Translator(BUNDLE, threads=1)
    return [result.text for result in translator.translate(TEXTS, SearchOptions(beam_size=2))]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in.de"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def start(*arguments: str | Path, code: str = COMMAND) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(BUNDLE), *map(str, arguments)]
    command += ["--option", "beam_size=2", "--workers", "2"]
    return subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, told = process.communicate(timeout=240)
    return process.returncode, told


def workers(process: subprocess.Popen[str]) -> Iterator[psutil.Process]:
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if "MapWorker" in " ".join(child.cmdline()):
                yield child
        except psutil.Error:
            continue


def wait_for_part(out: Path) -> None:
    end_at = time.monotonic() + 120
    while not list(out.with_name(f"{out.name}.parts").glob("0*.part")):
        assert time.monotonic() < end_at
        time.sleep(0.01)


def test_a_killed_worker_costs_no_row(tmp_path: Path, lines: Path, expected: list[str]) -> None:
    out = tmp_path / "out.en"
    process = start(lines, out)
    killed = []

    def kill() -> None:
        while process.poll() is None and not killed:
            for worker in workers(process):
                worker.send_signal(signal.SIGKILL)
                killed.append(worker.pid)
                break

    killer = threading.Thread(target=kill)
    killer.start()
    status, told = end(process)
    killer.join()
    assert killed
    assert status == 0, told
    assert f"{len(TEXTS)}/{len(TEXTS)} rows" in told
    assert out.read_text().split("\n")[:-1] == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.de", "out.en"]


def test_a_run_that_was_killed_goes_on_behind_what_is_done(
    tmp_path: Path, lines: Path, expected: list[str]
) -> None:
    out = tmp_path / "out.en"
    process = start(lines, out)
    wait_for_part(out)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    done = sorted(out.with_name("out.en.parts").glob("0*.part"))
    assert done
    assert not out.exists()
    count = done[0].read_text().count("\n")
    done[0].write_text("done already\n" * count)  # it is not decoded again
    status, told = end(start(lines, out))
    assert status == 0, told
    first = int(done[0].stem) * 6
    wanted = [*expected[:first], *["done already"] * count, *expected[first + count :]]
    assert out.read_text().split("\n")[:-1] == wanted


def test_rows_that_end_each_worker_do_not_hold_up_the_others(
    tmp_path: Path, lines: Path, expected: list[str]
) -> None:
    out = tmp_path / "out.en"
    lines.write_text("".join(f"{text}\n" for text in TEXTS[:18]))
    status, told = end(start(lines, out, code=DYING))
    assert status == 1, told
    assert "rows 7 to 12" in told.splitlines()[-1]
    assert not out.exists()
    done = out.with_name("out.en.parts").glob("0*.part")
    assert sorted(path.name for path in done) == ["000000.part", "000002.part"]
    status, told = end(start(lines, out))
    assert status == 0, told
    assert out.read_text().split("\n")[:-1] == expected[:18]


def test_tables_keep_their_order_and_name_the_rows_that_fail(
    tmp_path: Path,
) -> None:
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    texts = [*TEXTS[:7], "und " * 2000, None]
    pq.write_table(pa.table({"de": texts, "id": range(len(texts))}), source)
    options = ("--column", "de", "--into", "en", "--no-split")
    status, told = end(start(source, out, *options))
    assert status == 3, told
    table = pq.read_table(out)
    assert table.column_names == ["de", "id", "en"]
    assert table.column("id").to_pylist() == list(range(len(texts)))
    translator = Translator(BUNDLE, threads=1)
    alone = translator.translate(texts[:7], SearchOptions(beam_size=2), split=False)
    assert table.column("en").to_pylist() == [*(result.text for result in alone), None, None]
    (failed,) = map(json.loads, Path(f"{out}.failed.jsonl").read_text().splitlines())
    assert failed["row"] == 8
    assert "pieces" in failed["reason"]


def decoded(folder: Path, rows: list[dict[str, str]], **asked: Any) -> list[dict[str, Any]]:
    """What one worker makes of rows."""
    (folder / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = BulkTask(bundle=BUNDLE, file=folder / "in.jsonl", into="made", **asked)
    (block,) = cut(task.file, 100)
    content, failures = BulkWorker(task).decode(block)
    assert not failures
    return [json.loads(line) for line in content.splitlines()]


def test_given_translations_are_scored(tmp_path: Path) -> None:
    pairs = [("Guten Morgen!", "Good morning!"), ("Guten Morgen!", "The house."), ("a", "b")]
    rows = [{"de": a, "en": b} for a, b in [*pairs, ("", " ")]]
    found = decoded(tmp_path, rows, columns=("de", "en"))
    wanted = [score.cumulative for score in Translator(BUNDLE, threads=1).score(pairs)]
    *scores, nothing = [row.pop("made") for row in found]
    assert scores == pytest.approx(wanted, abs=1e-4)
    assert nothing is None
    assert found == rows


def test_a_row_that_nobody_foresaw_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Translator.read

    def stumble(self: Translator, text: str, *rest: Any, **more: Any) -> Any:
        if text == TEXTS[4]:
            raise IndexError("pop from empty list")
        return read(self, text, *rest, **more)

    monkeypatch.setattr(Translator, "read", stumble)
    (tmp_path / "in.de").write_text("".join(f"{text}\n" for text in TEXTS[:7]))
    task = BulkTask(bundle=BUNDLE, file=tmp_path / "in.de", columns=("text",), into="made")
    (block,) = cut(task.file, 100)
    content, failures = BulkWorker(task).decode(block)
    assert failures == [(5, "IndexError: pop from empty list")]
    lines = content.decode().split("\n")[:-1]
    assert [bool(line) for line in lines] == [True, True, False, True, False, True, True]


def test_a_row_may_have_several_translations(tmp_path: Path) -> None:
    texts = ["Guten Morgen, wie geht es dir?", "7", "Das ist ein Haus."]
    found = decoded(tmp_path, [{"text": t} for t in texts], columns=("text",), n_best=3)
    options = SearchOptions(beam_size=5, num_hypotheses=3)
    results = Translator(BUNDLE, threads=1).translate(texts, options)
    assert [row["made"] for row in found] == [
        [hypothesis.text for hypothesis in result.hypotheses] or [result.text] for result in results
    ]
    assert len(found[0]["made"]) == 3
    assert found[1]["made"] == ["7"]


@pytest.mark.parametrize(
    ("bundle", "words", "message"),
    [
        ("macaron-de-en", ["none.de", "out.en"], "no such file"),
        ("macaron-de-en", ["in.de", "in.de", "--force"], "write to another file"),
        ("macaron-de-en", ["in.de", "there.en"], "give --force"),
        ("macaron-de-en", ["in.de", "out.jsonl"], "give both the same"),
        ("macaron-de-en", ["in.de", "none/out.en"], "no such folder"),
        ("macaron-de-en", ["in.de", "out.en", "--workers", "0"], "--workers must be >= 1, got 0"),
        ("macaron-de-en", ["in.de", "out.en", "--n-best", "2"], "needs a .jsonl or .parquet file"),
        ("macaron-de-en", ["in.de", "out.en", "--score", "--no-split"], "leave it out"),
        ("macaron-de-en", ["in.de", "out.en", "--target-column", "a"], "leave it out"),
        ("macaron-de-en", ["in.de", "out.en", "--option", "beam=1"], "beam_size"),
        ("macaron-de-en", ["in.de", "out.en", "--target-prefix", "\ud800"], "surrogate"),
        ("lm-cascade", ["in.de", "out.en"], "translat"),
    ],
)
def test_what_cannot_be_done_is_one_line_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bundle: str,
    words: list[str],
    message: str,
) -> None:
    for name in ("in.de", "there.en"):
        (tmp_path / name).write_text("Hallo\n")
    monkeypatch.chdir(tmp_path)
    assert main(["bulk", str(ROOT / "models" / bundle), *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.de", "there.en"]
