from __future__ import annotations

import pytest

from serving.documents.tables.columns import named_columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", ()),
        ("text", ("text",)),
        ("text, 3", ("text", "3")),
        ('"a, b",c,', ("a, b", "c")),
        ("long text", ("long text",)),
        ("a\rb", ("a",)),
    ],
)
def test_columns_are_listed_with_commas_between(text: str, columns: tuple[str, ...]) -> None:
    assert named_columns(text) == columns
