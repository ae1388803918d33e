"""Random models: never ending, reproducible, and the same after saving."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bench.subjects.models import (
    LONGEST_SOURCE,
    SHORTEST_SOURCE,
    load_model,
    random_model,
    random_sources,
    save_model,
    slot_bytes,
)
from bench.subjects.scenarios import COMPARISONS, SLOT_BEAM
from bench.systems.pytorch.eager import EagerTranslator
from serving.search.beams.beam import BeamSearch
from serving.search.beams.sentence import Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from training.decoding.stepper import TorchStepper
from training.models import (
    PRESETS,
    JointConfig,
    TransformerConfig,
    TranslationModel,
    build_model,
)


@pytest.fixture(scope="module", params=["transformer_tiny", "joint_fast_tiny", "joint_base_iwslt"])
def preset(request: pytest.FixtureRequest) -> str:
    """One of each architecture, and one that has no encoder layers and an output of its own."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(preset: str) -> TranslationModel:
    return random_model(PRESETS[preset], 5)


@pytest.mark.slow
def test_outputs_have_exactly_the_longest_length(model: TranslationModel) -> None:
    sources = random_sources(model.config.vocab_size, 4, 5)
    for tokens, _ in EagerTranslator(model).translate(sources, 3, 30):
        assert len(tokens) == 30
        assert EOS_ID not in tokens
        assert len(set(tokens)) > 5  # it does not merely repeat itself


@pytest.mark.parametrize("preset", ["transformer_tiny", "joint_fast_tiny"], indirect=True)
def test_beams_give_way_to_each_other_as_a_trained_models_do(model: TranslationModel) -> None:
    # Of trained models about 0.5 (baseline) and 0.4 (joint) of beams x steps after 25 steps. Where
    # every beam keeps its own descent it is more than 0.55, and no slot is ever given back.
    options = SearchOptions(beam_size=SLOT_BEAM, max_length=26, loop_guard=False)
    sources = random_sources(model.config.vocab_size, 6, 1)
    search = BeamSearch(TorchStepper(model), [Sentence(source, options) for source in sources])
    for _ in range(25):
        search.step()
    shares = [peak / (SLOT_BEAM * 25) for peak in search.peak_slots.values()]
    limit = COMPARISONS[model.decoder_kind, "cpu"].slot_limits[25]
    assert 0.3 * limit < sum(shares) / len(shares) < limit


def test_eos_has_a_low_constant_logit_and_no_parameter_is_fresh(model: TranslationModel) -> None:
    source = torch.tensor(random_sources(model.config.vocab_size, 1, 1))
    with torch.no_grad():
        logits = model(source, torch.arange(4, 14)[None])[0]
    torch.testing.assert_close(logits[:, EOS_ID], torch.full((10,), -20.0))
    assert float(logits[:, EOS_ID].max()) < float(logits[:, 4:].min())
    for name, parameter in model.named_parameters():
        assert float(parameter.detach().std()) > 0, name


def test_a_seed_gives_the_same_model_and_sources(model: TranslationModel, preset: str) -> None:
    again = random_model(PRESETS[preset], 5).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again[name])
    sources = random_sources(100, 50, 9)
    assert sources == random_sources(100, 50, 9)
    assert sources != random_sources(100, 50, 10)
    lengths = {len(source) - 1 for source in sources}
    assert SHORTEST_SOURCE <= min(lengths) < max(lengths) <= LONGEST_SOURCE
    assert all(source[-1] == EOS_ID and min(source[:-1]) > EOS_ID for source in sources)


def test_a_saved_model_is_the_same(model: TranslationModel, tmp_path: Path) -> None:
    save_model(model, tmp_path / "saved")
    loaded = load_model(tmp_path / "saved")
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])


def test_a_slot_of_a_joint_model_has_a_row_for_each_source_position() -> None:
    sizes: dict[str, Any] = {"model_dim": 16, "num_heads": 2, "num_decoder_layers": 3}
    assert slot_bytes(build_model(TransformerConfig(**sizes)), 7) == 3 * 2 * 16 * 4
    assert slot_bytes(build_model(JointConfig(**sizes)), 7) == 7 * 3 * 2 * 16 * 4
