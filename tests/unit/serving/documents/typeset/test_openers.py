"""Texts of signs that open and that nothing closes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from serving.documents.typeset.asciidoc import read_asciidoc
from serving.documents.typeset.latex import read_latex
from serving.documents.typeset.restructured import read_rst
from serving.documents.unit import FileInUnits
from serving.errors import TooLongError

_LENGTH = 60_000
OPENERS = [
    *(
        (read_asciidoc, sign)
        for sign in ("a::[", "link:", "footnote:[", "[[", "(((", "*a ", "[a]#b ")
    ),
    *(
        (read_latex, sign)
        for sign in (r"\(", r"\a[", r"\a<1", r"\begin{verbatim}", r"\footnote{", "{", "$$a")
    ),
    (read_latex, r"\schemestart "),
    *((read_rst, sign) for sign in ("`a", "*a ", "``a", "[a]_ ", ":a:`")),
]


@pytest.mark.parametrize(("read", "sign"), OPENERS)
def test_are_read_in_a_time_that_grows_with_their_length(
    read: Callable[[bytes], FileInUnits], sign: str
) -> None:
    begun = time.process_time()
    read((sign * (_LENGTH // len(sign))).encode())
    assert time.process_time() - begun < 10  # a minute and more where it grows with the square


def test_a_paragraph_that_is_too_long_is_refused_before_it_is_looked_at() -> None:
    begun = time.process_time()
    with pytest.raises(TooLongError, match=r"a paragraph must have at most 250000 characters"):
        read_asciidoc(b"*a " * 1_000_000)
    assert time.process_time() - begun < 10
