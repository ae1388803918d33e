"""BART: what stands before its sources and outputs, and how long they may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from export.errors import ExportError
from export.importing.hugging_face.bart import read_bart
from export.importing.model import FastTokenizerFile, Imported, LanguageChoice
from serving.search.options import MAX_STEPS
from tests.unit.export.importing.small_bart import (
    OPTIONS,
    POSITIONS,
    learnt_shapes,
    random_tensors,
    write_folder,
)
from tests.unit.export.importing.vocabularies.test_byte_pairs import PIECES, write_two

SIZE = len(PIECES)
ASKED = LanguageChoice()


def read(
    folder: Path, choice: LanguageChoice = ASKED, generation: Any = None, **told: Any
) -> Imported:
    special = {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}
    sizes = {"vocab_size": SIZE, "max_position_embeddings": POSITIONS}
    kinds: dict[str, Any] = {"normalize_before": False, "normalize_embedding": True}
    write_two(folder)
    given = random_tensors(learnt_shapes(SIZE))
    files = {} if generation is None else {"generation_config": generation}
    write_folder(folder, given, {**OPTIONS, **special, **sizes, **kinds, **told}, **files)
    return read_bart(folder, choice)


def test_a_folder_is_read_and_leaves_room_for_an_output(tmp_path: Path) -> None:
    imported = read(tmp_path)
    config = imported.model.config
    assert (config.norm, config.positions, config.embedding_norm) == ("post", "learnt", True)
    assert imported.max_source == POSITIONS - MAX_STEPS - 2
    assert isinstance(imported.pieces, FastTokenizerFile)
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (1, 3, 2, 2)
    given = random_tensors(learnt_shapes(SIZE))
    bias = imported.model.state_dict()["output_bias"]
    assert torch.equal(bias, given["final_logits_bias"][0])


def test_sources_begin_with_the_first_piece_and_outputs_where_they_have_to(
    tmp_path: Path,
) -> None:
    languages = read(tmp_path).languages
    assert (languages.source, languages.target) == (("en",), ("en",))
    assert languages.source_tags == {"en": "<s>"}
    assert languages.first_pieces == {}
    for told in ({"forced_bos_token_id": 0}, {"force_bos_token_to_be_generated": True}):
        languages = read(tmp_path, LanguageChoice(("de",), ("en",)), **told).languages
        assert languages.first_pieces == {"en": "<s>"}
        assert languages.pairs == (("de", "en"),)
    forced = read(tmp_path, generation={"forced_bos_token_id": 0})
    assert forced.languages.first_pieces == {"en": "<s>"}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"forced_bos_token_id": 5}, "must be 0, the id of <s>, or left out, got 5"),
        ({"prefix": "summarize: "}, "prefix 'summarize: ' is not supported"),
        ({"normalize_before": True}, "normalize_before True is not supported"),
        ({"use_rotary": True}, "'use_rotary' .True. is not known"),
    ],
)
def test_options_that_are_not_supported_are_named(
    tmp_path: Path, told: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read(tmp_path, **told)
