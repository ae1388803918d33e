"""Texts in, translations out, over a fake model that says back what it was told."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import (
    DecodingError,
    InvalidOptionError,
    InvalidTextError,
    RequestError,
    TooLongError,
)
from serving.queue.limits import BatchLimits
from serving.search.options import SearchOptions
from serving.text.alignment import Link
from serving.text.characters import check_text
from serving.text.document import Document
from serving.text.glossary import TermIndex
from serving.text.memory.segments import MemoryUse
from serving.text.placing.placement import Translated
from serving.text.terms import Terms
from serving.translation.results import Translation
from serving.translation.texts import ends_in_loop
from serving.translation.translator import Wishes
from tests.unit.serving.echo import POISON, EchoTranslator

property_test = settings(max_examples=200, deadline=None, derandomize=True)
GREEDY = SearchOptions(beam_size=1, loop_guard=False)


@pytest.fixture
def translator() -> EchoTranslator:
    return EchoTranslator()


def test_results_keep_the_order_of_the_texts_and_blank_ones_stay_blank(
    translator: EchoTranslator,
) -> None:
    texts = ["a long text", "b", "", "c d", " \t\n", "b", "the longest text of all", "e"] * 9
    done: list[int] = []
    results = translator.translate_sentences(texts, GREEDY, progress=done.append)
    assert [result.text for result in results] == [text.strip() for text in texts]
    assert results[2] == Translation("")
    assert sum(done) == len(texts)
    assert len(translator.stepper.states) < 9
    assert all(state.freed for state in translator.stepper.states)


def test_one_text_and_none(translator: EchoTranslator) -> None:
    (result,) = translator.translate_sentences("abc")
    assert result.text == "abc"
    assert result.warnings == ()
    assert translator.translate_sentences([]) == []
    assert translator.score([]) == []


def test_every_batch_gives_equal_scores(translator: EchoTranslator) -> None:
    texts = ["abc", "defgh", "i", "jklmnopq"]
    options = SearchOptions(beam_size=4, num_hypotheses=4)
    together = translator.translate_sentences(texts, options)
    assert together == [translator.translate_sentences(text, options)[0] for text in texts]
    assert together[::-1] == translator.translate_sentences(texts[::-1], options)


def test_target_prefix_is_one_for_all_or_one_a_text(translator: EchoTranslator) -> None:
    options = SearchOptions(beam_size=2, loop_guard=False)
    results = translator.translate_sentences(
        ["abcd", "efgh"], options, wishes=Wishes(target_prefix=["xy", ""])
    )
    assert [result.text for result in results] == ["xycd", "efgh"]
    results = translator.translate_sentences(
        ["abcd", "efgh"], options, wishes=Wishes(target_prefix="z")
    )
    assert [result.text for result in results] == ["zbcd", "zfgh"]
    with pytest.raises(InvalidOptionError, match="one for each of the 2 texts, got 1"):
        translator.translate_sentences(
            ["abcd", "efgh"], options, wishes=Wishes(target_prefix=["x"])
        )


def test_scores_of_given_texts_equal_those_of_decoding(translator: EchoTranslator) -> None:
    options = SearchOptions(beam_size=4, num_hypotheses=3, loop_guard=False)
    texts = ["abc", "a longer one", "de"]
    pairs, wanted = [], []
    for text, result in zip(texts, translator.translate_sentences(texts, options), strict=True):
        for hypothesis in result.hypotheses:
            if hypothesis.finished and len(hypothesis.text) == len(hypothesis.tokens):
                pairs.append((text, hypothesis.text))
                wanted.append(hypothesis)
    assert len(pairs) >= 3
    for score, hypothesis in zip(translator.score(pairs), wanted, strict=True):
        assert score.tokens == hypothesis.tokens
        assert score.token_scores == pytest.approx(hypothesis.token_scores, abs=1e-4)
        assert score.cumulative == pytest.approx(hypothesis.cumulative, abs=1e-4)


def test_scoring_is_batched_within_the_token_limit(translator: EchoTranslator) -> None:
    scores = translator.score([("ab", "c" * 250), ("de", "f")] * 10)
    assert [len(score.token_scores) for score in scores] == [251, 2] * 10
    assert [len(state.sources) for state in translator.stepper.states] == [10, 8, 2]


def test_scores_of_blank_texts(translator: EchoTranslator) -> None:
    nothing, something = translator.score([("", ""), ("abc", "")])
    assert len(nothing.token_scores) == len(something.token_scores) == 1
    assert nothing.cumulative > -0.1 > something.cumulative


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\0b", "got U+0000 at character 1"),
        ("\ud800", "got U+D800 at character 0"),
        ("ab\udfffc\0", "got U+DFFF at character 2"),
    ],
)
def test_unreadable_text_is_refused_wherever_it_stands(
    translator: EchoTranslator, text: str, message: str
) -> None:
    for call in (
        lambda: translator.translate_sentences(["fine", text]),
        lambda: translator.translate_sentences("fine", wishes=Wishes(target_prefix=text)),
        lambda: translator.score([(text, "fine")]),
        lambda: translator.score([("fine", text)]),
    ):
        with pytest.raises(InvalidTextError, match=re.escape(message)):
            call()
    assert translator.stepper.states == []


@pytest.mark.parametrize("given", [["a", "b"], 3, None, b""])
def test_what_is_no_text_is_refused(translator: EchoTranslator, given: object) -> None:
    for call in (
        lambda: translator.translate_sentences(["fine", given]),  # type: ignore[list-item]
        lambda: translator.score([(given, "fine")]),  # type: ignore[list-item]
        lambda: translator.score([("fine", given)]),  # type: ignore[list-item]
    ):
        with pytest.raises(InvalidTextError, match="text must be a string, got "):
            call()
    assert translator.stepper.states == []


@pytest.mark.parametrize("given", [None, 3, b"abc"])
def test_what_is_neither_a_text_nor_several_is_named(
    translator: EchoTranslator, given: object
) -> None:
    with pytest.raises(InvalidTextError, match=r"texts must be .*, got (None|int|bytes)"):
        translator.translate(given)  # type: ignore[arg-type]


def test_texts_may_come_one_after_the_other(translator: EchoTranslator) -> None:
    found = translator.translate_sentences(text for text in ("ab", "cd"))  # type: ignore[arg-type]
    assert [each.text for each in found] == ["ab", "cd"]
    pairs = (pair for pair in [("ab", "cd"), ("ef", "gh")])
    assert len(translator.score(pairs)) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("pair", ["ab", ("a",), ("a", "b", "c"), None])
def test_what_is_no_pair_has_no_score(translator: EchoTranslator, pair: object) -> None:
    with pytest.raises(RequestError, match="pairs must be of a source and its translation"):
        translator.score([pair])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"options": {"beam_size": 4}}, "options must be SearchOptions, got dict"),
        ({"wishes": {"target_prefix": "a"}}, "wishes must be Wishes, got dict"),
        ({"wishes": Wishes(target_prefix=["a"])}, "one for each of the 2 texts, got 1"),
        ({"wishes": Wishes(target_prefix=["a", None])}, "a string, got NoneType"),  # type: ignore[list-item]
        ({"wishes": Wishes(target_prefix=3)}, "target_prefix must be a text"),  # type: ignore[arg-type]
    ],
)
def test_options_of_another_kind_are_named(
    translator: EchoTranslator, asked: dict[str, Any], message: str
) -> None:
    for call in (translator.translate, translator.translate_sentences):
        with pytest.raises(RequestError, match=message):
            call(["ab", "cd"], **asked)


def test_one_glossary_is_no_list_of_them() -> None:
    with pytest.raises(InvalidOptionError, match="put it into a list"):
        Wishes(glossary=TermIndex([("Haus", "home")], "de", "en"))  # type: ignore[arg-type]


@property_test
@given(st.text())
def test_other_text_passes(text: str) -> None:
    if "\0" not in text:
        check_text(text)


def test_a_text_over_the_limit_is_refused_not_cut(translator: EchoTranslator) -> None:
    limit = translator.manifest.sizes.max_source
    for call, message in (
        (
            lambda: translator.translate_sentences("a" * limit),
            f"at most {limit - 1} pieces .* got {limit}",
        ),
        (
            lambda: translator.translate_sentences(
                "a", wishes=Wishes(target_prefix="b" * (limit + 1))
            ),
            "target_prefix must",
        ),
        (lambda: translator.score([("a", "b" * (limit + 1))]), "target must .* got 257"),
        (lambda: translator.score([("a" * limit, "b")]), "split it into sentences"),
    ):
        with pytest.raises(TooLongError, match=message):
            call()
    text = "".join(chr(97 + i * 7 % 26) for i in range(limit - 1))
    options = SearchOptions(beam_size=1, max_length=400, loop_guard=False)
    assert translator.translate_sentences(text, options)[0].text == text


def test_a_sentence_longer_than_usual_is_divided_unless_it_has_to_be_one(
    translator: EchoTranslator,
) -> None:
    manifest = translator.texts.manifest
    sizes = manifest.sizes.model_copy(update={"usual_source": 20})
    translator.texts.manifest = manifest.model_copy(update={"sizes": sizes})
    text, usual = "Er ging weg, weil es spät war.", "Er ging sehr früh."
    one = SearchOptions(beam_size=2, num_hypotheses=2, return_alternatives=True)

    def sentences(text: str, options: SearchOptions | None = None, **wishes: Any) -> list[str]:
        options = options or translator.default_options
        return translator.read(text, options, wishes=Wishes(**wishes)).document.sentences

    assert sentences(text) == ["Er ging weg,", "weil es spät war."]
    assert sentences(usual) == [usual]
    assert translator.translate(text)[0].text == text
    assert sentences(text, one) == [text]
    assert sentences(text, terms=Terms(required=("weg",))) == [text]
    memory = MemoryUse(lambda sentences, _: [None] * len(sentences))
    assert sentences(text, memory=memory) == [text]


@pytest.mark.parametrize(
    ("target", "clause", "translation", "wanted"),
    [
        ("en", "der war alt.", "This was old.", "this was old."),
        ("en", "ich bin alt.", "I am old.", "I am old."),
        ("en", "peter ist alt.", "Peter is old.", "Peter is old."),
        ("en", "Häuser sind alt.", "The houses are old.", "The houses are old."),
        ("de", "which was old.", "Das war alt.", "das war alt."),
        ("de", "you are old.", "Sie sind alt.", "Sie sind alt."),
        ("en", "danke dafür.", "Thank you for it.", "thank you for it."),
        ("de", "I am old.", "Ich bin alt.", "ich bin alt."),
        ("de", "Ines is old.", "Die Ines ist alt.", "Die Ines ist alt."),
    ],
)
def test_a_clause_goes_on_with_a_small_letter(
    target: str, clause: str, translation: str, wanted: str
) -> None:
    begin = "Wir sahen ein Bild," if target == "en" else "We saw a picture,"
    document = Document(f"{begin} {clause}", "text")
    source = "de" if target == "en" else "en"
    document.divide(source, lambda _: True, target=target, usual=lambda text: len(text) < 25)
    assert document.sentences == [begin, clause]
    assert document.render([Translated(begin), Translated(translation)]).text == f"{begin} {wanted}"
    ended = document.written(1, Translated(translation), ended=True)
    for length in range(len(translation)):
        partial = Translated(translation[:length])
        assert ended.startswith(document.written(1, partial, ended=False))
    assert ended == wanted


def test_a_clause_that_goes_on_keeps_its_words_in_capitals() -> None:
    document = Document("We saw a picture, which was NEVER old.", "text")
    document.divide(
        "en",
        lambda _: True,
        target="de",
        usual=lambda text: len(text) < 25,
        score={"never": -5.0}.get,
    )
    first, clause = document.sentences
    assert clause == "which was never old."
    links = [Link((10, 15), (8, 11), 1.0)]
    written = document.render([Translated(first), Translated("Das war nie alt.", links)])
    assert written.text == "We saw a picture, das war NIE alt."


def test_max_length_is_a_warning(translator: EchoTranslator) -> None:
    (result,) = translator.translate_sentences("abcdef", SearchOptions(beam_size=3, max_length=3))
    assert result.text == "abc"
    assert result.warnings == ("max_length",)
    assert not result.hypotheses[0].finished


def test_a_loop_is_decoded_again_without_repeated_trigrams(translator: EchoTranslator) -> None:
    texts = ["abcdef", "ab" * 8, "xyz"]
    results = translator.translate_sentences(texts, SearchOptions(beam_size=2))
    assert [result.text for result in results][::2] == texts[::2]
    looped = results[1]
    assert looped.warnings[0] == "repetition"
    tokens = looped.hypotheses[0].tokens
    trigrams = [tokens[i : i + 3] for i in range(len(tokens) - 2)]
    assert len(trigrams) == len(set(trigrams))
    assert translator.translate_sentences(texts[1], GREEDY)[0].text == texts[1]
    allowed = SearchOptions(beam_size=2, no_repeat_ngram_size=20)
    assert translator.translate_sentences(texts[1], allowed)[0].warnings == ()


def test_a_non_finite_score_is_an_error_of_its_own(translator: EchoTranslator) -> None:
    with pytest.raises(DecodingError, match="non-finite"):
        translator.translate_sentences(["abc", POISON])
    with pytest.raises(DecodingError, match="non-finite"):
        translator.score([("abc", "abc"), (POISON, "abc")])


def test_threads_may_share_a_translator(translator: EchoTranslator) -> None:
    results: dict[str, str] = {}

    def translate(text: str) -> None:
        results[text] = translator.translate_sentences(text, GREEDY)[0].text

    threads = [threading.Thread(target=translate, args=(text,)) for text in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {text: text for text in "abcdefgh"}


@property_test
@given(st.lists(st.sampled_from([1, 2]), max_size=40), st.integers(1, 10), st.integers(2, 6))
def test_loops_are_found_as_a_pattern_finds_them(head: list[int], length: int, times: int) -> None:
    tokens = head + head[-length:] * times
    text = "".join(map(str, tokens))
    wanted = any(re.search(rf"(.{{{n}}})\1\1\1$", text) for n in range(1, 9))
    assert ends_in_loop(tokens) == wanted


def test_a_text_that_could_outgrow_the_cache_is_refused_before_any_work() -> None:
    # FakeStepper counts source ids x slots: 9 x (4 beams x (28 + 8) steps) = 1,296.
    translator = EchoTranslator(limits=BatchLimits(max_cache_bytes=1_300))
    assert translator.translate_sentences("abcdefgh")[0].text == "abcdefgh"
    calls = translator.stepper.calls
    with pytest.raises(TooLongError, match=r"source of 10 ids, beam_size 4, up to 152 slots"):
        translator.translate_sentences(["a", "abcdefghi"])
    with pytest.raises(TooLongError, match=r"source of 9 ids, beam_size 4, up to 152"):
        translator.translate_sentences("abcdefgh", wishes=Wishes(target_prefix="abcdefgh"))
    with pytest.raises(TooLongError, match="max_cache_bytes"):
        translator.score([("abc", "x" * 90)])
    assert translator.stepper.calls == calls
    greedy = SearchOptions(beam_size=1, max_length=20)
    assert translator.translate_sentences("abcdefghi" * 2, greedy)[0].text == "abcdefghi" * 2
