"""Drawing tokens, against slow loops and exact distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.search.ids import EOS_ID
from serving.search.sampling.drawing import (
    Drawing,
    Uniforms,
    draw_from_logits,
    draw_from_top,
    edit_logits,
    listed_tokens,
    needs_logits,
)
from serving.search.sampling_options import GenerationOptions

VOCABULARY = 40


def distribution(logits: np.ndarray, options: GenerationOptions) -> dict[int, float]:
    """Probabilities after temperature, top-k and top-p, in plain loops."""
    if options.greedy:
        return {int(np.argmax(logits)): 1.0}
    scaled = [float(x) / options.temperature for x in logits]
    highest = max(scaled)
    weights = {i: float(np.exp(x - highest)) for i, x in enumerate(scaled)}
    ranked = sorted(weights, key=lambda i: (-weights[i], i))
    if options.sampling_top_k:
        ranked = ranked[: options.sampling_top_k]
    total = sum(weights[i] for i in ranked)
    kept, mass = [], 0.0
    for token in ranked:
        if kept and mass >= options.sampling_top_p * total:
            break
        kept.append(token)
        mass += weights[token]
    return {token: weights[token] / mass for token in kept}


def random_logits(seed: int, size: int = VOCABULARY) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)


CHOICES = st.builds(
    GenerationOptions,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    sampling_top_k=st.sampled_from([0, 1, 2, 7, VOCABULARY, 500]),
    sampling_top_p=st.sampled_from([0.0, 0.2, 0.7, 0.95, 1.0]),
)


@given(seed=st.integers(0, 50), options=CHOICES, uniform=st.floats(0, 1, exclude_max=True))
def test_a_token_is_drawn_from_those_that_are_left(
    seed: int, options: GenerationOptions, uniform: float
) -> None:
    logits = random_logits(seed)
    assert draw_from_logits(logits, options, uniform) in distribution(logits, options)


@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(),
        GenerationOptions(temperature=0.6),
        GenerationOptions(sampling_top_k=5, temperature=1.4),
        GenerationOptions(sampling_top_p=0.8),
        GenerationOptions(sampling_top_k=9, sampling_top_p=0.7, temperature=0.9),
    ],
    ids=str,
)
def test_evenly_spread_numbers_give_the_distribution(options: GenerationOptions) -> None:
    logits, count = random_logits(3), 20_000
    log_probs = logits - np.log(np.exp(logits.astype(np.float64)).sum()).astype(np.float32)
    order = np.argsort(-log_probs, kind="stable")
    uniforms = (np.arange(count) + 0.5) / count
    alone = np.bincount(
        [draw_from_logits(logits, options, u) for u in uniforms], minlength=VOCABULARY
    )
    places = draw_from_top(
        np.tile(log_probs[order], (count, 1)),
        Drawing.of([options] * count, VOCABULARY),
        uniforms,
    )
    together = np.bincount(order[places], minlength=VOCABULARY)
    wanted = np.zeros(VOCABULARY)
    for token, probability in distribution(logits, options).items():
        wanted[token] = probability
    # Inverse transform of an even grid: each count is exact but for the cells' two ends.
    np.testing.assert_allclose(alone / count, wanted, atol=2 / count)
    np.testing.assert_allclose(together / count, wanted, atol=2 / count)


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ({"temperature": 0.0}, 1),
        ({"temperature": 0.0, "num_logprobs": 2}, 16),
        ({"temperature": 0.0, "num_logprobs": 17}, 64),
        ({"sampling_top_k": 1}, 1),
        ({"sampling_top_k": 2}, 16),
        ({"sampling_top_k": 16, "num_logprobs": 16}, 16),
        ({"sampling_top_k": 17}, 64),
        ({}, 64),
        ({"sampling_top_p": 0.5}, 64),
        ({"temperature": 0.0, "repetition_penalty": 1.5}, 64),
    ],
)
def test_no_more_tokens_are_listed_than_a_draw_looks_at(
    options: dict[str, float], listed: int
) -> None:
    assert listed_tokens(GenerationOptions(**options)) == listed  # type: ignore[arg-type]


@given(
    seed=st.integers(0, 20),
    listed=st.integers(1, VOCABULARY),
    options=CHOICES,
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_the_likeliest_tokens_suffice_where_it_is_said(
    seed: int, listed: int, options: GenerationOptions, uniform: float
) -> None:
    logits = random_logits(seed)
    log_probs = logits - np.log(np.exp(logits.astype(np.float64)).sum()).astype(np.float32)
    order = np.argsort(-log_probs, kind="stable")[:listed]
    top = log_probs[order]
    if needs_logits(options, top, VOCABULARY):
        return
    drawing = Drawing.of([options], listed)
    place = draw_from_top(top[None], drawing, [uniform])[0]
    allowed = distribution(logits, options)
    ends = np.cumsum([allowed[token] for token in sorted(allowed, key=lambda t: (-logits[t], t))])
    if np.abs(ends - uniform).min() > 1e-5:  # rounding decides between neighbours
        ranked = sorted(allowed, key=lambda t: (-logits[t], t))
        assert order[place] == ranked[int((ends <= uniform).sum())]


@given(rows=st.integers(1, 9), place=st.integers(0, 8), seed=st.integers(0, 30))
def test_a_row_does_not_depend_on_its_batch(rows: int, place: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = -np.sort(generator.exponential(2, (rows, 16)).astype(np.float32), axis=1)
    options = [
        GenerationOptions(temperature=temperature, sampling_top_k=top_k, sampling_top_p=top_p)
        for temperature, top_k, top_p in zip(
            generator.choice([0.0, 0.5, 1.0], rows).tolist(),
            generator.choice([0, 3, 16], rows).tolist(),
            generator.choice([0.3, 1.0], rows).tolist(),
            strict=True,
        )
    ]
    uniforms, row = generator.random(rows), place % rows
    alone = draw_from_top(
        scores[row : row + 1], Drawing.of(options[row : row + 1], 16), uniforms[row : row + 1]
    )
    assert draw_from_top(scores, Drawing.of(options, 16), uniforms)[row] == alone[0]


@given(
    seed=st.integers(0, 200),
    top_k=st.sampled_from([2, 5, 16]),
    top_p=st.sampled_from([0.4, 0.8, 1.0]),
    temperature=st.sampled_from([0.5, 1.0]),
)
def test_what_is_listed_for_others_changes_nothing(
    seed: int, top_k: int, top_p: float, temperature: float
) -> None:
    options = GenerationOptions(sampling_top_k=top_k, sampling_top_p=top_p, temperature=temperature)
    generator = np.random.default_rng(seed)
    logits = np.sort(generator.normal(0, 2, 64).astype(np.float32))[::-1]
    scores = (logits - np.log(np.exp(logits.astype(np.float64)).sum())).astype(np.float32)[None]
    for uniform in generator.random(20):
        few = draw_from_top(scores[:, :16], Drawing.of([options], 16), [uniform])
        assert draw_from_top(scores, Drawing.of([options], 64), [uniform]) == few
        others = [options, GenerationOptions()]
        together = draw_from_top(scores.repeat(2, 0), Drawing.of(others, 64), [uniform, 0.5])
        assert together[0] == few[0]


def test_rounding_draws_no_token_without_weight() -> None:
    top = np.log(np.array([[0.7, 0.2, 0.1, 1e-30]], np.float32))
    drawing = Drawing.of([GenerationOptions(sampling_top_k=3)], 4)
    for uniform in (0.0, np.nextafter(1.0, 0.0)):
        assert draw_from_top(top, drawing, [uniform])[0] == (0 if uniform == 0 else 2)


def test_a_step_of_a_choice_has_its_own_number() -> None:
    numbers = Uniforms(7, 0)
    some = [numbers[step] for step in (0, 1, 255, 256, 1000, 3)]
    again = Uniforms(7, 0)
    assert [again[step] for step in (3, 1000, 256, 255, 1, 0)] == some[::-1]
    assert len({*some, Uniforms(7, 1)[0], Uniforms(8, 0)[0], Uniforms(-1, 0)[0]}) == 9
    many = np.array([numbers[step] for step in range(4096)])
    assert abs(many.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(many[:-1], many[1:])[0, 1]) < 0.05


def test_penalties_and_bias_change_the_logits() -> None:
    logits = np.array([1.0, -1.0, 2.0, 3.0, 0.5, 0.25], np.float32)
    options = GenerationOptions(
        presence_penalty=0.5,
        frequency_penalty=0.25,
        logit_bias=((0, 2.0), (1, -100.0)),
        min_length=4,
        repetition_penalty=2.0,
    )
    edited = logits.copy()
    edit_logits(edited, [5], [2, 2, 4], options, [EOS_ID])
    expected = [3.0, -np.inf, 2.0 / 2 - 0.5 - 0.5, -np.inf, 0.5 / 2 - 0.5 - 0.25, 0.125]
    np.testing.assert_allclose(edited, expected)
    edited = logits.copy()
    edit_logits(edited, [2], [4, 5, 0, 1], options, [EOS_ID])
    assert edited[EOS_ID] == 3.0
    edited = logits.copy()
    edit_logits(edited, [4, 5, 2], [4, 5], GenerationOptions(no_repeat_ngram_size=3), [EOS_ID])
    assert np.flatnonzero(edited == -np.inf).tolist() == [2]


def test_the_end_of_text_before_a_prompt_is_not_a_word_of_it() -> None:
    logits = np.zeros(6, np.float32)
    edit_logits(logits, [EOS_ID, 5], [4], GenerationOptions(no_repeat_ngram_size=1), [EOS_ID])
    assert np.flatnonzero(logits == -np.inf).tolist() == [4, 5]


@pytest.mark.parametrize("temperature", [1e-310, 1e-30, 1e-3])
def test_a_very_low_temperature_takes_the_likeliest(temperature: float) -> None:
    logits = random_logits(4)
    options = GenerationOptions(temperature=temperature)
    assert draw_from_logits(logits, options, 0.7) == logits.argmax()
    top = np.sort(logits)[::-1][None]
    drawing = Drawing.of(
        [GenerationOptions(temperature=temperature, sampling_top_k=5)], len(top[0])
    )
    assert draw_from_top(top, drawing, [0.7]) == [0]
