"""What models must not touch, by every way that a text comes in, with the demo bundles."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving.__main__ import main
from serving.text.document import Format
from serving.translation.translator import Translator
from tests.system.kept_cases import CASES, Case, in_one

MODELS = Path(__file__).resolve().parents[2] / "models"
BUNDLES = {"de-en": "macaron-de-en", "en-de": "macaron-en-de"}
"""By direction; others are translated by one bundle of several."""
SEVERAL = "macaron-fr-es-en"
DIRECTIONS = tuple(dict.fromkeys(case.direction for case in CASES))


TEXTS = list(
    dict.fromkeys((c.direction, c.format, t) for c in CASES for t in (c.text, c.plain) if t)
)
"""Each is sent once."""
Texts = Sequence[str]
Way = Callable[[str, Format, Texts], list[str]]
Answers = dict[tuple[str, Format, str], str]


def answers(
    way: Way,
    formats: Sequence[Format] = ("text", "html", "xml", "markdown"),
    *,
    of_one_line: bool = False,
) -> Answers:
    """Those of all texts in some formats."""
    grouped: dict[tuple[str, Format], list[str]] = defaultdict(list)
    for direction, format, text in TEXTS:
        if format in formats and not (of_one_line and "\n" in text):
            grouped[direction, format].append(text)
    found: Answers = {}
    for (direction, format), texts in grouped.items():
        given = way(direction, format, texts)
        found |= {(direction, format, t): a for t, a in zip(texts, given, strict=True)}
    return found


@pytest.fixture(scope="module")
def translators() -> dict[str, Translator]:
    bundles = {name: Translator(MODELS / name, threads=1) for name in (*BUNDLES.values(), SEVERAL)}
    return {d: bundles[BUNDLES.get(d, SEVERAL)] for d in DIRECTIONS}


@pytest.fixture(scope="module")
def python(translators: dict[str, Translator]) -> Answers:
    return answers(
        lambda direction, format, texts: [
            result.text
            for result in translators[direction].translate(
                texts, format=format, source=direction[:2], target=direction[3:]
            )
        ]
    )


@pytest.fixture(scope="module")
def unsplit(translators: dict[str, Translator]) -> Answers:
    """What the sentences are when nothing is split."""
    texts = {c.text: c for c in CASES if c.check is in_one}
    return {
        (c.direction, c.format, t): translators[c.direction]
        .translate(t, split=False, source=c.source, target=c.direction[3:])[0]
        .text
        for t, c in texts.items()
    }


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.row}: {c.direction}: {c.text[:60]!r}")
def test_what_is_kept_is_kept(case: Case, python: Answers, unsplit: Answers) -> None:
    key = (case.direction, case.format, case.text)
    if case.check is in_one:
        plain = unsplit[key]
    else:
        plain = python.get((case.direction, case.format, case.plain), "")
    assert case.check(case, python[key], plain), (python[key], plain)


def test_http_answers_as_python_does(demo_client: TestClient, python: Answers) -> None:
    def translate(direction: str, format: Format, texts: Texts) -> list[str]:
        source, target = direction.split("-")
        found: list[str] = []
        for at in range(0, len(texts), 50):
            q = list(texts[at : at + 50])
            body = {"q": q, "source": source, "target": target, "format": format}
            found += posted(demo_client, "/translate", json=body)["translatedText"]
        return found

    assert different(answers(translate), python) == {}


def test_forms_of_libretranslate_are_answered_as_python_does(
    demo_client: TestClient, python: Answers
) -> None:
    def translate(direction: str, format: Format, texts: Texts) -> list[str]:
        source, target = direction.split("-")
        form = {"source": source, "target": target, "format": format}

        def ask(text: str) -> str:
            found: str = posted(demo_client, "/translate", data={**form, "q": text})[
                "translatedText"
            ]
            return found

        with ThreadPoolExecutor(16) as pool:  # they share batches
            return list(pool.map(ask, texts))

    assert different(answers(translate, ("text", "html")), python) == {}


def test_deepl_answers_as_python_does(demo_client: TestClient, python: Answers) -> None:
    def translate(direction: str, format: Format, texts: Texts) -> list[str]:
        source, target = direction.split("-")
        body = {"source_lang": source, "target_lang": target, "split_sentences": "1"}
        if format != "text":
            body["tag_handling"] = format
        found: list[str] = []
        for at in range(0, len(texts), 50):
            sent = {**body, "text": list(texts[at : at + 50])}
            answer = posted(demo_client, "/v2/translate", json=sent)
            found += [each["text"] for each in answer["translations"]]
        return found

    assert different(answers(translate, ("text", "html", "xml")), python) == {}


def test_the_command_answers_as_python_does(
    python: Answers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def translate(direction: str, format: Format, texts: Texts) -> list[str]:
        lines = io.BytesIO("".join(f"{text}\n" for text in texts).encode())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(lines))
        bundle = str(MODELS / BUNDLES.get(direction, SEVERAL))
        pair = ["--from", direction[:2], "--to", direction[3:]]
        assert main(["translate", bundle, "--threads", "1", "--format", format, *pair]) == 0
        return capsys.readouterr().out.split("\n")[:-1]

    assert different(answers(translate, of_one_line=True), python) == {}


def different(found: Answers, wanted: Answers) -> dict[object, tuple[str, str]]:
    return {key: (text, wanted[key]) for key, text in found.items() if text != wanted[key]}


def posted(client: TestClient, path: str, **content: Any) -> Any:
    response = client.post(path, **content)
    assert response.status_code == 200, response.text
    return response.json()
