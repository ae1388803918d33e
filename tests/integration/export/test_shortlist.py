"""Decoding with shortlists, against PyTorch with all other logits masked."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from export.__main__ import main
from export.arithmetic.activation_ranges import measure_ranges
from export.arithmetic.quantize import Products, QuantizedLinear, quantized_twin
from export.comparison.translation import search_all
from export.graphs.writing import write_graphs
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Manifest
from serving.bundle.shortlist import Shortlist, load_shortlist
from serving.errors import BundleError, InvalidOptionError
from serving.runtime import ort
from serving.runtime.shortlist_stepper import ShortlistState, ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.beams.beam import BeamSearch, decode
from serving.search.beams.sentence import Hypothesis, Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.search.stepper import StepInputs
from serving.translation.scheduler import TranslationScheduler
from serving.translation.ticket import Completed, Request
from serving.translation.translator import Translator, Wishes
from tests.conftest import TinyModel
from tests.integration.export.test_bundle import (
    decode_joining,
    every_hypothesis,
    random_model,
    random_sentences,
)
from training.decoding.stepper import TorchStepper
from training.models import TransformerConfig, TranslationModel, build_model
from training.runs.folder import VALIDATION_SOURCE

pytestmark = pytest.mark.usefixtures("traced_once")

CASES = [
    ("macaron", "fp32"),
    ("macaron", "int8 row"),
    ("macaron", "int8 static"),
    ("macaron", "int8 of 16 bits"),
    ("macaron", "int8 but the output matrix"),
    ("joint fast", "fp32"),
    ("joint fast", "int8 static"),
    ("standard pre", "int8 static"),
    ("marian", "fp32"),
    ("marian", "int8 static"),
    ("marian", "int8 of 16 bits"),
]


def random_shortlist(vocab_size: int) -> Shortlist:
    """Each piece has 1 to 9 translations."""
    generator = np.random.default_rng(8)
    counts = generator.integers(1, 10, vocab_size)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Shortlist(
        np.array([EOS_ID, 7, 20]), starts, generator.integers(4, vocab_size, starts[-1])
    )


def every_piece(vocab_size: int) -> Shortlist:
    return Shortlist(
        np.arange(vocab_size), np.zeros(vocab_size + 1, np.int64), np.zeros(0, np.int64)
    )


def export(
    model: TranslationModel, shortlist: Shortlist, folder: Path, arithmetic: str
) -> tuple[ShortlistStepper, TranslationModel, Manifest]:
    """The bundle's stepper, a model that computes the same, and the manifest."""
    precision, wide = arithmetic.partition(" ")[0], arithmetic == "int8 of 16 bits"
    reference, ranges, exact = model, None, frozenset[bytes]()
    if precision == "int8":
        reference = quantized_twin(model, wide=wide)
    if arithmetic == "int8 but the output matrix":
        output = reference.get_submodule("output_layer")
        assert isinstance(output, QuantizedLinear)
        output.exact, exact = True, frozenset({output.key})
    if arithmetic == "int8 static":
        sentences = random_sentences(12, model.config.vocab_size)
        ranges = measure_ranges(reference, lambda: search_all(TorchStepper(reference), sentences))
    manifest = write_graphs(
        model,
        folder,
        name="random",
        precision=precision,
        products=Products(ranges, exact, wide=wide),
        shortlist=shortlist,
    )
    return ShortlistStepper(folder, manifest, 2), reference, manifest


def shortlisted(sentences: list[Sentence]) -> list[Sentence]:
    return [
        dataclasses.replace(s, options=dataclasses.replace(s.options, shortlist=True))
        for s in sentences
    ]


def decode_masked(
    model: TranslationModel, shortlist: Shortlist, sentence: Sentence
) -> tuple[Hypothesis, ...]:
    """One sentence with PyTorch, whose other logits are -inf."""
    mask_V = torch.full((model.config.vocab_size,), -torch.inf)
    mask_V[torch.from_numpy(shortlist.of(sentence.source))] = 0.0
    whole = model.output_logits

    def masked(x_BQD: Tensor) -> Tensor:
        return whole(x_BQD) + mask_V

    model.output_logits = masked  # type: ignore[method-assign]
    try:
        found = decode(TorchStepper(model), [sentence])[0]
    finally:
        model.output_logits = whole  # type: ignore[method-assign]
    return found.hypotheses


@pytest.mark.parametrize(("name", "arithmetic"), CASES)
def test_outputs_are_those_of_masked_logits_to_the_bit_in_any_batch(
    tmp_path: Path, name: str, arithmetic: str
) -> None:
    model = random_model(name)
    shortlist = random_shortlist(model.config.vocab_size)
    stepper, reference, _ = export(model, shortlist, tmp_path, arithmetic)
    for beam_size in (4, 1):
        options = every_hypothesis(beam_size)
        sentences = shortlisted(random_sentences(12, model.config.vocab_size, options))
        alone = [decode(stepper, [sentence])[0].hypotheses for sentence in sentences]
        assert alone == [found.hypotheses for found in decode(stepper, sentences)]
        assert alone == decode_joining(stepper, sentences)
        same = 0
        for sentence, found in zip(sentences, alone, strict=True):
            pieces = set(shortlist.of(sentence.source).tolist())
            assert all(set(hypothesis.tokens) <= pieces for hypothesis in found)
            wanted = decode_masked(reference, shortlist, sentence)
            scores = [[hypothesis.score for hypothesis in each] for each in (found, wanted)]
            same += scores[0] == pytest.approx(scores[1], abs=1e-4)  # equal ones may change places
            if arithmetic == "fp32":
                assert found[0].tokens == wanted[0].tokens
        assert same >= (12 if arithmetic == "fp32" else 8)  # a rounded level may flip


def test_a_batch_changes_nothing_without_native_kernels_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "native_library", lambda: None)
    sizes = {"model_dim": 256, "num_heads": 4, "ffn_dim": 64, "vocab_size": 900}
    torch.manual_seed(1)
    config = TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, **sizes)
    model = build_model(config).eval()
    stepper, _, _ = export(model, random_shortlist(900), tmp_path, "fp32")
    sentences = shortlisted(random_sentences(12, 900, every_hypothesis(4)))
    alone = [decode(stepper, [sentence])[0].hypotheses for sentence in sentences]
    assert alone == [found.hypotheses for found in decode(stepper, sentences)]


def first_step(
    stepper: ShortlistStepper, state: ShortlistState, rows: int
) -> list[list[list[float]]]:
    """Scores, tokens and parents of each row's first candidates."""
    inputs = StepInputs(
        token_ids_BQ=np.full((rows, 1), BOS_ID),
        positions_BQ=np.zeros((rows, 1), np.int64),
        write_index_B=np.zeros(rows, np.int64),
        visible_BQC=np.where(np.arange(8) == 0, 0, -np.inf)
        .astype(np.float32)[None, None]
        .repeat(rows, 0),
        scores_BK=np.array([[0.0, -np.inf]], np.float32).repeat(rows, 0),
        slot_positions_BC=np.zeros((1, 1), np.int64),
    )
    found = stepper.step(state, inputs, want_logits=False)
    arrays = (found.scores_BN, found.tokens_BN, found.parents_BN)
    return [[array[row].tolist() for array in arrays] for row in range(rows)]


@pytest.mark.parametrize("newcomer", [9, 5])
def test_a_longer_or_shorter_list_may_take_the_place_of_another(
    tmp_path: Path, newcomer: int
) -> None:
    model = random_model("macaron")
    size = model.config.vocab_size
    counts = np.zeros(size, np.int64)
    counts[[7, 9]] = 5, 60  # further pieces of these two
    starts = np.concatenate([[0], np.cumsum(counts)])
    lists = Shortlist(np.array([EOS_ID, 7, 20]), starts, np.arange(4, 69))
    stepper, _, _ = export(model, lists, tmp_path, "fp32")
    before, after = [[7, 6, EOS_ID], [6, 8, EOS_ID]], [newcomer, 6, EOS_ID]
    state = stepper.encode(before)
    first_step(stepper, state, 2)
    stepper.extend(state, stepper.encode([after]), np.array([1]))
    alone = [first_step(stepper, stepper.encode([s]), 1)[0] for s in (before[0], after)]
    assert first_step(stepper, state, 2) == alone


@pytest.mark.parametrize("arithmetic", ["fp32", "int8 static"])
def test_a_list_of_every_piece_changes_nothing(tmp_path: Path, arithmetic: str) -> None:
    model = random_model("macaron")
    stepper, _, manifest = export(model, every_piece(model.config.vocab_size), tmp_path, arithmetic)
    whole = OnnxStepper(tmp_path, manifest, 2)
    sentences = random_sentences(12, model.config.vocab_size, every_hypothesis(4))
    pairs = zip(decode(whole, sentences), decode(stepper, shortlisted(sentences)), strict=True)
    for one, other in pairs:
        assert one.hypotheses[0].tokens == other.hypotheses[0].tokens
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert a.score == pytest.approx(b.score, abs=1e-5)


def test_sentences_with_and_without_shortlist_do_not_share_a_batch(tmp_path: Path) -> None:
    model = random_model("macaron")
    stepper, _, _ = export(model, every_piece(model.config.vocab_size), tmp_path, "fp32")
    sentences = random_sentences(2, model.config.vocab_size, SearchOptions(beam_size=2))
    with pytest.raises(ValueError, match="cannot share a batch"):
        BeamSearch(stepper, [sentences[0], *shortlisted(sentences[1:])])


@pytest.fixture(scope="module")
def bundle(tiny_model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a shortlist of its training text, by the command."""
    out = tmp_path_factory.mktemp("shortlist") / "tiny-short"
    assert main(["bundle", str(tiny_model.run), str(out), "--shortlist"]) == 0
    return out


@pytest.fixture(scope="module")
def texts(tiny_model: TinyModel) -> list[str]:
    """What the model was not trained on."""
    return (tiny_model.run / VALIDATION_SOURCE).read_text().splitlines()[:8]


def test_a_translator_chooses_from_the_list_where_it_may(bundle: Path, texts: list[str]) -> None:
    manifest = read_manifest(bundle)
    assert manifest.parity["shortlist"]["mean"] > -0.2
    translator = Translator(bundle, threads=1)
    shortlist = load_shortlist(
        bundle / "shortlist.npz", manifest.sizes.vocab_size, EOS_ID, manifest.source_pieces
    )
    sizes = [len(shortlist.of(range(4, 4 + n))) for n in (1, 3)]
    assert sizes[0] < sizes[1] <= manifest.sizes.vocab_size
    plain = SearchOptions(loop_guard=False)
    listed = dataclasses.replace(plain, shortlist=True)
    wanted = [found.text for found in translator.translate_sentences(texts, plain)]
    assert "shortlist" not in vars(translator.steppers)  # it is loaded when it is asked for
    assert [found.text for found in translator.translate_sentences(texts, listed)] == wanted
    # A prefix and a constraint need the whole vocabulary; beside them the others keep their lists.
    first_word = texts[0].split()[0]
    prefixes = ["", "", first_word, *[""] * 5]
    forced = translator.translate_sentences(texts, listed, wishes=Wishes(target_prefix=prefixes))
    assert [found.text for found in forced[:2]] == wanted[:2]
    assert forced[2].text.startswith(first_word)
    once = f"{first_word} {first_word} {first_word}"
    blocked = dataclasses.replace(listed, no_repeat_ngram_size=1)
    assert translator.translate_sentences(once, blocked)[0].text.split().count(first_word) <= 1


def test_a_scheduler_decodes_both_kinds_at_once(bundle: Path, texts: list[str]) -> None:
    translator = Translator(bundle)
    scheduler = TranslationScheduler(translator)
    try:
        options = [SearchOptions(beam_size=2, shortlist=n % 2 == 0) for n in range(8)]
        tickets = scheduler.submit_all(
            [Request(text=text, options=o) for text, o in zip(texts, options, strict=True)]
        )

        async def outcomes() -> list[Completed]:
            return [await ticket.wait() for ticket in tickets]

        found = [outcome.translation for outcome in asyncio.run(outcomes())]
    finally:
        scheduler.close()
    assert found == [
        translator.translate_sentences(t, o)[0] for t, o in zip(texts, options, strict=True)
    ]


def test_a_bundle_without_a_list_says_so(tiny_model: TinyModel) -> None:
    with pytest.raises(InvalidOptionError, match="shortlist must be false for the model 'tiny'"):
        Translator(tiny_model.fp32).translate_sentences("der hund", SearchOptions(shortlist=True))


def test_a_damaged_list_is_refused(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "shortlist.npz"
    content = (bundle / "shortlist.npz").read_bytes()
    for damaged in (b"", content[:50], b"PK" + bytes(200)):
        file.write_bytes(damaged)
        with pytest.raises(BundleError, match="shortlist"):
            load_shortlist(file, 300, EOS_ID, 300)
    file.write_bytes(content)
    for size in (20, 299, 301):  # a list for each of 300 pieces
        with pytest.raises(BundleError, match=f"does not fit a vocabulary of {size} pieces"):
            load_shortlist(file, size, EOS_ID, size)
