"""Texts of several sentences, HTML and `auto` over HTTP, with a model that echoes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator, served, wait_until

GERMAN = "Wir haben gestern den ganzen Tag auf den Zug gewartet."
FRENCH = "Nous avons attendu le train toute la journée d'hier."


def post(client: TestClient, q: object, **fields: Any) -> Any:
    body = {"q": q, "source": "de", "target": "en", "options": {"loop_guard": False}, **fields}
    return client.post("/translate", json=body)


def ask(client: TestClient, q: object, **fields: Any) -> Any:
    response = post(client, q, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_document_comes_back_as_it_is_laid_out() -> None:
    text = "\n Erster Satz.  Zweiter!\r\n\r\n- Dritter\n---\n"
    with served() as (client, _):
        (translation,) = ask(client, text)["translations"]
        alone = [
            ask(client, q)["translations"][0]["hypotheses"][0]
            for q in ("Erster Satz.", "Zweiter!", "- Dritter")
        ]
    assert translation["text"] == text
    (hypothesis,) = translation["hypotheses"]
    assert hypothesis["tokens"] == [token for h in alone for token in h["tokens"]]
    assert hypothesis["token_scores"] == [score for h in alone for score in h["token_scores"]]
    assert hypothesis["cumulative"] == pytest.approx(sum(h["cumulative"] for h in alone))
    assert translation["timing"]["batch_size"] == 3


def test_alternatives_of_a_document() -> None:
    with served() as (client, _):
        answer = ask(client, "abc. Def.", alternatives=2, options={})
        parts = [ask(client, q, alternatives=2, options={}) for q in ("abc.", "Def.")]
    each = [part["translations"][0]["hypotheses"] for part in parts]
    pairs = zip(*each, strict=True)
    assert answer["alternatives"] == [f"{a['text']} {b['text']}" for a, b in pairs][1:]


def test_a_prefix_belongs_to_the_first_sentence() -> None:
    with served() as (client, _):
        answer = ask(client, " Eins. Zwei.", target_prefix="Ach")
    assert answer["translatedText"] == " Achs. Zwei."


def test_a_long_sentence_is_divided_and_nothing_is_cut() -> None:
    text = ", ".join(f"Teil {number}" for number in range(60))
    with served() as (client, _):
        answer = ask(client, text)
        response = post(client, text, split_sentences=False)
        word = post(client, ["kurz", "Ja. " + "x" * 300])
    assert answer["translatedText"] == text
    assert answer["translations"][0]["timing"]["batch_size"] > 1
    assert (response.status_code, response.json()["code"]) == (413, "too_long")
    assert word.json()["translatedText"] == ["kurz", "Ja. " + "x" * 300]
    assert [t["warnings"] for t in word.json()["translations"]] == [[], ["long_word"]]


def test_without_splitting_a_text_is_one_sentence() -> None:
    with served() as (client, _):
        answer = ask(client, "Eins. Zwei.", split_sentences=False)
    assert answer["translations"][0]["timing"]["batch_size"] == 1
    assert answer["translatedText"] == "Eins. Zwei."


def test_html_and_its_limit_of_visible_characters() -> None:
    source = '<p class="lang">Ein <b>Satz</b> &amp; mehr.</p><script>var x = "Ein Satz.";</script>'
    with served(settings=Settings(max_text_chars=30)) as (client, _):
        answer = ask(client, source, format="html")["translatedText"]
        long = post(client, [source, f"<p>{'Wort ' * 7}</p>"], format="html")
        assert post(client, source).status_code == 413
    tag = re.compile("</?b>")
    assert tag.sub("", answer) == tag.sub("", source)
    assert tag.findall(answer) == tag.findall(source)
    assert long.status_code == 413
    assert long.json()["error"].startswith("q[1]: text must have at most 30 characters")


def test_the_tags_of_a_request_are_limited() -> None:
    with served(settings=Settings(max_tags=4)) as (client, _):
        assert ask(client, ["<p>Ein</p>", "<b>Satz</b>"], format="html")
        response = post(client, ["<p>Ein</p>", "<b>Satz<br></b>"], format="html")
        assert ask(client, "5 < 6 < 7 < 8 < 9 < 10")["translatedText"]
    assert (response.status_code, response.json()["code"]) == (413, "too_long")
    assert "at most 4 tags of HTML (MACARON_MAX_TAGS), got 5" in response.json()["error"]


def test_each_text_has_its_own_language_and_model() -> None:
    models = [EchoTranslator("de-en"), EchoTranslator("fr-en", "fr")]
    with served(*models) as (client, _):
        answer = ask(client, [GERMAN, FRENCH, GERMAN], source="auto")
        one = ask(client, GERMAN, source="auto")
        named = ask(client, GERMAN, source="auto", model="fr-en")
    assert answer["translatedText"] == [GERMAN, FRENCH, GERMAN]
    assert [t["model"] for t in answer["translations"]] == ["de-en", "fr-en", "de-en"]
    assert [t["source"] for t in answer["translations"]] == ["de", "fr", "de"]
    assert "model" not in answer
    assert "source" not in answer
    assert (one["model"], one["source"]) == ("de-en", "de")
    assert one["translations"][0]["detected"]["language"] == "de"
    assert one["translations"][0]["detected"]["confidence"] > 0.9
    assert named["translations"][0]["detected"]["language"] == "fr"
    assert named["translations"][0]["detected"]["confidence"] < 0.05


def test_a_text_that_is_in_the_target_already_stays_as_it_is() -> None:
    # A model that would change it: the loop guard finds loops in what is echoed.
    english = "We spent all of yesterday waiting for the train. " + "a" * 99
    with served(EchoTranslator("de-en"), EchoTranslator("fr-en", "fr")) as (client, _):
        answer = ask(client, [english, GERMAN], source="auto", options={})
        html = ask(client, f"<p>{english} &amp; <b>on</b></p>", source="auto", format="html")
        asked = ask(client, english, options={})
    kept, german = answer["translations"]
    assert answer["translatedText"] == [english, GERMAN]
    assert (kept["source"], kept["hypotheses"]) == ("en", [])
    assert kept["detected"]["language"] == "en"
    assert kept["detected"]["confidence"] > 0.5
    assert german["source"] == "de"
    assert html["translatedText"] == f"<p>{english} &amp; <b>on</b></p>"
    assert asked["translatedText"] != english


def test_language_is_detected_in_what_a_reader_sees() -> None:
    with served(EchoTranslator("de-en"), EchoTranslator("fr-en", "fr")) as (client, _):
        html = f'<p class="the class of the paragraph" title="this is English">{FRENCH}</p>'
        answer = ask(client, html, source="auto", format="html")
    assert answer["source"] == "fr"


def test_one_model_that_is_full_leaves_nothing_with_the_other() -> None:
    settings = Settings(max_queue=2, max_texts=2)
    models = [EchoTranslator("de-en"), EchoTranslator("fr-en", "fr")]
    with served(*models, settings=settings) as (client, registry):
        models[1].stepper.gate.clear()
        french = registry.choose("fr", "en").scheduler
        tickets = [french.submit(Request(text="erst"))]
        wait_until(lambda: french.queue_depth == 0)
        tickets += [french.submit(Request(text=text)) for text in ("zwei", "drei")]
        response = post(client, [GERMAN, FRENCH], source="auto")
        models[1].stepper.gate.set()
        assert response.status_code == 503
        for ticket in tickets:
            ticket.result(30)
        assert ask(client, [GERMAN, FRENCH], source="auto")["translatedText"] == [GERMAN, FRENCH]


@pytest.mark.parametrize("format", ["text", "html"])
def test_unreadable_characters_are_named_in_the_whole_text(format: str) -> None:
    with served() as (client, _):
        response = post(client, ["gut", "Eins. Zwei.\0"], format=format)
    assert response.status_code == 400
    assert response.json() == {
        "error": "q[1]: text must be Unicode without NUL or lone surrogates, got U+0000 at "
        "character 11; remove it",
        "code": "invalid_text",
    }
