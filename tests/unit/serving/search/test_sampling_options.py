"""Options of generated texts, as Python gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serving.errors import InvalidOptionError
from serving.search.sampling_options import (
    GenerationOptions,
    over_defaults,
    parse_generation_options,
)


@pytest.mark.parametrize(
    "given", [{5: 3, 6: -1}, {"5": 3.0, "6": -1}, [[5, 3], [6, -1]], ((np.int64(5), 3), (6, -1))]
)
def test_biases_are_pairs_or_a_mapping(given: Any) -> None:
    options = GenerationOptions(logit_bias=given)
    assert options.logit_bias == ((5, 3.0), (6, -1.0))
    assert hash(options) == hash(GenerationOptions(logit_bias=((5, 3), (6, -1))))


@pytest.mark.parametrize(
    "given",
    [
        5,
        "5",
        [5],
        [(5,)],
        [("5", "3")],
        [(5.7, 1)],
        [(True, 1)],
        [(5, True)],
        [(5, None)],
        {"x": 1},
    ],
)
def test_what_is_no_bias_is_refused(given: Any) -> None:
    with pytest.raises(InvalidOptionError, match="logit_bias must map token ids to numbers, got"):
        GenerationOptions(logit_bias=given)


@pytest.mark.parametrize("given", [[(5, 1), (5, 1)], {"5": 1, 5: 2}])
def test_a_token_has_one_bias(given: Any) -> None:
    with pytest.raises(InvalidOptionError, match="one number for each token, got two for token 5"):
        GenerationOptions(logit_bias=given)


def test_texts_at_which_an_output_ends_are_one_or_several() -> None:
    given: Any
    for given in ("ab", ["ab"], ("ab",)):
        assert parse_generation_options({"stop": given}).stop == ("ab",)


def test_of_beams_and_sampling_the_given_ones_stay() -> None:
    defaults = {"temperature": 0.5, "stop": ["a"], "min_length": 3}
    assert over_defaults({"beam_size": 4}, defaults) == {"min_length": 3, "beam_size": 4}
    assert over_defaults({"beam_size": 1}, defaults) == {**defaults, "beam_size": 1}
    beams = {"beam_size": 4, "min_length": 3}
    assert over_defaults({"temperature": 0}, beams) == {"min_length": 3, "temperature": 0}
    neutral = {"temperature": 1.0, "stop": [], "logit_bias": {}}
    assert over_defaults(neutral, beams) == beams | neutral


def test_the_name_of_openais_api_leads_to_ours() -> None:
    with pytest.raises(InvalidOptionError, match="'top_p'; did you mean 'sampling_top_p'"):
        parse_generation_options({"top_p": 0.5})
