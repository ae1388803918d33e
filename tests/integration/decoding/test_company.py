"""Sentences with terms, links, streams and alternatives beside plain ones, on demo bundles."""

from __future__ import annotations

import dataclasses
import random
import time

import pytest

from serving.search.options import SearchOptions
from serving.text.terms import Terms
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Request
from serving.translation.translator import Translator, Wishes
from tests.conftest import TinyModel
from tests.integration.demo import MODELS, TEXTS, alone


@pytest.mark.parametrize("name", ["macaron-de-en", "joint-fast-de-en"])
def test_nobody_notices_what_others_ask_for(name: str) -> None:
    translator = Translator(MODELS / name, threads=1)
    options = dataclasses.replace(translator.default_options, beam_size=4, num_hypotheses=2)
    plain = [Request(text=text, options=options) for text in TEXTS]
    alternatives = dataclasses.replace(options, return_alternatives=True)
    terms = Terms(required=("building",), forbidden=("old",), glossary=(("Zeit", "hour"),))
    others = [
        Request(text=TEXTS[0], options=options, terms=terms),
        Request(text=TEXTS[1], options=options, terms=terms),
        Request(text=TEXTS[2], options=options, alignments=True, stream=True),
        Request(text=TEXTS[3], options=alternatives, target_prefix="Where", alignments=True),
        Request(text=TEXTS[4], options=options, target_prefix="The", alignments=True),
    ]
    apart = [alone(translator, request) for request in (*plain, *others)]
    scheduler = TranslationScheduler(translator)
    tickets = scheduler.submit_all([*others, *plain])
    found = [ticket.result(120).translation for ticket in tickets]
    scheduler.close(60)
    assert found == [*apart[len(plain) :], *apart[: len(plain)]]
    with_terms, with_entry, linked, where, forced = found[: len(others)]
    assert all("building" in h.text and "old" not in h.text for h in with_terms.hypotheses)
    assert all("hour" in h.text for h in with_entry.hypotheses)
    for translation, request in ((linked, plain[2]), (forced, others[4])):
        (same,) = translator.translate_sentences(
            request.text, request.options, wishes=Wishes(target_prefix=request.target_prefix)
        )
        without = [dataclasses.replace(h, alignment=None) for h in translation.hypotheses]
        assert without == list(same.hypotheses)
        assert all(h.alignment for h in translation.hypotheses)
    assert len({h.tokens[1] for h in where.hypotheses}) == 2
    assert all(h.text.startswith("Where") and h.alignment for h in where.hypotheses)
    for translation in found:
        for hypothesis in translation.hypotheses:
            assert hypothesis.probability is not None
            assert 0 <= hypothesis.probability <= 1


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "name",
    ["macaron-de-en", "fp32", "int8", pytest.param("joint-fast-de-en", marks=pytest.mark.slow)],
)
def test_random_load_changes_no_bit(tiny_model: TinyModel, name: str, workers: int) -> None:
    """Sentences of all lengths arrive at random moments; each comes out as it does alone."""
    bundle = {"fp32": tiny_model.fp32, "int8": tiny_model.int8}.get(name, MODELS / name)
    translator = Translator(bundle, threads=1)
    rng = random.Random(workers)
    words = " ".join(TEXTS).split()
    options = [SearchOptions(beam_size=size, max_length=60, verify=False) for size in (1, 2, 5)]
    requests = [
        Request(
            text=" ".join(rng.choices(words, k=rng.choice([1, 2, 3, 5, 8, 13, 30]))),
            options=rng.choice(options),
        )
        for _ in range(60)
    ]
    apart = [alone(translator, request) for request in requests]
    scheduler = TranslationScheduler(translator, workers=workers)
    tickets = []
    for request in requests:
        tickets.append(scheduler.submit(request))
        if rng.random() < 0.6:
            time.sleep(rng.expovariate(1 / 0.01))
    found = [ticket.result(120) for ticket in tickets]
    scheduler.close(60)
    assert [each.translation for each in found] == apart
    assert max(each.timing.batch_size for each in found) > 1  # some had company
