"""What options of a bench may say, and the command that stands above its table."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import main
from bench.commands.options import (
    at_least_one,
    check_file,
    command_of,
    cores_of,
    language_pair,
    named_paths,
    numbers,
    read_texts,
)
from bench.errors import BenchError


@given(st.lists(st.integers(-3, 12), min_size=1, max_size=4))
def test_numbers_are_within_their_range_in_the_order_that_is_given(
    given_numbers: list[int],
) -> None:
    text = ",".join(map(str, given_numbers))
    if all(number in range(1, 9) for number in given_numbers):
        assert numbers("--batch", text, 8) == tuple(given_numbers)
    else:
        with pytest.raises(
            BenchError, match=r"--batch must be numbers in \[1, 8\] separated by commas"
        ):
            numbers("--batch", text, 8)


@pytest.mark.parametrize("text", ["", "1,", "two", "1;2", "1.5"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="--beam must be numbers"):
        numbers("--beam", text, 8)


def test_counts_are_at_least_one() -> None:
    assert at_least_one("--updates", 1) == 1
    with pytest.raises(BenchError, match="--updates must be >= 1, got 0"):
        at_least_one("--updates", 0)


def test_no_more_cores_are_used_than_there_are() -> None:
    every = cores_of(None)
    assert 1 <= every <= (os.cpu_count() or 1)
    assert cores_of(1) == 1
    for threads in (0, every + 1):
        with pytest.raises(BenchError, match=rf"in \[1, {every}\] on this machine, got {threads}"):
            cores_of(threads)


def test_texts_are_the_lines_that_hold_any(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("Eins.\n \nZwei.\n", encoding="utf-8")
    assert read_texts(file) == ["Eins.", "Zwei."]
    file.write_text(" \n")
    with pytest.raises(BenchError, match="it holds no text"):
        read_texts(file)
    with pytest.raises(BenchError, match="cannot be read"):
        read_texts(tmp_path / "none")


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    check_file("--json", None)
    check_file("--json", tmp_path / "new.json")
    with pytest.raises(BenchError, match="--json must name a file"):
        check_file("--json", tmp_path)


def test_a_file_that_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_file("--plot", tmp_path / "new" / "folder" / "a.png")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(BenchError, match=r"--json .*a\.json: cannot be written"):
        check_file("--json", tmp_path / "file" / "a.json")
    texts = ["--source", str(tmp_path / "none"), "--reference", str(tmp_path / "none")]
    plot = ["--plot", str(tmp_path / "file" / "a.png")]
    assert main(["bundles", "--system", "a=b", *texts, *plot]) == 1
    assert "error: --plot " in capsys.readouterr().err


def test_a_pair_is_one_that_the_bundle_translates(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = Path(__file__).resolve().parents[4] / "models" / "macaron-de-en"
    assert language_pair(bundle, "de-en") == ("de", "en")
    said = r"--languages must be SOURCE-TARGET of .*macaron-de-en, which translates de to en, got"
    for given_pair in ("en-de", "de-fr", "de", "de_en", ""):
        with pytest.raises(BenchError, match=f"{said} '{given_pair}'"):
            language_pair(bundle, given_pair)
    for verb in ("batches", "documents"):
        words = ["--bundle", str(bundle), "--languages", "de-fr", "--texts", __file__, "--busy"]
        assert main([verb, *words]) == 1
        assert "which translates de to en, got 'de-fr'" in capsys.readouterr().err


def test_the_command_has_what_decides_the_result_and_can_be_given_to_a_shell() -> None:
    options = argparse.Namespace(
        verb="quality",
        system=["a=run one", "b=run2"],
        beam_size=5,
        threads=None,
        busy=True,
        compiled=False,
        json=Path("record.json"),
    )
    assert shlex.split(command_of(options)) == [
        *("python", "-m", "bench", "quality", "--system", "a=run one", "--system", "b=run2"),
        *("--beam-size", "5", "--busy"),
    ]


def test_paths_have_a_name_each() -> None:
    assert named_paths("--system", ["a=x/y", "b=c=d"]) == {"a": Path("x/y"), "b": Path("c=d")}
    for wrong in (["a"], ["=x"], ["a="], ["a=x", "a=y"]):
        with pytest.raises(BenchError, match="--system"):
            named_paths("--system", wrong)
