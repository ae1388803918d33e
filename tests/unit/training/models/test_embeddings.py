"""Embeddings of source, target and output: one for all, or some of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.toy.recipe import write_toy_recipe
from tests.unit.training.models import reference_blocks
from tests.unit.training.tiny import TINY, randomised
from training.__main__ import main
from training.errors import ConfigError
from training.models import Transformer, build_model

SOURCE, TARGET = [5, 9, 50, 7, 52, 3], [2, 8, 6, 33, 20]
FORMS: dict[str, dict[str, Any]] = {
    "source": {"source_vocab_size": 53},
    "output": {"tie_embeddings": False},
    "all": {"source_vocab_size": 53, "tie_embeddings": False, "output_bias": True},
}


@pytest.mark.parametrize("form", FORMS)
def test_logits_equal_the_loop_written_reference(form: str) -> None:
    model = randomised(replace(TINY, **FORMS[form]))
    source = SOURCE if model.config.source_vocab_size else [5, 9, 30, 7, 12, 3]
    with torch.no_grad():
        found = model(torch.tensor([source]), torch.tensor([TARGET]))[0].numpy()
    wanted = reference_blocks.logits(source, TARGET, model)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_what_is_not_shared_is_all_that_is_new() -> None:
    one = build_model(TINY)
    assert isinstance(one, Transformer)
    for form, names in {
        "source": {"source_embedding.weight"},
        "output": {"output_matrix"},
        "all": {"source_embedding.weight", "output_matrix", "output_bias"},
    }.items():
        other = build_model(replace(TINY, **FORMS[form]))
        assert other.state_dict().keys() - one.state_dict().keys() == names


def test_a_recipe_trains_embeddings_of_their_own_and_one_vocabulary(tmp_path: Path) -> None:
    recipe = write_toy_recipe(tmp_path)
    overrides = ["loop.max_steps=2", "loop.validate_every=2", "loop.checkpoint_every=2"]
    command = ["train", str(recipe), *overrides, "loop.log_every=2", "--threads", "1"]
    command += ["model.tie_embeddings=false"]
    run = ["--run", str(tmp_path / "run")]
    assert main([*command, "model.source_vocab_size=7", *run]) == 1
    size = toy_size(recipe)
    assert main([*command, f"model.source_vocab_size={size}", "--run", str(tmp_path / "b")]) == 0


def toy_size(recipe: Path) -> int:
    line = next(line for line in recipe.read_text().splitlines() if "vocab_size" in line)
    return int(line.rpartition(":")[2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_vocab_size": -1}, "source_vocab_size must be >= 0, got -1"),
        ({"tie_embeddings": False, "fix_norm": True}, "fix_norm needs tie_embeddings: true"),
    ],
)
def test_what_cannot_work_is_one_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **changes)
