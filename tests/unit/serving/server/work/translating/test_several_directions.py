"""A model of several directions: which pairs it serves, by which tag, and which it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.errors import BundleError, TooLongError, UnknownLanguageError
from serving.search.options import SearchOptions
from serving.server.http.settings import Settings
from serving.text.detection import detect_among
from serving.translation.texts import TextProcessor
from serving.translation.translator import Wishes
from tests.unit.serving.echo import ByteTokenizer, EchoTranslator, served, several

BOTH_WAYS = several("fr-en", "en-fr", "es-en", "en-es")
APART = several("fr-en", "es-de")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with served(EchoTranslator("many", languages=BOTH_WAYS)) as (client, _):
        yield client


def post(client: TestClient, **fields: Any) -> Any:
    return client.post("/translate", json={"q": "Bonjour", "source": "fr", "target": "en"} | fields)


def best(client: TestClient, **fields: Any) -> Any:
    return post(client, **fields).json()["translations"][0]


# Over HTTP


def test_each_target_has_its_tag(client: TestClient) -> None:
    assert post(client).json()["translatedText"] == "[en]Bonjour"
    assert post(client, source="en", target="es").json()["translatedText"] == "[es]Bonjour"
    form = {"text": ["Bonjour"], "source_lang": "EN", "target_lang": "ES"}
    found = client.post("/v2/translate", json=form).json()["translations"]
    assert found[0]["text"] == "[es]Bonjour"
    british = client.post(
        "/v2/translate", json=form | {"source_lang": "FR", "target_lang": "EN-GB"}
    )
    assert british.json()["translations"][0]["text"] == "[en]Bonjour"


@pytest.mark.parametrize("text", ["<2es> Bonjour", "<2es>Bonjour"])
def test_a_tag_in_a_text_is_text(client: TestClient, text: str) -> None:
    answer = post(client, q=text, split_sentences=False).json()["translatedText"]
    assert "[en]" in answer
    assert "[es]" not in answer


def test_a_pair_goes_through_a_third_language_within_the_model(client: TestClient) -> None:
    for fields in ({}, {"model": "many"}):
        found = best(client, target="es", **fields)
        assert found["text"] == "[es][en]Bonjour"
        assert found["warnings"] == ["pivot"]


def test_that_is_preferred_to_a_pair_without_training() -> None:
    translator = EchoTranslator(languages=BOTH_WAYS)
    with served(translator, settings=Settings(zero_shot=True)) as (client, _):
        assert best(client, target="es")["warnings"] == ["pivot"]


def test_a_pair_without_training_is_refused_unless_it_is_allowed() -> None:
    with served(EchoTranslator("apart", languages=APART)) as (client, registry):
        answer = post(client, target="de")
        assert answer.status_code == 400
        assert answer.json()["error"] == (
            "German (de) is not available as a target language from French (fr)"
        )
        assert answer.json()["hint"] == (
            "the model 'apart' was trained on fr to en, es to de; MACARON_ZERO_SHOT=on allows "
            "other pairs anyway"
        )
        assert registry.targets("fr") == ["en"]
    settings = Settings.from_environment({"MACARON_ZERO_SHOT": "on"})
    with served(EchoTranslator("apart", languages=APART), settings=settings) as (client, registry):
        found = best(client, target="de")
        assert found["text"] == "[de]Bonjour"
        assert found["warnings"] == ["zero_shot"]
        assert best(client)["warnings"] == []
        assert registry.targets("fr") == ["de", "en"]
        assert registry.sources("de") == ["es", "fr"]


def test_the_languages_are_those_of_the_trained_pairs(client: TestClient) -> None:
    found = {each["code"]: each for each in client.get("/languages").json()}
    assert {code: each["targets"] for code, each in found.items()} == {
        "en": ["es", "fr"],
        "es": ["en", "fr"],  # the second by way of English
        "fr": ["en", "es"],
    }
    assert {code: each["models"][0]["targets"] for code, each in found.items()} == {
        "en": ["fr", "es"],
        "es": ["en"],
        "fr": ["en"],
    }
    card = client.get("/models").json()["models"][0]
    assert card["pairs"] == [["fr", "en"], ["en", "fr"], ["es", "en"], ["en", "es"]]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Je voudrais savoir où se trouve la gare la plus proche.", "fr"),
        ("Me gustaría saber dónde está la estación más cercana.", "es"),
        ("I would like to know where the nearest station is.", "en"),
    ],
)
def test_a_source_is_detected_among_those_of_the_pairs(
    client: TestClient, text: str, source: str
) -> None:
    found = best(client, q=text, source="auto")
    assert found["source"] == source
    assert found["text"] == (text if source == "en" else f"[en]{text}")


def test_answers_are_kept_for_one_target_alone() -> None:
    translator = EchoTranslator(languages=BOTH_WAYS)
    with served(translator, settings=Settings(answer_cache_bytes=10**6)) as (client, _):
        for target in ("fr", "es", "fr"):
            assert best(client, source="en", target=target)["text"] == f"[{target}]Bonjour"


# In Python


def test_a_translator_must_be_given_what_is_not_clear() -> None:
    translator = EchoTranslator(languages=BOTH_WAYS)
    assert translator.translate("Hola.", source="es")[0].text == "[en]Hola."
    assert translator.translate_sentences("Hi", target="es")[0].text == "[es]Hi"
    for call in (translator.translate, translator.translate_sentences):
        with pytest.raises(
            UnknownLanguageError, match="one of fr to en, en to fr, es to en, en to"
        ):
            call("Hola.")
        with pytest.raises(UnknownLanguageError, match=r"zero_shot=True .* allows it"):
            call("Hola.", source="es", target="fr")
    plain = EchoTranslator()
    assert plain.translate("Hallo.", source="de", target="en")[0].text == "Hallo."
    with pytest.raises(UnknownLanguageError, match="must be one of de to en, got fr to en"):
        plain.translate("Hallo.", source="fr", target="en")


def test_scores_are_those_of_the_target_that_is_named() -> None:
    translator = EchoTranslator(languages=BOTH_WAYS)
    (english, spanish) = (
        translator.score([("abc", "abc")], source=source, target=target)[0].cumulative
        for source, target in (("es", "en"), ("en", "es"))
    )
    assert english == pytest.approx(spanish)  # the echo treats both alike, but the tag counts
    (plain,) = EchoTranslator().score([("abc", "abc")])
    assert english != pytest.approx(plain.cumulative)


def test_texts_of_several_targets_share_a_batch_and_are_as_alone() -> None:
    translator = EchoTranslator(languages=BOTH_WAYS)
    options = SearchOptions(beam_size=3, num_hypotheses=3)
    asked = [("one two", "en", "es"), ("un deux trois", "fr", "en"), ("one two", "en", "fr")]
    read = [translator.read(text, options, source=s, target=t) for text, s, t in asked]
    found = dict(translator.translate_read(read))
    for index, (text, source, target) in enumerate(asked):
        assert found[index] == translator.translate(text, options, source=source, target=target)[0]


def test_word_links_leave_the_tag_out() -> None:
    translator, plain = EchoTranslator(languages=BOTH_WAYS), EchoTranslator()
    (found,) = translator.translate_sentences("ab", target="es", wishes=Wishes(alignments=True))
    assert {link.source for link in found.hypotheses[0].alignment or ()} <= {(0, 2)}
    assert (
        plain.translate_sentences("ab", wishes=Wishes(alignments=True))[0].hypotheses[0].alignment
        is not None
    )


def test_the_tag_counts_as_a_piece() -> None:
    several_, plain = EchoTranslator(languages=BOTH_WAYS), EchoTranslator()
    assert plain.texts.fits("a" * 255)
    assert several_.texts.fits("a" * 254)
    assert not several_.texts.fits("a" * 255)
    with pytest.raises(TooLongError, match="at most 254 pieces for this model, got 255"):
        several_.translate_sentences("a" * 255, target="es")


def test_a_tag_that_texts_could_hold_is_refused() -> None:
    translator = EchoTranslator(languages=BOTH_WAYS)
    tokenizer = ByteTokenizer()
    with pytest.raises(BundleError, match="'<2en>', the tag of en, is not a control piece"):
        TextProcessor(translator.manifest, tokenizer, tokenizer, translator.stepper, 10**9)


FRENCH = "Je voudrais savoir où se trouve la gare la plus proche."
SPANISH = "Me gustaría saber dónde está la estación más cercana."
ENGLISH = "I would like to know where the nearest station is."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [None, "many"])
def test_a_detected_language_may_go_through_a_third(
    client: TestClient, stream: bool, model: str | None
) -> None:
    texts = [ENGLISH, FRENCH, SPANISH, "7", FRENCH.upper()]
    prefixes = ["a", "b", "", "", ""]
    fields = {"q": texts, "source": "auto", "target": "es", "target_prefix": prefixes}
    answer = post(client, **fields, model=model, stream=stream)
    events = [
        (event.split("\n")[0], json.loads(event.split("data: ")[1]))
        for event in answer.text.split("\n\n")
        if stream and event
    ]
    found = (events[-1][1] if stream else answer.json())["translations"]
    assert [each["source"] for each in found] == ["en", "fr", "es", "en", "fr"]
    assert found[0]["text"].startswith("a")
    assert found[1]["text"].startswith("b")
    assert "[ES][EN]" in found[4]["text"]
    assert found[2]["text"] == SPANISH
    assert [each["warnings"] for each in found] == [[], ["pivot"], [], [], ["pivot"]]
    assert all(each["detected"]["confidence"] > 0.9 for each in (*found[:3], found[4]))
    for name, event in events[:-1]:
        assert name == "event: partial"
        assert found[event["index"]]["text"].startswith(event["text"])


def test_a_text_at_fault_is_named_as_the_request_counts_it(client: TestClient) -> None:
    texts = [ENGLISH, FRENCH, f"{FRENCH} {'Gare, ' * 90}"]
    answer = post(client, q=texts, source="auto", target="es", split_sentences=False)
    assert answer.status_code == 413
    assert "q[2]" in answer.json()["error"]


def test_without_such_a_language_nothing_is_detected_twice(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "serving.server.work.translating.planning.detect_among",
        lambda text, *others: asked.append(text) or detect_among(text, *others),
    )
    assert best(client, q=FRENCH, source="auto", target="en")["source"] == "fr"
    assert asked == [FRENCH]


@pytest.mark.parametrize(
    ("text", "source"), [("Bonjour !", "fr"), ("Merci beaucoup", "fr"), ("Good morning!", "en")]
)
def test_few_words_go_through_a_third_language_too(
    client: TestClient, text: str, source: str
) -> None:
    found = best(client, q=text, source="auto", target="es", alignments=True)
    assert found["source"] == source
    assert ("pivot" in found["warnings"]) == (source == "fr")
    assert ("alignment" in found["hypotheses"][0]) == (source == "en")
