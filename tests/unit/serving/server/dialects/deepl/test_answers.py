"""Languages, tags, counted characters and errors in DeepL's shape."""

from __future__ import annotations

import contextlib
import json

import pytest

from serving.errors import QuotaExceededError, UnauthorizedError, UnknownLanguageError
from serving.server.dialects.deepl.answers import (
    CharacterUsage,
    language_code,
    render_error,
    tag_names,
)


@pytest.mark.parametrize(
    ("given", "found"), [("DE", "de"), ("en-GB", "en"), ("pt-br", "pt-BR"), ("PT-PT", "pt")]
)
def test_a_region_counts_only_where_it_is_known(given: str, found: str) -> None:
    assert language_code("target_lang", given, ["de", "en", "pt", "pt-BR"]) == found


def test_an_unknown_language_names_those_that_there_are() -> None:
    with pytest.raises(UnknownLanguageError, match=r"\['DE', 'EN'\], got 'XX'") as caught:
        language_code("source_lang", "XX", ["en", "de"])
    assert caught.value.parameter == "source_lang"


@pytest.mark.parametrize("given", ["a, B", ["a", "b"], ["a,b"]])
def test_tags_are_a_list_or_one_text_with_commas(given: str | list[str]) -> None:
    assert tag_names(given) == {"a", "b"}
    assert tag_names(None) == set()


def test_characters_of_what_fails_are_not_counted() -> None:
    usage = CharacterUsage(10)
    with contextlib.suppress(KeyError), usage.spending("key", 4):
        assert usage.count("key") == 4
        raise KeyError
    assert usage.count("key") == 0


def test_characters_are_counted_up_to_the_limit_for_each_key() -> None:
    usage = CharacterUsage(10)
    with usage.spending("one", 10):
        pass
    with pytest.raises(QuotaExceededError, match="got 10 so far and 1 more"):
        usage.spending("one", 1).__enter__()
    with usage.spending("other", 10):
        pass


def test_a_missing_key_is_forbidden() -> None:
    answer = render_error(UnauthorizedError("no key"))
    assert answer.status_code == 403
    assert json.loads(bytes(answer.body)) == {"message": "no key", "code": "unauthorized"}
