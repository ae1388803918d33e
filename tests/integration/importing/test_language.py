"""Language models of `transformers`, imported: what their own library makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.importing.language_models.families.gpt2 import read_gpt2
from export.importing.language_models.families.llama import read_llama
from export.importing.language_models.model import ImportedLanguageModel
from export.texts.texts import Texts
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Activations
from serving.errors import ContextLengthError
from serving.generation.generator import Generator
from serving.search.sampling_options import GenerationOptions
from tests.integration.export.test_bundle import assert_all_wide_products_are_fused
from tests.toy.corpus import toy_pairs
from tests.toy.language_checkpoints import ROWS, write_gpt2, write_llama

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread")

TEXTS = [
    *(english for _, english in toy_pairs(6, seed=11)),
    "",
    "Zürich, 3 % ≠ 漢字! 🙂",
    "  a\n\nb",
]
GREEDY = GenerationOptions(max_length=24, temperature=0.0, num_logprobs=2)
TIE = 1e-4
"""Log-probabilities nearer than this may stand in either order."""

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0}
LLAMA3 |= {"low_freq_factor": 0.3, "high_freq_factor": 2.0, "original_max_position_embeddings": 16}
"""Of four angles one stays as it is, one turns slower in part, and two in full."""
Written = tuple[Callable[..., Any], Callable[[Path], ImportedLanguageModel], dict[str, Any]]
MODELS: dict[str, Written] = {
    "gpt2": (write_gpt2, read_gpt2, {}),
    "gpt2 untied": (write_gpt2, read_gpt2, {"tie_word_embeddings": False, "n_inner": 40}),
    "llama": (write_llama, read_llama, {}),
    "llama tied, with biases": (
        write_llama,
        read_llama,
        {
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
            "num_key_value_heads": 4,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.5},
        },
    ),
    "mistral": (
        write_llama,
        read_llama,
        {"kind": "Mistral", "sliding_window": 5, "rope_parameters": LLAMA3},
    ),
}


@dataclass(frozen=True)
class Case:
    """A checkpoint and its model as its own library has it."""

    folder: Path
    theirs: Any
    imported: ImportedLanguageModel


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    write, read, changed = MODELS[request.param]
    folder = tmp_path_factory.mktemp("language") / "model"
    theirs = write(folder, **changed)
    return Case(folder, theirs, read(folder))


@pytest.fixture(scope="module")
def generators(case: Case, traced_once: None) -> dict[str, Generator]:
    found = {}
    forms: dict[str, tuple[str, Activations | None]] = {
        "fp32": ("fp32", None),
        "int8": ("int8", None),
        "int8 of 16 bits": ("int8", "row16"),
    }
    for name, (precision, activations) in forms.items():
        out = case.folder.parent / name / "model"
        import_bundle(case.folder, out, Form(precision, activations=activations))
        found[name] = Generator(out, threads=1)
    return found


@torch.no_grad()
def their_log_probs(case: Case, ids: list[int]) -> np.ndarray:
    return case.theirs(torch.tensor([ids])).logits[0].log_softmax(-1).numpy()


def test_logits_are_those_of_its_own_library(case: Case) -> None:
    ids = torch.randint(0, ROWS, (3, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours, theirs = case.imported.model(ids), case.theirs(ids).logits
    assert theirs.std() > 0.5  # else all models would be alike
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_texts_have_the_ids_of_its_own_tokenizer(
    case: Case, generators: dict[str, Generator]
) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(case.folder / "tokenizer.json"))
    for text in TEXTS:
        wanted = tokenizer(text)["input_ids"]
        assert generators["fp32"].encode(text) == (wanted or [0])
        assert generators["fp32"].tokenizer.decode(wanted) == text


def test_greedy_outputs_are_those_of_its_own_library(
    case: Case, generators: dict[str, Generator]
) -> None:
    generator = generators["fp32"]
    for text, (found,) in zip(TEXTS, generator.generate(TEXTS, GREEDY), strict=True):
        ids, eos = generator.encode(text), generator.tokenizer.eos_id
        output = [token.token_id for token in found.tokens]
        wanted = their_log_probs(case, [*ids, *output])[len(ids) - 1 : -1]
        best = wanted.max(-1)
        own = wanted[np.arange(len(output)), output]
        assert (own >= best - TIE).all()  # each is its likeliest, or as likely
        np.testing.assert_allclose([token.log_prob for token in found.tokens], own, atol=1e-4)
        assert (output[-1] == eos) == (found.finish_reason == "stop")


def test_an_output_ends_with_the_end_of_its_own_vocabulary(
    generators: dict[str, Generator],
) -> None:
    generator = generators["fp32"]
    eos = generator.manifest.decoding_ids.eos
    options = GenerationOptions(temperature=0.0, logit_bias=((eos, 100.0),))
    found = generator.generate("a", options)[0][0]
    assert (found.text, found.finish_reason, found.num_generated) == ("", "stop", 1)
    assert found.tokens[0].token == {0: "<|end|>", 2: "<|im_end|>"}[eos]


@pytest.mark.parametrize("form", ["fp32", "int8", "int8 of 16 bits"])
def test_outputs_are_the_same_in_any_batch(generators: dict[str, Generator], form: str) -> None:
    generator = generators[form]
    together = generator.generate(TEXTS, GREEDY)
    assert [generator.generate([text], GREEDY)[0] for text in TEXTS] == together


def test_activations_of_16_bits_are_nearer_to_the_checkpoint(
    case: Case, generators: dict[str, Generator]
) -> None:
    assert generators["int8 of 16 bits"].manifest.activations == "row16"
    out = case.folder.parent / "int8 of 16 bits" / "model"
    assert_all_wide_products_are_fused(out / "step.onnx")
    exact, row, wide = (
        np.concatenate(
            [
                [token.log_prob for token in scores if token.log_prob is not None]
                for scores in generators[form].score([text for text in TEXTS if text])
            ]
        )
        for form in ("fp32", "int8", "int8 of 16 bits")
    )
    assert np.abs(wide - exact).mean() < np.abs(row - exact).mean()


def test_scores_of_prompts_begin_where_its_tokenizer_does(
    case: Case, generators: dict[str, Generator]
) -> None:
    generator, text = generators["fp32"], TEXTS[0]
    ids = generator.encode(text)
    wanted = their_log_probs(case, ids)[np.arange(len(ids) - 1), ids[1:]]
    found = generator.score([text])[0]
    begins = len(generator.tokenizer.beginning)
    assert [token.token_id for token in found] == ids[begins:]
    told = [token.log_prob for token in found if token.log_prob is not None]
    np.testing.assert_allclose(told, wanted, atol=1e-4)
    assert "".join(token.token for token in found) == text


def test_the_manifest_says_what_it_is(case: Case, generators: dict[str, Generator]) -> None:
    manifest = generators["int8"].manifest
    heads = case.imported.model.config.kv_heads
    assert all(cache.axes == ("B", heads, "C", 8) for cache in manifest.caches)
    assert manifest.sizes.max_positions == case.imported.max_positions
    assert manifest.attribution.startswith("Imported from model: ")
    assert manifest.parity["data"] == "built-in passage (en)"
    gpt2 = "GPT-2" in case.imported.kind
    assert manifest.recipe["imported"]["licence"] == ("" if gpt2 else "apache-2.0")
    assert manifest.tokenizer.chat_template_file == (None if gpt2 else "chat_template.jinja")


def test_prompt_and_output_keep_to_the_positions_of_the_model(
    case: Case, generators: dict[str, Generator]
) -> None:
    generator, longest = generators["fp32"], case.imported.max_positions
    prompt = [5] * (longest - 10)
    options = GenerationOptions(max_length=10, temperature=0.0, min_length=10)
    output = [token.token_id for token in generator.generate([prompt], options)[0][0].tokens]
    wanted = their_log_probs(case, [*prompt, *output])[len(prompt) - 1 : -1]
    wanted[:, generator.tokenizer.eos_id] = -np.inf
    assert (wanted[np.arange(10), output] >= wanted.max(-1) - TIE).all()
    with pytest.raises(ContextLengthError, match=f"at most {longest} tokens together, got"):
        generator.generate([[5, *prompt]], options)


def test_a_text_of_ones_own_fits_int8_to_it(case: Case, tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text("".join(f"{english}\n" for _, english in toy_pairs(40, seed=3)))
    out = tmp_path / "model"
    import_bundle(case.folder, out, Form("int8"), Texts(text=text))
    manifest = read_manifest(out)
    assert manifest.activations == "static"
    assert manifest.parity["data"] == "own.txt"
