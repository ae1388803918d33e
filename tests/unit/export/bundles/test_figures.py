"""What a manifest reports of quality, against sacreBLEU itself and sums by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from export.bundles import figures
from export.bundles.figures import language_figure, translation_figures
from export.errors import ExportError
from export.texts.dev_set import DevSet
from export.texts.texts import DocumentReader, DocumentsFile

REFERENCES = ["the house is very old indeed", "a dog sleeps under the green tree"]


class FakeTranslator:
    """Writes each source in small letters, and notes between which languages it was asked to."""

    default_options = SimpleNamespace(beam_size=3)

    def __init__(self, bundle: Path, **_: object) -> None:
        self.bundle = bundle
        self.asked: list[tuple[str | None, str | None]] = []

    def translate_sentences(
        self, texts: Sequence[str], *, source: str | None, target: str | None
    ) -> list[SimpleNamespace]:
        self.asked.append((source, target))
        return [SimpleNamespace(text=text.lower()) for text in texts]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[FakeTranslator]:
    loaded: list[FakeTranslator] = []

    def load(*given: Any, **told: Any) -> FakeTranslator:
        loaded.append(FakeTranslator(*given, **told))
        return loaded[-1]

    monkeypatch.setattr(figures, "Translator", load)
    return loaded


def test_each_test_has_the_scores_of_sacrebleu(loaded: list[FakeTranslator]) -> None:
    written = ["THE HOUSE IS VERY OLD", "A DOG SLEEPS UNDER A TREE"]
    tests = [
        ("news", DevSet(written, REFERENCES)),
        ("talks", DevSet(written[::-1], REFERENCES, [("de", "en")] * 2)),
    ]
    found = translation_figures(Path("bundle"), tests)
    wanted = []
    for sources in (written, written[::-1]):
        texts = [text.lower() for text in sources]
        wanted += [corpus_bleu(texts, [REFERENCES]).score, corpus_chrf(texts, [REFERENCES]).score]
    assert [(each.data, each.metric) for each in found] == [
        ("news", "BLEU"), ("news", "chrF2"), ("talks", "BLEU"), ("talks", "chrF2"),
    ]  # fmt: skip
    np.testing.assert_allclose([each.value for each in found], wanted, atol=0.005)
    assert len(set(wanted)) == 4
    assert {each.note for each in found} == {"2 sentences, beam 3"}
    assert "tok:13a" in found[0].signature
    assert "nc:6" in found[1].signature
    (translator,) = loaded  # a bundle is loaded once
    assert translator.bundle == Path("bundle")
    assert translator.asked == [(None, None), ("de", "en")]


class Words:
    """A tokenizer that gives each letter's place in the alphabet, and 0 for what is none."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[max(0, ord(c) - 96) for c in text if c != " "] for text in texts]


class FakeStepper:
    """A model by which a token has a log-probability of its own, whatever stands before it."""

    def __init__(self) -> None:
        self.held = 0

    def score(
        self, prompts: list[list[int]], labels: list[list[int]]
    ) -> tuple[SimpleNamespace, SimpleNamespace]:
        self.held += 1
        assert [prompt[1:] for prompt in prompts] == [row[:-1] for row in labels]
        scores = np.full((len(labels), max(map(len, labels))), np.nan, np.float32)
        for row, ids in enumerate(labels):
            scores[row, : len(ids)] = [log_prob(id_) for id_ in ids]
        return SimpleNamespace(state=None), SimpleNamespace(labels_BP=scores)

    def free(self, state: None) -> None:
        self.held -= 1


def log_prob(id_: int) -> float:
    return -0.1 * (1 + id_)


@pytest.mark.parametrize("length", [3, 4, 50])
def test_perplexity_is_that_of_all_tokens_however_long_windows_are(length: int) -> None:
    lines = ["ab cab", "", "bb", "a cc abc b"]
    reader: Any = DocumentReader(Words(), length)  # type: ignore[arg-type]
    text, stepper = DocumentsFile("wiki", Path("wiki.txt")), FakeStepper()
    found = language_figure(reader, stepper, text, lines)  # type: ignore[arg-type]
    loss, tokens, words = 0.0, 0, 0
    for line in lines:
        for character in line.replace(" ", ""):
            loss -= log_prob(ord(character) - 96)
            tokens += 1
        words += len(line.split())
    assert found.value == pytest.approx(math.exp(loss / words), abs=0.005)
    assert found.note == f"{words} words, {tokens} tokens, perplexity a token " + format(
        math.exp(loss / tokens), ".2f"
    )
    assert (found.data, found.metric) == ("wiki", "word perplexity")
    assert stepper.held == 0


def test_a_text_without_a_token_is_named() -> None:
    reader = DocumentReader(Words(), 8)  # type: ignore[arg-type]
    with pytest.raises(ExportError, match=r"none\.txt: no line has a token"):
        language_figure(
            reader,
            FakeStepper(),  # type: ignore[arg-type]
            DocumentsFile("none", Path("none.txt")),
            ["", " "],
        )
