"""MarianMT: vocabularies, tags, and embeddings that are shared or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.errors import ExportError
from export.importing.hugging_face.marian import NEVER, read_marian
from export.importing.model import Imported, LanguageChoice, Pieces
from tests.unit.export.importing.small_bart import (
    DIM,
    OPTIONS,
    bart_shapes,
    random_tensors,
    write_folder,
)

WRITTEN = ["</s>", "<unk>", "▁haus", "▁a", "<pad>"]
PAD = 4
NAMED = {"source_lang": "deu", "target_lang": "en"}
ASKED = LanguageChoice()


def options(written: list[str] = WRITTEN, **changed: Any) -> dict[str, Any]:
    pad = written.index("<pad>")
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    return {**OPTIONS, "vocab_size": len(written), **special, **changed}


def tensors(size: int = len(WRITTEN)) -> dict[str, Tensor]:
    return random_tensors({**bart_shapes(size), "final_logits_bias": (1, size)})


def read(
    folder: Path,
    given: dict[str, Tensor] | None = None,
    written: list[str] = WRITTEN,
    told: dict[str, Any] | None = None,
    files: dict[str, Any] | None = None,
    choice: LanguageChoice = ASKED,
) -> Imported:
    ids = {piece: i for i, piece in enumerate(written)}
    others = {"vocab": ids, "tokenizer_config": NAMED, **(files or {})}
    given = tensors(len(written)) if given is None else given
    write_folder(folder, given, told or options(written), **others)
    for side in ("source", "target"):
        (folder / f"{side}.spm").touch()
    return read_marian(folder, choice)


def test_a_folder_is_read(tmp_path: Path) -> None:
    given = tensors()
    imported = read(tmp_path, given)
    config, state = imported.model.config, imported.model.state_dict()
    assert (config.norm, config.positions, config.tie_embeddings) == ("post", "marian", True)
    bias = given["final_logits_bias"][0]
    assert torch.equal(state["output_bias"][:PAD], bias[:PAD])
    assert state["output_bias"][PAD] == NEVER
    ids = imported.special_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (PAD, 1, PAD, 0)
    assert isinstance(imported.pieces, Pieces)
    assert (imported.pieces.written, imported.pieces.control) == (WRITTEN, {0, PAD})
    assert imported.pieces.target_model == tmp_path / "target.spm"
    assert (imported.languages.source, imported.languages.target) == (("de",), ("en",))


def test_tags_are_control_pieces_and_name_the_targets(tmp_path: Path) -> None:
    written = [*WRITTEN[:4], ">>fra<<", ">>ita<<", "<pad>"]
    imported = read(tmp_path, written=written)
    assert imported.languages.target == ("fr", "it")
    assert isinstance(imported.pieces, Pieces)
    assert imported.pieces.control == {0, 4, 5, 6}


def test_vocabularies_and_embeddings_of_their_own(tmp_path: Path) -> None:
    target = ["</s>", "<unk>", "<pad>", "▁house"]
    source = ["</s>", "<unk>", "<pad>", "▁haus", "▁a"]
    given = tensors(len(target))
    del given["model.shared.weight"]
    names = {"model.encoder.embed_tokens.weight": (5, DIM), "lm_head.weight": (4, DIM)}
    names["model.decoder.embed_tokens.weight"] = (4, DIM)
    given |= random_tensors(names, seed=1)
    told = options(
        source,
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=4,
        tie_word_embeddings=False,
    )
    files = {
        "target_vocab": {piece: i for i, piece in enumerate(target)},
        "tokenizer_config": NAMED | {"separate_vocabs": True},
    }
    imported = read(tmp_path, given, source, told, files)
    config, state = imported.model.config, imported.model.state_dict()
    assert (config.source_vocab_size, config.vocab_size) == (5, 4)
    assert torch.equal(state["output_matrix"], given["lm_head.weight"])
    assert isinstance(imported.pieces, Pieces)
    assert (imported.pieces.written, imported.pieces.source_written) == (target, source)
    files["tokenizer_config"] = NAMED
    with pytest.raises(
        ExportError, match="vocab_size 5 and decoder_vocab_size 4, and tokenizer_con"
    ):
        read(tmp_path, given, source, told, files)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"normalize_before": True}, "normalize_before True is not supported"),
        ({"static_position_embeddings": False}, "static_position_embeddings False is not"),
        ({"decoder_vocab_size": 9}, "decoder_vocab_size 9 is not supported"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings False is not supported"),
        (
            {"bad_words_ids": [[1]]},
            r"bad_words_ids \[\[1\]\] is not supported; it must be \[\[4\]\]",
        ),
        ({"eos_token_id": 2}, "</s> has the id 0, config.json's eos_token_id is 2"),
        ({"pad_token_id": 9}, "pad_token_id must be below vocab_size 5, got 9"),
    ],
)
def test_options_that_are_not_supported_are_named(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        read(tmp_path, told=options(**changed))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (
            {"</s>": 0, "<unk>": 1},
            r"must give each of the 5 rows of the embedding one piece, .* got 2 pi",
        ),
        ({"</s>": 0, "<unk>": 1, "a": 2, "b": 3, "c": 3}, "must give each of the 5 rows"),
        ({"</s>": 0, "u": 1, "a": 2, "b": 3, "c": 4}, "the piece <unk> is missing"),
    ],
)
def test_ids_that_do_not_fit_are_refused(tmp_path: Path, ids: dict[str, int], words: str) -> None:
    with pytest.raises(ExportError, match=rf"vocab\.json: {words}"):
        read(tmp_path, files={"vocab": ids})


def test_languages_that_are_not_named_are_asked_for(tmp_path: Path) -> None:
    files = {"tokenizer_config": {"source_lang": "mul"}}
    with pytest.raises(
        ExportError, match="source_lang 'mul' does not name a language; say which the mode"
    ):
        read(tmp_path, files=files)
    chosen = LanguageChoice(("nl",), ("fr",))
    assert read(tmp_path, files=files, choice=chosen).languages.source == ("nl",)
