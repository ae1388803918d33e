"""The cache of answers: the same with it and without it, bounded, and dropped with its model."""

from __future__ import annotations

import random

from serving.search.options import SearchOptions
from serving.server.http.settings import Settings
from serving.translation.answers import AnswerCache
from serving.translation.results import TextHypothesis, Translation
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from tests.unit.serving.echo import EchoTranslator, served

PATIENT = 60.0


def translation(text: str) -> Translation:
    return Translation(text, (TextHypothesis(text, -0.1, -0.5, ("a", "b"), (-0.2, -0.3), True),))


def test_what_was_put_comes_back() -> None:
    cache = AnswerCache(10_000)
    cache.put((1, 2), translation("eins"))
    assert cache.get((1, 2)) == translation("eins")
    assert cache.get((1, 3)) is None
    cache.put((1, 2), translation("zwei"))
    assert cache.get((1, 2)) == translation("zwei")


def test_bytes_are_bounded_and_the_one_not_used_for_longest_goes() -> None:
    cache = AnswerCache(10_000)
    cache.put((0,), translation("kept"))
    for number in range(1, 500):
        cache.put((number,), translation(str(number)))
        assert cache.get((0,)) is not None  # used again and again
        assert cache.num_bytes <= 10_000
    assert cache.get((499,)) is not None
    assert cache.get((1,)) is None
    cache.put((1000,), translation("x" * 20_000))  # too large for any room
    assert cache.num_bytes <= 10_000
    assert cache.get((0,)) is not None  # nothing goes for what cannot be kept
    cache.put((0,), translation("x" * 20_000))
    assert cache.get((0,)) is None  # neither is an answer kept that another has replaced


def test_off_is_off() -> None:
    cache = AnswerCache(0)
    cache.put((1,), translation("eins"))
    assert cache.get((1,)) is None
    assert cache.num_bytes == 0


def test_on_and_off_give_the_same() -> None:
    rng = random.Random(1)
    requests = [
        Request(
            text="".join(rng.choices("ab", k=rng.randint(1, 3))),
            options=SearchOptions(beam_size=rng.choice([1, 3]), num_hypotheses=1),
            target_prefix=rng.choice(["", "q"]),
        )
        for _ in range(120)
    ]
    found = []
    for size in (0, 2**20):
        translator = EchoTranslator()
        scheduler = TranslationScheduler(translator, answer_cache_bytes=size)
        found.append([scheduler.submit(r).result(PATIENT).translation for r in requests])
        steps = translator.stepper.steps
        again = [scheduler.submit(r).result(PATIENT).translation for r in requests]
        assert again == found[-1]
        assert (translator.stepper.steps == steps) == bool(size)  # nothing is decoded again
        scheduler.close(PATIENT)
    assert found[0] == found[1]


def test_hits_and_misses_are_counted() -> None:
    body = {"q": ["Hallo", "Welt"], "source": "de", "target": "en"}
    with served(settings=Settings(answer_cache_bytes=2**20)) as (client, registry):
        first, second = (client.post("/translate", json=body).json() for _ in range(2))
        for translated in (*first["translations"], *second["translations"]):
            del translated["timing"]
        assert first == second
        text = registry.metrics.text().decode()
        assert 'macaron_cache_hits_total{model="echo-de-en"} 2.0' in text
        assert 'macaron_cache_misses_total{model="echo-de-en"} 2.0' in text
        assert 'macaron_cache_bytes{model="echo-de-en"} 0.0' not in text
        assert 'macaron_decoded_total{model="echo-de-en"} 2.0' in text
