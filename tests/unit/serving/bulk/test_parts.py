"""Parts that are done stay done, and make one output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serving.bulk.parts import BulkError, Parts
from serving.bulk.worker import Failure

PLAN = {"input": "abc", "options": {"beam_size": 5}}


def test_a_run_goes_on_behind_what_is_done_and_joins_all(tmp_path: Path) -> None:
    out, side = tmp_path / "out.txt", tmp_path / "out.txt.failed.jsonl"
    first = Parts(out, PLAN)
    first.add(1, b"b\n\n", [Failure(4, "too long")])
    again = Parts(out, PLAN)
    assert again.missing(range(3)) == [0, 2]
    again.add(0, b"a\n", [])
    again.add(2, b"c\n", [Failure(5, "x")])
    assert again.finish("text", range(3), side) == 2
    assert out.read_bytes() == b"a\nb\n\nc\n"
    rows = [json.loads(line) for line in side.read_text().splitlines()]
    assert rows == [{"row": 4, "reason": "too long"}, {"row": 5, "reason": "x"}]
    assert sorted(tmp_path.iterdir()) == [out, side]


def test_what_was_cut_off_while_it_was_written_is_not_done(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "out.txt", PLAN)
    (parts.folder / ".000000.part.new").write_bytes(b"hal")
    assert parts.missing([0]) == [0]


def test_parts_of_another_plan_are_not_mixed_in(tmp_path: Path) -> None:
    Parts(tmp_path / "out.txt", PLAN)
    with pytest.raises(BulkError, match="begun with another input"):
        Parts(tmp_path / "out.txt", PLAN | {"input": "abd"})


def test_a_folder_that_may_be_somebodys_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out.txt.parts"
    folder.mkdir()
    (folder / "000000.part").write_text("mine")
    with pytest.raises(BulkError, match=r"contains files but no plan\.json"):
        Parts(tmp_path / "out.txt", PLAN)
    assert (folder / "000000.part").read_text() == "mine"


def test_without_failures_an_old_list_of_them_goes(tmp_path: Path) -> None:
    out, side = tmp_path / "out.txt", tmp_path / "failed"
    side.write_text("old")
    parts = Parts(out, PLAN)
    parts.add(0, b"a\n", [])
    assert parts.finish("text", [0], side) == 0
    assert not side.exists()
