"""What the command line offers, and what does it."""

from __future__ import annotations

import re

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
