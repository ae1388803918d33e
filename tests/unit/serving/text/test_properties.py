"""What holds of every text, whatever the model says."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import RequestError
from serving.text.alignment import Link, word_spans
from serving.text.document import Format
from serving.text.kept.placeholders import placeholders
from serving.text.placing.placement import Translated
from tests.unit.serving.text.fakes import backwards, read, same, translated

FORMATS: tuple[Format, ...] = ("text", "html", "markdown")
PARTS = st.one_of(
    st.sampled_from(
        ["Wort", "zwei ", "Ende. ", "Neu ", "{name}", "%d", "%%", "&amp;", "⚠", " 👍🏽 ", "→",
         "\u00ad", "\u200b", "\u2068", "\u2069", "\u202a", "\u202c", "<b>", "</b>", "<br>", "<x/>",
         "#",
         "{n, plural, one {# Hund} other {# Hunde}}", "{", " }", "@name", "\t", " ", "H₂O", "²",
         "*",
         "_", "`", "**", "[hier](x.y)", "| ", "- ", "1. ", "> ", "BITTE NICHT", "ß", "\ufeff",
         "\\", "\n",
         "<sup>1</sup>", "<!-- c -->", "~~", "[1]", "x_y", "!", "Tom ", "\r\n", "http://x.y/z",
         "#<i>Wort</i>", "<code>", "</code>", "\xa0", "   ", "\\n"]
    ),
    st.text(max_size=4),
)  # fmt: skip
TEXTS = st.lists(PARTS, max_size=12).map("".join)
KEPT = (
    "{name}",
    "%1$s",
    "${x}",
    "<0/>",
    "https://x.org/a",
    "@max",
    "⚠",
    "👩‍👩‍👧‍👦",
    "{0,number}",
    "°",
)
WORDS = ("Hund ", "das Haus ", "geht. ", "Neu: ", "ja, ", "BITTE NICHT ")
UNSEEN = "\u00ad\u200b\u200c\u200d\u2060\u200e\u200f\ufeff"


def rubbish(chance: random.Random, sentence: str) -> Translated:
    target = " ".join(chance.choices(["a", "Tom", "Boston", "Paris", ",", sentence], k=3))
    sources, targets = word_spans(sentence), word_spans(target)
    links = [
        Link(chance.choice(sources), chance.choice(targets), chance.random())
        for _ in range(chance.randrange(4))
    ]
    return Translated(target, links)


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None)
@given(TEXTS)
def test_sentences_that_stay_make_the_text_to_the_letter(format: Format, source: str) -> None:
    assert translated(source, same, format) == source


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("L", "Cs"), exclude_characters="\0"), max_size=30))
def test_without_letters_nothing_is_asked_or_changed(source: str) -> None:
    for format in FORMATS:
        document = read(source, format)
        assert document.sentences == []
        assert document.untranslated == source


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS, *(f"{kept} " for kept in KEPT)]), max_size=12).map("".join),
    st.randoms(use_true_random=False),
)
def test_placeholders_come_out_as_often_as_they_went_in(source: str, chance: random.Random) -> None:
    result = translated(source, lambda sentence: rubbish(chance, sentence))
    for kept in KEPT:
        assert result.count(kept) == source.count(kept)


@settings(deadline=None)
@given(st.lists(st.sampled_from([*WORDS, *UNSEEN, *UNSEEN]), max_size=20).map("".join))
def test_what_nobody_sees_changes_no_word_that_a_model_reads(source: str) -> None:
    plain = re.sub(f"[{UNSEEN}]", "", source)
    for format in FORMATS:
        assert read(source, format).sentences == read(plain, format).sentences


VARIABLES = ("{n}", "%@", "%s", "%1$s", "%d", "{0}", "${x}", "%{x}", "#{x}", "%1", "{{x}}", "$t(x)")
AROUND = (
    "<b>",
    "</b>",
    "<0>",
    "</0>",
    "[b]",
    "[/b]",
    "[url=x]",
    "[/url]",
    "&lt;i&gt;",
    "&lt;/i&gt;",
)
SIGNS = ("%", "%%", "$", "€", "@", "#", "_", "-", "/", ".", ", ", "(", ")", "'", "*", "`", "\n")
STRETCHES = ("%@hier%@", "{0}zwei Hunde{1}", "%1$shier%2$s", "[b]hier[/b]", "hier", "Hunde", " ")
MIXED = st.lists(
    st.one_of(*map(st.sampled_from, (VARIABLES, AROUND, SIGNS, STRETCHES))), max_size=10
).map("".join)


@pytest.mark.parametrize("format", [*FORMATS, "xml"])
@settings(deadline=None, max_examples=200)
@given(MIXED)
def test_placeholders_and_signs_in_any_order_are_read(format: Format, source: str) -> None:
    try:
        read(source, format)
    except RequestError:
        return  # XML that is not well-formed
    assert translated(source, same, format) == source
    translated(source, backwards, format)


@settings(deadline=None, max_examples=500)
@given(MIXED)
def test_what_stands_around_words_comes_in_pairs_within_each_other(source: str) -> None:
    depth = done = 0
    for placeholder in placeholders(source):
        assert placeholder.span[0] >= done
        done = placeholder.span[1]
        depth += {"open": 1, "close": -1}.get(placeholder.kind, 0)
        assert depth >= 0
    assert depth == 0


PAIRS = st.recursive(
    st.sampled_from(WORDS),
    lambda inner: st.builds(
        lambda pair, parts: pair[0] + "".join(parts) + pair[1],
        st.sampled_from(["\u2068\u2069", "\u202b\u202c"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(PAIRS, max_size=4).map("".join), st.randoms(use_true_random=False))
def test_pairs_of_directions_stay_nested(source: str, chance: random.Random) -> None:
    result = translated(source, lambda sentence: rubbish(chance, sentence))
    stack: list[str] = []
    for sign in re.sub("[^\u2068\u2069\u202b\u202c]", "", result):
        if sign in "\u2068\u202b":
            stack.append(sign)
        else:
            assert stack.pop() + sign in ("\u2068\u2069", "\u202b\u202c")
    assert not stack


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "part",
    ["{", "%", "<a ", "{a, plural, one {", "a", "a_", "a@", "&a", "a.", "*a ", "[", "`a", "<kbd>",
     "\u2068a", "|a", ":a", "/a", "1.", "%(a", "\\", "\u200d", "<b>@</b>", "👍 "],
)  # fmt: skip
def test_what_nests_or_repeats_without_end_is_read(part: str, format: Format) -> None:
    source = part * (6000 // len(part)) + "\u2069" * 1000
    assert translated(source, same, format) == source
