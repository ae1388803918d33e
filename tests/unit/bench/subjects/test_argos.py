"""A package of Argos has what Argos Translate reads, and its model gets sources without eos."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ctranslate2
import pytest
import torch

from bench.errors import BenchError
from bench.subjects import argos
from bench.subjects.argos import write_argos_package
from bench.subjects.job import id_token
from serving.search.ids import BOS_ID
from tests.unit.bench.random_models import ending_joint_model, ending_model, sources
from training.models import Transformer, TranslationModel, build_model


def trained(model: TranslationModel, *, directions: int = 1) -> Any:
    """A run of the model, whose tokenizer has an id's digits as its piece."""
    data = SimpleNamespace(
        source_language="de",
        target_language="tlh",
        is_multilingual=directions > 1,
        directions=[("de", "tlh")] * directions,
    )
    tokenizer = SimpleNamespace(
        pieces=lambda ids: [id_token(i) for i in ids], serialized=lambda: b"pieces"
    )
    recipe = SimpleNamespace(data=data)
    return SimpleNamespace(checkpoint="runs/x", recipe=recipe, model=model, tokenizer=tokenizer)


def random(block: str) -> Transformer:
    torch.manual_seed(4)
    model = build_model(replace(ending_model().config, block=block))
    assert isinstance(model, Transformer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def test_a_package_has_metadata_a_model_and_the_tokenizer(tmp_path: Path) -> None:
    write_argos_package(trained(ending_model()), tmp_path / "package")
    metadata = json.loads((tmp_path / "package" / "metadata.json").read_text())
    assert metadata["type"] == "translate"
    assert (metadata["from_code"], metadata["from_name"]) == ("de", "German")
    assert (metadata["to_code"], metadata["to_name"]) == ("tlh", "tlh")  # a language without a name
    assert (tmp_path / "package" / "sentencepiece.model").read_bytes() == b"pieces"
    names = {path.name for path in (tmp_path / "package" / "model").iterdir()}
    assert {"model.bin", "config.json"} <= names


@pytest.mark.parametrize("block", ["standard", "macaron"])
def test_the_model_is_that_of_the_run_and_ends_sources_itself(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Argos Translate gives it pieces without eos."""
    monkeypatch.setattr(argos, "QUANTIZATION", "float32")
    model = random(block)
    write_argos_package(trained(model), tmp_path / "package")
    peer = ctranslate2.Translator(str(tmp_path / "package" / "model"), intra_threads=1)
    for source in sources(20):
        pieces = [id_token(i) for i in source[:-1]]
        (found,) = peer.score_batch([pieces], [pieces])
        with torch.no_grad():
            logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *source[:-1]]]))[0]
        wanted = logits.log_softmax(-1).gather(1, torch.tensor(source)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(found.log_probs), wanted, atol=1e-4, rtol=0)


def test_weights_are_int8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = trained(random("macaron")), []
    for quantization in (argos.QUANTIZATION, "float32"):
        monkeypatch.setattr(argos, "QUANTIZATION", quantization)
        write_argos_package(model, tmp_path / quantization)
        sizes.append((tmp_path / quantization / "model" / "model.bin").stat().st_size)
    assert sizes[0] < 0.5 * sizes[1]


def test_several_pairs_of_languages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"runs/x: a package of Argos has one pair .* 2 direc"):
        write_argos_package(trained(ending_model(), directions=2), tmp_path / "package")


def test_a_model_that_ctranslate2_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"runs/x: CTranslate2 has no model of .* 'joint'"):
        write_argos_package(trained(ending_joint_model(2)), tmp_path / "package")
