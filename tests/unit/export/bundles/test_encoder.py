"""Encoders as subjects: how far a twin is, by loops over texts, and what a bundle is held to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from export.arithmetic.choice import Arithmetic
from export.bundles import encoder
from export.bundles.encoder import (
    COMPARED,
    FITTED,
    LEAST_TEXTS,
    EncoderSubject,
    ReadEncoder,
    check_enough,
    fitting_to,
    trained_encoder,
)
from export.comparison.encoder import LEAST_COSINE, read_all
from export.errors import ExportError, ParityError
from export.texts.labelled import LabelledTask
from export.texts.texts import Texts
from serving.arrays import Floats
from serving.bundle.encoder_tokenizer import EncodedText
from tests.unit.training.tiny_encoder import tiny_classifier, tiny_embedder
from training.models import TextModel
from training.vocabularies.word_pieces import SPECIAL, load_word_pieces, train_word_pieces


def texts(count: int, seed: int = 0) -> list[EncodedText]:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 12, count)
    ids = [tuple(generator.integers(1, 37, length).tolist()) for length in lengths]
    return [EncodedText(each, (0,) * len(each)) for each in ids]


def test_a_twin_is_as_far_as_the_angles_between_what_both_read() -> None:
    model, twin = tiny_embedder("mean"), tiny_embedder("cls")
    read = texts(9)
    found = fitting_to(model, read).changes(twin)()
    wanted = []
    for text in read:
        first, second = (read_all(each, [text])[0].astype(float) for each in (model, twin))
        lengths = math.sqrt(first @ first) * math.sqrt(second @ second)
        wanted.append((1 - first @ second / lengths) / len(read))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)
    assert found.min() > 1e-5
    assert fitting_to(model, read).changes(model)().sum() == pytest.approx(0, abs=1e-6)
    assert fitting_to(model, read).limit == pytest.approx((1 - LEAST_COSINE) / 2)


def subject(model: TextModel, task: LabelledTask | None, count: int = 20) -> EncoderSubject:
    own: Any = SimpleNamespace(model=model, labels=(), max_length=12)
    return EncoderSubject(own, "lines", texts(count), task)


def test_it_is_fitted_to_the_last_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_embedder("mean")
    made = subject(model, None, FITTED + 7)
    given: list[Sequence[EncodedText]] = []

    def note(model: TextModel, read: Sequence[EncodedText]) -> Any:
        given.append(read)
        return fitting_to(model, read)

    monkeypatch.setattr(encoder, "fitting_to", note)
    made.fitting()
    assert given == [made.texts[7:]]


class FakeBundle:
    """Reads as a model does, and a little else."""

    def __init__(self, model: TextModel, error: float) -> None:
        self.model, self.error = model, error
        self.read: list[int] = []

    def run(self, read: Sequence[EncodedText]) -> Floats:
        self.read.append(len(read))
        found = read_all(self.model, read)
        noise = np.random.default_rng(1).normal(size=found.shape).astype(np.float32)
        changed: Floats = found + np.float32(self.error) * noise
        return changed


def loaded(monkeypatch: pytest.MonkeyPatch, model: TextModel, error: float) -> FakeBundle:
    bundle = FakeBundle(model, error)
    monkeypatch.setattr(encoder, "TextEncoder", lambda *_: bundle)
    return bundle


class FakeManifest(SimpleNamespace):
    """What is asked of the manifest of a bundle."""

    def model_copy(self, *, update: dict[str, Any]) -> FakeManifest:
        return FakeManifest(**{**vars(self), **update})


def manifest(task: str, precision: str) -> Any:
    return FakeManifest(task=task, precision=precision, target="cpu")


def mean_task(scale: float) -> LabelledTask:
    """Whose metric is the mean of what is read, times so much."""

    def measured(found: Sequence[Floats]) -> float:
        return float(scale * np.mean([part.mean() for part in found]))

    return LabelledTask("pairs.tsv", "Spearman", [texts(5, 1), texts(5, 2)], 5, measured)


def test_a_bundle_is_compared_on_the_first_texts_and_scored_on_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, task = tiny_embedder("mean"), mean_task(1.0)
    bundle = loaded(monkeypatch, model, 0.0)
    made = subject(model, task, COMPARED + 3)
    found, quality = made.compare(Arithmetic(model, model), Path("b"), manifest("embed", "fp32"))
    assert bundle.read == [COMPARED, 5, 5]
    assert (found["texts"], found["fp32_products"], found["max_difference"]) == (COMPARED, 0, 0.0)
    wanted = 100 * np.mean([read_all(model, part).mean() for part in task.texts])
    assert found["metric_checkpoint"] == found["metric_bundle"] == round(float(wanted), 2)
    (score,) = quality
    assert (score.data, score.metric, score.value) == ("pairs.tsv", "Spearman", round(wanted, 2))
    assert score.note == "5 lines"


def test_without_a_task_there_is_no_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_classifier()
    loaded(monkeypatch, model, 1e-4)
    found, quality = subject(model, None).compare(
        Arithmetic(model, model), Path("b"), manifest("classify", "int8")
    )
    assert quality == ()
    assert 0 < found["probability_change"] < 1e-3
    assert "metric_bundle" not in found


@pytest.mark.parametrize(
    ("task", "precision", "error", "message"),
    [
        ("embed", "fp32", 0.01, "outputs differ by up to"),
        ("embed", "int8", 0.2, "the cosine with the checkpoint is"),
        ("classify", "int8", 3.0, "probabilities change by"),
    ],
)
def test_a_bundle_that_reads_something_else_is_refused(
    task: str, precision: str, error: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_classifier() if task == "classify" else tiny_embedder("mean")
    loaded(monkeypatch, model, error)
    with pytest.raises(ParityError, match=message):
        subject(model, None).compare(Arithmetic(model, model), Path("b"), manifest(task, precision))


def test_a_task_on_which_it_is_worth_less_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_embedder("mean")
    loaded(monkeypatch, model, 1e-4)
    with pytest.raises(ParityError, match=r"Spearman changes from .* \(limit 0\.5 points\)"):
        subject(model, mean_task(1e4)).compare(
            Arithmetic(model, model), Path("b"), manifest("embed", "int8")
        )


def test_few_texts_are_refused() -> None:
    check_enough(Path("a.txt"), LEAST_TEXTS)
    with pytest.raises(ExportError, match=rf"a\.txt: at least {LEAST_TEXTS} lines .* got 15; give"):
        check_enough(Path("a.txt"), LEAST_TEXTS - 1)


@pytest.fixture
def pieces(tmp_path: Path) -> Path:
    path = tmp_path / "pieces.json"
    train_word_pieces(["ein haus", "das alte haus"], path, 40, lowercase=True)
    return path


def test_the_tokenizer_is_read_as_the_bundle_will_have_it(pieces: Path) -> None:
    tokenizer = load_word_pieces(pieces)
    made = ReadEncoder(tiny_embedder("mean"), tokenizer, 6, ())
    reader = made.text_reader()
    assert reader.max_length == 6
    assert reader.encode("Das Haus").ids == tuple(tokenizer.encode("Das Haus").ids)
    cut = reader.encode("das alte haus " * 9, truncate=True).ids
    assert len(cut) == 6
    assert (cut[0], cut[-1]) == (SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]"))
    subject_of = EncoderSubject(made, "lines", [], None)
    assert list(subject_of.files.values()) == [made.serialized()]


def test_a_run_without_lines_of_its_own_asks_for_some(
    pieces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = SimpleNamespace(kind="classes", labels=("no", "yes"), max_length=9)
    trained = SimpleNamespace(
        recipe=SimpleNamespace(data=data),
        model=tiny_classifier(2),
        vocabulary=pieces,
        checkpoint=tmp_path / "run" / "checkpoints" / "step_1",
    )
    monkeypatch.setattr(encoder, "load_encoder", lambda _: trained)
    with pytest.raises(ExportError, match=r"its run holds no validation lines .*--text TABLE"):
        trained_encoder(tmp_path / "run", Texts())
