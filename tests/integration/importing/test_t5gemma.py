"""T5Gemma, imported: what its own library makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.model import Declared, Imported, LanguageChoice
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Sentence
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from tests.toy.corpus import toy_pairs
from tests.toy.t5gemma import ROWS, write_t5gemma
from training.decoding.stepper import TorchStepper

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

BOS, EOS = 2, 1
LARGE: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6, "num_key_value_heads": 3,
    "num_hidden_layers": 4,
}  # fmt: skip
"""An encoder whose sizes are not the decoder's, as in 9b-2b."""
TEXTS = [*(source for source, _ in toy_pairs(5, seed=11)), " ".join(["das haus"] * 14)]
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared": {"shared": True},
    "large encoder": {"encoder": LARGE},
    "untied": {"tied": False, "encoder": {"num_key_value_heads": 4, "num_hidden_layers": 1}},
}


@dataclass(frozen=True)
class Case:
    """A checkpoint, and its model as its own library has it."""

    folder: Path
    theirs: Any
    imported: Imported


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("t5gemma") / "toy"
    theirs = write_t5gemma(folder, **MODELS[request.param])
    return Case(folder, theirs, recognise(folder).read(folder, Declared()))


def generated(theirs: Any, ids: list[int], beams: int) -> list[int]:
    """What the library makes of a source, without what the decoder begins with."""
    found = theirs.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        num_beams=beams,
        max_new_tokens=20,
        length_penalty=0.0,
        early_stopping="never",
        do_sample=False,
    )
    return found[0].tolist()[1:]


@pytest.mark.parametrize("length", [1, 7, 40])
def test_logits_are_those_of_its_own_library(case: Case, length: int) -> None:
    draw = torch.Generator().manual_seed(length)
    source, target = (torch.randint(4, 120, (3, n), generator=draw) for n in (length, length + 2))
    with torch.no_grad():
        found = case.imported.model(source, target)
        wanted = case.theirs(input_ids=source, decoder_input_ids=target).logits
    assert wanted.std() > 0.5
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("beams", [1, 4])
def test_searches_find_what_its_own_library_finds(case: Case, beams: int) -> None:
    draw = torch.Generator().manual_seed(3)
    sources = [torch.randint(4, 120, (n,), generator=draw).tolist() for n in (3, 8, 19, 33)]
    options = SearchOptions(beam_size=beams, length_penalty=0.0, max_length=20, loop_guard=False)
    sentences = [Sentence(ids, options, start=BOS, ends=(EOS,)) for ids in sources]
    found = [each.hypotheses[0] for each in decode(TorchStepper(case.imported.model), sentences)]
    assert len({best.tokens for best in found}) > 2
    for ids, best in zip(sources, found, strict=True):
        ours = [*best.tokens, *([EOS] if best.finished else [])]
        assert ours == generated(case.theirs, ids, beams)


@pytest.fixture(scope="module", params=["plain", "large encoder"])
def bundle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, traced_once: None
) -> tuple[Path, Any]:
    """A bundle, and the model of its checkpoint."""
    folder = tmp_path_factory.mktemp("bundle")
    theirs = write_t5gemma(folder / "toy", **MODELS[request.param])
    choice = Declared(languages=LanguageChoice(("de",), ("en",)))
    import_bundle(folder / "toy", folder / "bundle", Form("fp32"), declared=choice)
    return folder / "bundle", theirs


def test_a_bundle_translates_as_its_own_library_does(bundle: tuple[Path, Any]) -> None:
    folder, theirs = bundle
    translator = Translator(folder, threads=1)
    options = SearchOptions(beam_size=4, length_penalty=0.0, max_length=20, loop_guard=False)
    for text in TEXTS:
        ids = translator.texts.encode_source(text, "de", "en")
        assert ids[0] == BOS
        assert EOS not in ids
        wanted = [i for i in generated(theirs, ids, 4) if i != EOS]
        (found,) = translator.translate_sentences(text, options)
        assert found.text == translator.texts.target.decode(wanted)


def test_eight_bits_lose_little(tmp_path: Path) -> None:
    write_t5gemma(tmp_path / "toy", LARGE)
    manifest = import_bundle(tmp_path / "toy", tmp_path / "bundle", Form("int8"))
    assert manifest.precision == "int8"
    assert manifest.languages.trained == (("en", "en"),)
    assert Translator(tmp_path / "bundle", threads=1).translate("ein haus")[0].text


@pytest.mark.parametrize(
    ("side", "changed", "words"),
    [
        ("encoder", {"head_dim": 8}, "must have equal head_dim, .*, got head_dim 8 and 12"),
        ("decoder", {"sliding_window": 100}, "sliding_window of the decoder must be at least 4096"),
        (
            "decoder",
            {"eos_token_id": 200},
            r"eos_token_id of the decoder must be one id in .* 200$",
        ),
        ("decoder", {"eos_token_id": [1, 5]}, "one id in .*take the one without -it"),
        ("decoder", {"rope_parameters": {"rope_theta": 5.0}}, "with a base of 10000"),
        ("encoder", {"num_key_value_heads": 5}, "num_key_value_heads of the encoder must divide"),
        ("encoder", {"hidden_activation": "gelu"}, "hidden_activation 'gelu' is not supported"),
        ("encoder", {"experts": 2}, r"the option 'experts' \(2\) is not known"),
    ],
)
def test_what_is_not_supported_is_named(
    case: Case, tmp_path: Path, side: str, changed: dict[str, Any], words: str
) -> None:
    for path in case.folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    tree = json.loads((case.folder / "config.json").read_text())
    tree[side] |= changed
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(tree))
    assert tree["vocab_size"] == ROWS
    with pytest.raises(ExportError, match=rf"config\.json: .*{words}"):
        recognise(tmp_path).read(tmp_path, Declared())
