from __future__ import annotations

from io import BytesIO
from pathlib import Path

import docx
import pytest

from serving.__main__ import main
from serving.documents.localisation.segments import written_tmx
from serving.translation.translator import Translator
from tests.integration.demo import MODELS

BUNDLE = MODELS / "macaron-de-en"


def test_a_file_of_word_is_translated_with_its_styles(tmp_path: Path) -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Das ist ein ")
    paragraph.add_run("rotes").bold = True
    paragraph.add_run(" Haus.")
    document.save(tmp_path / "a.docx")
    done = Translator(BUNDLE, threads=1).translate_file(tmp_path / "a.docx", tmp_path / "b.docx")
    assert (done.format, done.units, done.warnings) == ("docx", 1, ())
    (found,) = docx.Document(BytesIO((tmp_path / "b.docx").read_bytes())).paragraphs
    assert found.text == "That's a red house."
    assert [run.text for run in found.runs if run.bold] == ["red"]


def test_a_folder_is_translated_and_an_interrupted_one_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "a.txt").write_text("Guten Morgen!\nIch habe keine Zeit.\n")
    (folder / "b.srt").write_text(
        "1\n00:00:01,000 --> 00:00:03,000\nIch mag dieses Haus,\n\n"
        "2\n00:00:03,000 --> 00:00:05,000\nweil es sehr alt ist.\n"
    )
    (folder / "c.docx").write_bytes(b"PK\x03\x04 broken")
    words = ["translate-file", str(BUNDLE), str(folder), str(out), "--threads", "1"]
    assert main(words) == 3
    assert "c.docx: the file is a broken zip file" in capsys.readouterr().err
    assert (out / "a.txt").read_text() == "Good morning!\nI don't have time.\n"
    cues = (out / "b.srt").read_text().split("\n\n")
    assert cues[0].startswith("1\n00:00:01,000 --> 00:00:03,000\nI like this house")
    assert "old" in cues[1]

    (out / "a.txt").unlink()
    (out / "b.srt").write_text("mine")
    (folder / "c.docx").unlink()
    assert main(words) == 0
    assert "b.srt exists and stays" in capsys.readouterr().err
    assert (out / "a.txt").exists()
    assert (out / "b.srt").read_text() == "mine"
    assert {path.name for path in out.iterdir()} == {"a.txt", "b.srt"}


def test_sentences_of_a_memory_are_not_translated_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.html").write_text(
        "<p>Seite <b>7</b> von 12. Ich habe keine Zeit.</p><p>Guten Morgen, {name}!</p>"
    )
    (tmp_path / "m.tmx").write_bytes(
        b"".join(
            written_tmx(
                [("Seite 3 von 10.", "P. 3/10."), ("Guten Morgen, {x}!", "Hi, {x}!")],
                "de-DE",
                "en-US",
            )
        )
    )
    words = ["translate-file", str(BUNDLE), str(tmp_path / "a.html"), str(tmp_path / "b.html")]
    assert main([*words, "--threads", "1", "--memory", str(tmp_path / "m.tmx")]) == 0
    found = (tmp_path / "b.html").read_text()
    assert found.replace("<b>", "").replace("</b>", "") == (
        "<p>P. 7/12. I don't have time.</p><p>Hi, {name}!</p>"
    )
    (tmp_path / "m.tmx").write_text("<tmx/>")
    assert main([*words, "--force", "--memory", str(tmp_path / "m.tmx")]) == 1
    assert "has no sentences from de to en" in capsys.readouterr().err


def test_terms_of_a_glossary_are_kept_to(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ich mag dein Haus.\n")
    (tmp_path / "terms.tsv").write_text("Haus\thome\n")
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    glossary = ["--glossary", str(tmp_path / "terms.tsv"), "--threads", "1"]
    assert main(["translate-file", str(BUNDLE), *files, *glossary]) == 0
    assert (tmp_path / "b.txt").read_text() == "I like your home.\n"


def test_columns_are_translated_and_translations_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text('id;text\r\nja;"Guten Morgen!"\r\n')
    (tmp_path / "a.po").write_text('msgid "Guten Morgen!"\nmsgstr "Hi!"\n')

    def run(name: str, *options: str) -> int:
        files = [str(tmp_path / name), str(tmp_path / f"out.{name}")]
        return main(["translate-file", str(BUNDLE), *files, "--threads", "1", *options])

    assert run("a.csv") == 1
    assert "got none; choose with --columns" in capsys.readouterr().err
    assert run("a.csv", "--columns", "text") == 0
    assert (tmp_path / "out.a.csv").read_bytes() == b'id;text\r\nja;"Good morning!"\r\n'
    for options, expected in (((), "Hi!"), (("--retranslate", "--force"), "Good morning!")):
        assert run("a.po", *options) == 0
        text = (tmp_path / "out.a.po").read_text()
        assert text == f'msgid "Guten Morgen!"\nmsgstr "{expected}"\n'


def test_what_exists_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("Ja.\n")
    (tmp_path / "b.txt").write_text("old\n")
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    assert main(["translate-file", str(BUNDLE), *files, "--threads", "1"]) == 1
    assert "b.txt exists" in capsys.readouterr().err
    assert main(["translate-file", str(BUNDLE), files[0], files[0], "--force"]) == 1
    assert "must not be the input" in capsys.readouterr().err
