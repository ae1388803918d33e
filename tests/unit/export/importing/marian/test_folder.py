"""Which files make up a model of Marian, and how its vocabularies are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.marian.folder import (
    MarianFiles,
    find_files,
    has_marian,
    languages_of,
    read_vocabulary,
    search_of,
)
from export.importing.model import LanguageChoice, Pieces
from tests.toy.marian_files import Item, write_binary, write_lexicon
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

IDS = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
MODEL, DECODER = "model.deen.bin", "decoder.yml"


def write_model(folder: Path, name: str = MODEL) -> Path:
    write_binary(folder / name, [Item("special:model.yml", 0x101, (4,), b"{}\n\0")])
    return folder / name


def decoder(folder: Path, **told: Any) -> Path:
    named = {name.replace("_", "-"): value for name, value in told.items()}
    (folder / DECODER).write_text(yaml.safe_dump({"models": [MODEL]} | named))
    return folder / DECODER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path)
    write_pieces(tmp_path / "vocab.spm", **IDS)
    return tmp_path


def test_a_folder_holds_one_of_each(folder: Path) -> None:
    write_lexicon(folder / "lex.s2t.bin", [[0]], 1)
    for source in (folder, folder / MODEL):
        assert has_marian(source)
        files = find_files(source)
        assert files.model == folder / MODEL
        assert files.vocabularies == (folder / "vocab.spm",)
        assert files.shortlist == folder / "lex.s2t.bin"


def test_a_decoder_s_yaml_names_them(folder: Path) -> None:
    write_model(folder, "other.bin")
    write_lexicon(folder / "lex.bin", [[0]], 1)
    path = decoder(folder, vocabs=["vocab.spm", "vocab.spm"], shortlist=["lex.bin", 50])
    for source in (folder, path):
        assert has_marian(source)
        files = find_files(source)
        assert files.model == folder / MODEL
        assert files.vocabularies == (folder / "vocab.spm",)
        assert files.shortlist == folder / "lex.bin"
    assert find_files(folder / "other.bin").model == folder / "other.bin"


def test_other_folders_and_files_are_none(folder: Path) -> None:
    assert not has_marian(folder / "vocab.spm")
    (folder / "vocab.yml").write_text("models: 17\n</s>: 0\n")
    assert not has_marian(folder / "vocab.yml")
    (folder / "config.json").write_text("{}")
    assert not has_marian(folder)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"models": [MODEL, MODEL]}, "models must name one file, got 2; ensembles are not"),
        ({"models": ["a.bin"]}, "models names 'a.bin', which is not beside it"),
        ({"vocabs": 3}, "vocabs must be a list of files, got 3"),
    ],
)
def test_files_that_are_not_there_are_named(folder: Path, told: dict[str, Any], words: str) -> None:
    with pytest.raises(ExportError, match=words):
        find_files(decoder(folder, **told))


def test_what_is_not_clear_is_asked_for(folder: Path) -> None:
    with pytest.raises(ExportError, match="there is no such file or folder"):
        find_files(folder / "nothing")
    write_model(folder, "other.bin")
    with pytest.raises(ExportError, match=r"must hold one model .*, got model\.deen\.bin, other"):
        find_files(folder)
    (folder / "other.bin").unlink()
    write_pieces(folder / "vocab2.spm", **IDS)
    with pytest.raises(ExportError, match="nothing says which vocabulary is the source's"):
        find_files(folder)
    (folder / "vocab.spm").rename(folder / "srcvocab.spm")
    (folder / "vocab2.spm").rename(folder / "trgvocab.spm")
    assert [path.name for path in find_files(folder).vocabularies] == [
        "srcvocab.spm",
        "trgvocab.spm",
    ]


def files_of(folder: Path, *vocabularies: str, **told: Any) -> MarianFiles:
    tree = {name.replace("_", "-"): value for name, value in told.items()}
    paths = tuple(folder / name for name in vocabularies)
    return MarianFiles(folder / MODEL, paths, None, Options(folder / DECODER, tree))


def test_searches_are_as_the_decoder_is_configured(folder: Path) -> None:
    assert search_of(files_of(folder)) == {
        "beam_size": 5,
        "length_penalty": 1.0,
        "eos_in_length": True,
    }
    found = search_of(files_of(folder, beam_size=3, normalize=0.6, mini_batch=64))
    assert (found["beam_size"], found["length_penalty"]) == (3, 0.6)
    assert search_of(files_of(folder, normalize=True))["length_penalty"] == 1.0
    listed = MarianFiles(folder / MODEL, (), folder / "lex", Options(folder, {}))
    assert search_of(listed)["beam_size"] == 1


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"beam_size": 900}, "beam-size or normalize"),
        ({"word_penalty": 1}, "word-penalty 1 is not supported"),
        ({"allow_unk": True}, "allow-unk True is not supported"),
        ({"force_decode": True}, "'force-decode' .True. is not known"),
    ],
)
def test_searches_that_are_not_supported_are_refused(
    folder: Path, told: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        search_of(files_of(folder, **told))


def test_one_sentencepiece_model_is_of_both_sides(folder: Path) -> None:
    written = write_pieces(folder / "vocab.spm", **IDS)
    (folder / "copy.spm").write_bytes((folder / "vocab.spm").read_bytes())
    found = read_vocabulary(files_of(folder, "vocab.spm", "copy.spm"), 30, 30)
    assert found.pieces.written == [*written, "<start>"]
    assert found.pieces.control == {0, 30}
    assert found.pieces.source_written is None
    assert (found.eos, found.unk) == (0, 1)


def test_each_side_may_have_its_own(folder: Path) -> None:
    source = write_pieces(folder / "source.spm", 26, **IDS)
    found = read_vocabulary(files_of(folder, "source.spm", "vocab.spm"), 26, 30).pieces
    assert (found.source_written, found.source_control) == (source, {0})
    assert (found.source_model, found.target_model) == (
        folder / "source.spm",
        folder / "vocab.spm",
    )


def test_a_yaml_of_ids_reads_words_as_they_are(folder: Path) -> None:
    (folder / "vocab.yml").write_text("</s>: 0\n<unk>: 1\nno: 2\n1: 3\n'>>fra<<': 4\n")
    with pytest.raises(ExportError, match=r"source\.spm is missing, the SentencePiece model"):
        read_vocabulary(files_of(folder, "vocab.yml"), 5, 5)
    for side in ("source", "target"):
        (folder / f"{side}.spm").touch()
    found = read_vocabulary(files_of(folder, "vocab.yml"), 5, 5).pieces
    assert found.written == ["</s>", "<unk>", "no", "1", ">>fra<<", "<start>"]
    assert found.control == {0, 4, 5}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("</s>: 0\n<unk>: 2\n", "must give pieces the ids from 0 on, each once"),
        ("</s>: 0\nhaus: 1\n", "the piece <unk> is missing"),
        ("</s>: a\n", "must be YAML that gives pieces their ids"),
        ("- a\n", "must be YAML that gives pieces their ids"),
    ],
)
def test_what_is_no_vocabulary_is_named(folder: Path, content: str, words: str) -> None:
    (folder / "vocab.yml").write_text(content)
    with pytest.raises(ExportError, match=rf"vocab\.yml: {words}"):
        read_vocabulary(files_of(folder, "vocab.yml"), 2, 2)


def test_vocabularies_that_do_not_fit_are_refused(folder: Path) -> None:
    with pytest.raises(ExportError, match=r"a vocabulary \(\.spm\) is missing"):
        read_vocabulary(files_of(folder), 30, 30)
    with pytest.raises(ExportError, match="each of the 31 rows of the embedding one piece, got 30"):
        read_vocabulary(files_of(folder, "vocab.spm"), 31, 30)
    write_pieces(folder / "other.spm", 26, **(IDS | {"eos_id": 1, "unk_id": 0}))
    with pytest.raises(ExportError, match=r"must have the ids 0 and 1 that vocab\.spm gives"):
        read_vocabulary(files_of(folder, "vocab.spm", "other.spm"), 30, 26)
    (folder / "vocab.yml").write_text("</s>: 0\n")
    with pytest.raises(ExportError, match=r"must be of the kind of vocab\.spm, \.spm or YAML"):
        read_vocabulary(files_of(folder, "vocab.spm", "vocab.yml"), 30, 1)
    with pytest.raises(ExportError, match="one vocabulary each, got 3"):
        read_vocabulary(files_of(folder, "vocab.spm", "vocab.yml", "other.spm"), 30, 1)
    write_pieces(folder / "endless.spm", 26, eos_id=-1)
    with pytest.raises(ExportError, match="no piece </s>, which ends a source and a target"):
        read_vocabulary(files_of(folder, "endless.spm"), 26, 26)


@pytest.mark.parametrize(
    ("name", "info", "pair"),
    [
        ("model.deen.bin", None, ("de", "en")),
        ("model.enpt.intgemm.alphas.bin", None, ("en", "pt")),
        ("model.deen.bin", "fr-it-tiny11", ("fr", "it")),
        ("model.deen.bin", "x", ("de", "en")),
    ],
)
def test_names_of_files_tell_the_languages(
    tmp_path: Path, name: str, info: str | None, pair: tuple[str, str]
) -> None:
    if info is not None:
        (tmp_path / "model_info.json").write_text(json.dumps({"shortName": info}))
    files = MarianFiles(tmp_path / name, (), None, Options(tmp_path, {}))
    pieces = Pieces(["</s>"], frozenset(), tmp_path, tmp_path)
    found = languages_of(files, LanguageChoice(), pieces)
    assert (*found.source, *found.target) == pair
    unnamed = MarianFiles(tmp_path / "model.bin", (), None, Options(tmp_path, {}))
    if info in (None, "x"):
        with pytest.raises(ExportError, match=r"model\.bin: its name contains no languages; say"):
            languages_of(unnamed, LanguageChoice(), pieces)
