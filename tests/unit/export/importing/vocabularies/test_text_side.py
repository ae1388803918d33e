"""How an imported model reads and writes text, and which files of it go into a bundle."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from export.errors import ExportError
from export.importing.model import FastTokenizerFile, Pieces
from export.importing.vocabularies.moses import moses_rules
from export.importing.vocabularies.text_side import text_side
from serving.search.ids import SpecialIds
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces

IDS = SpecialIds(pad=1, unk=0, bos=1, eos=2)


@pytest.fixture
def pieces(tmp_path: Path) -> Pieces:
    written = write_pieces(tmp_path / "a.spm")
    return Pieces(written, frozenset({1, 2}), tmp_path / "a.spm", tmp_path / "a.spm")


def test_one_model_for_both_sides_is_one_file(pieces: Pieces) -> None:
    side = text_side(pieces, IDS, len(pieces.written), Path("m"))
    assert side.files.keys() == {"vocabulary.json", "source.model"}
    told = side.tokenizer
    assert (told.kind, told.source_file, told.target_file) == (
        "pieces", "source.model", "source.model",
    )  # fmt: skip
    ids = side.vocabulary.source.encode("das haus")
    assert next(pieces.written[i] for i in ids).startswith("▁")
    assert side.vocabulary.target.decode(ids) == "das haus"


def test_models_and_vocabularies_of_their_own_are_files_of_their_own(
    pieces: Pieces, tmp_path: Path
) -> None:
    other = write_pieces(tmp_path / "b.spm", 26)
    both = dataclasses.replace(
        pieces,
        source_model=tmp_path / "b.spm",
        source_written=other,
        source_control=frozenset({1, 2}),
    )
    side = text_side(both, IDS, len(pieces.written), Path("m"), source_end=False)
    assert side.files.keys() == {
        "vocabulary.json", "source.vocabulary.json", "source.model", "target.model",
    }  # fmt: skip
    assert side.files["source.model"] == (tmp_path / "b.spm").read_bytes()
    assert side.files["target.model"] == (tmp_path / "a.spm").read_bytes()
    told = side.tokenizer
    assert (told.target_file, told.source_vocabulary_file) == (
        "target.model", "source.vocabulary.json",
    )  # fmt: skip
    assert told.source_end is False
    assert [other[i] for i in side.vocabulary.source.encode("das")] == cut(tmp_path / "b.spm")
    assert [pieces.written[i] for i in side.vocabulary.target.encode("das")] == cut(
        tmp_path / "a.spm"
    )


def cut(model: Path) -> list[str]:
    """The pieces of a word by a model itself."""
    processor = SentencePieceProcessor(model_file=str(model))
    return [str(piece) for piece in processor.encode("das", out_type=str)]


def test_codes_of_bpe_are_rules_of_both_sides(pieces: Pieces, tmp_path: Path) -> None:
    path = tmp_path / "codes"
    path.write_text("#version: 0.2\nu s</w>\n")
    written = ["<unk>", "<s>", "</s>", "h@@", "a@@", "us"]
    rules = (moses_rules(path, "de", written), moses_rules(path, "en", written))
    cut = dataclasses.replace(pieces, written=written, moses=rules)
    side = text_side(cut, IDS, len(written), Path("m"))
    assert side.files["source.moses.json"] == rules[0]
    assert side.files["target.moses.json"] == rules[1]
    assert (side.tokenizer.kind, side.tokenizer.source_file) == ("moses", "source.moses.json")
    assert side.vocabulary.source.encode("haus") == [3, 4, 5]


def test_a_file_of_tokenizers_is_both_sides() -> None:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.Fuse()
    content = tokenizer.to_str().encode()
    side = text_side(FastTokenizerFile(content), IDS, 4, Path("m"))
    assert side.files == {"tokenizer.json": content}
    assert (side.tokenizer.kind, side.tokenizer.source_end) == ("tokenizers", True)
    assert side.vocabulary.source is side.vocabulary.target
    assert side.vocabulary.source.encode("a a") == [3, 3]


def test_what_is_no_vocabulary_is_refused(pieces: Pieces, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"m: tokenizer\.json: no usable tokenizer"):
        text_side(FastTokenizerFile(b"{}"), IDS, 4, Path("m"))
    (tmp_path / "a.spm").write_bytes(b"nothing")
    with pytest.raises(ExportError, match=r"a\.spm: no usable SentencePiece model"):
        text_side(pieces, IDS, len(pieces.written), Path("m"))
