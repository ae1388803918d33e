"""Word lists, and WikiText's tokenisation undone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving.bundle.words import WordVocabulary
from serving.search.ids import EOS_ID, UNK_ID
from training.corpora.pairs import read_lines
from training.corpora.wikitext import clean_wikitext, detokenise
from training.errors import ConfigError
from training.vocabularies.words import write_vocabulary

DATA = os.environ.get("MACARON_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="MACARON_DATA is not set")


@pytest.fixture
def words(tmp_path: Path) -> WordVocabulary:
    path = tmp_path / "vocab.txt"
    write_vocabulary([" the cat the <unk> ", "", "the  cat sat on", "on the"], path)
    return WordVocabulary(path)


def test_types_are_the_words_with_unk_and_eos(words: WordVocabulary) -> None:
    assert words.vocab_size == 6
    assert words.pieces(list(range(6))) == ["sat", "<unk>", "on", "<eos>", "the", "cat"]
    assert words.encode("the dog <unk> sat") == [4, UNK_ID, UNK_ID, 0]
    assert words.encode_batch(["", "on cat"]) == [[], [2, 5]]
    assert words.decode([4, 5, EOS_ID, UNK_ID]) == "the cat <unk>"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nb\nc\nd\n", "vocab.txt:2: must be <unk>"),
        ("a\n<unk>\nb\n", "vocab.txt:4: must be <eos>"),
        ("a\n<unk>\nb\n<eos>\na\n", "'a' occurs twice"),
    ],
)
def test_a_file_that_is_no_word_list(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        WordVocabulary(path)


def test_a_text_of_one_word_makes_no_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs two words at least, the text has 1"):
        write_vocabulary(["a a", "a"], tmp_path / "vocab.txt")


@pytest.mark.data
@needs_data
def test_wikitext2_has_its_published_size(tmp_path: Path) -> None:
    folder = Path(DATA or "") / "wikitext-2"
    lines = read_lines(folder / "wiki.train.tokens.gz")
    write_vocabulary(lines, tmp_path / "vocab.txt")
    vocabulary = WordVocabulary(tmp_path / "vocab.txt")
    assert vocabulary.vocab_size == 33_278
    assert sum(len(ids) + 1 for ids in vocabulary.encode_batch(lines)) == 2_088_628


@pytest.mark.parametrize(
    ("tokenised", "plain"),
    [
        (" The 17th @-@ place , 4 @.@ 33 of 1 @,@ 000 . ", "The 17th-place, 4.33 of 1,000."),
        ("= = Route description = =", "== Route description =="),
        ('a role as " Craig " in it', 'a role as "Craig" in it'),
        ("Major League Baseball ( MLB ) from", "Major League Baseball (MLB) from"),
        ("the team 's season", "the team's season"),
        ("2012 – 13 meant", "2012–13 meant"),
        ("24 in ) and ; so : yes ?", "24 in) and; so: yes?"),
    ],
)
def test_detokenising(tokenised: str, plain: str) -> None:
    assert detokenise(tokenised) == plain
    assert detokenise(plain) == plain


def test_lines_without_text_and_sentences_with_unk_are_dropped_and_counted() -> None:
    kept, dropped = clean_wikitext([" ", " = A = ", " b <unk> . ", " c , d ", ""])
    assert kept == ["= A =", "c, d"]
    assert dropped == {"empty": 2, "<unk>": 1}


def test_a_line_is_cut_at_sentences_with_unk() -> None:
    line = ' It rose . " Then <unk> . It fell . He saw D. W. Smith ( 1 ) . Now <unk> ? Well ! '
    kept, dropped = clean_wikitext([line])
    assert kept == ["It rose.", "It fell. He saw D. W. Smith (1).", "Well!"]
    assert dropped == {"empty": 0, "<unk>": 2}


@pytest.mark.data
@needs_data
def test_clean_text_stays_as_it_is_when_cleaned_again() -> None:
    lines = read_lines(Path(DATA or "") / "wikitext-2" / "wiki.valid.tokens.gz")
    kept, _ = clean_wikitext(lines)
    again, dropped = clean_wikitext(kept)
    assert again == kept
    assert not any(dropped.values())
    assert not any(" @-@ " in line or " , " in line for line in kept)
