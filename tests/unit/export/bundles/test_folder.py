"""A bundle's folder, and what its manifest says of the repository that it was made with."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from importlib.metadata import version
from pathlib import Path

import onnxruntime
import pytest

from export.__main__ import main
from export.bundles import folder
from export.errors import ExportError


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


def test_a_folder_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with folder.new_folder(tmp_path / "out") as place:
            (place / "step.onnx").write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ExportError, match="out: cannot be written: No space left on device; make"):
        write()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with (
        pytest.raises(ExportError, match="file/out: cannot be written"),
        folder.new_folder(tmp_path / "file" / "out"),
    ):
        pass


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_a_new_folder_has_the_mode_of_an_ordinary_one(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with folder.new_folder(tmp_path / "out"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~mask


def test_versions_are_those_of_the_modules_that_are_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where the package onnxruntime-gpu brings the module of that name.
    monkeypatch.setattr(onnxruntime, "__version__", "9.8.7")
    found = folder.package_versions()
    assert found.pop("onnxruntime") == "9.8.7"
    del found["python"]
    assert found == {name: version(name) for name in found}


@pytest.mark.parametrize(
    ("out", "read", "how"),
    [
        ("model", "model", "is"),
        ("model", "other/../model", "is"),
        ("link", "model", "is"),
        ("model", "link", "is"),
        ("model", "model/best", "holds"),
        ("model", "model/dev.txt", "holds"),
        (".", "model", "holds"),
        ("model/best", "model", "lies in"),
        ("model/best", "link", "lies in"),
        ("model", "other", None),
        ("model", "model-2", None),  # whose name begins alike
        ("model/new", "model", None),  # which is not there yet
    ],
)
def test_nothing_that_is_read_is_replaced(
    tmp_path: Path, out: str, read: str, how: str | None
) -> None:
    for name in ("model/best", "other", "model-2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "model" / "dev.txt").touch()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    if how is None:
        folder.check_apart(tmp_path / out, [tmp_path / read])
        return
    with pytest.raises(ExportError, match=rf" {how} .*, which is read.*name a folder outside"):
        folder.check_apart(tmp_path / out, [tmp_path / "other", tmp_path / read])


VERBS_BY_FORCE = [
    ["bundle", "{source}", "{out}"],
    ["import", "{source}", "{out}"],
    ["checkpoint", "{source}", "{out}"],
    ["engine", "{source}", "{out}"],
    ["bundle", "other", "{out}", "--dev", "{source}/a.de", "{source}/a.en"],
    ["bundle", "other", "{out}", "--text", "{source}/a.de"],
    ["bundle", "other", "{out}", "--test", "news", "{source}/a.de", "{source}/a.en"],
    ["bundle", "other", "{out}", "--test-text", "news", "{source}/a.de"],
    ["import", "other", "{out}", "--text", "{source}/a.de"],
    ["import", "other", "{out}", "--task", "{source}/a.tsv"],
]


@pytest.mark.parametrize("words", VERBS_BY_FORCE, ids=" ".join)
def test_no_verb_of_export_deletes_what_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    for name in ("config.json", "a.de", "a.en", "a.tsv", "inner/file"):
        (source / name).write_text("kept")
    outs = [source, tmp_path]
    if words[1] == "{source}":
        outs.append(source / "inner")
    for out in outs:
        command = [word.format(source=source, out=out) for word in words]
        assert main([*command, "--force"]) == 1
        assert ", which is read, and would be deleted" in capsys.readouterr().err
    assert {path.read_text() for path in source.rglob("*") if path.is_file()} == {"kept"}
    assert len(list(source.rglob("*"))) == 6
