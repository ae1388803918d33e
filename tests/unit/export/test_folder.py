"""What a manifest says of the repository that its bundle was made with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from export import folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with this module in its first commit."""
    kept = tmp_path / "kept.py"
    kept.write_text("")
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "--quiet", "--message", "first"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(folder, "__file__", str(kept))
    return tmp_path


def test_the_commit_is_the_repositorys_and_marked_where_files_differ(repository: Path) -> None:
    commit = folder.commit()
    assert len(commit) == 40
    (repository / "kept.py").write_text("changed")
    assert folder.commit() == f"{commit}-dirty"


def test_a_package_installed_inside_somebody_elses_repository_has_no_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "installed.py").write_text("")
    monkeypatch.setattr(folder, "__file__", str(repository / "installed.py"))
    assert folder.commit() == ""
