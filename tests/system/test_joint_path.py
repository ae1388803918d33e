"""A joint-representation model from the toy corpus to an answer over HTTP, beside a Macaron one."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
import torch

from export.bundles.run import export_run
from export.bundles.subject import Form
from serving import Translator
from serving.errors import TooLongError
from serving.queue.limits import BatchLimits
from serving.search.options import SearchOptions
from tests.conftest import TinyModel
from tests.system.test_service import running
from tests.toy.recipe import write_toy_recipe
from training.loop.trainer import train
from training.metrics.bleu import measure_quality
from training.recipe.config import load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]

OVERRIDES = [
    "model={architecture: joint, model_dim: 64, num_heads: 2, ffn_dim: 128, vocab_size: 300, "
    "num_encoder_layers: 1, num_decoder_layers: 2, dropout: 0.0}",
    "data.token_budget=2048",
    "optim.peak_lr=4e-3",
    "optim.warmup_steps=50",
    "optim.schedule=cosine",
    "optim.label_smoothing=0.0",
    "loop.bf16=false",
    "loop.max_steps=400",
    "loop.seed=3",
    "loop.validate_every=400",
    "loop.checkpoint_every=400",
    "loop.bleu_sentences=0",
]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_a_joint_model_copies_over_http(tiny_model: TinyModel, tmp_path: Path) -> None:
    # An update costs the product of the two lengths, and short sentences are learnt in fewer.
    recipe = write_toy_recipe(tmp_path, pairs=3000, seed=1, task="copy", longest=5)
    run, bundles = tmp_path / "run", tmp_path / "bundles"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train(load_recipe(str(recipe), OVERRIDES), run)
    torch.set_num_threads(threads)
    for precision in ("fp32", "int8"):
        manifest = export_run(run, bundles / precision, Form(precision))
        assert (manifest.family, manifest.decoder_kind) == ("joint", "joint")
        assert manifest.parity["bleu_checkpoint"] > 95.0
    source, target = (lines(run / f"validation.{s}") for s in ("source", "target"))
    shutil.copytree(tiny_model.int8, bundles / "tiny-int8")
    with running(bundles, tmp_path) as server:
        listed = httpx.get(f"{server.url}/models", timeout=60).json()["models"]
        models = {model["name"]: model for model in listed}
        assert models["int8"]["family"] == "joint"
        answers = server.ask(source, model="int8").json()["translatedText"]
        by_default = server.ask(source[0]).json()["translatedText"]
    assert measure_quality(answers, target).bleu > 95.0
    translator = Translator(bundles / "int8", threads=1)
    assert answers == [t.text for t in translator.translate(source)]
    assert answers == [translator.translate(text)[0].text for text in source]
    first = Translator(bundles / "fp32", threads=1)  # by its name
    assert by_default == first.translate(source[0])[0].text

    # The state of S x T is bounded: what could outgrow the limit is refused before any work.
    translator = Translator(bundles / "int8", threads=1, limits=BatchLimits(max_cache_bytes=2**20))
    with pytest.raises(TooLongError, match=r"may need \d+ MiB of cache .* max_cache_bytes"):
        translator.translate(" ".join(source[:14]))
    short = SearchOptions(beam_size=1, max_length=20)
    assert translator.translate(source[0], short)[0].text
