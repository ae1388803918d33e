"""M2M100 and NLLB: pieces, tags of each language, and rows that nothing stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from export.errors import ExportError
from export.importing.hugging_face.m2m100 import many_languages, read_m2m100, tags_among
from export.importing.model import Imported, LanguageChoice, Pieces
from tests.unit.export.importing.small_bart import (
    OPTIONS,
    bart_shapes,
    random_tensors,
    write_folder,
)

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
PIECES = [*SPECIAL, "▁haus", "▁a"]
IDS = {piece: i for i, piece in enumerate(PIECES)}
CODES = ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]
NLLB = ["deu_Latn", "zho_Hans", "zho_Hant", "fra_Latn"]
ASKED = LanguageChoice()


def read(
    folder: Path, size: int, choice: LanguageChoice = ASKED, told: Any = None, **files: Any
) -> Imported:
    special = {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}
    options = {**OPTIONS, "vocab_size": size, **special, **(told or {})}
    given = random_tensors(bart_shapes(size, last_norms=True))
    write_folder(folder, given, options, **files)
    (folder / "sentencepiece.bpe.model").touch()
    return read_m2m100(folder, choice)


def wmt21(folder: Path, extra: int = 2, **more: Any) -> Imported:
    size = len(PIECES) + len(CODES) + extra
    return read(folder, size, vocab=IDS, tokenizer_config={"language_codes": "wmt21"}, **more)


def test_tags_follow_the_pieces_and_unused_rows_follow_them(tmp_path: Path) -> None:
    imported = wmt21(tmp_path)
    assert imported.kind.startswith("M2M100")
    config = imported.model.config
    assert (config.norm, config.positions, config.embedding_scale) == ("pre", "fairseq", "token")
    tags = [f"__{code}__" for code in CODES]
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.written == [*PIECES, *tags, "<unused14>", "<unused15>"]
    assert imported.pieces.control == {0, 1, 2, *range(6, 16)}
    assert imported.special_ids.unk == 3
    assert imported.languages.first_pieces == {code: f"__{code}__" for code in CODES}


def nllb(folder: Path, tree: Any = None, **told: Any) -> Imported:
    first = len(PIECES)
    added = [{"content": piece, "id": i} for i, piece in enumerate(SPECIAL)]
    added += [{"content": tag, "id": first + i} for i, tag in enumerate([*NLLB, "<mask>"])]
    tree = tree or {"model": {"vocab": IDS}, "added_tokens": added}
    size = first + len(NLLB) + 1
    return read(folder, size, tokenizer=tree, tokenizer_config=told)


def test_an_nllb_s_tags_are_in_its_file_and_scripts_stand_where_there_are_two(
    tmp_path: Path,
) -> None:
    imported = nllb(tmp_path)
    assert imported.kind.startswith("NLLB-200")
    assert imported.languages.source_tags == {
        "de": "deu_Latn",
        "zh-Hans": "zho_Hans",
        "zh-Hant": "zho_Hant",
        "fr": "fra_Latn",
    }
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.control == {0, 1, 2, *range(6, 11)}


def test_files_that_do_not_say_it_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="legacy_behaviour true is not supported; the tag must"):
        nllb(tmp_path, legacy_behaviour=True)
    with pytest.raises(ExportError, match="must give pieces their ids; 'added_tokens' is missing"):
        nllb(tmp_path, {"model": {"vocab": IDS}})
    with pytest.raises(
        ExportError, match=r"language_codes 'wmt99' is not supported; .*'m2m100', 'w"
    ):
        read(tmp_path, 9, vocab=IDS, tokenizer_config={"language_codes": "wmt99"})


def test_rows_and_pieces_fit(tmp_path: Path) -> None:
    wmt21(tmp_path, extra=8)
    for extra in (-1, 9):
        with pytest.raises(
            ExportError, match=r"does not fit the embedding of \d+ rows .* 14 pieces"
        ):
            wmt21(tmp_path, extra=extra)
    ids = {piece: i for piece, i in IDS.items() if piece != "<unk>"}
    with pytest.raises(ExportError, match="<unk> is missing, ids up to"):
        read(tmp_path, 14, vocab=ids, tokenizer_config={"language_codes": "wmt21"})


def test_chosen_languages_are_of_the_model(tmp_path: Path) -> None:
    imported = wmt21(tmp_path, choice=LanguageChoice(("en",), ("de", "is")))
    assert imported.languages.source_tags == {"en": "__en__"}
    assert imported.languages.first_pieces == {"de": "__de__", "is": "__is__"}
    with pytest.raises(
        ExportError, match=r"--to must be of the languages of the model, .* got 'fr'"
    ):
        many_languages({"de": "x"}, LanguageChoice(target=("fr",)))


def test_options_that_are_not_supported_are_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="normalize_before False is not supported"):
        wmt21(tmp_path, told={"normalize_before": False})


def test_tags_are_known_by_their_form() -> None:
    assert tags_among(["▁a", "__de__", "__ast__", "__DE__", "fra_Latn"]) == {
        "de": "__de__",
        "ast": "__ast__",
    }
    assert tags_among(["▁a", "fra_Latn", "fra_latn", "fr_Latn"]) == {"fr": "fra_Latn"}
    assert tags_among(["▁a"]) == {}
