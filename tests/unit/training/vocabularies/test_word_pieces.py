"""Word pieces: ids of special ones, how words are cut, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.errors import ConfigError
from training.vocabularies.word_pieces import SPECIAL, load_word_pieces, train_word_pieces

LINES = ["The cats sat on the mats.", "Cats and mats, a Möwe!", "the the the"] * 5


def test_the_longest_known_pieces_are_taken_from_the_left(tmp_path: Path) -> None:
    train_word_pieces(LINES, tmp_path / "a.json", 60, lowercase=True)
    tokenizer = load_word_pieces(tmp_path / "a.json")
    vocabulary = tokenizer.get_vocab()
    assert [vocabulary[piece] for piece in SPECIAL] == [0, 1, 2, 3, 4]
    for word in ("cats", "mats", "mowe", "satmats"):
        pieces, start = [], 0
        while start < len(word):
            end = max(
                end
                for end in range(start + 1, len(word) + 1)
                if ("##" if start else "") + word[start:end] in vocabulary
            )
            pieces.append(("##" if start else "") + word[start:end])
            start = end
        assert tokenizer.encode(word, add_special_tokens=False).tokens == pieces
    assert tokenizer.encode("Möwe THE").ids == tokenizer.encode("mowe the").ids
    pair = tokenizer.encode("the", "cats")
    assert (pair.tokens[0], pair.tokens[2], pair.tokens[-1]) == ("[CLS]", "[SEP]", "[SEP]")
    assert pair.type_ids[:3] == [0, 0, 0]
    assert set(pair.type_ids[3:]) == {1}


def test_case_stays_where_it_is_to(tmp_path: Path) -> None:
    train_word_pieces(LINES, tmp_path / "a.json", 60, lowercase=False)
    tokenizer = load_word_pieces(tmp_path / "a.json")
    assert tokenizer.encode("The").ids != tokenizer.encode("the").ids


def test_equal_texts_give_equal_files(tmp_path: Path) -> None:
    for name in "ab":
        train_word_pieces(LINES, tmp_path / name, 60, lowercase=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(ConfigError, match="no usable tokenizer"):
        load_word_pieces(path)
    train_word_pieces(LINES, path, 60, lowercase=True)
    path.write_text(path.read_text().replace("[MASK]", "[MASKED]"))
    with pytest.raises(ConfigError, match="must have the ids 0 to 4"):
        load_word_pieces(path)
