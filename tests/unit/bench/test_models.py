"""Random models: never ending, reproducible, and the same after saving."""

from pathlib import Path

import pytest
import torch

from bench.models import (
    LONGEST_SOURCE,
    SHORTEST_SOURCE,
    load_model,
    random_model,
    random_sources,
    save_model,
)
from bench.peers import EagerTranslator
from serving.tokenizer import EOS_ID
from training.models import Transformer


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_model("transformer_tiny", 5)


def test_outputs_have_exactly_the_longest_length(model: Transformer) -> None:
    sources = random_sources(model.config.vocab_size, 4, 5)
    for tokens, _ in EagerTranslator(model).translate(sources, 3, 30):
        assert len(tokens) == 30
        assert EOS_ID not in tokens
        assert len(set(tokens)) > 5  # it does not merely repeat itself


def test_eos_has_a_low_constant_logit_and_no_parameter_is_fresh(model: Transformer) -> None:
    source = torch.tensor(random_sources(model.config.vocab_size, 1, 1))
    with torch.no_grad():
        logits = model(source, torch.arange(4, 14)[None])[0]
    torch.testing.assert_close(logits[:, EOS_ID], torch.full((10,), -20.0))
    assert float(logits[:, EOS_ID].max()) < float(logits[:, 4:].min())
    for name, parameter in model.named_parameters():
        assert float(parameter.detach().std()) > 0, name


def test_a_seed_gives_the_same_model_and_sources(model: Transformer) -> None:
    again = random_model("transformer_tiny", 5).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again[name])
    sources = random_sources(100, 50, 9)
    assert sources == random_sources(100, 50, 9)
    assert sources != random_sources(100, 50, 10)
    lengths = {len(source) - 1 for source in sources}
    assert SHORTEST_SOURCE <= min(lengths) < max(lengths) <= LONGEST_SOURCE
    assert all(source[-1] == EOS_ID and min(source[:-1]) > EOS_ID for source in sources)


def test_a_saved_model_is_the_same(model: Transformer, tmp_path: Path) -> None:
    save_model(model, tmp_path / "saved")
    loaded = load_model(tmp_path / "saved")
    assert loaded.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])
