from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.documents.texts.markup import Inline, Thing, Words, Wrap, line_of
from tests.unit.serving.documents.fakes import rendered
from tests.unit.serving.text.fakes import TRANSLATORS, Translator, backwards, upper


def translated(inlines: Sequence[Inline], translator: Translator = upper) -> list[Inline]:
    line = line_of(inlines)
    return line.translated(rendered(line.unit, translator).text)


def flat(inlines: Sequence[Inline]) -> Iterator[tuple[str, object]]:
    for inline in inlines:
        match inline:
            case Words(text, _):
                yield "words", text
            case Thing(number):
                yield "thing", number
            case Wrap(number, inside):
                yield "wrap", number
                yield from flat(inside)


def test_words_of_one_style_are_plain_text() -> None:
    line = line_of([Words("Ein "), Words("Haus & <Hof>")])
    assert (line.unit.text, line.unit.format) == ("Ein Haus & <Hof>", "text")


def test_a_style_goes_to_the_words_that_translate_its_own() -> None:
    inlines = [Words("das "), Words("rote", 1), Words(" Haus")]
    assert translated(inlines, backwards) == [Words("HAUS "), Words("ROTE", 1), Words(" DAS")]


def test_what_is_at_the_ends_stays_there() -> None:
    inlines = [Thing(0), Words("das Haus"), Thing(1), Words(" ")]
    assert line_of(inlines).unit.text == "das Haus"
    assert translated(inlines) == [Thing(0), Words("DAS HAUS"), Thing(1), Words(" ")]


def test_a_break_divides_and_stays_between() -> None:
    inlines = [Words("ein Haus"), Thing(0, divides=True), Words("zwei\ndrei")]
    assert translated(inlines, backwards) == [
        Words("HAUS EIN"),
        Thing(0),
        Words("ZWEI\nDREI"),
    ]


def test_signs_of_markup_are_words() -> None:
    inlines = [Words("a < b & c &amp; d"), Words(" fett", 1)]
    assert translated(inlines, upper)[0] == Words("A < B & C &AMP; D ")


leaves = st.one_of(
    st.builds(Words, st.text("aeiou sn.,<&1", min_size=1, max_size=12), st.integers(0, 2)),
    st.builds(Thing, st.just(0), st.booleans()),
)
trees = st.lists(
    st.recursive(
        leaves,
        lambda inner: st.builds(Wrap, st.just(0), st.lists(inner, max_size=4).map(tuple)),
        max_leaves=8,
    ),
    max_size=6,
)


def numbered(inlines: Sequence[Inline], counts: Counter[str]) -> list[Inline]:
    """The same with a number of its own for each thing and wrap."""
    found: list[Inline] = []
    for inline in inlines:
        match inline:
            case Words():
                found.append(inline)
            case Thing(_, divides):
                counts["thing"] += 1
                found.append(Thing(counts["thing"], divides))
            case Wrap(_, inside):
                counts["wrap"] += 1
                number = counts["wrap"]
                found.append(Wrap(number, tuple(numbered(inside, counts))))
    return found


@pytest.mark.parametrize("translator", TRANSLATORS)
@given(trees)
def test_each_thing_and_each_wrap_comes_once(translator: Translator, inlines: list[Inline]) -> None:
    inlines = numbered(inlines, Counter())
    if not line_of(inlines).has_words:
        return
    before = Counter(pair for pair in flat(inlines) if pair[0] != "words")
    after = Counter(pair for pair in flat(translated(inlines, translator)) if pair[0] != "words")
    assert after == before
