"""What may be written over."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.errors import ConfigError
from training.runs.replacing import check_free, loses


def test_what_is_there_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "out"
    check_free(out, force=False)
    out.mkdir()
    with pytest.raises(ConfigError, match="exists already; give --force to replace it"):
        check_free(out, force=False)
    check_free(out, [tmp_path / "other"], force=True)


@pytest.mark.parametrize(
    ("out", "how"),
    [("run", "is"), ("run/../run", "is"), ("link", "is"), (".", "holds"), ("run/new", "lies in")],
)
def test_what_is_read_is_never_replaced(tmp_path: Path, out: str, how: str) -> None:
    run = tmp_path / "run"
    (run / "new").mkdir(parents=True)
    (tmp_path / "link").symlink_to(run)
    assert loses(tmp_path / out, [run]) == f"{how} {run}"
    with pytest.raises(ConfigError, match=f": {how} .*run, which is read, and would be deleted"):
        check_free(tmp_path / out, [run], force=True)


def test_nothing_is_lost_where_nothing_is(tmp_path: Path) -> None:
    assert loses(tmp_path / "run" / "new", [tmp_path / "run"]) is None
