"""What toolkits leave to their users: languages, and what cuts texts into pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.errors import ExportError
from export.importing.model import LanguageChoice
from export.importing.vocabularies.pair import (
    Written,
    check_special,
    check_tags,
    find_pieces,
    find_sentencepiece,
    one_pair,
    special_piece_ids,
)
from serving.bundle.languages import Languages

SOURCE = Path("model.pt")
PAIR = Languages(source=("de",), target=("en",))
PIECES = ["<s>", "<unk>", "</s>", "▁Haus"]


def test_a_pair_is_chosen_or_told() -> None:
    told = {"from_code": "deu", "to_code": "en"}
    found = one_pair(SOURCE, LanguageChoice(), told)
    assert (found.source, found.target) == (("de",), ("en",))
    found = one_pair(SOURCE, LanguageChoice(target=("fr",)), told)
    assert (found.source, found.target) == (("de",), ("fr",))


@pytest.mark.parametrize(
    ("choice", "told", "words"),
    [
        (LanguageChoice(), {}, "give one with --from CODE, got none"),
        (LanguageChoice(("de",)), {}, "give one with --to CODE, got none"),
        (LanguageChoice(("de", "nl"), ("en",)), {}, "--from CODE, got de,nl"),
        (LanguageChoice(("de",)), {"to_code": "mul"}, "--to CODE, got none"),
    ],
)
def test_a_pair_that_is_not_given_is_asked_for(
    choice: LanguageChoice, told: dict[str, str], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        one_pair(SOURCE, choice, told)


@pytest.mark.parametrize("tag", [">>fra<<", "__fr__", "__ast__", "fra_Latn", "fr_XX"])
def test_tags_of_several_languages_are_refused(tag: str) -> None:
    for written in (Written([*PIECES, tag], PIECES), Written(PIECES, [*PIECES, tag])):
        with pytest.raises(ExportError, match=r"has tags of languages .* nothing says how"):
            check_tags(SOURCE, written)
    check_tags(SOURCE, Written(PIECES, [*PIECES, "a_b", "__x", "fr-XX", tag + "x"]))


def test_sides_differ_in_any_piece() -> None:
    assert not Written(PIECES, list(PIECES)).differ
    assert Written(PIECES, PIECES[::-1]).differ


def test_special_pieces_have_ids_and_one_on_both_sides() -> None:
    ids = special_piece_ids(SOURCE, PIECES, {"unk": "<unk>", "eos": "</s>"})
    assert ids == {"unk": 1, "eos": 2}
    with pytest.raises(ExportError, match=r"model\.pt: the piece '<pad>' is not in the vocabulary"):
        special_piece_ids(SOURCE, PIECES, {"pad": "<pad>"})
    check_special(SOURCE, Written(PIECES[:3], PIECES), {"</s>": 2})
    for source in (PIECES[:2], PIECES[1:]):
        with pytest.raises(ExportError, match="'</s>' has the id 2 in the target's vocabulary"):
            check_special(SOURCE, Written(source, PIECES), {"</s>": 2})


def test_a_sentencepiece_model_lies_in_one_of_the_folders(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    with pytest.raises(ExportError, match=r"no SentencePiece model there.* source\.spm and target"):
        find_sentencepiece(here, there)
    (here / "spm.model").touch()
    assert find_sentencepiece(here, there) == (here / "spm.model", here / "spm.model")
    for side in ("source", "target"):
        (there / f"{side}.spm").touch()
    assert find_sentencepiece(here, there) == (there / "source.spm", there / "target.spm")


def test_pieces_of_one_vocabulary_are_the_target_s_and_the_silent_are_ids(tmp_path: Path) -> None:
    (tmp_path / "spm.model").touch()
    found = find_pieces(tmp_path, Written(PIECES, list(PIECES)), ["<s>", "</s>"], PAIR)
    assert (found.written, found.control) == (PIECES, {0, 2})
    assert found.source_written is None
    assert found.moses is None


def test_pieces_of_two_vocabularies_are_both_kept(tmp_path: Path) -> None:
    (tmp_path / "spm.model").touch()
    source = ["</s>", "<unk>", "<s>", "▁house", "▁s"]
    found = find_pieces(tmp_path, Written(source, PIECES), ["</s>"], PAIR)
    assert (found.written, found.control) == (PIECES, {2})
    assert (found.source_written, found.source_control) == (source, {0})


def test_pieces_that_were_cut_by_bpe_need_codes_and_no_sentencepiece(tmp_path: Path) -> None:
    written = Written(["<s>", "ha@@", "us"], ["<s>", "ho@@", "use"])
    with pytest.raises(ExportError, match="no codes are there"):
        find_pieces(tmp_path, written, ["<s>"], PAIR)
    (tmp_path / "codes").write_text("#version: 0.2\nu s</w>\n")
    found = find_pieces(tmp_path, written, ["<s>"], PAIR)
    assert found.moses is not None
    assert [b'"de"' in found.moses[0], b'"en"' in found.moses[1]] == [True, True]
