"""Translation models as subjects: how far a twin is, by loops over tokens, and what a run has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from export.arithmetic.choice import Arithmetic
from export.bundles import translation
from export.bundles.subject import Form
from export.bundles.translation import ComparedText, TranslationSubject, trained_translation
from export.comparison.translation import measure, search_all
from export.errors import ExportError, ParityError
from export.texts.dev_set import DevSet
from export.texts.texts import TextPair, Texts
from export.texts.vocabulary import Vocabulary
from serving.bundle.languages import Languages
from serving.bundle.manifest import Quality
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from tests.toy.languages import write_multilingual_recipe
from tests.toy.recipe import write_toy_recipe
from tests.unit.training.tiny import TINY, randomised
from training.decoding.stepper import TorchStepper
from training.models import TranslationModel
from training.recipe.config import TranslationRecipe, load_recipe
from training.runs.folder import (
    VALIDATION_LANGUAGES,
    VALIDATION_SOURCE,
    VALIDATION_TARGET,
    Trained,
)

LINES = ["ein", "das ist", "ab", "wo", "zehn", "ja"]
TAGS = {"de": 4, "en": 5, "es": 6}
FIRST_LETTER = 7


class Letters:
    """A tokenizer of an id for each letter; ids below are special or tags."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[FIRST_LETTER + ord(c) - ord("a") for c in text if c.isalpha()] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(ord("a") + max(0, id_ - FIRST_LETTER)) for id_ in ids)

    def control_id(self, piece: str) -> int | None:
        return TAGS.get(piece.strip("<>2"))

    def serialized(self) -> bytes:
        return b"letters"


LETTERS: Any = Letters()


def ending_model(seed: int = 0) -> TranslationModel:
    """One that soon ends what it writes."""
    model = randomised(replace(TINY, output_bias=True), seed)
    assert model.output_bias is not None
    with torch.no_grad():
        model.output_bias[EOS_ID] += 4.0
    return model


def subject(model: TranslationModel, **changed: Any) -> TranslationSubject:
    text = ComparedText("a text", DevSet(LINES, None), [1, 3, 4])
    fields: dict[str, Any] = {"text": text} | changed
    return TranslationSubject(model, Vocabulary.of(LETTERS), {}, {}, **fields)


@torch.no_grad()
def log_prob(model: TranslationModel, source: list[int], output: Sequence[int]) -> float:
    """Of an output with its end, token by token."""
    total, whole = 0.0, [*output, EOS_ID]
    for place, token in enumerate(whole):
        read = torch.tensor([[BOS_ID, *whole[:place]]])
        scores = model(torch.tensor([[*source, EOS_ID]]), read)[0, -1]
        total += float(scores.double().log_softmax(-1)[token])
    return total


def test_a_twin_is_as_far_as_it_changes_the_probability_of_what_the_model_writes() -> None:
    model, twin = ending_model(0), ending_model(1)
    found = subject(model).fitting().changes(twin)()
    sources = LETTERS.encode_batch([LINES[number] for number in (1, 3, 4)])
    sentences = DevSet([LINES[number] for number in (1, 3, 4)], None).sentences(
        Vocabulary.of(LETTERS), SearchOptions(loop_guard=False)
    )
    outputs = search_all(TorchStepper(model), sentences)
    tokens = sum(len(output) + 1 for output in outputs)
    wanted = [
        (log_prob(twin, source, output) - log_prob(model, source, output)) / tokens
        for source, output in zip(sources, outputs, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(found).max() > 0.01
    np.testing.assert_array_equal(subject(model).fitting().changes(model)(), np.zeros(3))


def test_what_the_model_writes_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all that is fitted and compared."""
    searched: list[int] = []

    def noted(stepper: Any, sentences: Any) -> Any:
        searched.append(len(sentences))
        return search_all(stepper, sentences)

    monkeypatch.setattr(translation, "search_all", noted)
    monkeypatch.setattr(translation, "OnnxStepper", lambda *_: TorchStepper(twin))
    monkeypatch.setattr(translation, "on_cpu", lambda manifest: manifest)
    given: list[Any] = []

    def measured(*arguments: Any) -> Any:
        given.append(arguments[-1])
        return measure(*arguments)

    monkeypatch.setattr(translation, "measure", measured)
    monkeypatch.setattr(translation, "check", lambda *_: None)
    monkeypatch.setattr(translation, "compare_in_reference", lambda *_: {})
    model, twin = ending_model(0), ending_model(1)
    found = subject(model)
    found.fitting().changes(twin)()
    found.fitting().changes(model)()
    int8: Any = SimpleNamespace(precision="int8", decoder_kind="cross", shortlist=None)
    parity, _ = found.compare(Arithmetic(model, twin), Path("b"), int8)
    assert searched == [len(LINES)]
    assert given == [found.outputs]
    assert parity["sentences"] == len(LINES)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What stands in for the graphs, a model in PyTorch, and for what scores a bundle."""
    given: dict[str, Any] = {"scored": [], "reference": []}

    def score(folder: Path, tests: Sequence[tuple[str, DevSet]]) -> tuple[Quality, ...]:
        given["scored"] += [name for name, _ in tests]
        return (Quality(data="news", metric="BLEU", value=1.0, signature="", note=""),)

    def in_reference(*arguments: Any) -> dict[str, Any]:
        given["reference"].append(arguments[-2:])
        return {"reference": True}

    monkeypatch.setattr(translation, "OnnxStepper", lambda *_: TorchStepper(given["graphs"]))
    monkeypatch.setattr(translation, "on_cpu", lambda manifest: manifest)
    monkeypatch.setattr(translation, "write_manifest", lambda *_: None)
    monkeypatch.setattr(translation, "translation_figures", score)
    monkeypatch.setattr(translation, "compare_in_reference", in_reference)
    return given


FP32: Any = SimpleNamespace(precision="fp32", decoder_kind="transformer", shortlist=None)


def test_a_bundle_that_computes_as_its_checkpoint_is_scored(compared: dict[str, Any]) -> None:
    model = compared["graphs"] = ending_model()
    tests = (("news", DevSet(["ab"], ["cd"])),)
    text = ComparedText("a text", DevSet(LINES[:2], ["a house", "the old one"]), [], tests)
    found, quality = subject(model, text=text).compare(Arithmetic(model, model), Path("b"), FP32)
    assert compared["scored"] == ["news"]
    assert [each.data for each in quality] == ["news"]
    assert found["reference"] is True
    assert found["fp32_products"] == 0
    ((sources, targets),) = compared["reference"]
    assert sources == [[*ids, EOS_ID] for ids in LETTERS.encode_batch(LINES[:2])]
    assert targets == LETTERS.encode_batch(["a house", "the old one"])


def test_a_bundle_that_computes_something_else_is_not(compared: dict[str, Any]) -> None:
    model, compared["graphs"] = ending_model(0), ending_model(1)
    tests = (("news", DevSet(["ab"], ["cd"])),)
    text = ComparedText("a text", DevSet(LINES[:2], None), [], tests)
    with pytest.raises(ParityError, match="no bundle was written"):
        subject(model, text=text).compare(Arithmetic(model, model), Path("b"), FP32)
    assert compared["scored"] == compared["reference"] == []


def write_run(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """A run of a recipe, with pairs of its own in its folder."""
    recipe = load_recipe(str(path), [])
    assert isinstance(recipe, TranslationRecipe)
    checkpoint = folder / "run" / "checkpoints" / "step_1"
    checkpoint.mkdir(parents=True)
    for name in (VALIDATION_SOURCE, VALIDATION_TARGET):
        (folder / "run" / name).write_text("".join(f"{line}\n" for line in LINES))
    trained = Trained(checkpoint, recipe, ending_model(), LETTERS)
    monkeypatch.setattr(translation, "load_trained", lambda _: trained)
    monkeypatch.setattr(translation, "find_checkpoint", lambda _: checkpoint)
    return trained


def test_a_run_is_compared_on_its_own_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = write_run(tmp_path, write_toy_recipe(tmp_path, pairs=4), monkeypatch)
    found = trained_translation(Path("run"), Form("fp32"), Texts(), shortlist=False)
    assert found.model is trained.model
    assert list(found.files.values()) == [b"letters"]
    assert found.facts["languages"] == Languages(source=("de",), target=("en",))
    assert found.facts["attribution"] == trained.recipe.data.attribution
    assert (found.text.name, found.text.dev.sources, found.text.fitting) == (
        "validation", LINES, [],
    )  # fmt: skip
    assert found.text.dev.prefixes is None
    assert found.shortlist is None
    with pytest.raises(ExportError, match="fitted to at least 8 sentences"):
        trained_translation(Path("run"), Form("int8"), Texts(), shortlist=False)


def test_shortlists_are_refused_where_nothing_chooses_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, write_toy_recipe(tmp_path, pairs=4), monkeypatch)
    with pytest.raises(ExportError, match="--shortlist needs --target cpu"):
        trained_translation(Path("run"), Form("fp16", "cuda"), Texts(), shortlist=True)


def test_a_model_of_several_directions_is_given_that_of_each_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_multilingual_recipe(tmp_path, pairs=30)
    one_way = yaml.safe_load(path.read_text())
    del one_way["data"]["train"][1]["directions"]  # to Spanish alone
    path.write_text(yaml.safe_dump(one_way))
    trained = write_run(tmp_path, path, monkeypatch)
    told = ["de en", "en de", "en es", "en es", "en de", "de en"]
    (tmp_path / "run" / VALIDATION_LANGUAGES).write_text("".join(f"{line}\n" for line in told))
    found = trained_translation(Path("run"), Form("fp32"), Texts(), shortlist=False)
    languages = found.facts["languages"]
    assert languages.tags == trained.recipe.data.language_tags
    assert set(languages.trained) == {tuple(line.split()) for line in told}
    assert (set(languages.source), set(languages.target)) == ({"de", "en"}, {"de", "en", "es"})
    targets = [line.split()[1] for line in told]
    assert found.text.dev.prefixes == [[TAGS[target]] for target in targets]
    sentences = found.text.dev.sentences(found.vocabulary, SearchOptions())
    assert [sentence.source[0] for sentence in sentences] == [TAGS[each] for each in targets]


def test_which_direction_a_text_is_must_be_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = write_run(tmp_path, write_multilingual_recipe(tmp_path, pairs=30), monkeypatch)
    files = tmp_path / "run" / VALIDATION_SOURCE, tmp_path / "run" / VALIDATION_TARGET
    clear = TextPair("clear", *files, languages=("es", None))  # from there it goes but one way
    (tmp_path / "run" / VALIDATION_LANGUAGES).write_text("de en\n" * len(LINES))
    texts = Texts(tests=(clear,))
    found = trained_translation(Path("run"), Form("fp32"), texts, shortlist=False)
    ((name, test),) = found.text.tests
    assert (name, test.prefixes) == ("clear", [[TAGS["en"]]] * len(LINES))
    texts = Texts(tests=(TextPair("unclear", *files, languages=("en", None)),))
    message = "unclear: the model translates .*, and which of these the text is must be given"
    with pytest.raises(ExportError, match=message) as refused:
        trained_translation(Path("run"), Form("fp32"), texts, shortlist=False)
    for first, second in trained.recipe.data.directions:
        assert f"{first} to {second}" in str(refused.value)
