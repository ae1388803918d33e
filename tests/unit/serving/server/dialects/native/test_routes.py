"""Translating over HTTP: the app, the scheduler and the search, with a model that echoes."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.server.http.settings import Settings
from tests.unit.serving.echo import POISON, EchoTranslator, served, wait_until


def ask(client: TestClient, q: object, **fields: Any) -> Any:
    response = client.post("/translate", json={"q": q, "source": "de", "target": "en", **fields})
    assert response.status_code == 200, response.text
    return response.json()


def refused(client: TestClient, status: int, **fields: Any) -> dict[str, str]:
    body = {"q": "Hallo", "source": "de", "target": "en", **fields}
    response = client.post("/translate", json=body)
    assert response.status_code == status, response.text
    answer: dict[str, str] = response.json()
    assert set(answer) - {"hint"} == {"error", "code"}
    return answer


def test_one_text() -> None:
    with served() as (client, _):
        answer = ask(client, "Hallo")
    assert answer["translatedText"] == "Hallo"
    assert (answer["model"], answer["source"], answer["target"]) == ("echo-de-en", "de", "en")
    assert "alternatives" not in answer
    (translation,) = answer["translations"]
    assert translation["text"] == "Hallo"
    assert (translation["model"], translation["source"]) == ("echo-de-en", "de")
    assert "detected" not in translation
    assert translation["warnings"] == []
    assert translation["timing"]["batch_size"] == 1
    assert translation["timing"]["decode_ms"] > 0
    (hypothesis,) = translation["hypotheses"]
    assert hypothesis["finished"] is True
    assert len(hypothesis["tokens"]) + 1 == len(hypothesis["token_scores"]) == 6
    assert hypothesis["cumulative"] == pytest.approx(sum(hypothesis["token_scores"]), abs=1e-4)
    assert hypothesis["score"] == pytest.approx(hypothesis["cumulative"] / 6)


def test_texts_of_a_list_are_decoded_together_and_stay_in_order() -> None:
    texts = ["kurz", "", "ein viel längerer Text", "  \n", "Ende"]
    with served() as (client, _):
        answer = ask(client, texts)
    assert answer["translatedText"] == texts
    sizes = [translation["timing"]["batch_size"] for translation in answer["translations"]]
    assert sizes == [3, 0, 3, 0, 3]
    assert answer["translations"][1]["hypotheses"] == []


def test_n_best_with_scores() -> None:
    with served() as (client, _):
        answer = ask(client, "abc", options={"num_hypotheses": 3, "beam_size": 6})
    hypotheses = answer["translations"][0]["hypotheses"]
    assert hypotheses[0]["text"] == "abc"
    assert len({h["text"] for h in hypotheses}) == 3
    scores = [h["score"] for h in hypotheses]
    assert scores == sorted(scores, reverse=True)


def test_alternatives_widen_the_beam_and_are_texts() -> None:
    with served() as (client, _):
        one = ask(client, "abc", alternatives=6)
        many = ask(client, ["abc", ""], alternatives=1)
    assert len(one["translations"][0]["hypotheses"]) == 7
    assert all(isinstance(text, str) and text != "abc" for text in one["alternatives"])
    assert len(many["alternatives"][0]) == 1
    assert many["alternatives"][1] == []


def test_options_are_merged_over_the_bundles_own() -> None:
    with served(EchoTranslator(search={"beam_size": 2, "num_hypotheses": 2})) as (client, _):
        assert len(ask(client, "abc")["translations"][0]["hypotheses"]) == 2
        (translation,) = ask(client, "abc", options={"max_length": 1})["translations"]
    assert len(translation["hypotheses"]) == 2
    assert translation["warnings"] == ["max_length"]


def test_target_prefix_for_all_or_for_each() -> None:
    with served() as (client, _):
        assert ask(client, "Hallo", target_prefix="Ha")["translatedText"] == "Hallo"
        answer = ask(client, ["abcd", "abcd"], target_prefix=["x", ""])
    assert answer["translatedText"] == ["xbcd", "abcd"]


def test_unknown_fields_pass_and_unknown_options_do_not() -> None:
    with served() as (client, _):
        assert ask(client, "Hallo", api_key="", format="text")["translatedText"] == "Hallo"
        error = refused(client, 400, options={"beam_sise": 3})
    assert error == {
        "error": "unknown option 'beam_sise'; did you mean 'beam_size'?",
        "code": "invalid_option",
    }


@pytest.mark.parametrize(
    ("fields", "status", "code", "message"),
    [
        ({"q": "x" * 20001}, 413, "too_long", "at most 20000 characters .MACARON_MAX_TEXT_CHARS."),
        ({"q": ["a", "x" * 20001]}, 413, "too_long", r"q\[1\]: text must have at most 20000"),
        (
            {"q": "ja " * 90, "split_sentences": False},
            413,
            "too_long",
            "at most 255 pieces for this model, got 269",
        ),
        (
            {"q": ["a", "b", "ja " * 90], "split_sentences": False},
            413,
            "too_long",
            r"q\[2\]: text must have at most 255",
        ),
        ({"q": ["a"] * 129}, 413, "too_long", "at most 128 texts .MACARON_MAX_TEXTS., got 129"),
        ({"q": "a\0b"}, 400, "invalid_text", r"U\+0000 at character 1"),
        ({"q": "a", "target_prefix": "\0"}, 400, "invalid_text", r"U\+0000 at character 0"),
        ({"q": []}, 400, "invalid_request", "q must have at least one item, got an empty list"),
        ({"q": 5}, 400, "invalid_request", "q must be a valid string or a valid list, got 5"),
        ({"q": None}, 400, "invalid_request", "q must be .*got null"),
        ({"q": ["a", 7]}, 400, "invalid_request", r"q\[1\] must be a valid string, got 7"),
        ({"q": {"a": 1}}, 400, "invalid_request", "q must be .*got an object"),
        ({"source": 1}, 400, "invalid_request", "source must be a valid string, got 1"),
        ({"source": "xx"}, 400, "unknown_language", "xx is not supported"),
        ({"target": "xx"}, 400, "unknown_language", "xx is not supported"),
        ({"target": "\0" * 3000}, 400, "unknown_language", "\0\0 \\.\\.\\."),
        ({"model": "echo-de"}, 404, "unknown_model", "did you mean 'echo-de-en'?"),
        (
            {"format": "yaml"},
            400,
            "invalid_request",
            "format must be 'text', 'html', 'markdown' or 'xml', got 'yaml'",
        ),
        ({"q": "<a>", "format": "xml"}, 400, "invalid_text", "line 1, column 6"),
        ({"alternatives": -1}, 400, "invalid_request", "alternatives must be .* equal to 0"),
        ({"alternatives": 10000}, 400, "invalid_option", "alternatives must be at most 15"),
        ({"alternatives": 1.5}, 400, "invalid_request", "alternatives must be a valid integer"),
        ({"alternatives": True}, 400, "invalid_request", "alternatives must be a valid integer"),
        ({"timeout_s": 0}, 400, "invalid_request", "timeout_s must be greater than 0"),
        ({"timeout_s": 1000}, 400, "invalid_request", "at most 120 .MACARON_MAX_TIMEOUT_S., got"),
        ({"target_prefix": ["a"]}, 400, "invalid_request", "a string if q is one"),
        ({"q": ["a", "b"], "target_prefix": ["a"]}, 400, "invalid_request", "2 texts of q, got 1"),
        ({"options": []}, 400, "invalid_request", "options must be a valid dictionary"),
        ({"options": {"beam_size": 0}}, 400, "invalid_option", r"in \[1, 64\], got 0"),
        ({"options": {"beam_size": 10000}}, 400, "invalid_option", r"in \[1, 64\], got 10000"),
        ({"options": {"beam_size": 17}}, 400, "invalid_option", "at most 16 .*MACARON_MAX_BEAM"),
        ({"options": {"beam_size": "5"}}, 400, "invalid_option", "beam_size must be an integer"),
        ({"options": {"beam_size": 10**300}}, 400, "invalid_option", "beam_size must be"),
        ({"options": {"beam_size": "x" * 9999}}, 400, "invalid_option", "beam_size must be"),
        ({"options": {"num_hypotheses": 5}}, 400, "invalid_option", "raise beam_size"),
        ({"options": {"max_length": 600}}, 400, "invalid_option", "MACARON_MAX_OUTPUT_TOKENS"),
        ({"options": {"min_length": 600}}, 400, "invalid_option", "MACARON_MAX_OUTPUT_TOKENS"),
        ({"options": {"length_penalty": True}}, 400, "invalid_option", "must be a number"),
        ({"options": {"length_penalty_form": {}}}, 400, "invalid_option", "must be one of"),
        ({"q": "Ja.\n" * 513}, 413, "too_long", "at most 512 sentences .MACARON_MAX_QUEUE., got"),
        (
            {"q": ["Eins. Zwei."] * 100, "options": {"beam_size": 16}},
            413,
            "too_long",
            "at most 2560 .MACARON_MAX_REQUEST_BEAMS., got 200 x 16",
        ),
    ],
)
def test_bad_input(fields: dict[str, Any], status: int, code: str, message: str) -> None:
    with served() as (client, _):
        error = refused(client, status, **fields)
        assert error["code"] == code
        assert len(error["error"]) < 600
        assert re.search(message, error["error"]), error["error"]
        assert ask(client, "weiter")["translatedText"] == "weiter"


def test_missing_fields() -> None:
    with served() as (client, _):
        for name in ("q", "source", "target"):
            body = {"q": "Hallo", "source": "de", "target": "en"}
            del body[name]
            response = client.post("/translate", json=body)
            assert response.status_code == 400
            assert response.json()["error"] == f"Invalid request: missing {name} parameter"


@pytest.mark.parametrize(
    "text",
    [
        "emoji 👩‍👩‍👧 and 🇩🇪",
        "עברית العربية",
        'quote " backslash \\ </script> \u2028 \u2029',
        "tab\tline\r\nend",
        "\ufeffbom \ufffd \U0010ffff",
        "a" * 200,
    ],
)
def test_any_text_makes_valid_json(text: str) -> None:
    with served() as (client, _):
        answer = ask(client, text, options={"loop_guard": False})
    assert answer["translatedText"] == text


def test_a_failing_text_leaves_its_neighbours_alone() -> None:
    with served() as (client, _):
        alone = ask(client, "gut")["translations"][0]["hypotheses"]
        with ThreadPoolExecutor(8) as pool:
            good = [pool.submit(ask, client, "gut") for _ in range(4)]
            bad = [pool.submit(refused, client, 500, q=POISON) for _ in range(4)]
            for future in good:
                assert future.result()["translations"][0]["hypotheses"] == alone
            assert {future.result()["code"] for future in bad} == {"decoding_failed"}


def test_requests_that_arrive_together_are_decoded_together() -> None:
    translator = EchoTranslator()
    with served(translator) as (client, registry), ThreadPoolExecutor(8) as pool:
        translator.stepper.gate.clear()
        first = pool.submit(ask, client, "erster")
        wait_until(lambda: len(translator.stepper.states) == 2)  # the warm-up was one
        others = [pool.submit(ask, client, f"Text {i}") for i in range(5)]
        wait_until(lambda: registry.translators[0].scheduler.queue_depth == 5)
        translator.stepper.gate.set()
        assert first.result()["translations"][0]["timing"]["batch_size"] == 1
        for number, future in enumerate(others):
            answer = future.result()
            assert answer["translatedText"] == f"Text {number}"
            # The first is still under way when they join it.
            assert answer["translations"][0]["timing"]["batch_size"] == 6
            assert answer["translations"][0]["timing"]["queue_ms"] > 0


def test_deadline() -> None:
    translator = EchoTranslator()
    with served(translator) as (client, _):
        translator.stepper.gate.clear()
        assert refused(client, 504, timeout_s=0.05)["code"] == "deadline_exceeded"
        translator.stepper.gate.set()
        assert ask(client, "weiter")["translatedText"] == "weiter"


def test_full_queue() -> None:
    translator = EchoTranslator()
    settings = Settings(max_queue=2, max_texts=2)
    with served(translator, settings=settings) as (client, registry), ThreadPoolExecutor(4) as pool:
        translator.stepper.gate.clear()
        first = pool.submit(ask, client, "erster")
        wait_until(lambda: len(translator.stepper.states) == 2)
        waiting = pool.submit(ask, client, ["a", "b"])
        wait_until(lambda: registry.translators[0].scheduler.queue_depth == 2)
        response = client.post("/translate", json={"q": "c", "source": "de", "target": "en"})
        assert response.status_code == 503
        assert response.json()["code"] == "overloaded"
        assert int(response.headers["Retry-After"]) >= 1
        translator.stepper.gate.set()
        assert first.result()["translatedText"] == "erster"
        assert waiting.result()["translatedText"] == ["a", "b"]


def test_an_unforeseen_error_is_500_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = EchoTranslator()

    def fail(*_: object) -> None:
        raise MemoryError("secret detail")

    with served(translator) as (client, _):
        monkeypatch.setattr(translator.texts, "prepare", fail)
        error = refused(client, 500)
        monkeypatch.undo()
        assert error == {"error": "the server failed; its log says why", "code": "internal"}
        assert ask(client, "weiter")["translatedText"] == "weiter"


def test_close_finishes_what_was_accepted() -> None:
    translator = EchoTranslator()
    with served(translator) as (client, registry), ThreadPoolExecutor(4) as pool:
        translator.stepper.gate.clear()
        accepted = pool.submit(ask, client, "angenommen")
        wait_until(lambda: len(translator.stepper.states) == 2)
        closing = threading.Thread(target=registry.close)
        closing.start()
        wait_until(lambda: client.get("/readyz").status_code == 503)
        translator.stepper.gate.set()
        closing.join(20)
        assert accepted.result()["translatedText"] == "angenommen"
        assert refused(client, 503)["code"] == "not_ready"
