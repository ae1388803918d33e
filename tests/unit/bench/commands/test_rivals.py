"""Which environment a rival is looked for in."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.commands.rivals import pythons_of
from bench.errors import BenchError

PRODUCTS = ("one", "two", "three")


def test_environments_are_named_by_product() -> None:
    assert pythons_of([], PRODUCTS) == {}
    found = pythons_of(["one,two=/a/python", "three=b/python"], PRODUCTS)
    assert found == {"one": Path("/a/python"), "two": Path("/a/python"), "three": Path("b/python")}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["four=/a"], "must name one of one, two, three, got 'four'"),
        (["one"], "must be NAME=PATH, got 'one'"),
        (["one=/a", "one,two=/b"], "must name one once, got it twice"),
    ],
)
def test_other_forms_are_said(texts: list[str], message: str) -> None:
    with pytest.raises(BenchError, match=message):
        pythons_of(texts, PRODUCTS)


def test_a_file_that_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bundle", "b", "--texts", "t", "--gguf", str(tmp_path / "none.gguf")]
    assert main(["language-rivals", *words]) == 1
    assert "--gguf must name a file of GGUF" in capsys.readouterr().err


def test_two_files_of_texts_have_names_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bundle", "b", "--source", "s"]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("text")
        words += ["--texts", str(tmp_path / folder / "x.txt")]
    assert main(["encoder-rivals", *words]) == 1
    assert "files of --texts must have names of their own, got x, x" in capsys.readouterr().err
