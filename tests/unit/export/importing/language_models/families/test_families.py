"""What the options of each family of decoders come to, and which of them are refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.language_models.families.gemma import both_rotary, read_gemma2, read_gemma3
from export.importing.language_models.families.gpt_neox import read_gpt_neox
from export.importing.language_models.families.olmo2 import read_olmo2
from export.importing.language_models.families.phi3 import read_phi3
from export.importing.language_models.families.qwen import read_qwen2, read_qwen3
from export.importing.language_models.families.smollm3 import read_smollm3
from export.importing.language_models.options import (
    FULL,
    SLIDING,
    layer_kinds,
    windows_of,
)
from export.importing.language_models.rotary import rotary_sizes
from export.importing.language_models.state import one_more

SIZES = {
    "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
    "vocab_size": 40, "max_position_embeddings": 128, "eos_token_id": 2,
}  # fmt: skip
YARN = {"type": "yarn", "factor": 4.0}
LONG = {"type": "longrope", "long_factor": [9.0] * 4, "short_factor": [1.0, 1.1, 1.2, 1.3]}


def refusal(folder: Path, read: Callable[[Path], Any], **told: Any) -> str:
    """What is said of a folder that has no weights: that they are missing, if nothing else."""
    (folder / "config.json").write_text(json.dumps(SIZES | told))
    with pytest.raises(ExportError) as refused:
        read(folder)
    return str(refused.value)


@pytest.mark.parametrize(
    ("read", "told", "words"),
    [
        (read_qwen2, {}, "has no weights"),
        (read_qwen2, {"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        (read_qwen2, {"rope_scaling": YARN}, "has no weights"),
        (read_qwen2, {"rope_scaling": YARN | {"factor": None}}, "a number factor >= 1, got None"),
        (read_qwen3, {"rope_scaling": YARN | {"beta": 1}}, "rope_scaling: 'beta' (1) is not known"),
        (read_qwen3, {"rope_scaling": YARN | {"beta_slow": "1"}}, "a number beta_slow >= 1e-06"),
        (read_qwen3, {"rope_scaling": {"type": "x"}}, "'default', 'linear', 'llama3', 'yarn'"),
        (read_gemma3, {"rope_scaling": YARN}, "of the type 'yarn' is not supported"),
        (read_gpt_neox, {"rope_scaling": YARN}, "of the type 'yarn' is not supported"),
        (read_qwen2, {"use_mrope": True}, "'use_mrope' (True) is not known"),
        (read_qwen2, {"head_dim": 16}, "'head_dim' (16) is not known"),
        (read_qwen2, {"layer_types": ["linear_attention"] * 2}, "layer_types must be"),
        (read_qwen3, {"rope_parameters": {"mrope_section": [1]}}, "'mrope_section' ([1]) is not"),
        (read_qwen3, {"rope_scaling": [1]}, "rope_scaling must be a JSON object"),
        (read_qwen3, {"rope_scaling": LONG, "rope_parameters": {}}, "say different things about"),
        (read_qwen3, {"is_encoder_decoder": True}, "is_encoder_decoder True is not supported"),
        (read_phi3, {"auto_map": {"AutoModel": "x.Y"}}, "has no weights"),
        (read_phi3, {"mlp_bias": True}, "mlp_bias True is not supported"),
        (read_phi3, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "of the type 'linear'"),
        (read_phi3, {"rope_scaling": {"type": "su"}}, "'longrope' ('su') with a list short_factor"),
        (read_phi3, {"rope_scaling": LONG | {"short_factor": [1.0]}}, "must be 4 numbers"),
        (read_phi3, {"rope_scaling": LONG | {"beta": 1}}, "rope_scaling: 'beta' (1) is not known"),
        (read_phi3, {"rope_scaling": LONG}, "has no weights"),
        (read_gemma2, {}, "has no weights"),
        (read_gemma2, {"hidden_activation": "gelu"}, "hidden_activation 'gelu' is not supported"),
        (read_gemma2, {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
        (read_gemma3, {}, "has no weights"),
        (read_gemma3, {"sliding_window": None}, "sliding_window must be an integer >= 1, got None"),
        (read_gemma3, {"sliding_window_pattern": 0}, "sliding_window_pattern must be an integer"),
        (
            read_gemma3,
            {"rope_parameters": {SLIDING: {"rope_type": "linear", "factor": 2.0}}},
            f"rope_parameters of {SLIDING} of the type 'linear' is not supported",
        ),
        (read_olmo2, {"clip_qkv": 8.0}, "'clip_qkv' (8.0) is not known"),
        (read_olmo2, {"partial_rotary_factor": 0.5}, "'partial_rotary_factor' (0.5) is not known"),
        (read_gpt_neox, {"rotary_pct": 0.5}, "has no weights"),
        (read_gpt_neox, {"hidden_act": "mish"}, "hidden_act 'mish' is not supported"),
        (read_gpt_neox, {"rotary_pct": 0.15}, "must turn an even number of the 8"),
        (read_gpt_neox, {"rotary_pct": 0.0}, "must turn an even number of the 8"),
        (read_smollm3, {"no_rope_layers": [1]}, "no_rope_layers must be 0 or 1 for each of the 2"),
        (read_smollm3, {"no_rope_layer_interval": 0}, "no_rope_layer_interval must be an integer"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named(
    tmp_path: Path, read: Callable[[Path], Any], told: dict[str, Any], words: str
) -> None:
    assert words in refusal(tmp_path, read, **told)


def test_layers_see_windows_by_their_kinds() -> None:
    found = windows_of([SLIDING, FULL], 5)
    assert found == {"attention": "windows", "layer_windows": (5, 0)}
    assert windows_of([FULL], 5) == windows_of([SLIDING], None) == {}
    told = Options(Path("c"), {"layer_types": [FULL, SLIDING]})
    assert layer_kinds(told, 2, [FULL] * 2) == [FULL, SLIDING]
    assert layer_kinds(Options(Path("c"), {}), 1, [SLIDING]) == [SLIDING]


def test_positions_have_the_base_of_the_family_unless_told() -> None:
    assert rotary_sizes(Path("c"), "r", {}, 7.0) == {"rotary_base": 7.0}
    told = {"rope_theta": 5, "rope_type": "linear", "factor": 2.0}
    assert rotary_sizes(Path("c"), "r", told, 7.0) == {
        "rotary_base": 5.0, "rotary_scaling": "linear", "rotary_factor": 2.0,
    }  # fmt: skip
    with pytest.raises(ExportError, match=r"partial_rotary_factor 0\.5 is not supported"):
        rotary_sizes(Path("c"), "r", {"partial_rotary_factor": 0.5}, 7.0)


def test_older_files_of_gemma_3_tell_the_base_of_windows_beside_the_other() -> None:
    told = {"rope_theta": 5e5, "rope_local_base_freq": 5e3}
    scaling = {"rope_type": "linear", "factor": 8.0}
    found = both_rotary(Options(Path("c"), told | {"rope_scaling": scaling}), [SLIDING, FULL])
    assert found == {
        "rotary_base": 5e5, "rotary_scaling": "linear", "rotary_factor": 8.0,
        "window_rotary_base": 5e3,
    }  # fmt: skip
    assert both_rotary(Options(Path("c"), {}), [FULL]) == {"rotary_base": 1e6}


def test_null_is_a_value_and_no_default() -> None:
    told = Options(Path("c"), {"cap": None})
    assert (told.given("cap", 30.0), told.given("other", 30.0)) == (None, 30.0)
    told.finish(())
    assert torch.equal(one_more(torch.zeros(2)), torch.ones(2))
    assert math.isclose(float(one_more(torch.tensor(0.5))), 1.5)
