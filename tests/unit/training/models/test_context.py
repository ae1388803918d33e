"""Blocks that look back along a hypothesis: whole searches against the model without any cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from export.engines.engine import export_engines
from export.errors import ExportError
from export.graphs.writing import write_graphs
from serving.bundle.folder import write_manifest
from serving.runtime.cache_tensors import CacheSizes
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import BeamSearch, decode
from serving.search.beams.sentence import Finished, Sentence
from serving.search.stepper import Stepper
from tests.unit.serving.search.beams.test_beam_torch import NoCache, assert_close, random_sentences
from tests.unit.training.tiny import TINY, randomised
from training.decoding.stepper import TorchStepper
from training.models import Transformer
from training.models.context import CacheContext

pytestmark = pytest.mark.usefixtures("traced_once")

OWN = "tests.unit.training.models.own_layers"
FORMS: dict[str, dict[str, Any]] = {
    "own convolution": {"block": f"{OWN}:CONVOLUTION"},
    "own mixture": {"block": f"{OWN}:MIXED"},
    "dynamic": {"encoder_mixing": "dynamic_conv", "decoder_mixing": "dynamic_conv"},
    "light macaron": {"decoder_mixing": "light_conv", "block": "macaron", "conv_glu": False},
    "as learnt": {"decoder_mixing": "light_conv", "kernel_softmax": False},
    "ssru": {"decoder_mixing": "ssru", "norm": "post"},
}


def model_of(form: dict[str, Any]) -> Transformer:
    model = randomised(replace(TINY, vocab_size=60, **form), seed=3)
    assert isinstance(model, Transformer)
    return model


def decode_in_company(stepper: Stepper, sentences: list[Sentence]) -> list[Finished]:
    """Sentences join a few steps one after the other, and take each other's rows."""
    search, finished, waiting = BeamSearch(stepper, sentences[:2]), [], sentences[2:]
    while search.live or waiting:
        for _ in range(3):
            finished += search.step() if search.live else []
        if waiting:
            search.add([waiting.pop(0)])
    return sorted(finished, key=lambda each: each.index)


@pytest.mark.parametrize("form", FORMS)
def test_a_search_equals_one_that_computes_each_hypothesis_from_scratch(form: str) -> None:
    model = model_of(FORMS[form])
    sentences = random_sentences(1, count=6)
    assert any(sentence.target_prefix for sentence in sentences)
    found = decode_in_company(TorchStepper(model), sentences)
    for sentence, finished in zip(sentences, found, strict=True):
        assert_close(sentence, NoCache(model, list(sentence.source)), finished.hypotheses)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("form", FORMS)
def test_the_exported_step_finds_the_same_alone_and_in_company(
    tmp_path: Path, form: str, precision: str
) -> None:
    model = model_of(FORMS[form])
    manifest = write_graphs(model, tmp_path, name="own", precision=precision)
    assert manifest.lookback == model.step_needs.ancestors > 0
    assert manifest.sizes.recurrent == (form in ("own mixture", "ssru"))
    stepper = OnnxStepper(tmp_path, manifest, 1)
    sentences = random_sentences(2, count=6)
    found = decode_in_company(stepper, sentences)
    together = decode(stepper, sentences)
    for number, sentence in enumerate(sentences):
        if precision == "fp32":
            reference = NoCache(model, list(sentence.source))
            assert_close(sentence, reference, found[number].hypotheses)
        alone = decode(stepper, [sentence])[0]  # to the bit
        assert found[number].hypotheses == alone.hypotheses == together[number].hypotheses


def test_a_model_that_does_not_look_back_is_given_nothing_of_it(tmp_path: Path) -> None:
    manifest = write_graphs(randomised(TINY), tmp_path, name="plain", precision="fp32")
    told = {tensor.role for tensor in manifest.step.inputs}
    assert told == {
        *("token", "position", "write_index", "visible", "score", "label"),
        *("source_mask", "self", "source"),
    }
    assert (manifest.lookback, manifest.sizes.recurrent) == (0, False)


def test_for_cuda_states_stay_fp32_and_no_engines_are_built(tmp_path: Path) -> None:
    folder, form = tmp_path / "own", FORMS["own mixture"]
    folder.mkdir()
    manifest = write_graphs(model_of(form), folder, name="own", precision="fp16", target="cuda")
    kept = [("self", "float16", 16)] * 4 + [("state", "float32", 20), ("state", "float32", 8)] * 2
    assert [(each.role, each.dtype, each.axes[-1]) for each in manifest.caches] == kept
    slot_bytes = 4 * 2 * 16 + 2 * 4 * (20 + 8)
    assert CacheSizes(manifest).cache_bytes(3, 16, 10) == 2 * slot_bytes * 3 * 10
    (folder / "tokenizer.model").write_bytes(b"the bytes of a tokenizer")
    write_manifest(folder, manifest)
    with pytest.raises(ExportError, match=r"no engines are built for a block with its own caches"):
        export_engines(folder, tmp_path / "engines")
    assert not (tmp_path / "engines").exists()


def test_a_layer_that_leaves_a_cache_alone_is_reported() -> None:
    stepper = TorchStepper(model_of({"block": f"{OWN}:FORGETFUL"}))
    with pytest.raises(ValueError, match=r"decoder layer 0 needs 0 pairs .* and 1 states"):
        decode(stepper, random_sentences(1, count=1))


def test_what_is_asked_for_must_be_what_is_read() -> None:
    states = [torch.zeros(1, 8, 3)]
    index = torch.zeros(1, dtype=torch.int64)
    context = CacheContext(write_index=index, states=states)
    with pytest.raises(ValueError, match=r"says a width of 3, the state has 4"):
        context.append_state(torch.zeros(1, 1, 4))
    with pytest.raises(ValueError, match=r"more caches than its needs\.states says"):
        context.append_state(torch.zeros(1, 1, 3))
    context = CacheContext(write_index=index, states=[torch.zeros(1, 8, 3)])
    with pytest.raises(ValueError, match=r"needs\.ancestors must be at least 2"):
        context.look_back(torch.zeros(1, 1, 3), 2)
