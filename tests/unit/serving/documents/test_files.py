from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from serving.documents.files import FileWishes, files_to_translate, translate_file
from serving.documents.unit import Translated, Unit
from serving.errors import InvalidOptionError
from tests.unit.serving.documents.fakes import rendered


def upper(units: Sequence[Unit]) -> tuple[list[Translated], list[str]]:
    return [rendered(unit) for unit in units], []


def test_a_file_becomes_another(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("Ein Haus.\n")
    done = translate_file(source, target, upper)
    assert (done.format, done.units, done.warnings) == ("txt", 1, ())
    assert target.read_text() == "EIN HAUS.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("Ein Haus.\n")
    (tmp_path / "link.txt").symlink_to(source)
    for target in (source, tmp_path / "link.txt"):
        with pytest.raises(InvalidOptionError, match="must not be the input"):
            translate_file(source, target, upper, FileWishes(force=True))
    assert source.read_text() == "Ein Haus.\n"


def test_a_file_that_exists_is_replaced_only_by_force(tmp_path: Path) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("Ein Haus.\n")
    target.write_text("old")
    with pytest.raises(InvalidOptionError, match=r"b\.txt exists; .*--force"):
        translate_file(source, target, upper)
    assert target.read_text() == "old"
    translate_file(source, target, upper, FileWishes(force=True))
    assert target.read_text() == "EIN HAUS.\n"


def test_a_disk_that_fills_up_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("Ein Haus.\n")
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        translate_file(source, target, upper, FileWishes(force=True))
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_where_there_is_no_room_for_the_source_that_is_said(tmp_path: Path) -> None:
    source = tmp_path / "a.md"
    source.write_text("Ein Haus.")
    with pytest.raises(InvalidOptionError, match="a markdown file has no room for the source"):
        translate_file(source, tmp_path / "b.md", upper, FileWishes(bilingual=True))


def test_a_folder_means_its_files_of_known_kinds_at_the_same_places(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b.SRT", "c.exe", ".hidden.txt", "deep/strings.xml", "d.xml"):
        (folder / name).write_text("x")
    assert files_to_translate(str(folder), out) == [
        (folder / "a.txt", out / "a.txt"),
        (folder / "deep/b.SRT", out / "deep/b.SRT"),
        (folder / "deep/strings.xml", out / "deep/strings.xml"),
    ]
    with pytest.raises(InvalidOptionError, match="outside of the folder"):
        files_to_translate(str(folder), folder / "out")


def test_of_a_folder_tables_are_meant_where_columns_are_chosen(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("a.txt", "b.csv", "c.jsonl"):
        (folder / name).write_text("x")
    assert [path.name for path, _ in files_to_translate(str(folder), out)] == ["a.txt"]
    tables = files_to_translate(str(folder), out, tables=True)
    assert [path.name for path, _ in tables] == ["b.csv", "c.jsonl"]


def test_columns_are_chosen_and_translations_made_anew(tmp_path: Path) -> None:
    table, catalogue, out = tmp_path / "a.csv", tmp_path / "a.po", tmp_path / "out"
    table.write_text("id,text\nein,Haus\n")
    with pytest.raises(InvalidOptionError, match="got none; choose with --columns"):
        translate_file(table, out, upper)
    translate_file(table, out, upper, FileWishes(columns=["text"]))
    assert out.read_text() == "id,text\nein,HAUS\n"
    catalogue.write_text('msgid "Haus"\nmsgstr "home"\n')
    translate_file(catalogue, out, upper, FileWishes(retranslate=True, force=True))
    assert out.read_text() == 'msgid "Haus"\nmsgstr "HAUS"\n'


def test_a_pattern_means_what_it_fits(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.srt"):
        (tmp_path / name).write_text("x")
    found = files_to_translate(str(tmp_path / "*.txt"), tmp_path / "out")
    assert [target.name for _, target in found] == ["a.txt", "b.txt"]
    with pytest.raises(InvalidOptionError, match="the input must be a file"):
        files_to_translate(str(tmp_path / "*.pdf"), tmp_path / "out")
