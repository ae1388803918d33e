"""Vocabularies of encoder-decoders in one file or in two, as one that puts nothing around texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from export.errors import ExportError
from export.importing.vocabularies.byte_pairs import (
    SPECIAL,
    read_byte_pairs,
    read_tokenizer_file,
)

PIECES = [*SPECIAL, "a", "b", "Ġ", "ab", "Ġab", "<mask>"]
IDS = {piece: number for number, piece in enumerate(PIECES)}
MERGES = "#version: 0.2\na b\nĠ ab\n"


def write_two(folder: Path, ids: dict[str, int] = IDS, **told: Any) -> None:
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "merges.txt").write_text(MERGES, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def write_one(folder: Path, ids: dict[str, int] = IDS) -> None:
    tokenizer = Tokenizer(models.BPE(ids, [("a", "b"), ("Ġ", "ab")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([piece for piece in (*SPECIAL, "<mask>") if piece in ids])
    around = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=around
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def ids_of(content: bytes, text: str) -> list[int]:
    return list(Tokenizer.from_str(content.decode()).encode(text).ids)


@pytest.mark.parametrize("write", [write_one, write_two])
def test_texts_are_cut_by_merges_with_nothing_around_them(write: Any, tmp_path: Path) -> None:
    write(tmp_path)
    content = read_byte_pairs(tmp_path, len(PIECES))
    assert ids_of(content, "ab ab") == [IDS["ab"], IDS["Ġab"]]
    assert ids_of(content, "ab</s>") == [IDS["ab"], IDS["</s>"]]
    assert Tokenizer.from_str(content.decode()).decode([IDS["ab"], IDS["Ġab"]]) == "ab ab"


def test_a_mask_has_the_space_before_it(tmp_path: Path) -> None:
    write_two(tmp_path)
    content = read_byte_pairs(tmp_path, len(PIECES))
    assert ids_of(content, "ab <mask>") == [IDS["ab"], IDS["<mask>"]]
    assert ids_of(content, "ab </s>") == [IDS["ab"], IDS["Ġ"], IDS["</s>"]]


def test_a_space_stands_before_where_the_options_say_so(tmp_path: Path) -> None:
    write_two(tmp_path, add_prefix_space=True)
    assert ids_of(read_byte_pairs(tmp_path, len(PIECES)), "ab") == [IDS["Ġab"]]


@pytest.mark.parametrize("write", [write_one, write_two])
def test_the_mask_is_gone_where_the_embedding_ends_before_it(write: Any, tmp_path: Path) -> None:
    write(tmp_path)
    kept, without = (
        Tokenizer.from_str(read_byte_pairs(tmp_path, size).decode())
        for size in (len(PIECES), len(PIECES) - 1)
    )
    assert kept.token_to_id("<mask>") == len(PIECES) - 1
    assert without.token_to_id("<mask>") is None
    assert without.token_to_id("Ġab") == IDS["Ġab"]


@pytest.mark.parametrize("write", [write_one, write_two])
def test_a_special_piece_that_is_missing_is_named(write: Any, tmp_path: Path) -> None:
    write(tmp_path, {piece: i for i, piece in enumerate(PIECES[:1] + PIECES[2:])})
    with pytest.raises(ExportError, match=r"\.json: the piece <pad> is missing"):
        read_byte_pairs(tmp_path, len(PIECES))


def test_files_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"vocab\.json is missing, .* or tokenizer\.json"):
        read_byte_pairs(tmp_path, 9)
    write_two(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\na zz\n")
    with pytest.raises(ExportError, match=r"merges\.txt: no usable merges for vocab\.json"):
        read_byte_pairs(tmp_path, 9)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ExportError, match=r"merges\.txt is missing, the merges of the vocabulary"):
        read_byte_pairs(tmp_path, 9)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ExportError, match=r"tokenizer\.json: no usable tokenizer"):
        read_tokenizer_file(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("merges", ["", "#version: 0.2\n"])
def test_merges_that_make_no_piece_are_refused(merges: str, tmp_path: Path) -> None:
    write_two(tmp_path)
    (tmp_path / "merges.txt").write_text(merges)
    said = r": its 0 merges make 0 of the 2 pieces of several letters; it is empty or cut off"
    with pytest.raises(ExportError, match=rf"merges\.txt{said}"):
        read_byte_pairs(tmp_path, len(PIECES))
    write_one(tmp_path)
    tree = json.loads((tmp_path / "tokenizer.json").read_text())
    tree["model"]["merges"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(ExportError, match=rf"tokenizer\.json{said}"):
        read_byte_pairs(tmp_path, len(PIECES))


def test_a_vocabulary_of_single_letters_needs_no_merges(tmp_path: Path) -> None:
    write_two(tmp_path, {piece: i for i, piece in enumerate([*SPECIAL, "a", "b"])})
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    assert ids_of(read_byte_pairs(tmp_path, 6), "ab") == [4, 5]
