"""Which reader takes a folder or a file, and what is said where none does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from export.errors import ExportError
from export.importing.bundle import READERS, recognise


def write(folder: Path, *names: str, model_type: str = "") -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"GGUF" if name.endswith(".gguf") else b"PK")
    if model_type:
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def test_each_family_has_one_reader() -> None:
    families = [reader.family for reader in READERS]
    assert len(set(families)) == len(families)


@pytest.mark.parametrize(
    ("names", "model_type", "family"),
    [
        ([], "marian", "marian"),
        ([], "mt5", "mt5"),
        ([], "mistral", "mistral"),
        ([], "gemma3_text", "gemma3_text"),
        ([], "gemma3", "gemma3"),
        ([], "bert", "bert"),
        (["model.npz"], "", "marian-nmt"),
        (["model.pt"], "", "opennmt-py"),
        (["model.pt", "dict.de.txt"], "", "fairseq"),
        (["model.pt", "model.npz"], "bert", "bert"),  # what the folder says counts
    ],
)
def test_a_folder_says_what_it_is(
    tmp_path: Path, names: list[str], model_type: str, family: str
) -> None:
    folder = write(tmp_path / "model", *names, model_type=model_type)
    assert recognise(folder).family == family


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "a.gguf", "b.npz", "c.pt")
    found = [recognise(folder / name).family for name in ("a.gguf", "b.npz", "c.pt")]
    assert found == ["gguf", "marian-nmt", "opennmt-py"]


def test_a_family_that_is_named_counts(tmp_path: Path) -> None:
    assert recognise(write(tmp_path / "model", model_type="marian"), "t5").family == "t5"


@pytest.mark.parametrize(
    ("names", "model_type", "family", "message"),
    [
        ([], "whisper", None, "model_type 'whisper' is not supported; supported: .*bert.*--family"),
        (["model.pt"], "whisper", None, "model_type 'whisper' is not supported"),
        ([], "marian", "umt5", "model_type 'umt5' is not supported"),
        (["model.txt"], "", None, "no config.json, .* no model of Marian, .*supported families"),
        (["a.pt", "b.pt"], "", None, "no config.json"),
    ],
)
def test_what_nothing_reads_is_reported(
    tmp_path: Path, names: list[str], model_type: str, family: str | None, message: str
) -> None:
    folder = write(tmp_path / "model", *names, model_type=model_type)
    with pytest.raises(ExportError, match=message):
        recognise(folder, family)


def test_a_file_that_nothing_reads_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "model.txt")
    for source in (folder / "model.txt", folder / "nowhere"):
        with pytest.raises(ExportError, match=r"must be a folder .* a file of GGUF, .*\.pt"):
            recognise(source)
