from __future__ import annotations

import json
from typing import Any

import pytest

from serving.documents.recognition import recognised
from serving.errors import DocumentError
from tests.unit.serving.documents.fakes import translated, written


def notebook() -> dict[str, Any]:
    return {
        "cells": [
            {
                "cell_type": "markdown",
                "metadata": {},
                "source": ["# Größe\n", "\n", "ein `x` Wort"],
            },
            {"cell_type": "code", "outputs": [{"text": "aus"}], "source": ["print('nicht')"]},
            {"cell_type": "markdown", "source": "ein *Haus*"},
            {"cell_type": "markdown", "source": []},
            {"cell_type": "markdown", "source": [1, {"a": "b"}]},
            {"cell_type": "markdown", "source": {"a": "b"}},
            {"cell_type": "markdown"},
        ],
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
    }


@pytest.mark.parametrize("indent", [1, 2])
@pytest.mark.parametrize("ascii", [True, False])
def test_cells_in_markdown_are_translated_and_all_else_stays(indent: int, ascii: bool) -> None:
    expected = notebook()
    expected["cells"][0]["source"] = ["# GRÖSSE\n", "\n", "EIN `x` WORT"]
    expected["cells"][2]["source"] = "EIN *HAUS*"
    before, after = (
        json.dumps(tree, indent=indent, ensure_ascii=ascii) + "\n"
        for tree in (notebook(), expected)
    )
    result = written(before.encode(), "a.ipynb")
    assert result.content.decode() == after
    assert result.warnings == ()


def test_a_layout_of_its_own_is_written_anew_with_a_warning() -> None:
    result = written(json.dumps(notebook()).encode(), "a.ipynb")
    assert json.loads(result.content)["cells"][2]["source"] == "EIN *HAUS*"
    assert "formatted again" in result.warnings[0]


def test_an_empty_file_stays_empty() -> None:
    assert translated(b"", "a.ipynb") == b""


@pytest.mark.parametrize(("content", "match"), [(b"{", "not JSON"), (b"[]", "not a notebook")])
def test_what_is_no_notebook_is_refused(content: bytes, match: str) -> None:
    with pytest.raises(DocumentError, match=match):
        recognised(content, "a.ipynb").read(content)
