"""Language models as subjects: how far a twin is, by loops over tokens, and what a run has."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from export.arithmetic.choice import Arithmetic
from export.bundles import language
from export.bundles.language import LanguageSubject, trained_language_model
from export.bundles.subject import Form
from export.comparison.language import LanguageParity
from export.errors import ParityError
from export.texts.texts import DocumentReader, DocumentsFile, Texts
from serving.bundle.manifest import Quality
from tests.toy.text import write_toy_text
from tests.unit.training.tiny_language import tiny_lm
from training.models import CausalLanguageModel
from training.recipe.config import LanguageRecipe, load_recipe
from training.results.perplexity import Window
from training.runs.folder import VALIDATION_TEXT, VOCABULARY_FILE, TrainedLanguageModel

WINDOWS = [
    Window(np.array([1, 5, 9, 30, 7], np.int32), 4),
    Window(np.array([9, 30, 7, 2, 8, 6], np.int32), 2),
    Window(np.array([1, 12], np.int32), 1),
]


def subject(model: CausalLanguageModel, windows: list[Window] = WINDOWS) -> LanguageSubject:
    reader: Any = DocumentReader(SimpleNamespace(), 8)  # type: ignore[arg-type]
    return LanguageSubject(model, reader, {}, {}, "a text", windows, windows[:2])


@torch.no_grad()
def loss(model: CausalLanguageModel, window: Window) -> float:
    """Token by token, each after all that stands before it."""
    tokens, total = window.tokens.tolist(), 0.0
    for place in range(len(tokens) - window.scored, len(tokens)):
        scores = model(torch.tensor([tokens[:place]]))[0, -1].double().log_softmax(-1)
        total -= float(scores[tokens[place]])
    return total


def test_a_twin_is_as_far_as_its_windows_losses_are() -> None:
    model, twin = tiny_lm(0), tiny_lm(1)
    fitting = subject(model).fitting()
    found = fitting.changes(twin)()
    fitted = WINDOWS[:2]
    tokens = sum(window.scored for window in fitted)
    wanted = [(loss(twin, window) - loss(model, window)) / tokens for window in fitted]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(found).min() > 1e-3
    np.testing.assert_array_equal(fitting.changes(model)(), [0.0, 0.0])


def test_the_change_of_logarithms_is_nearly_that_of_perplexity() -> None:
    """For which the limit of a fitting is half of what a bundle may differ by."""
    model, near = tiny_lm(0), tiny_lm(0)
    with torch.no_grad():
        for parameter in near.parameters():
            parameter.mul_(1.001)
    found = float(subject(model).fitting().changes(near)().sum())
    tokens = sum(window.scored for window in WINDOWS[:2])
    before, after = (
        math.exp(sum(loss(each, window) for window in WINDOWS[:2]) / tokens)
        for each in (model, near)
    )
    assert found == pytest.approx(after / before - 1, rel=0.02)
    assert found != 0.0


def parity(**changed: float) -> LanguageParity:
    same = LanguageParity(7, 1e-5, 1e-6, 40.0, 40.0)
    return replace(same, **changed)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What stands in for the graph and for ONNX's reference; `parity` may be changed."""
    given: dict[str, Any] = {"parity": parity(), "scored": []}

    def figure(reader: object, stepper: object, text: DocumentsFile, lines: list[str]) -> Quality:
        given["scored"].append((text.name, lines))
        return Quality(data=text.name, metric="word perplexity", value=2.0, signature="", note="")

    monkeypatch.setattr(language, "LanguageStepper", lambda *_: "stepper")
    monkeypatch.setattr(language, "measure_language", lambda *_: given["parity"])
    monkeypatch.setattr(language, "language_figure", figure)
    monkeypatch.setattr(language, "on_cpu", lambda manifest: manifest)
    monkeypatch.setattr(language, "compare_in_reference", lambda *given: {"reference": given[-1]})
    return given


def test_a_bundle_is_scored_on_its_tests_beside_the_comparison(compared: dict[str, Any]) -> None:
    model = tiny_lm()
    tests = ((DocumentsFile("wiki", Path("wiki")), ["a line"]),)
    manifest: Any = SimpleNamespace(precision="fp32")
    found, quality = replace(subject(model), tests=tests).compare(
        Arithmetic(model, model), Path("bundle"), manifest
    )
    assert [each.data for each in quality] == ["wiki"]
    assert compared["scored"] == [("wiki", ["a line"])]
    assert found["perplexity_checkpoint"] == found["perplexity_bundle"] == 40.0
    assert found["fp32_products"] == 0
    assert found["reference"] == [window.tokens.tolist() for window in WINDOWS[:2]]


def test_a_bundle_whose_perplexity_changes_is_not_scored(compared: dict[str, Any]) -> None:
    compared["parity"] = parity(perplexity_bundle=44.0)
    model = tiny_lm()
    tests = ((DocumentsFile("wiki", Path("wiki")), ["a line"]),)
    with pytest.raises(ParityError, match="perplexity changes from"):
        replace(subject(model), tests=tests).compare(
            Arithmetic(model, model),
            Path("bundle"),
            SimpleNamespace(precision="int8"),  # type: ignore[arg-type]
        )
    assert compared["scored"] == []


class Letters:
    """Three ids and up for letters."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[3 + ord(c) % 30 for c in text if c != " "] for text in texts]

    def serialized(self) -> bytes:
        return b"letters"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainedLanguageModel:
    """A run with words, whose validation text lies in its folder."""
    recipe = load_recipe(str(write_toy_text(tmp_path)), [])
    assert isinstance(recipe, LanguageRecipe)
    checkpoint = tmp_path / "run" / "checkpoints" / "step_1"
    checkpoint.mkdir(parents=True)
    (tmp_path / "run" / VALIDATION_TEXT).write_text("abc abd\n" * 60)
    trained = TrainedLanguageModel(checkpoint, recipe, tiny_lm(), Letters())  # type: ignore[arg-type]
    monkeypatch.setattr(language, "load_language_model", lambda _: trained)
    return trained


def test_a_run_is_compared_on_its_own_validation_text(run: TrainedLanguageModel) -> None:
    found = trained_language_model(Path("run"), Form("int8"), Texts())
    assert found.model is run.model
    assert found.files == {VOCABULARY_FILE: b"letters"}
    assert found.facts["tokenizer"].kind == "words"
    assert found.facts["attribution"] == run.recipe.data.attribution
    assert found.text_name == VALIDATION_TEXT
    assert sum(window.scored for window in found.windows) == 60 * 6
    assert max(len(window.tokens) for window in found.windows) <= found.reader.length + 1
    # Others than those whose logits are compared.
    assert [w.tokens.tolist() for w in found.fitted] == [
        w.tokens.tolist() for w in found.windows[8 : 8 + len(found.fitted)]
    ]
    assert trained_language_model(Path("run"), Form("fp32"), Texts()).fitted == []


def test_another_text_and_tests_are_read_as_training_reads(
    run: TrainedLanguageModel, tmp_path: Path
) -> None:
    (tmp_path / "other.txt").write_text("ab  cd\n" * 3)
    (tmp_path / "test.txt").write_text("xyz\n")
    texts = Texts(
        text=tmp_path / "other.txt",
        test_texts=(DocumentsFile("wiki", tmp_path / "test.txt"),),
    )
    found = trained_language_model(Path("run"), Form("fp32"), texts)
    assert found.text_name == "other.txt"
    assert sum(window.scored for window in found.windows) == 12
    ((document, lines),) = found.tests
    assert (document.name, lines) == ("wiki", ["xyz"])
