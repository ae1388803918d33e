"""Terms of a request, and where their sources count as contained."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from serving.errors import InvalidOptionError
from serving.search.options import SearchOptions
from serving.text.terms import Terms
from serving.translation.translator import Wishes
from tests.unit.serving.echo import EchoTranslator


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"required": "abc"}, "required must be a sequence of terms, got one text"),
        ({"forbidden": "abc"}, "forbidden must be a sequence of terms, got one text"),
        ({"glossary": {"ab": "cd"}}, "glossary must be a sequence of pairs .* got dict"),
    ],
)
def test_one_text_is_not_taken_for_several_terms(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        Terms(**given)


def test_a_term_is_found_however_its_accents_and_apostrophes_are_spelt() -> None:
    terms = Terms(glossary=(("l'été", "QQ"),))
    for text in ("l\u2019été", unicodedata.normalize("NFD", "l'été")):
        (result,) = EchoTranslator().translate_sentences(
            text, SearchOptions(beam_size=4), wishes=Wishes(terms=terms)
        )
        assert "QQ" in result.text
