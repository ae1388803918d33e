"""The demo bundles on real text: sane translations, and equal to the bit in any batch."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest

from serving import Generator, Translator
from serving.bundle.folder import find_bundles, read_manifest
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Hypothesis
from serving.search.sampling_options import GenerationOptions
from serving.translation.ticket import Request

MODELS = Path(__file__).resolve().parents[2] / "models"
BUNDLES = [
    folder.name for folder in find_bundles(MODELS) if read_manifest(folder).task == "translate"
]
MEGABYTE = 1_000_000
LARGEST = {"joint-fast-de-en": 10 * MEGABYTE, "macaron-fr-es-en": 20 * MEGABYTE}
COMPARED = {"macaron-fr-es-en": 1999}
"""Pairs on which int8 was compared, where the run held out no whole 2,000."""


def test_the_demo_is_there() -> None:
    assert set(BUNDLES) == {
        "macaron-de-en",
        "macaron-en-de",
        "macaron-fr-es-en",
        "joint-fast-de-en",
    }


def test_macaron_is_used_where_no_model_is_named() -> None:
    priority = {name: read_manifest(MODELS / name).priority for name in BUNDLES}
    assert priority["macaron-de-en"] > priority["joint-fast-de-en"]


@pytest.mark.parametrize("name", BUNDLES)
def test_size_licence_and_figures(name: str) -> None:
    manifest = read_manifest(MODELS / name)
    assert manifest.name == name
    size = sum(p.stat().st_size for p in (MODELS / name).iterdir())
    assert size <= LARGEST.get(name, 16 * MEGABYTE)
    assert "tatoeba.org" in manifest.attribution
    assert manifest.parity["sentences"] >= COMPARED.get(name, 2000)
    directions = [f" {a}-{b}" for a, b in manifest.languages.trained]
    wanted = {f"tatoeba dev{each}" for each in (directions if len(directions) > 1 else [""])}
    assert wanted <= {score.data for score in manifest.quality}


@pytest.mark.parametrize(
    ("name", "morning"), [("macaron-de-en", "Good morning!"), ("joint-fast-de-en", "Good morning!")]
)
def test_german_comes_back_in_english(name: str, morning: str) -> None:
    translator = Translator(MODELS / name)
    translations = translator.translate(["Guten Morgen!", "", "Ich habe keine Zeit."])
    assert [t.text for t in translations] == [morning, "", "I don't have time."]


def test_four_directions_in_one_model() -> None:
    translator = Translator(MODELS / "macaron-fr-es-en")
    for source, target, text, wanted in (
        ("fr", "en", "Je ne sais pas.", "I don't know."),
        ("en", "fr", "I don't know.", "Je ne sais pas."),
        ("es", "en", "No sé nada.", "I don't know anything."),
        ("en", "es", "I don't know.", "No sé."),
    ):
        (found,) = translator.translate_sentences([text], source=source, target=target)
        assert found.text == wanted


def test_the_language_model() -> None:
    folder = MODELS / "lm-cascade"
    generator = Generator(folder)
    manifest = generator.manifest
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 16 * MEGABYTE
    assert "CC BY-SA" in manifest.attribution
    assert manifest.sizes.reach == (8, 16, 32, 64, 128, 256)
    assert {score.metric for score in manifest.quality} == {"word perplexity"}
    options = GenerationOptions(max_length=30, seed=7)
    first, again = (generator.generate("The film was", options)[0][0] for _ in range(2))
    assert first == again
    assert first.text.startswith(" ")
    scores = generator.score(["The film was released in the United States.", "States film in the."])
    likely, unlikely = (sum(t.log_prob or 0.0 for t in s) / len(s) for s in scores)
    assert likely > unlikely


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("She was at home.", "She were at home."),
        ("They are very old.", "They is very old."),
        ("He has seen the house.", "He has saw the house."),
        ("I do not know him.", "I does not know him."),
        ("There are two men at the door.", "There is two men at the door."),
        ("He gave her the book.", "He gave she the book."),
        ("The children were in the garden.", "The children was in the garden."),
        ("We have been there.", "We has been there."),
        ("Open the file in the editor.", "Open file the in the editor."),
        ("An old man sat by the fire.", "A old man sat by the fire."),
    ],
)
def test_the_language_model_prefers_grammatical_sentences(right: str, wrong: str) -> None:
    scores = Generator(MODELS / "lm-cascade", threads=1).score([right, wrong])
    likely, unlikely = (sum(token.log_prob or 0.0 for token in each) for each in scores)
    assert likely > unlikely


def dev_lines(source: str, target: str) -> list[str]:
    """The source side of Tatoeba's dev pairs of two languages, one of them English."""
    foreign = target if source == "en" else source
    folder = "es_en_tatoeba" if foreign == "es" else f"tatoeba_en_{foreign}"
    file = Path(os.environ["MACARON_DATA"]) / folder / f"dev.{source}.gz"
    return gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("MACARON_DATA" not in os.environ, reason="MACARON_DATA is not set")
@pytest.mark.parametrize("name", BUNDLES)
def test_dev_sentences_are_equal_to_the_bit_in_any_batch(name: str) -> None:
    """Sentences of all directions of a model stand in the same batches; those whose translation
    is known, which are only scored, have batches of their own, as in the queue."""
    translator = Translator(MODELS / name)
    sentences = []
    for source, target in translator.manifest.languages.trained:
        for line in dev_lines(source, target):
            sentence = translator.texts.prepare(
                Request(
                    text=line,
                    options=translator.default_options,
                    source=source,
                    target=target,
                )
            )
            if sentence is not None:
                sentences.append(sentence)
    assert len(sentences) > 2000
    if translator.manifest.family == "joint":  # which takes ten times as long
        sentences = sentences[::10]
    elif len(translator.manifest.languages.trained) > 1:
        sentences = sentences[::4]

    stepper = translator.steppers.whole

    def search(order: list[int], size: int) -> dict[int, tuple[Hypothesis, ...]]:
        found = {}
        for given in (False, True):
            alike = [i for i in order if sentences[i].given is given]
            for start in range(0, len(alike), size):
                batch = alike[start : start + size]
                for finished in decode(stepper, [sentences[i] for i in batch]):
                    found[batch[finished.index]] = finished.hypotheses
        return found

    shuffled = list(range(len(sentences)))
    random.Random(1).shuffle(shuffled)
    alone = search(list(range(len(sentences))), 1)
    assert alone == search(shuffled, 32)
    assert alone == search(shuffled[::-1], 7)
