"""Marian's own files, imported: against an independent reading of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import yaml

from export.arithmetic.quantize import QuantizedLinear, quantized_twin
from export.bundles.subject import Form
from export.importing.bundle import import_bundle, recognise
from export.importing.model import AS_TOLD, Declared, Imported, LanguageChoice
from serving.bundle.folder import read_manifest
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from tests.toy.corpus import toy_pairs
from tests.toy.marian_files import (
    PRE_NORM,
    Array,
    Reading,
    dequantized,
    items_of,
    levels,
    random_lists,
    random_parameters,
    write_binary,
    write_lexicon,
    write_npz,
    write_student,
    write_vocabulary,
)
from training.decoding.stepper import TorchStepper

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

TEXTS = [source for source, _ in toy_pairs(14, seed=11)]
GREEDY = SearchOptions(beam_size=1, length_penalty=0.0, max_length=24, loop_guard=False)
SIZE, START = 120, 120


def read(source: Path, choice: LanguageChoice = AS_TOLD) -> Imported:
    return recognise(source).read(source, Declared(languages=choice))


def assert_logits_are(imported: Imported, reading: Reading, source_size: int = SIZE) -> None:
    """Log-probabilities of random targets after random sources; <unk> has no share of them."""
    generator = np.random.default_rng(5)
    stepper = TorchStepper(imported.model)
    for length in (1, 4, 9):
        source = [*generator.integers(2, source_size, length).tolist(), 0]
        target = generator.integers(2, SIZE, 7).tolist()
        logits = reading.logits(source, target)
        logits[:, 1] = -np.inf
        wanted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        state = stepper.encode([source])
        found = stepper.prefill(state, np.array([[START, *target]]), np.array([[*target, 0]]))
        labels = [*target, 0]
        np.testing.assert_allclose(
            found.scores_BP[0], wanted[np.arange(len(labels)), labels], atol=1e-4
        )


@pytest.mark.parametrize(
    "changed",
    [{}, PRE_NORM, PRE_NORM | {"transformer-decoder-autoreg": "rnn"}],
    ids=["student", "teacher", "pre-norm student"],
)
def test_npz_computes_what_its_equations_say(tmp_path: Path, changed: dict[str, Any]) -> None:
    parameters = random_parameters(SIZE, changed)
    write_npz(tmp_path / "model.npz", parameters, changed)
    write_vocabulary(tmp_path / "vocab.spm")
    imported = read(tmp_path / "model.npz", LanguageChoice(("de",), ("en",)))
    assert_logits_are(imported, Reading(parameters, changed))


OWN = {"tied-embeddings-all": False}


@pytest.mark.parametrize(
    ("changed", "source_size"),
    [
        (OWN | {"tied-embeddings": True}, 90),
        (OWN, 90),
        (OWN | {"tied-embeddings-src": True}, None),
        (OWN | {"legacy": True}, 90),
    ],
    ids=["source", "all", "output", "all, not transposed"],
)
def test_embeddings_of_their_own(
    tmp_path: Path, changed: dict[str, Any], source_size: int | None
) -> None:
    legacy = changed.pop("legacy", False)
    parameters = random_parameters(SIZE, changed, source_size)
    if legacy:
        output = parameters.pop("decoder_ff_logit_out_Wt")
        parameters["decoder_ff_logit_out_W"] = np.ascontiguousarray(output.T)
    write_npz(tmp_path / "model.deen.npz", parameters, changed)
    write_vocabulary(tmp_path / "trgvocab.deen.spm")
    if source_size is not None:
        write_vocabulary(tmp_path / "srcvocab.deen.spm", source_size)
    imported = read(tmp_path)
    written = imported.pieces.source_written
    assert (None if written is None else len(written)) == source_size
    assert_logits_are(imported, Reading(parameters, changed), source_size or SIZE)


@pytest.mark.slow
def test_a_student_with_two_vocabularies_and_a_shortlist_translates(tmp_path: Path) -> None:
    changed = OWN | {"tied-embeddings": True}
    parameters = random_parameters(SIZE, changed, 90)
    write_binary(tmp_path / "model.deen.bin", items_of(parameters, changed))
    write_vocabulary(tmp_path / "srcvocab.deen.spm", 90)
    write_vocabulary(tmp_path / "trgvocab.deen.spm")
    lists = random_lists(SIZE)[:90]
    write_lexicon(tmp_path / "lex.50.50.deen.s2t.bin", lists, 20)
    manifest = import_bundle(tmp_path, tmp_path / "bundle", Form("int8"))
    assert (manifest.sizes.source_vocab_size, manifest.sizes.vocab_size) == (90, SIZE + 1)
    translator = Translator(tmp_path / "bundle")
    options = replace(GREEDY, shortlist=True)
    together = translator.translate(TEXTS, options)
    assert together == [translator.translate(text, options)[0] for text in TEXTS]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "srcvocab.deen.spm"))
    target = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "trgvocab.deen.spm"))
    for text, result in zip(TEXTS, together, strict=True):
        source = [*pieces.encode(text), 0]
        assert translator.texts.encode_source(text) == source
        allowed = set(range(20)).union(*(lists[piece] for piece in source))
        tokens = [target.piece_to_id(piece) for piece in result.hypotheses[0].tokens]
        assert set(tokens) - allowed == set()


def test_a_bias_may_be_left_out(tmp_path: Path) -> None:
    changed = {"output-omit-bias": True}
    parameters = random_parameters(SIZE)
    bias = parameters.pop("decoder_ff_logit_out_b")
    write_npz(tmp_path / "model.deen.npz", parameters, changed)
    write_vocabulary(tmp_path / "vocab.spm")
    reading = Reading({**parameters, "decoder_ff_logit_out_b": np.zeros_like(bias)})
    assert_logits_are(read(tmp_path), reading)


def test_integers_are_read_with_their_scales_and_stay_as_they_are(tmp_path: Path) -> None:
    parameters = write_student(tmp_path)
    imported = read(tmp_path)
    assert_logits_are(imported, Reading(dequantized(parameters)))
    twin = quantized_twin(imported.model)
    for name, parts in {
        "encoder.1.self_attention.in_proj": [f"encoder_l2_self_W{part}" for part in "qkv"],
        "decoder.0.self_attention.in_proj": ["decoder_l1_rnn_Wf", "decoder_l1_rnn_W"],
        "decoder.1.ffn.down_proj": ["decoder_l2_ffn_W2"],
    }.items():
        product = twin.get_submodule(name)
        assert isinstance(product, QuantizedLinear)
        wanted = np.concatenate([levels(parameters[part])[0] for part in parts], axis=1)
        found = product.weight_KN.numpy()  # type: ignore[operator, union-attr]
        # A column whose levels have a common divisor has the same ones in a smaller form.
        ratio = np.abs(wanted).max(0) / np.abs(found).max(0)
        assert (ratio == ratio.round()).all()
        np.testing.assert_array_equal(found * ratio, wanted)


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> dict[str, Any]:
    """A student, its independent reading and its bundles."""
    folder = tmp_path_factory.mktemp("student")
    source = folder / "deen"
    reading = Reading(dequantized(write_student(source)))
    for precision in ("fp32", "int8"):
        import_bundle(source, folder / precision / "deen", Form(precision))
    return {"source": source, "reading": reading, "folder": folder}


def ids_of(translator: Translator, tokens: Sequence[str]) -> list[int]:
    written = translator.texts.target.pieces(list(range(translator.texts.target.vocab_size)))
    return [written.index(token) for token in tokens]


def test_a_bundle_writes_what_the_equations_say(student: Mapping[str, Any]) -> None:
    translator = Translator(student["folder"] / "fp32" / "deen")
    model = sentencepiece.SentencePieceProcessor(
        model_file=str(student["source"] / "vocab.deen.spm")
    )
    lists = random_lists(SIZE)
    for shortlist in (False, True):
        options = replace(GREEDY, shortlist=shortlist)
        found = translator.translate_sentences(TEXTS, options)
        for text, result in zip(TEXTS, found, strict=True):
            source = [*model.encode(text), 0]
            listed = set(range(20)).union(source, *(lists[piece] for piece in source))
            wanted = student["reading"].greedy(source, 24, listed if shortlist else range(SIZE))
            assert ids_of(translator, result.hypotheses[0].tokens) == wanted
            assert result.hypotheses[0].text == model.decode(wanted)


def test_int8_is_the_same_to_the_bit_in_any_batch(student: Mapping[str, Any]) -> None:
    translator = Translator(student["folder"] / "int8" / "deen")
    assert translator.default_options.shortlist
    together = translator.translate(TEXTS)
    assert together == [translator.translate(text)[0] for text in TEXTS]
    assert len({result.text for result in together}) > 5


def test_the_manifest_says_what_the_decoder_is_given(student: Mapping[str, Any]) -> None:
    manifest = read_manifest(student["folder"] / "int8" / "deen")
    assert manifest.search == {
        "beam_size": 1, "length_penalty": 1.0, "eos_in_length": True, "shortlist": True,
    }  # fmt: skip
    assert (manifest.languages.source, manifest.languages.target) == (("de",), ("en",))
    assert manifest.sizes.recurrent
    assert manifest.recipe["imported"]["kind"] == "a model of Marian (bin, SSRU decoder)"


def test_a_teacher_with_two_sentencepiece_models_and_tags(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "source.spm", 60)
    write_vocabulary(tmp_path / "target.spm", 70)
    models = [
        sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"{side}.spm"))
        for side in ("source", "target")
    ]
    pieces = {m.id_to_piece(i): None for m in models for i in range(2, m.vocab_size())}
    written = ["</s>", "<unk>", *pieces, "no", "1", ">>fra<<", ">>por<<"]
    ids = {piece: number for number, piece in enumerate(written)}
    (tmp_path / "vocab.yml").write_text(yaml.safe_dump(ids, allow_unicode=True))
    write_npz(tmp_path / "model.npz", random_parameters(len(ids), PRE_NORM), PRE_NORM)
    decoder = {"models": ["model.npz"], "vocabs": ["vocab.yml", "vocab.yml"], "beam-size": 6}
    (tmp_path / "decoder.yml").write_text(yaml.safe_dump(decoder))
    imported = read(tmp_path, LanguageChoice(source=("de",)))
    assert list(imported.pieces.written) == [*written, "<start>"]
    assert imported.pieces.source_model.name == "source.spm"
    assert imported.languages.tags == {"fr": ">>fra<<", "pt": ">>por<<"}
    assert imported.search["beam_size"] == 6
    assert imported.shortlist is None


def test_a_folder_without_a_yaml_may_hold_one_of_each(tmp_path: Path) -> None:
    parameters = write_student(tmp_path)
    (tmp_path / "config.intgemm8bitalpha.yml").unlink()
    imported = read(tmp_path)
    assert imported.shortlist is not None
    wanted = set(range(20)).union([30], random_lists(SIZE)[30])
    assert imported.shortlist.of([30]).tolist() == sorted(wanted)
    assert imported.search["beam_size"] == 1
    assert imported.languages.target == ("en",)
    (tmp_path / "float16.bin").write_bytes(b"")  # not a model of Marian
    assert_logits_are(read(tmp_path), Reading(dequantized(parameters)))


def test_integers_of_16_bits_and_half_floats(tmp_path: Path) -> None:
    parameters = random_parameters(SIZE)
    wide: dict[str, Array] = dict(parameters)
    items = []
    for item in items_of(parameters):
        value = parameters.get(item.name)
        if item.name == "encoder_l1_ffn_W1" and value is not None:
            wide[item.name] = np.rint(value * 1024) / 1024
            content = np.rint(value * 1024).astype("<i2").T.tobytes()
            content += np.float32(1024).tobytes()
            items.append(type(item)(item.name, 0x4102, item.shape, content))
        elif item.name == "encoder_l1_ffn_b1" and value is not None:
            wide[item.name] = value.astype(np.float16)
            items.append(type(item)(item.name, 0x402, item.shape, wide[item.name].tobytes()))
        else:
            items.append(item)
    whole = {"encoder_l1_ffn_W1", "encoder_l1_ffn_b1"}
    rest = dequantized({n: v for n, v in parameters.items() if n not in whole})
    write_binary(tmp_path / "model.deen.bin", items)
    write_vocabulary(tmp_path / "vocab.spm")
    assert_logits_are(read(tmp_path), Reading({**wide, **rest}))
