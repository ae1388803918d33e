"""The model card that lies in a bundle."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from export.bundles.card import finish, render_card
from serving.bundle.folder import parse_manifest, read_manifest
from serving.bundle.languages import Languages
from serving.bundle.manifest import CARD, Calibration, Manifest, Quality
from serving.runtime.device import check_device

MODELS = Path(__file__).resolve().parents[4] / "models"


def read(name: str, **fields: Any) -> Manifest:
    """The manifest of a shipped bundle, with the fields that a test is about."""
    return parse_manifest(MODELS / name).model_copy(update=fields)


def translator(**fields: Any) -> Manifest:
    manifest = read("macaron-de-en")
    sizes = {"num_encoder_layers": 4, "num_decoder_layers": 3, "model_dim": 256}
    sizes |= {"num_parameters": 10_383_360, "vocab_size": 16_000, "max_source": 256}
    corpora = ({"source": "${DATA}/web/a.de.gz", "target": "${DATA}/web/a.en.gz", "weight": 2.5},)
    known = {
        "name": "general",
        "sizes": manifest.sizes.model_copy(update=sizes),
        "attribution": "Trained on the web (CC BY)",
        "recipe": {"data": {"train": corpora}},
        "quality": tuple(
            Quality(data="news", metric=metric, value=value, signature="nrefs:1", note="3 lines")
            for metric, value in (("BLEU", 18.25), ("chrF2", 45.5))
        ),
        "calibration": Calibration(
            event="chrF2 >= 60", slope=1, intercept=1, data="dev", pairs=1010,
            held_out_pairs=1009, held_out_rate=0.5, brier=0.2, expected_error=0.0425,
        ),
    }  # fmt: skip
    return manifest.model_copy(update=known | fields)


def test_it_says_what_the_manifest_knows() -> None:
    text = render_card(translator(), 8_150_000)
    assert "# general\n\nTranslates de to en.\n" in text
    for row in (
        "| architecture | macaron, 4 encoder and 3 decoder layers of width 256 |",
        "| parameters | 10.38 million |",
        "| vocabulary | 16,000 pieces (sentencepiece) |",
        "| precision | int8 weights and activations (static scales) |",
        "| runs on | cpu |",
        "| size | 8.2 MB |",
        "| web/a.de.gz, web/a.en.gz | 2.5 |",
        "| news | BLEU | 18.25 | 3 lines |",
    ):
        assert f"\n{row}\n" in text
    assert "\nTrained on the web (CC BY)\n" in text
    assert text.count("- `nrefs:1`") == 1
    assert "(chrF2 >= 60), fitted on 1,010 pairs of dev" in text
    assert "A sentence may have 255 pieces." in text
    assert text.startswith('---\npipeline_tag: translation\nlanguage:\n- "de"\n- "en"\n---\n')


def test_activations_of_16_bits_are_reported() -> None:
    text = render_card(translator(activations="row16"), 1)
    assert "\n| precision | int8 weights, activations of 16 bits |\n" in text


def test_of_a_language_model_it_tells_another_way_to_use_it() -> None:
    recipe = {"data": {"train": ["${DATA}/wiki/train.gz"]}}
    text = render_card(read("lm-cascade", recipe=recipe), 1)
    assert 'Generator("lm-cascade")' in text
    assert "Translator" not in text
    assert "| wiki/train.gz | 1 |" in text
    assert text.startswith("---\npipeline_tag: text-generation\n---\n")


def test_every_code_of_a_language_is_text_in_yaml() -> None:
    codes = Languages(source=("no", "de"), target=("on", "zh-Hans"))
    head = render_card(translator(languages=codes), 1).split("---\n")[1]
    assert yaml.safe_load(head)["language"] == ["no", "de", "on", "zh-Hans"]


def usage(manifest: Manifest) -> str:
    return render_card(manifest, 1).split("## How to use it\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("target", "precision"), [("cpu", "int8"), ("cpu", "fp32"), ("cuda", "fp32"), ("cuda", "fp16")]
)
@pytest.mark.parametrize("name", ["macaron-de-en", "lm-cascade"])
def test_what_it_says_of_use_passes_where_there_is_only_a_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str, target: str, precision: str
) -> None:
    manifest = read(name, target=target, precision=precision)
    commands, program = re.findall(r"```\w+\n(.*?)```", usage(manifest), re.DOTALL)
    settings = re.findall(r"(?:^|\| )(?:MACARON_DEVICE=(\w+) )?macaron", commands, re.MULTILINE)
    assert len(settings) == 2
    for setting in settings:
        monkeypatch.setenv("MACARON_DEVICE", setting)
        check_device(MODELS / name, manifest)
    monkeypatch.setenv("MACARON_DEVICE", "auto")
    loaded = []

    class Loaded:
        def __init__(self, folder: str) -> None:
            check_device(Path(folder), manifest)
            loaded.append(folder)

        def translate(self, _: list[str]) -> list[Any]:
            return [SimpleNamespace(text="")]

        def generate(self, _: list[str]) -> list[list[Any]]:
            return [[SimpleNamespace(text="")]]

    package = SimpleNamespace(Translator=Loaded, Generator=Loaded)
    monkeypatch.setitem(sys.modules, "macaron", package)
    exec(program, {})
    assert loaded == [name]


@pytest.mark.parametrize("name", ["macaron-de-en", "lm-cascade"])
def test_in_place_of_the_use_of_a_bf16_bundle_it_says_what_that_needs(name: str) -> None:
    text = usage(read(name, target="cuda", precision="bf16"))
    assert "The CPU has no bf16: the bundle needs an NVIDIA GPU" in text
    assert "`serve-cuda`" in text
    assert "`--target cpu`" in text
    assert "```" not in text


def test_a_corpus_may_be_a_table_and_sampled_by_temperature() -> None:
    table = {"file": "${DATA}/web/pairs.parquet", "source": None, "target": None, "weight": 1.0}
    text = render_card(translator(recipe={"data": {"train": [table], "temperature": 5.0}}), 1)
    assert "\n| web/pairs.parquet | 1 |\n" in text
    assert "Sampled with temperature 5 in place of these weights." in text


def test_prose_is_wrapped_and_says_the_same() -> None:
    known = "Trained on " + ", ".join(f"corpus {number} (CC BY-SA 4.0)" for number in range(40))
    limit = "A demonstration of what a small model makes of them. " * 6
    text = render_card(translator(attribution=known, demonstration=limit.strip()), 1)
    assert [line for line in text.splitlines() if len(line) > 120] == []
    origin = text.partition("## What it was trained on\n\n")[2].partition("\n\n")[0]
    assert origin.replace("\n", " ") == known
    item = text[text.index("- A demonstration") :].partition("\n- ")[0]
    assert item.replace("\n  ", " ") == f"- {limit.strip()}"


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    text = render_card(translator(quality=(), attribution="", recipe={}), 1)
    assert "Not measured on a test text" in text
    assert "Origin and licence of the text are not recorded." in text
    assert "corpus" not in text


def test_names_cannot_break_a_table() -> None:
    odd = Quality(data="a | b", metric="BLEU", value=1.0)
    assert "| a \\| b | BLEU | 1 |  |" in render_card(translator(quality=(odd,)), 1)


def test_every_column_of_a_table_is_there_in_every_row() -> None:
    for manifest in (translator(), read("joint-fast-de-en"), read("lm-cascade")):
        for table in re.findall(r"(?:^\|.*\n)+", render_card(manifest, 1), re.MULTILINE):
            assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_bundle_is_whole_with_an_edited_card_or_none(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(MODELS / "macaron-de-en", bundle)
    (bundle / CARD).unlink(missing_ok=True)
    manifest = parse_manifest(bundle)
    finish(bundle, manifest)
    first = (bundle / CARD).read_text()
    finish(bundle, read_manifest(bundle))
    assert (bundle / CARD).read_text() == first  # its own size does not count
    (bundle / CARD).write_text(first + "\nLicence: CC BY 4.0\n")
    assert read_manifest(bundle).files == manifest.files
    finish(bundle, read_manifest(bundle))
    assert (bundle / CARD).read_text() == first  # as `export calibrate` does
    (bundle / CARD).unlink()
    assert read_manifest(bundle).files == manifest.files
