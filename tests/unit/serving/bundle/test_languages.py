"""Which language a code means, and which pair of a model's languages."""

from __future__ import annotations

import time

import pytest

from serving.bundle.languages import Languages, match_language
from serving.errors import UnknownLanguageError
from tests.unit.serving.echo import several

KNOWN = ["de", "en", "en-GB", "pt", "zh-Hans", "zh-Hant", "sr"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("en", "en"),
        ("en-GB", "en-GB"),
        ("EN", "en"),
        ("EN-gb", "en-GB"),
        ("en_gb", "en-GB"),
        ("en-US", "en"),
        ("En-us", "en"),
        ("de-AT", "de"),
        ("DE_ch", "de"),
        ("pt-BR", "pt"),
        ("zh-hans", "zh-Hans"),
        ("ZH-HANT-tw", "zh-Hant"),
        ("zh-Hans-CN", "zh-Hans"),
        ("sr-Latn-RS-x-y", "sr"),
        ("zh", None),  # which of the two is not said
        ("zh-TW", None),
        ("eng", None),
        ("e", None),
        ("", None),
        ("-en", None),
        ("fr", None),
        ("auto", None),
    ],
)
def test_a_code_counts_as_written_then_without_case_then_without_its_last_parts(
    asked: str, found: str | None
) -> None:
    assert match_language(asked, KNOWN) == found


def test_a_code_as_it_is_written_counts_before_others() -> None:
    assert match_language("EN", ["en", "EN"]) == "EN"


def test_a_long_code_takes_no_time() -> None:
    begun = time.monotonic()
    assert match_language("x-" * 1_000_000, KNOWN) is None
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("source", "target", "pair"),
    [
        ("FR", "en-GB", ("fr", "en")),
        ("en_US", "ES", ("en", "es")),
        ("es-MX", None, ("es", "en")),
    ],
)
def test_a_model_takes_codes_as_they_are_matched(
    source: str, target: str | None, pair: tuple[str, str]
) -> None:
    assert several("fr-en", "en-es", "es-en").choose(source, target) == pair


def test_an_error_names_the_codes_that_were_asked_for() -> None:
    with pytest.raises(UnknownLanguageError, match="de to en, got EN-GB to fr-CA"):
        Languages(source=("de",), target=("en",)).choose("EN-GB", "fr-CA")
