"""What all readers of translation models say in one way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.model import (
    ACTIVATIONS,
    check_search,
    find_file,
    generation_options,
    loaded,
    read_options,
    read_sizes,
    search_options,
    special_id,
)
from tests.unit.export.importing.small_bart import OPTIONS
from training.models import TransformerConfig, build_model

PATH = Path("config.json")


def options(**tree: Any) -> Options:
    return Options(PATH, tree)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_sizes_are_those_of_both_sides(name: str) -> None:
    given = options(**OPTIONS, vocab_size=50, activation_function=name, scale_embedding=True)
    config = read_sizes(given, activation="relu", scale_embedding=False)
    given.finish(())
    assert (config.model_dim, config.num_heads, config.ffn_dim) == (8, 2, 12)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.vocab_size) == (1, 1, 50)
    assert config.activation == ACTIVATIONS[name]
    assert config.embedding_scale == "token"


def test_a_family_has_its_own_activation_and_scale_where_none_is_given() -> None:
    given = options(**OPTIONS, vocab_size=50)
    config = read_sizes(given, activation="gelu", scale_embedding=False)
    assert (config.activation, config.embedding_scale) == ("gelu", "none")


def test_layers_of_each_side_are_counted_apart_and_widths_are_one() -> None:
    tree = OPTIONS | {"vocab_size": 50, "encoder_layers": 3}
    config = read_sizes(options(**tree), activation="relu", scale_embedding=False)
    assert (config.num_encoder_layers, config.num_decoder_layers) == (3, 1)
    wrong = options(**(tree | {"decoder_ffn_dim": 99}))
    with pytest.raises(ExportError, match="encoder_ffn_dim and decoder_ffn_dim must be equal"):
        read_sizes(wrong, activation="relu", scale_embedding=False)


def test_a_loaded_model_has_its_weights_and_drops_nothing_out() -> None:
    config = TransformerConfig(
        model_dim=8, num_heads=2, ffn_dim=12, num_encoder_layers=1, num_decoder_layers=1,
        vocab_size=9,
    )  # fmt: skip
    state = {name: torch.full_like(t, 0.5) for name, t in build_model(config).state_dict().items()}
    model = loaded(config, state)
    assert not model.training
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_options_are_needed_and_those_of_generation_are_not(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"config\.json: cannot be read"):
        read_options(tmp_path)
    assert generation_options(tmp_path).get("num_beams") is None
    for name in ("config", "generation_config"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"num_beams": len(name)}))
    assert read_options(tmp_path).get("num_beams") == 6
    assert generation_options(tmp_path).get("num_beams") == 17


def test_of_search_options_the_last_word_counts() -> None:
    assert search_options(options()) == {
        "beam_size": 5,
        "length_penalty": 1.0,
        "eos_in_length": True,
    }
    first, last = options(num_beams=4, length_penalty=0.8), options(num_beams=6)
    found = search_options(first, last)
    assert (found["beam_size"], found["length_penalty"]) == (6, 0.8)


@pytest.mark.parametrize(
    ("tree", "words"),
    [({"num_beams": 500}, r"\[1, 64\], got 500"), ({"length_penalty": "long"}, "'long'")],
)
def test_searches_that_no_request_may_ask_for_are_refused(tree: dict[str, Any], words: str) -> None:
    with pytest.raises(ExportError, match=rf"config\.json: num_beams or length_penalty: .*{words}"):
        search_options(options(**tree))
    with pytest.raises(ExportError, match=r"config\.json: beam-size: "):
        check_search(PATH, {"beam_size": 0}, "beam-size")
    assert check_search(PATH, {"beam_size": 3}, "beam-size") == {"beam_size": 3}


def test_special_ids_are_rows_of_the_embedding() -> None:
    assert special_id(options(eos_token_id=9), "eos_token_id", 10) == 9
    with pytest.raises(ExportError, match="eos_token_id must be below vocab_size 10, got 10"):
        special_id(options(eos_token_id=10), "eos_token_id", 10)
    with pytest.raises(ExportError, match="eos_token_id must be an integer"):
        special_id(options(), "eos_token_id", 10)


def test_a_file_that_is_missing_is_named_with_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"a\.spm is missing, the pieces; put it beside the wei"):
        find_file(tmp_path, "a.spm", "the pieces")
    (tmp_path / "a.spm").touch()
    assert find_file(tmp_path, "a.spm", "the pieces") == tmp_path / "a.spm"
