"""SentencePiece models beside a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.errors import ExportError
from export.importing.vocabularies.sentencepieces import pieces_of, read_sentencepiece
from tests.unit.export.importing.vocabularies.small_pieces import write_pieces


def test_pieces_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    written = write_pieces(tmp_path / "a.spm")
    found = pieces_of(read_sentencepiece(tmp_path / "a.spm"))
    assert found == written
    assert found[:3] == ["<unk>", "<s>", "</s>"]


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_what_is_no_model_is_refused_in_a_line(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a.spm"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ExportError, match=r"a\.spm: no usable SentencePiece model: ") as told:
        read_sentencepiece(path)
    assert "\n" not in str(told.value)
