"""Documents, HTML, placeholders and `auto` with the demo bundles, through the whole app."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient


def translate(client: TestClient, q: object, **fields: Any) -> Any:
    body = {"q": q, "source": "de", "target": "en", **fields}
    response = client.post("/translate", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_document_is_its_sentences_laid_out_as_before(demo_client: TestClient) -> None:
    sentences = ["Guten Morgen!", "Wie geht es dir?", "Ich habe keine Zeit."]
    alone = translate(demo_client, sentences)["translatedText"]
    text = "{}  {}\n\n\t- {}\n"
    assert translate(demo_client, text.format(*sentences))["translatedText"] == text.format(*alone)


def test_tags_go_with_their_words(demo_client: TestClient) -> None:
    source = '<p>Ich <b>mag</b> das <a href="/x?a=1&amp;b">rote Haus</a> nicht.</p>'
    answer = translate(demo_client, source, format="html")["translatedText"]
    assert re.search(r'<a href="/x\?a=1&amp;b">(the )?red house</a>', answer)
    assert re.search(r"<b>[^<]*like</b>", answer)
    assert answer.startswith("<p>")
    assert answer.endswith("</p>")


@pytest.mark.parametrize("target", ["en", "de"])
def test_placeholders_occur_once(demo_client: TestClient, target: str) -> None:
    source = "de" if target == "en" else "en"
    text = {
        "de": "Hallo {name}, du hast %d neue Nachrichten. Mehr: https://example.com/a?b=1.",
        "en": "Hello {name}, you have %d new messages. More: https://example.com/a?b=1.",
    }[source]
    answer = translate(demo_client, text, source=source, target=target)["translatedText"]
    for placeholder in ("{name}", "%d", "https://example.com/a?b=1"):
        assert answer.count(placeholder) == 1, answer
    assert answer.endswith(("https://example.com/a?b=1.", "https://example.com/a?b=1"))


def test_a_sentence_that_is_too_long_is_divided(demo_client: TestClient) -> None:
    text = ", ".join(["ich weiß nicht, was er gestern im Garten gemacht hat"] * 30) + "."
    body = {"q": text, "source": "de", "target": "en"}
    (translation,) = translate(demo_client, text)["translations"]
    refused = demo_client.post("/translate", json={**body, "split_sentences": False})
    assert (refused.status_code, refused.json()["code"]) == (413, "too_long")
    assert translation["timing"]["batch_size"] > 1
    assert "what he did yesterday" in translation["text"]


def test_each_text_in_its_own_language(demo_client: TestClient) -> None:
    answer = translate(demo_client, ["Ich habe keine Zeit.", "Wir sind müde."], source="auto")
    assert [t["detected"]["language"] for t in answer["translations"]] == ["de", "de"]
    assert min(t["detected"]["confidence"] for t in answer["translations"]) > 0.5
    assert answer["translatedText"][0] == "I don't have time."
