"""Archives, unpacked into a folder and nowhere else."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from serving.errors import ModelNameError
from serving.hub.fetching.archives import unpacked

NAME = "toy:de-en"


def write_zip(path: Path, *files: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(file, f"content of {file}" * 100)
    return path


def write_tar(path: Path, *files: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for file in files:
            content = f"content of {file}".encode()
            member = tarfile.TarInfo(file)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("name", ["x.zip", "x.argosmodel", "x.tar.gz", "x.tgz"])
def test_a_folder_that_is_all_of_it_is_the_model(tmp_path: Path, folder: Path, name: str) -> None:
    write = write_zip if name.endswith(("zip", "argosmodel")) else write_tar
    found = unpacked(NAME, write(tmp_path / name, "model/a.txt", "model/b/c.txt"), folder)
    assert found == folder / "model"
    assert sorted(file.name for file in found.rglob("*.txt")) == ["a.txt", "c.txt"]


def test_files_beside_each_other_are_the_model(tmp_path: Path, folder: Path) -> None:
    path = write_tar(tmp_path / "x.tar.gz", "a.txt", "b/c.txt")
    assert unpacked(NAME, path, folder) == folder


def test_what_is_no_archive_is_linked(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert unpacked(NAME, tmp_path / "x.gguf", folder).read_bytes() == b"GGUF"


def test_no_file_is_written_elsewhere(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelNameError, match="is damaged"):
        unpacked(NAME, write_tar(tmp_path / "x.tar.gz", "../outside.txt"), folder)
    unpacked(NAME, write_zip(tmp_path / "x.zip", "../outside.txt"), folder)
    assert not (tmp_path / "outside.txt").exists()


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_a_damaged_archive_is_deleted(tmp_path: Path, folder: Path, name: str) -> None:
    path = (write_zip if name == "x.zip" else write_tar)(tmp_path / name, "a.txt", "b.txt")
    content = bytearray(path.read_bytes())
    content[50:60] = b"damaged..."
    path.write_bytes(content)
    with pytest.raises(ModelNameError, match="is damaged"):
        unpacked(NAME, path, folder)
    assert not path.exists()


def test_what_would_fill_the_disk_is_not_unpacked(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(
        ModelNameError, match=r"has 100 B free, but the unpacked archive needs 1\.6 kB"
    ):
        unpacked(NAME, write_zip(tmp_path / "x.zip", "a.txt"), folder)
    assert list(folder.iterdir()) == []
