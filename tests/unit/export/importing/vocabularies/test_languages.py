"""Codes of languages as others write them, and which languages a model has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.errors import ExportError
from export.importing.model import LanguageChoice
from export.importing.vocabularies.languages import (
    CheckpointLanguage,
    check_known,
    is_tag,
    language_tags,
    marian_languages,
    short_code,
    split_codes,
)

NONE = CheckpointLanguage((), "vocab.json: tells no languages")
GERMAN, ENGLISH = CheckpointLanguage(("de",), ""), CheckpointLanguage(("en",), "")
WORDS = ["</s>", "<unk>", "Haus"]
TAGS = [*WORDS, ">>deu<<", ">>fra<<", ">>pt_br<<"]


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("eng", "en"), ("de", "de"), ("DE", "de"), (" de ", "de"), ("pt_br", "pt-br"),
        ("cmn_Hans", "zh-Hans"), ("roa", None), ("mul", None), ("", None),
    ],
)  # fmt: skip
def test_codes_have_two_letters_where_there_are_two(code: str, short: str | None) -> None:
    assert short_code(code) == short


@given(st.text())
def test_a_short_code_is_its_own_short_code(code: str) -> None:
    short = short_code(code)
    assert short is None or short_code(short) == short_code(short.strip())


@given(st.lists(st.sampled_from(["de", "en", "ast", "pt-BR", "zh-Hans"])))
def test_codes_of_an_option_are_split_and_told_once(codes: list[str]) -> None:
    assert split_codes("--to", " , ".join(codes)) == tuple(dict.fromkeys(codes))


@pytest.mark.parametrize("given", ["Englisch?", "e", "en,de_DE", "english"])
def test_what_is_no_code_is_refused(given: str) -> None:
    with pytest.raises(ExportError, match="--to must be codes of languages such as en,de, got"):
        split_codes("--to", given)
    assert split_codes("--to", None) == ()


def test_tags_are_pieces_between_angles_and_the_first_of_a_language_counts() -> None:
    assert is_tag(">>fra<<")
    assert not is_tag(">>fra")
    assert not is_tag("fra<<")
    pieces = [*TAGS, ">>fr<<", ">>zle<<", ">>min_Arab<<"]
    assert language_tags(pieces) == {
        "de": ">>deu<<",
        "fr": ">>fra<<",
        "pt-br": ">>pt_br<<",
        "zle": ">>zle<<",
        "min-Arab": ">>min_Arab<<",
    }


def test_a_model_of_one_pair_has_what_it_names_or_what_is_chosen() -> None:
    found = marian_languages(LanguageChoice(), WORDS, GERMAN, ENGLISH)
    assert (found.source, found.target, found.tags) == (("de",), ("en",), {})
    chosen = LanguageChoice(("nl", "de"), ("fr",))
    found = marian_languages(chosen, WORDS, GERMAN, ENGLISH)
    assert (found.source, found.target) == (("nl", "de"), ("fr",))


def test_a_model_with_tags_writes_all_of_them_or_the_chosen_ones() -> None:
    found = marian_languages(LanguageChoice(), TAGS, GERMAN, NONE)
    assert found.target == ("de", "fr", "pt-br")
    assert found.pairs == (("de", "fr"), ("de", "pt-br"))
    found = marian_languages(LanguageChoice(target=("fr",)), TAGS, GERMAN, NONE)
    assert (found.target, found.tags) == (("fr",), {"fr": ">>fra<<"})


@pytest.mark.parametrize(
    ("choice", "pieces", "source", "target", "words"),
    [
        (
            LanguageChoice(),
            WORDS,
            NONE,
            NONE,
            "with --from CODE,.*, and which it writes with",
        ),
        (LanguageChoice(), TAGS, NONE, NONE, r"with --from CODE,\.\.\.$"),
        (LanguageChoice(("de",)), WORDS, NONE, NONE, "say which one it writes with --to CODE"),
        (LanguageChoice((), ("fr", "it")), WORDS, GERMAN, ENGLISH, "no tags of several"),
        (LanguageChoice((), ("it",)), TAGS, GERMAN, NONE, "of the model, de,fr,pt-br; got 'it'"),
    ],
)
def test_languages_that_nobody_tells_are_asked_for(
    choice: LanguageChoice,
    pieces: list[str],
    source: CheckpointLanguage,
    target: CheckpointLanguage,
    words: str,
) -> None:
    with pytest.raises(ExportError, match=words):
        marian_languages(choice, pieces, source, target)


def test_chosen_languages_are_of_the_model() -> None:
    check_known("--from", ("de",), {"de": "x"})
    with pytest.raises(ExportError, match="--from must be of the languages of the model, de,en; g"):
        check_known("--from", ("de", "fr"), {"en": "y", "de": "x"})
