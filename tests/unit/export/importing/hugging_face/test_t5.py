"""T5's vocabularies in three forms, and the languages of its tasks, tags or choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from export.errors import ExportError
from export.importing.hugging_face.t5 import read_t5
from export.importing.model import FastTokenizerFile, Imported, LanguageChoice, Pieces
from tests.unit.export.importing.hugging_face.small_t5 import OPTIONS, t5_tensors
from tests.unit.export.importing.small_bart import write_folder
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
ASKED = LanguageChoice()
TASKS = {
    "summarization": {"prefix": "sum: "},
    "translation_en_to_de": {"prefix": "to de: "},
    "translation_en_to_fr": {"prefix": "to fr: "},
}


def read(
    folder: Path, choice: LanguageChoice = ASKED, size: int = 32, tags: str = "",
    generation: Any = None, named: str | None = None, **told: Any,
) -> Imported:  # fmt: skip
    if named is None:
        write_pieces(folder / "spiece.model", user_defined_symbols=tags, **IDS)
    files: dict[str, Any] = {} if generation is None else {"generation_config": generation}
    if named is not None:
        files["tokenizer_config"] = {"tokenizer_class": named}
    write_folder(folder, t5_tensors(size), {**OPTIONS, "vocab_size": size, **told}, **files)
    return read_t5(folder, choice)


def test_rows_behind_the_pieces_stand_for_nothing(tmp_path: Path) -> None:
    imported = read(tmp_path, tags="<extra_id_0>")
    pieces = imported.pieces
    assert isinstance(pieces, Pieces)
    assert pieces.written[30:] == ["<unused30>", "<unused31>"]
    sentinel = pieces.written.index("<extra_id_0>")
    assert pieces.control == {0, 1, sentinel, 30, 31}
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (0, 2, 0, 1)
    for size in (29, 159):
        with pytest.raises(ExportError, match=f"has 30 pieces, but the embedding has {size} rows"):
            read(tmp_path, size=size)


def test_outputs_start_with_what_is_configured_or_with_padding(tmp_path: Path) -> None:
    assert read(tmp_path, decoder_start_token_id=5).special_ids.bos == 5
    last = read(tmp_path, generation={"decoder_start_token_id": 6}, decoder_start_token_id=5)
    assert last.special_ids.bos == 6
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ExportError, match=r"decoder_start_token_id must be in \[0, 31\], got 32"):
        read(tmp_path, decoder_start_token_id=32)


def test_bytes_have_ids_behind_three_special_ones(tmp_path: Path) -> None:
    imported = read(tmp_path, size=264, named="ByT5Tokenizer")
    assert isinstance(imported.pieces, FastTokenizerFile)
    tokenizer = Tokenizer.from_str(imported.pieces.content.decode())
    assert tokenizer.encode("aé").ids == [byte + 3 for byte in "aé".encode()]
    assert imported.special_ids.unk == 2
    with pytest.raises(ExportError, match=r"vocab_size must be >= 259 for bytes, got 200"):
        read(tmp_path, size=200, named="ByT5Tokenizer")


def test_without_tasks_it_reads_and_writes_english_or_what_is_chosen(tmp_path: Path) -> None:
    languages = read(tmp_path).languages
    assert (languages.source, languages.target, languages.prefixes) == (("en",), ("en",), {})
    languages = read(tmp_path, LanguageChoice(("de",), ("en",))).languages
    assert (languages.source, languages.target) == (("de",), ("en",))


def test_tasks_are_pairs_with_words_before_each_source(tmp_path: Path) -> None:
    languages = read(tmp_path, task_specific_params=TASKS).languages
    assert languages.pairs == (("en", "de"), ("en", "fr"))
    assert languages.prefixes.keys() == {"de", "fr"}
    assert all(languages.prefixes.values())
    chosen = read(tmp_path, LanguageChoice(target=("fr",)), task_specific_params=TASKS).languages
    assert chosen.pairs == (("en", "fr"),)
    english = read(tmp_path, LanguageChoice(("en",), ("en",)), task_specific_params=TASKS).languages
    assert english.pairs == (("en", "en"),)


def test_tasks_that_say_two_things_or_nothing_are_refused(tmp_path: Path) -> None:
    two = {
        "translation_en_to_de": {"prefix": "a: "},
        "translation_fr_to_de": {"prefix": "b: "},
    }
    with pytest.raises(ExportError, match="another prefix into de for each of en,fr; import one"):
        read(tmp_path, task_specific_params=two)
    assert read(tmp_path, LanguageChoice(("fr",)), task_specific_params=two).languages.source == (
        "fr",
    )
    for wrong in ([], {"a": 3}):
        with pytest.raises(ExportError, match="task_specific_params must hold an object for each"):
            read(tmp_path, task_specific_params=wrong)


def test_tags_of_the_target_stand_before_each_source(tmp_path: Path) -> None:
    imported = read(tmp_path, tags="<2de>,<2fr>")
    languages = imported.languages
    assert (languages.source, languages.target) == (("de", "fr"), ("de", "fr"))
    assert languages.prefixes["de"][-1] == "<2de>"
    assert isinstance(imported.pieces, Pieces)
    silent = {imported.pieces.written[i] for i in imported.pieces.control}
    assert {"<2de>", "<2fr>"} <= silent
    with pytest.raises(ExportError, match="--to must be of the languages of the model, de,fr; got"):
        read(tmp_path, LanguageChoice(target=("it",)), tags="<2de>,<2fr>")
