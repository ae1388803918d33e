"""What the command line offers, and what does it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.commands import VERBS


def test_every_verb_of_the_command_line_is_one_that_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    offered = re.search(r"\{([a-z,-]+)\}", capsys.readouterr().out)
    assert offered
    assert sorted(offered[1].split(",")) == sorted(VERBS)


def test_another_version_that_is_not_there_is_refused_before_servers_are_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--bundles", str(tmp_path), "--before", str(tmp_path / "nothing")]
    assert main(["store", *places, "--languages", "de-en", "--busy"]) == 1
    assert capsys.readouterr().err.startswith("error: --before must be the folder of a checkout")
