"""Exported graphs against the PyTorch modules, and the export command."""

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from export.__main__ import main
from export.arithmetic.activation_ranges import measure_ranges
from export.arithmetic.quantize import Products, QuantizedLinear, quantized_twin
from export.bundles.run import export_run
from export.bundles.subject import Form
from export.comparison.significance import BleuChange, bleu_change
from export.comparison.translation import (
    PairedStepper,
    Parity,
    check,
    measure,
    search_all,
    total_log_probs,
)
from export.errors import ParityError
from export.graphs.writing import write_graphs
from export.texts.dev_set import DevSet
from export.texts.texts import TextPair, Texts
from export.texts.vocabulary import Vocabulary
from serving.bundle.folder import read_manifest, write_manifest
from serving.bundle.manifest import Manifest
from serving.errors import BundleError
from serving.runtime.cache_tensors import Sources
from serving.runtime.ort import has_kernels
from serving.runtime.translation_stepper import Encoder, OnnxStepper
from serving.search.beams.beam import BeamSearch, decode
from serving.search.beams.sentence import Hypothesis, Sentence
from serving.search.ids import EOS_ID
from serving.search.options import SearchOptions
from tests.conftest import TinyModel
from training.decoding.stepper import TorchStepper
from training.models import JointConfig, TransformerConfig, TranslationModel, build_model
from training.models.blocks import DecoderLayer, EncoderLayer
from training.models.context import AttentionContext
from training.models.sublayers.convolution import Convolution
from training.runs.folder import load_trained

pytestmark = pytest.mark.usefixtures("traced_once")

SIZES: dict[str, Any] = {"model_dim": 32, "num_heads": 2, "ffn_dim": 48, "vocab_size": 90}
SIZES |= {"num_encoder_layers": 2, "num_decoder_layers": 2}
MODELS = {
    "standard": TransformerConfig(**(SIZES | {"norm": "post"})),
    "macaron": TransformerConfig(**(SIZES | {"block": "macaron", "vocab_size": 128})),
    "standard pre": TransformerConfig(**(SIZES | {"vocab_size": 70})),
    "joint fast": JointConfig(**SIZES),
    "joint base": JointConfig(
        **(SIZES | {"num_encoder_layers": 0, "tie_embeddings": False, "embedding_scale": "sum"})
    ),
    "scale norm": TransformerConfig(
        **(SIZES | {"block": "macaron", "norm_type": "scale"}), fix_norm=True, fix_norm_scale=True
    ),
    "joint rms norm": JointConfig(
        **(SIZES | {"norm_type": "rms", "fix_norm": True, "activation": "gelu"})
    ),
    "dynamic convolution": TransformerConfig(
        **SIZES, encoder_mixing="dynamic_conv", decoder_mixing="dynamic_conv"
    ),
    "ssru": TransformerConfig(**SIZES, encoder_mixing="light_conv", decoder_mixing="ssru"),
    "marian": TransformerConfig(
        **(SIZES | {"norm": "post", "activation": "silu"}), positions="marian", output_bias=True
    ),
    "mbart": TransformerConfig(
        **SIZES, positions="learnt", max_positions=64, embedding_norm=True, output_bias=True
    ),
    "swiglu": TransformerConfig(
        **(SIZES | {"block": "macaron", "activation": "swiglu", "ffn_dim": 32})
    ),
}


def random_model(name: str) -> TranslationModel:
    """A model whose every parameter is random: fresh ones have zero biases, which hide mistakes."""
    torch.manual_seed(3)
    model = build_model(MODELS.get(name) or OWN_MODEL)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "embedding.weight":
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


RandomBundle = Callable[[str, str], tuple[Path, Manifest]]


@pytest.fixture(scope="module")
def random_bundle(tmp_path_factory: pytest.TempPathFactory) -> RandomBundle:
    """The graphs of `random_model`, by its name and their precision, written once for all tests
    that only read them; and their manifest."""

    @functools.cache
    def written(name: str, precision: str) -> tuple[Path, Manifest]:
        folder = tmp_path_factory.mktemp("random")
        return folder, write_graphs(random_model(name), folder, name="random", precision=precision)

    return written


def random_sentences(
    count: int, vocab_size: int = 90, options: SearchOptions | None = None
) -> list[Sentence]:
    generator = np.random.default_rng(5)
    options = options or SearchOptions(beam_size=4, max_length=20, loop_guard=False)
    return [
        Sentence([*generator.integers(4, vocab_size, generator.integers(1, 19)), EOS_ID], options)
        for _ in range(count)
    ]


def every_hypothesis(beam_size: int) -> SearchOptions:
    return SearchOptions(
        beam_size=beam_size,
        num_hypotheses=beam_size,
        max_length=14,
        coverage_penalty=0.2,
        loop_guard=False,
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_every_step_equals_the_modules(
    random_bundle: RandomBundle, name: str, precision: str
) -> None:
    model = random_model(name)
    folder, manifest = random_bundle(name, precision)
    reference = quantized_twin(model) if precision == "int8" else model
    bundle = OnnxStepper(folder, manifest, 1)
    paired = PairedStepper(TorchStepper(reference), bundle)
    sentences = random_sentences(12, model.config.vocab_size)
    search_all(paired, sentences)
    assert paired.count > 1000
    assert paired.total / paired.count < (1e-5 if precision == "fp32" else 5e-3)
    if precision == "fp32":
        assert paired.largest < 1e-3


def test_all_of_the_learnt_positions_may_be_used_and_the_manifest_reports_them(
    tmp_path: Path,
) -> None:
    """What fills up sources and prefixes to multiples of 8 stands behind the table."""
    torch.manual_seed(3)
    config = TransformerConfig(**SIZES, positions="learnt", max_positions=61)
    model = build_model(config).eval()
    manifest = write_graphs(model, tmp_path, name="random", precision="fp32")
    assert (manifest.sizes.max_source, manifest.sizes.max_positions) == (61, 61)
    ids = np.random.default_rng(5).integers(4, 90, 200).tolist()
    options = SearchOptions(beam_size=2, max_length=4, loop_guard=False)
    sentence = Sentence([*ids[:60], EOS_ID], options, ids[100:157])
    paired = PairedStepper(TorchStepper(model), OnnxStepper(tmp_path, manifest, 1))
    (found,) = decode(paired, [sentence])
    assert len(found.hypotheses[0].token_scores) == 61
    assert paired.largest < 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_static_activations_equal_the_modules_too(tmp_path: Path, name: str) -> None:
    model = random_model(name)
    twin, sentences = quantized_twin(model), random_sentences(12, model.config.vocab_size)
    ranges = measure_ranges(twin, lambda: search_all(TorchStepper(twin), sentences))
    products = [m for m in twin.modules() if isinstance(m, QuantizedLinear)]
    assert {m.key for m in products if m.range is not None} == ranges.keys()
    assert len(ranges) > 0.9 * len(products)
    manifest = write_graphs(
        model, tmp_path, name="random", precision="int8", products=Products(ranges)
    )
    assert manifest.activations == "static"
    step = onnx.load(tmp_path / "step.onnx", load_external_data=False)
    operators = Counter(node.op_type for node in step.graph.node)
    assert operators["Abs"] <= len(products) - len(ranges)
    # Cutting off at the lowest level does it, but for a cell's, which no product reads.
    assert operators["Relu"] == (2 if name == "ssru" else 0)
    paired = PairedStepper(TorchStepper(twin), OnnxStepper(tmp_path, manifest, 1))
    search_all(paired, sentences)
    assert paired.count > 1000
    assert paired.total / paired.count < 5e-3
    row = PairedStepper(TorchStepper(quantized_twin(model)), OnnxStepper(tmp_path, manifest, 1))
    search_all(row, sentences)
    assert row.total > 2 * paired.total  # the two arithmetics can be told apart


def assert_all_wide_products_are_fused(path: Path) -> None:
    left = {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}
    assert left & {"WideProduct", "BiasedWideProduct"}
    assert not left & {"MatMulIntegerToFloat", "QuantizeLinear"}


@pytest.mark.parametrize("name", MODELS)
def test_activations_of_16_bits_equal_the_modules_too(tmp_path: Path, name: str) -> None:
    """And come far nearer to the checkpoint with the same weights."""
    model = random_model(name)
    twin, sentences = quantized_twin(model, wide=True), random_sentences(8, model.config.vocab_size)
    products = Products(wide=True)
    manifest = write_graphs(model, tmp_path, name="random", precision="int8", products=products)
    assert manifest.activations == "row16"
    assert_all_wide_products_are_fused(tmp_path / "step.onnx")
    bundle = OnnxStepper(tmp_path, manifest, 1)
    paired = PairedStepper(TorchStepper(twin), bundle)
    search_all(paired, sentences)
    assert paired.count > 500
    assert paired.total / paired.count < 1e-4
    together = [finished.hypotheses for finished in decode(bundle, sentences)]
    alone = [decode(bundle, [sentence])[0].hypotheses for sentence in sentences]
    assert alone == together  # to the bit
    exact = quantized_twin(model, wide=True)
    for product in exact.modules():
        if isinstance(product, QuantizedLinear):  # the same weights and exact activations
            product.weight_NK = (product.weight_KN.float() * product.scale_N).T
            product.exact = True
    rounded = PairedStepper(TorchStepper(exact), bundle)
    search_all(rounded, sentences)
    row = PairedStepper(TorchStepper(exact), TorchStepper(quantized_twin(model)))
    search_all(row, sentences)
    assert rounded.total / rounded.count < row.total / row.count / 50


@pytest.mark.parametrize("name", MODELS)
def test_static_and_row_activations_in_one_graph(tmp_path: Path, name: str) -> None:
    """As where the rows of some inputs differ too much for one scale."""
    model = random_model(name)
    twin, sentences = quantized_twin(model), random_sentences(6, model.config.vocab_size)
    ranges = measure_ranges(twin, lambda: search_all(TorchStepper(twin), sentences))
    kept = dict(list(ranges.items())[1::2])  # not the inputs of attention, but its output
    for product in twin.modules():
        if isinstance(product, QuantizedLinear) and product.key not in kept:
            product.range = None
    manifest = write_graphs(
        model, tmp_path, name="random", precision="int8", products=Products(kept)
    )
    paired = PairedStepper(TorchStepper(twin), OnnxStepper(tmp_path, manifest, 1))
    search_all(paired, sentences)
    assert paired.count > 500
    assert paired.total / paired.count < 5e-3


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("static", [True, False])
def test_fp32_products_in_an_int8_graph(tmp_path: Path, name: str, static: bool) -> None:
    model = random_model(name)
    twin, sentences = quantized_twin(model), random_sentences(6, model.config.vocab_size)
    products = [m for m in twin.modules() if isinstance(m, QuantizedLinear)]
    for product in products[::2]:
        product.exact = True
    exact = frozenset(product.key for product in products[::2])
    run = TorchStepper(twin)
    ranges = measure_ranges(twin, lambda: search_all(run, sentences)) if static else None
    manifest = write_graphs(
        model, tmp_path, name="random", precision="int8", products=Products(ranges, exact)
    )
    paired = PairedStepper(TorchStepper(twin), OnnxStepper(tmp_path, manifest, 1))
    search_all(paired, sentences)
    assert paired.count > 500
    assert paired.total / paired.count < 5e-3
    whole = PairedStepper(TorchStepper(model), OnnxStepper(tmp_path, manifest, 1))
    search_all(whole, sentences)
    assert whole.total > 2 * paired.total  # the others are int8
    operators: Counter[str] = Counter()
    for path in tmp_path.glob("*coder.onnx"), tmp_path.glob("step.onnx"):
        for file in path:
            graph = onnx.load(file, load_external_data=False).graph
            operators.update(node.op_type for node in graph.node)
    # A convolution of an encoder is a product of two computed matrices.
    convolutions = sum(
        isinstance(module, Convolution) and part.startswith("encoder.")
        for part, module in model.named_modules()
    )
    assert operators["Gemm"] + operators["MatMul"] == len(exact) + convolutions
    int8 = ("MatMulIntegerToFloat", "BiasedProduct", "TiedProduct", "BiasedTiedProduct")
    assert sum(operators[kind] for kind in int8) == len(products) - len(exact)


def with_an_outlier(ffn: Any) -> bytes:
    """Give a feed-forward a feature that is far larger than all others and weighs nothing; returns
    the key of the product that reads it."""
    with torch.no_grad():
        ffn.up_proj.weight[0] = 0.0
        ffn.up_proj.bias[0] = 3000.0
        ffn.down_proj.weight[:, 0] = 0.0
    return QuantizedLinear(ffn.down_proj.weight, None).key


def test_a_product_that_int8_spoils_stays_fp32(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = load_trained(tiny_model.run)
    assert read_manifest(tiny_model.int8).parity["fp32_products"] == 0
    layers = [*trained.model.encoder, *trained.model.decoder]  # type: ignore[misc, union-attr]
    spoilt = {with_an_outlier(layer.ffn) for layer in layers}
    monkeypatch.setattr("export.bundles.translation.load_trained", lambda _: trained)
    written: list[frozenset[bytes]] = []

    def write(*arguments: Any, products: Products, **options: Any) -> object:
        written.append(products.exact)
        return write_graphs(*arguments, products=products, **options)

    monkeypatch.setattr("export.bundles.translation.write_graphs", write)
    manifest = export_run(tiny_model.run, tmp_path / "out", Form("int8"), shortlist=True)
    assert written[0]
    assert written[0] <= spoilt
    assert manifest.parity["fp32_products"] == len(written[0])
    monkeypatch.setattr("export.arithmetic.choice.keep_exact", lambda *_: frozenset())
    with pytest.raises(ParityError, match="log-probability"):
        export_run(tiny_model.run, tmp_path / "other", Form("int8"))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_tied_embeddings_of_both_graphs_are_stored_once(tmp_path: Path, precision: str) -> None:
    model = build_model(dataclasses.replace(MODELS["joint fast"], vocab_size=20_000))
    manifest = write_graphs(model, tmp_path, name="random", precision=precision)
    table = model.config.vocab_size * model.config.model_dim * (1 if precision == "int8" else 4)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["shared.bin"] >= table
    assert sizes["encoder.onnx"] < table
    assert sizes["step.onnx"] < 2 * table  # the output matrix stands there transposed
    (tmp_path / "tokenizer.model").touch()
    write_manifest(tmp_path, manifest)
    assert "shared.bin" in read_manifest(tmp_path).files
    (tmp_path / "shared.bin").unlink()
    with pytest.raises(BundleError, match=r"shared\.bin"):
        OnnxStepper(tmp_path, manifest, 1)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_sentence_is_equal_to_the_bit_in_any_batch(tiny_model: TinyModel, precision: str) -> None:
    folder = tiny_model.int8 if precision == "int8" else tiny_model.fp32
    stepper = OnnxStepper(folder, read_manifest(folder), 2)
    sentences = random_sentences(17, 300)
    alone = [decode(stepper, [sentence])[0].hypotheses for sentence in sentences]
    for order in (np.arange(17), np.arange(17)[::-1], np.random.default_rng(0).permutation(17)):
        together = decode(stepper, [sentences[i] for i in order])
        assert [alone[i] for i in order] == [finished.hypotheses for finished in together]


@pytest.mark.parametrize("name", ["joint fast", "joint base", "joint rms norm"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_joint_sentence_is_equal_to_the_bit_in_any_batch_and_under_any_padding(
    random_bundle: RandomBundle, name: str, precision: str, beam_size: int
) -> None:
    folder, manifest = random_bundle(name, precision)
    stepper = OnnxStepper(folder, manifest, 2)
    options = every_hypothesis(beam_size)
    sentences = random_sentences(11, options=options)
    # A source of 70 ids gives every other one 56 and more positions of padding.
    padding = Sentence([*[5] * 70, EOS_ID], options)
    alone = [decode(stepper, [sentence])[0].hypotheses for sentence in sentences]
    assert alone == [f.hypotheses for f in decode(stepper, sentences)]
    assert alone == [f.hypotheses for f in decode(stepper, [*sentences, padding])[:-1]]


def decode_joining(stepper: OnnxStepper, sentences: list[Sentence]) -> list[tuple[Hypothesis, ...]]:
    """One or two sentences join a running batch every three steps."""
    search, waiting = BeamSearch(stepper, sentences[:1]), sentences[1:]
    found: dict[int, tuple[Hypothesis, ...]] = {}
    step = 0
    while search.live or waiting:
        if waiting and step % 3 == 0:
            search.add(waiting[: 1 + step % 2])
            del waiting[: 1 + step % 2]
        found |= {finished.index: finished.hypotheses for finished in search.step()}
        step += 1
    return [found[number] for number in range(len(sentences))]


@pytest.mark.parametrize(
    "name", ["macaron", "joint fast", "scale norm", "joint rms norm", "swiglu"]
)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_that_joins_a_running_batch_is_equal_to_the_bit(
    random_bundle: RandomBundle, name: str, precision: str, beam_size: int
) -> None:
    folder, manifest = random_bundle(name, precision)
    stepper = OnnxStepper(folder, manifest, 1)
    options = every_hypothesis(beam_size)
    sentences = [
        dataclasses.replace(sentence, target_prefix=[7, 30, 12, 9, 41][: i % 6])
        for i, sentence in enumerate(random_sentences(11, options=options))
    ]
    sentences[5] = Sentence([*[5] * 70, EOS_ID], options)  # pads all that run beside it
    alone = [decode(stepper, [sentence])[0].hypotheses for sentence in sentences]
    assert decode_joining(stepper, sentences) == alone


def noted_states(stepper: OnnxStepper, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fills with the states of batches that begin or join; the first takes in the others."""
    states: list[Any] = []
    encode = stepper.encode

    def noted(sources: Sequence[Sequence[int]]) -> Any:
        states.append(encode(sources))
        return states[-1]

    monkeypatch.setattr(stepper, "encode", noted)
    return states


@pytest.mark.parametrize("name", ["macaron", "joint fast"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_batch_is_no_wider_than_those_still_in_it_need(
    random_bundle: RandomBundle, name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, manifest = random_bundle(name, precision)
    stepper = OnnxStepper(folder, manifest, 1)
    options = every_hypothesis(2)
    sentences = random_sentences(7, options=options)
    brief = dataclasses.replace(options, max_length=3)
    sentences.insert(2, Sentence([*[5] * 120, EOS_ID], brief))
    alone = [decode(stepper, [sentence])[0].hypotheses for sentence in sentences]
    states = noted_states(stepper, monkeypatch)
    search, found = BeamSearch(stepper, sentences[:3]), {}
    (batch,) = states
    for sentence in sentences[3:]:
        found |= {finished.index: finished.hypotheses for finished in search.step()}
        rows, width = batch.sources.mask_BS.shape
        assert width <= 24 if 2 in found else width == 128
        heights = batch.caches.rows // rows
        assert heights == (width if name == "joint fast" else 1)
        search.add([sentence])
    while search.live:
        found |= {finished.index: finished.hypotheses for finished in search.step()}
    assert [found[number] for number in range(len(sentences))] == alone


@pytest.mark.parametrize(
    "name", ["macaron", "joint fast", "scale norm", "joint rms norm", "swiglu"]
)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_sources_of_any_lengths_are_encoded_to_the_bit_as_alone(
    random_bundle: RandomBundle, name: str, precision: str
) -> None:
    folder, manifest = random_bundle(name, precision)
    encoder = Encoder(folder, manifest, 1)
    lengths = [3, 9, 4, 120, 17, 8, 60, 5, 5, 18, 33]
    generator = np.random.default_rng(2)
    sources = [[*generator.integers(4, 90, length - 1).tolist(), EOS_ID] for length in lengths]
    found = encoder.run(sources)
    assert isinstance(found, Sources)
    tensors, mask_BS = found.tensors, found.mask_BS
    assert mask_BS.shape == (len(sources), 120)
    for row, source in enumerate(sources):
        alone = encoder.run([source])
        assert isinstance(alone, Sources)
        assert np.array_equal(np.isfinite(mask_BS[row]), np.arange(120) < len(source))
        for tensor, own in zip(tensors, alone.tensors, strict=True):
            assert np.array_equal(tensor[row, : len(source)], own[0, : len(source)])
            assert np.isfinite(tensor[row]).all()


@pytest.mark.parametrize("name", ["macaron", "joint fast"])
def test_a_sentence_in_the_place_of_a_broken_one_is_unharmed(
    random_bundle: RandomBundle, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, manifest = random_bundle(name, "fp32")
    stepper = OnnxStepper(folder, manifest, 1)
    longest_first = sorted(
        random_sentences(6, options=every_hypothesis(2)), key=lambda sentence: -len(sentence.source)
    )
    *running, joining = longest_first
    (alone,) = decode(stepper, [joining])
    states = noted_states(stepper, monkeypatch)
    search = BeamSearch(stepper, running)
    (batch,) = states
    search.step()
    per_sentence = batch.caches.rows // 5
    for cache in batch.caches.arrays:
        cache[per_sentence : 2 * per_sentence] = np.nan
    (broken,) = [finished for finished in search.step() if finished.error]
    assert broken.index == 1
    layout = batch.caches.layout
    (number,) = search.add([joining])
    assert batch.caches.layout == layout  # it has taken the broken one's place
    found = []
    while search.live:
        found += search.step()
    (own,) = [finished for finished in found if finished.index == number]
    assert own.error is None
    assert own.hypotheses == alone.hypotheses


@pytest.mark.parametrize("name", ["macaron", "joint fast", "joint base"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_prefixes_scores_and_attention_equal_the_modules(
    random_bundle: RandomBundle, name: str, precision: str
) -> None:
    model = random_model(name)
    folder, manifest = random_bundle(name, precision)
    bundle = OnnxStepper(folder, manifest, 1)
    reference = TorchStepper(quantized_twin(model) if precision == "int8" else model)
    options = SearchOptions(
        beam_size=3, num_hypotheses=3, max_length=9, coverage_penalty=0.3, loop_guard=False
    )
    sentences = [
        dataclasses.replace(sentence, target_prefix=[7, 30, 12, 9, 41][: i % 6])
        for i, sentence in enumerate(random_sentences(9, options=options))
    ]
    tolerance = 1e-4 if precision == "fp32" else 0.05  # a rounded level may flip
    for wanted, found in zip(decode(reference, sentences), decode(bundle, sentences), strict=True):
        assert [h.tokens for h in wanted.hypotheses] == [h.tokens for h in found.hypotheses]
        for one, other in zip(wanted.hypotheses, found.hypotheses, strict=True):
            np.testing.assert_allclose(one.token_scores, other.token_scores, atol=tolerance)
            assert abs(one.score - other.score) < tolerance
    targets = [sentence.source[::-1] * 3 for sentence in sentences]  # over several prefill chunks
    np.testing.assert_allclose(
        total_log_probs(reference, sentences, targets),
        total_log_probs(bundle, sentences, targets),
        rtol=1e-5 if precision == "fp32" else 1e-2,
    )


def test_manifest_says_what_was_measured(tiny_model: TinyModel) -> None:
    for folder, precision in ((tiny_model.fp32, "fp32"), (tiny_model.int8, "int8")):
        manifest = read_manifest(folder)
        assert manifest.precision == precision
        assert manifest.family == "macaron"
        assert manifest.parity["sentences"] >= 20
        assert manifest.parity["bleu_checkpoint"] == 100.0
        assert manifest.parity["identical"] == manifest.parity["sentences"]
        assert manifest.attribution == "generated by tests/toy/corpus.py"
        assert manifest.versions.keys() >= {"torch", "onnx", "onnxruntime"}
        assert manifest.recipe["model"]["model_dim"] == 64
        assert "cache" not in manifest.recipe["data"]  # a place on the machine that trained
    assert sum(p.stat().st_size for p in tiny_model.int8.iterdir()) < sum(
        p.stat().st_size for p in tiny_model.fp32.iterdir()
    )


def test_a_damaged_graph_fails_parity_and_leaves_nothing(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(model: TranslationModel, folder: Path, **arguments: str) -> object:
        with torch.no_grad():
            model.decoder_norm.weight.mul_(1.5)  # type: ignore[operator, union-attr]
        manifest = write_graphs(model, folder, **arguments)  # type: ignore[arg-type]
        with torch.no_grad():
            model.decoder_norm.weight.div_(1.5)  # type: ignore[operator, union-attr]
        return manifest

    monkeypatch.setattr("export.bundles.translation.write_graphs", damaged)
    with pytest.raises(ParityError, match=r"logits differ by up to .* \(limit 0.001\)"):
        export_run(tiny_model.run, tmp_path / "out", Form("fp32"))
    assert list(tmp_path.iterdir()) == []


GOOD = Parity(
    sentences=10,
    identical=9,
    ties=1,
    logits_max_difference=1e-5,
    logits_mean_difference=1e-6,
    bleu_checkpoint=40.0,
    bleu_bundle=40.0,
    bleu_change=BleuChange(-0.1, -0.4, 0.2),
    log_prob_change=-0.001,
    signature="",
)


@pytest.mark.parametrize(
    ("precision", "change", "message"),
    [
        ("fp32", {"ties": 0}, "1 of 10 beam-search outputs"),
        ("fp32", {"logits_max_difference": 0.1}, "logits differ"),
        ("fp32", {"logits_max_difference": float("nan")}, "logits differ"),
        ("int8", {"logits_mean_difference": 0.0051}, "same arithmetic"),
        ("int8", {"logits_mean_difference": float("nan")}, "same arithmetic"),
        ("int8", {"logits_mean_difference": 0.031, "twin_noise": 0.02}, r"0.031 .*limit 0.03\)"),
        ("int8", {"bleu_change": BleuChange(-0.31, -1.0, 0.5)}, "BLEU changes by -0.31"),
        ("int8", {"log_prob_change": -0.011}, "log-probability"),
        ("int8", {"log_prob_change": float("nan")}, "log-probability"),
    ],
)
def test_gates(precision: str, change: dict[str, object], message: str) -> None:
    check(GOOD, "cross", precision)
    check(dataclasses.replace(GOOD, logits_mean_difference=0.029, twin_noise=0.02), "cross", "int8")
    with pytest.raises(ParityError, match=message):
        check(dataclasses.replace(GOOD, **change), "cross", precision)  # type: ignore[arg-type]


def test_measure_sees_a_worse_model(tiny_model: TinyModel) -> None:
    checkpoint = load_trained(tiny_model.run)
    worse = load_trained(tiny_model.run)
    with torch.no_grad():
        worse.model.embedding.weight.add_(torch.randn_like(worse.model.embedding.weight) * 0.4)
    lines = [
        (tiny_model.run / f"validation.{side}").read_text().split("\n")
        for side in ("source", "target")
    ]
    dev = DevSet(lines[0][:20], lines[1][:20])
    stepper = TorchStepper(checkpoint.model)
    parity = measure(
        stepper, stepper, TorchStepper(worse.model), Vocabulary.of(checkpoint.tokenizer), dev
    )
    assert parity.identical < parity.sentences
    assert parity.bleu_change.mean < 0
    assert parity.log_prob_change < 0


def test_bleu_change_is_zero_for_equal_systems_and_signed() -> None:
    references = ["the cat sat on the mat today", "a dog ran in the park at noon"] * 10
    worse = [line.replace("the", "a") for line in references]
    same = bleu_change(references, references, references)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    assert bleu_change(references, worse, references).high < 0
    assert bleu_change(worse, references, references).low > 0


def test_command(tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, run = tmp_path / "bundle", str(tiny_model.run)
    source, target = (str(tiny_model.run / f"validation.{s}") for s in ("source", "target"))
    assert main(["bundle", run, str(out), "--precision", "fp16"]) == 1
    assert "cpu fp32, cpu int8" in capsys.readouterr().err
    assert main(["bundle", str(tmp_path / "none"), str(out)]) == 1
    assert "none" in capsys.readouterr().err
    command = ["bundle", run, str(out), "--test", "own", source, target]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["quality"]["own BLEU"] == 100.0
    assert "| own | BLEU | 100 |" in (out / "README.md").read_text()
    assert main(command) == 1
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    capsys.readouterr()
    assert main(["verify", str(out)]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert verified["bytes"] == sum(
        (out / name).stat().st_size for name in read_manifest(out).files
    )
    assert 2**20 < verified["resident_bytes"] < 2**28
    here = str(Path(__file__).resolve().parents[3]).encode()
    assert not [path.name for path in out.iterdir() if here in path.read_bytes()]
    (out / "step.onnx").write_bytes(b"damaged")
    assert main(["verify", str(out)]) == 1
    assert "sha256" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_checkpoint_without_text_to_compare_on(tiny_model: TinyModel, tmp_path: Path) -> None:
    missing = TextPair("dev", tmp_path / "none.de", tmp_path / "none.en")
    with pytest.raises(Exception, match=r"none\.de"):
        export_run(tiny_model.run, tmp_path / "out", Form("fp32"), Texts(dev=missing))


def test_two_texts_of_one_name_are_refused(
    tiny_model: TinyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["--test", "news", "a.de", "a.en", "--test", "news", "b.de", "b.en"]
    assert main(["bundle", str(tiny_model.run), str(tmp_path / "out"), *texts]) == 1
    assert "--test names must differ, got 'news' twice" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


class SingleHeadDecoderLayer(DecoderLayer):
    """A source attention of one's own, which no kernel knows."""

    def forward(self, x_BQD: Tensor, context: AttentionContext) -> Tensor:
        x_BQD = super().forward(x_BQD, context)
        weights_BQS = x_BQD @ context.source.keys.transpose(1, 2)
        if context.source_mask is not None:
            weights_BQS = weights_BQS + context.source_mask[:, 0]
        return x_BQD + weights_BQS.softmax(-1) @ context.source.values


OWN_BLOCK = (EncoderLayer, SingleHeadDecoderLayer)
OWN_MODEL = TransformerConfig(
    **(SIZES | {"block": "tests.integration.export.test_bundle:OWN_BLOCK"})
)


@pytest.mark.parametrize(
    "name", ["macaron", "joint base", "own attention", "scale norm", "joint rms norm", "swiglu"]
)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_steps_begin_with_one_query_where_a_query_has_the_same_bits_alone(
    random_bundle: RandomBundle, name: str, precision: str
) -> None:
    model = random_model(name)
    folder, manifest = random_bundle(name, precision)
    stepper = OnnxStepper(folder, manifest, 1)
    assert stepper.one_query_first == (name != "own attention" and has_kernels())
    if stepper.one_query_first:
        sentences = random_sentences(6, model.config.vocab_size)
        for sentence, found in zip(sentences, decode(stepper, sentences), strict=True):
            alone = decode(stepper, [sentence])[0]  # which begins with all beams
            assert found.hypotheses == alone.hypotheses  # to the bit
