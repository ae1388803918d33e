"""Models of CTranslate2 with their vocabulary and languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from export.errors import ExportError
from export.importing.model import LanguageChoice, Pieces
from export.importing.toolkits.ctranslate2 import find_model, read_ctranslate2
from tests.unit.export.importing.toolkits.spec_files import arrays, spec_tensors, write_spec
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

WRITTEN = ["<blank>", "<unk>", "<s>", "</s>", "▁haus", "▁a"]
PAIR = LanguageChoice(("de",), ("en",))


def write(
    folder: Path,
    written: list[str] = WRITTEN,
    source: list[str] | None = None,
    more: dict[str, Any] | None = None,
    **told: Any,
) -> Path:
    folder.mkdir(exist_ok=True)
    tensors = spec_tensors(len(written), source and len(source))
    write_spec(folder / "model.bin", arrays(tensors) | (more or {}))
    lists = {"shared": written} if source is None else {"source": source, "target": written}
    for name, pieces in lists.items():
        (folder / f"{name}_vocabulary.json").write_text(json.dumps(pieces), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(told))
    write_pieces(folder / "sentencepiece.model")
    return folder


def test_a_model_with_its_vocabulary_is_read(tmp_path: Path) -> None:
    imported = read_ctranslate2(write(tmp_path, layer_norm_epsilon=1e-3), PAIR)
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (0, 1, 2, 3)
    assert imported.model.config.norm_eps == 1e-3
    assert not imported.source_end
    pieces = imported.pieces
    assert isinstance(pieces, Pieces)
    assert (pieces.written, pieces.control) == (WRITTEN, {0, 2, 3})
    assert (imported.languages.source, imported.languages.target) == (("de",), ("en",))
    wanted = spec_tensors(len(WRITTEN))["decoder/embeddings/weight"]
    assert torch.equal(imported.model.state_dict()["embedding.weight"], wanted)


def test_a_package_of_argos_says_its_languages(tmp_path: Path) -> None:
    write(tmp_path / "model")
    (tmp_path / "metadata.json").write_text('{"from_code": "fr", "to_code": "en"}')
    assert find_model(tmp_path) == tmp_path / "model"
    imported = read_ctranslate2(tmp_path, LanguageChoice())
    assert (imported.languages.source, imported.languages.target) == (("fr",), ("en",))


def test_padding_that_no_piece_is_gets_a_row(tmp_path: Path) -> None:
    imported = read_ctranslate2(write(tmp_path, WRITTEN[1:]), PAIR)
    assert imported.special_ids.pad == 5
    assert imported.model.config.vocab_size == 6
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.written == [*WRITTEN[1:], "<pad>"]


def test_a_decoder_that_starts_from_zeros_starts_with_that_row(tmp_path: Path) -> None:
    more = {"decoder/start_from_zero_embedding": torch.tensor(1.0).numpy()}
    imported = read_ctranslate2(write(tmp_path, more=more), PAIR)
    assert (imported.special_ids.pad, imported.special_ids.bos) == (6, 6)
    assert imported.source_end


def test_vocabularies_of_their_own_have_pieces_of_their_own(tmp_path: Path) -> None:
    source = [*WRITTEN[:4], "▁house"]
    imported = read_ctranslate2(write(tmp_path, source=source), PAIR)
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.source_written == source
    assert imported.model.config.source_vocab_size == 5


@pytest.mark.parametrize("tags", [["__de__", "__en__"], ["deu_Latn", "eng_Latn"]])
def test_tags_of_many_languages_stand_on_both_sides(tmp_path: Path, tags: list[str]) -> None:
    written = [*WRITTEN, *tags, "madeupword0000"]
    imported = read_ctranslate2(write(tmp_path, written), LanguageChoice())
    languages = imported.languages
    assert (
        languages.source_tags
        == languages.first_pieces
        == dict(zip(("de", "en"), tags, strict=True))
    )
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.control == {0, 2, 3, 6, 7, 8}
    assert imported.source_end


def test_tags_of_marian_name_what_is_written(tmp_path: Path) -> None:
    written = [*WRITTEN, ">>fra<<", ">>ita<<"]
    imported = read_ctranslate2(write(tmp_path, written), LanguageChoice(("en",)))
    assert imported.languages.target == ("fr", "it")
    assert isinstance(imported.pieces, Pieces)
    assert {6, 7} < imported.pieces.control


def test_a_vocabulary_may_be_a_text(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "shared_vocabulary.json").unlink()
    path = tmp_path / "shared_vocabulary.txt"
    path.write_text("\n".join(WRITTEN) + "\n", encoding="utf-8")
    imported = read_ctranslate2(tmp_path, PAIR)
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.written == WRITTEN
    path.unlink()
    with pytest.raises(ExportError, match=r"shared_vocabulary\.json is missing, the pieces of the"):
        read_ctranslate2(tmp_path, PAIR)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "must be a list of pieces"),
        ("[1]", "must be a list of pieces"),
        ("[", "cannot be re"),
    ],
)
def test_what_is_no_vocabulary_is_refused(tmp_path: Path, content: str, words: str) -> None:
    write(tmp_path)
    (tmp_path / "shared_vocabulary.json").write_text(content)
    with pytest.raises(ExportError, match=words):
        read_ctranslate2(tmp_path, PAIR)


def test_what_is_no_translation_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"model\.bin is missing, neither here nor in its folder"):
        read_ctranslate2(tmp_path, PAIR)
    write(tmp_path)
    write_spec(tmp_path / "model.bin", {}, spec="WhisperSpec")
    with pytest.raises(
        ExportError, match="'WhisperSpec' is not supported, it must be 'Transformer"
    ):
        read_ctranslate2(tmp_path, PAIR)
    other = write(tmp_path / "other", eos_token="<end>")
    with pytest.raises(ExportError, match="the piece '<end>' is not in the vocabulary"):
        read_ctranslate2(other, PAIR)
