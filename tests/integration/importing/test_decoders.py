"""Decoders of `transformers` with traits of their own, imported: what their own library makes of
them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.language_models.model import ImportedLanguageModel
from export.importing.model import NOTHING_DECLARED
from serving.generation.generator import Generator
from serving.runtime import kernels
from serving.search.sampling_options import GenerationOptions
from tests.toy.language_checkpoints import ROWS, write_llama
from training.models.networks.language_model import PlacedTokens

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread")

TEXTS = ["the old man sat by the river", "Zürich, 3 % ≠ 漢字! 🙂", "  a\n\nb"]
GREEDY = GenerationOptions(max_length=24, temperature=0.0)
TIE = 1e-4
"""Log-probabilities nearer than this may stand in either order."""
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
MODELS: dict[str, dict[str, Any]] = {
    "qwen2": {"kind": "Qwen2"},
    "qwen2 with a window": {
        "kind": "Qwen2",
        "tie_word_embeddings": True,
        "use_sliding_window": True,
        "max_window_layers": 1,
        "sliding_window": 5,
    },
    "qwen2 for long texts": {
        "kind": "Qwen2",
        "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0},
    },
    "qwen3": {"kind": "Qwen3", "head_dim": 24},
    "qwen3 for long texts": {
        "kind": "Qwen3",
        "head_dim": 24,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 3.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 4,
            "beta_slow": 0.5,
            "mscale": 2.0,
            "mscale_all_dim": 0.5,
            "truncate": False,
        },
    },
    "phi3": {"kind": "Phi3", "sliding_window": 5, "pad_token_id": 0},
    "phi4 mini": {
        "kind": "Phi3",
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "hidden_size": 64,
        "max_position_embeddings": 1024,
        "original_max_position_embeddings": 128,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 500.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.0, 1.1, 1.5, 1.7, 2.0],
            "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 9.0],
        },
    },
    "gemma2": {
        "kind": "Gemma2",
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "sliding_window": 5,
        "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 5.0,
    },
    "gemma3": {
        "kind": "Gemma3Text",
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        **SLIDING,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    },
    "gemma3 with pictures": {
        "kind": "Gemma3",
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        **SLIDING,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    },
    "olmo2": {"kind": "Olmo2"},
    "gpt_neox": {"kind": "GPTNeoX", "num_key_value_heads": None},
    "gpt_neox in sequence": {
        "kind": "GPTNeoX",
        "num_key_value_heads": None,
        "use_parallel_residual": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 500.0,
            "partial_rotary_factor": 0.5,
        },
    },
    "smollm3": {"kind": "SmolLM3", "no_rope_layers": [1, 0], "pad_token_id": 0},
}
ALIKE = ("qwen2", "qwen2 for long texts", "qwen3 for long texts", "phi3", "gpt_neox in sequence")
BUNDLED = [name for name in MODELS if name not in ALIKE]
"""One of each family."""


@dataclass(frozen=True)
class Case:
    """A checkpoint and its model as its own library has it."""

    folder: Path
    theirs: Any
    imported: ImportedLanguageModel


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return made(request.param, tmp_path_factory)


@dataclass(frozen=True)
class Bundled:
    """A checkpoint, and the bundle of it in fp32."""

    case: Case
    generator: Generator


@pytest.fixture(scope="module", params=BUNDLED)
def bundled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, traced_once: None
) -> Bundled:
    case = made(request.param, tmp_path_factory)
    out = case.folder.parent / "fp32" / "model"
    import_bundle(case.folder, out, Form("fp32"))
    return Bundled(case, Generator(out, threads=1))


def made(name: str, places: pytest.TempPathFactory) -> Case:
    folder = places.mktemp("decoders") / "model"
    theirs = write_llama(folder, **MODELS[name])
    return Case(folder, theirs, recognise(folder).read(folder, NOTHING_DECLARED))


@torch.no_grad()
def their_log_probs(case: Case, ids: list[int]) -> np.ndarray:
    return case.theirs(torch.tensor([ids])).logits[0].log_softmax(-1).numpy()


def some_ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, ROWS, shape, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_logits_are_those_of_its_own_library(case: Case) -> None:
    ids = some_ids(3, 40)
    ours, theirs = case.imported.model(ids), case.theirs(ids).logits
    assert theirs.std() > 0.5  # else all models would be alike
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_every_option_of_its_configuration_is_known(case: Case, tmp_path: Path) -> None:
    """A folder tells those alone that are not the defaults."""
    folder = shutil.copytree(case.folder, tmp_path / "model")
    told = case.theirs.config.to_dict()
    (folder / "config.json").write_text(json.dumps(told, default=str))
    assert (
        recognise(folder).read(folder, NOTHING_DECLARED).model.config == case.imported.model.config
    )
    told["qk_norms"] = True
    (folder / "config.json").write_text(json.dumps(told, default=str))
    with pytest.raises(ExportError, match=r"'qk_norms' .True. is not known"):
        recognise(folder).read(folder, NOTHING_DECLARED)


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return made("gemma3 with pictures", tmp_path_factory)


def test_of_a_model_that_sees_pictures_the_text_part_is_read(pictured: Case) -> None:
    assert "pictures are not read" in pictured.imported.kind
    assert (pictured.imported.special_ids.eos, pictured.imported.other_ends) == (2, (1,))


def test_newer_files_have_other_names_of_the_text_part(pictured: Case, tmp_path: Path) -> None:
    folder = shutil.copytree(pictured.folder, tmp_path / "model")
    newer = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        text = name.startswith("language_model.model.")
        there = name.replace("language_model.model.", "model.language_model.")
        newer[there if text else f"model.{name}"] = tensor
    newer["lm_head.weight"] = newer["model.language_model.embed_tokens.weight"].clone()
    save_file(newer, folder / "model.safetensors")
    found = recognise(folder).read(folder, NOTHING_DECLARED).model.state_dict()
    torch.testing.assert_close(found, pictured.imported.model.state_dict(), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({"hidden_size": 2560}, r"embed_tokens.weight' must be \[262208, 2560\] by config\.json"),
        (
            {"hidden_size": 32, "vocab_size": ROWS, "intermediate_size": 48, "head_dim": 16},
            r"self_attn\.q_proj\.weight' must be \[128, 32\] by config\.json",  # of 8 heads
        ),
        ({"model_type": "gemma2"}, "model_type 'gemma2' is not supported"),
        ({"experts": 2}, r"the option 'experts' \(2\) is not known"),
        (None, "text_config must be of the type dict, got nothing"),
    ],
)
def test_what_is_left_out_of_a_text_config_has_its_default(
    pictured: Case, tmp_path: Path, text: dict[str, Any] | None, words: str
) -> None:
    folder = shutil.copytree(pictured.folder, tmp_path / "model")
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | {"text_config": text}))
    with pytest.raises(ExportError, match=words):
        recognise(folder).read(folder, NOTHING_DECLARED)


@torch.no_grad()
def test_decoding_token_by_token_equals_the_full_pass(case: Case) -> None:
    model, ids_BT = case.imported.model, some_ids(2, 21)
    caches = [torch.zeros(cache.shape({"B": 2, "C": 21})) for cache in model.caches]
    slots_BC, found = torch.arange(21).expand(2, -1), []
    for t in range(21):
        visible = torch.where(slots_BC <= t, 0.0, -torch.inf)[:, None, None]
        at = torch.full((2, 1), t)
        tokens = PlacedTokens(ids_BT[:, t : t + 1], at, slots_BC, at[:, 0], visible)
        step = model.decode_step(tokens, caches)
        caches = step.caches
        found.append(model.output_logits(step.x_BQD))
    torch.testing.assert_close(torch.cat(found, 1), model(ids_BT), atol=1e-4, rtol=1e-4)


def test_greedy_outputs_are_those_of_its_own_library(bundled: Bundled) -> None:
    case, generator = bundled.case, bundled.generator
    for text, (found,) in zip(TEXTS, generator.generate(TEXTS, GREEDY), strict=True):
        ids = generator.encode(text)
        output = [token.token_id for token in found.tokens]
        wanted = their_log_probs(case, [*ids, *output])[len(ids) - 1 : -1]
        own = wanted[np.arange(len(output)), output]
        assert (own >= wanted.max(-1) - TIE).all()  # each is its likeliest, or as likely
        np.testing.assert_allclose([token.log_prob for token in found.tokens], own, atol=1e-4)


def test_a_long_prompt_is_read_in_chunks_as_a_whole(bundled: Bundled) -> None:
    case, generator = bundled.case, bundled.generator
    ids = some_ids(100).tolist()
    [output] = generator.generate([ids], GenerationOptions(max_length=8, temperature=0.0))[0]
    tokens = [token.token_id for token in output.tokens]
    wanted = their_log_probs(case, [*ids, *tokens])[len(ids) - 1 : -1]
    own = wanted[np.arange(len(tokens)), tokens]
    assert (own >= wanted.max(-1) - TIE).all()


def test_what_stands_between_products_is_fused(bundled: Bundled) -> None:
    """Heads of which a part is turned are left as they are."""
    config = bundled.case.imported.model.config
    nodes = onnx.load(bundled.case.folder.parent / "fp32" / "model" / "step.onnx").graph.node
    called = {node.op_type for node in nodes}
    gate = {"swiglu": "Swiglu", "geglu_tanh": "GegluTanh"}.get(config.activation)
    wanted = {gate} if gate else set()
    if config.norm_type == "rms":
        wanted.add("AddRmsNorm")
    if config.rotary_width == config.head_width:
        wanted.add("Rotary")
    assert called & {"Swiglu", "GegluTanh", "AddRmsNorm", "Rotary"} == wanted
    assert "Sigmoid" not in called


def test_texts_have_the_ids_of_its_own_tokenizer(bundled: Bundled) -> None:
    case, generator = bundled.case, bundled.generator
    from transformers import PreTrainedTokenizerFast

    path = case.folder / "tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path))
    tokenizer.chat_template = json.loads((case.folder / "tokenizer_config.json").read_text())[
        "chat_template"
    ]
    for text in TEXTS:
        assert generator.encode(text) == tokenizer(text)["input_ids"]
    chat = [{"role": "user", "content": " Hello "}, {"role": "assistant", "content": "Ja?"}]
    wanted = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert generator.prompts.encode_chat(chat) == wanted


def test_the_standard_operators_cap_scores_as_the_kernels_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_llama(tmp_path / "given", **MODELS["gemma2"])
    import_bundle(tmp_path / "given", tmp_path / "model", Form("fp32"))
    called = {node.op_type for node in onnx.load(tmp_path / "model" / "step.onnx").graph.node}
    assert "TreeAttentionByHead" in called
    native = Generator(tmp_path / "model", threads=1).score(TEXTS)
    monkeypatch.setenv(kernels.SWITCH, "off")
    kernels.native_library.cache_clear()
    standard = Generator(tmp_path / "model", threads=1).score(TEXTS)
    kernels.native_library.cache_clear()
    for one, other in zip(native, standard, strict=True):
        found, wanted = ([t.log_prob for t in side[1:]] for side in (one, other))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen3", "gemma2", "gpt_neox"])
def test_int8_loses_little(name: str, tmp_path: Path) -> None:
    write_llama(tmp_path / "given", **MODELS[name])
    import_bundle(tmp_path / "given", tmp_path / "model", Form("int8", activations="row16"))
    generator = Generator(tmp_path / "model", threads=1)
    together = generator.generate(TEXTS, GREEDY)
    assert [generator.generate([text], GREEDY)[0] for text in TEXTS] == together
    assert together[0][0].num_generated > 0
