"""Folders of CTranslate2, imported: what CTranslate2 itself, and what they were converted from,
make of the same texts."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch

from bench.subjects.ctranslate2 import convert_to_ctranslate2
from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.hugging_face.m2m100 import read_m2m100, tags_among
from export.importing.hugging_face.marian import read_marian
from export.importing.model import AS_TOLD, Declared, LanguageChoice
from export.importing.toolkits.ctranslate2 import read_ctranslate2
from export.importing.toolkits.ctranslate2_file import read_spec_file
from serving.bundle.folder import read_manifest
from serving.search.options import SearchOptions
from serving.translation.translator import Translator, Wishes
from tests.toy.checkpoints import (
    PAIRS,
    pieces_of,
    randomise,
    write_m2m100,
    write_opus,
    write_sentencepiece,
)
from tests.toy.corpus import toy_pairs
from training.models import Transformer, TransformerConfig, build_model
from training.models.sublayers.embedding import interleaved_sinusoid

ctranslate2 = pytest.importorskip("ctranslate2")
pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

TEXTS = [source for source, _ in toy_pairs(14, seed=11)]
BEAMS = SearchOptions(beam_size=4, num_hypotheses=4, max_length=24, loop_guard=False)
GERMAN = LanguageChoice(("de",), ("en",))
PIECES = "sentencepiece.model"


def write_model(folder: Path, **changed: Any) -> Transformer:
    """A folder of CTranslate2 as OpenNMT-py's models become one, and the model that it holds;
    `changed` are options of its configuration."""
    folder.mkdir(parents=True)
    write_sentencepiece(folder / PIECES, [text for pair in PAIRS for text in pair], 100)
    written = ["<unk>", "<blank>", "<s>", "</s>", *pieces_of(folder / PIECES)]
    sizes = {"model_dim": 32, "num_heads": 4, "ffn_dim": 48}
    sizes |= {"num_encoder_layers": 2, "num_decoder_layers": 2, "vocab_size": len(written)}
    torch.manual_seed(3)
    model = build_model(TransformerConfig(**{**sizes, **changed})).eval()
    assert isinstance(model, Transformer)
    randomise(model)
    with torch.no_grad():
        model.embedding.weight.normal_(0.0, 0.1)
    convert_to_ctranslate2(model, written, folder / "model", "float32")
    for file in (folder / "model").iterdir():
        shutil.move(file, folder)
    (folder / "model").rmdir()
    return model


def with_encodings(monkeypatch: pytest.MonkeyPatch, table: torch.Tensor) -> None:
    """Have what is converted hold a table of positions, as other converters write it."""
    validate = ctranslate2.specs.TransformerSpec.validate

    def add(spec: Any) -> None:
        for side in (spec.encoder, spec.decoder):
            side.position_encodings.encodings = table.numpy().copy()
        validate(spec)

    monkeypatch.setattr(ctranslate2.specs.TransformerSpec, "validate", add)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"positions": "relative", "max_relative_distance": 5},
        {"norm": "post", "activation": "gelu", "norm_eps": 1e-6},
        {"norm_type": "rms", "activation": "swiglu"},
    ],
)
def test_weights_and_options_are_those_that_were_converted(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    model = write_model(tmp_path / "ct2", **changed)
    found = read_ctranslate2(tmp_path / "ct2", GERMAN)
    assert found.model.config == model.config
    state = found.model.state_dict()
    assert state.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0, msg=name)
    assert not found.source_end
    assert vars(found.special_ids) == {"pad": 1, "unk": 0, "bos": 2, "eos": 3}


@pytest.mark.parametrize("kind", ["interleaved", "learnt"])
def test_tables_of_positions_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = interleaved_sinusoid(torch.arange(40), 32)
    if kind == "learnt":
        table = torch.randn(40, 32, generator=torch.Generator().manual_seed(1))
    with_encodings(monkeypatch, table)
    write_model(tmp_path / "ct2")
    found = read_ctranslate2(tmp_path / "ct2", GERMAN).model
    assert found.config == dataclasses.replace(
        found.config, positions=kind, max_positions=40 if kind == "learnt" else 0
    )
    for side in ("encoder", "decoder") if kind == "learnt" else ():
        assert torch.equal(found.state_dict()[f"{side}_side.positions.weight"], table)


@pytest.mark.parametrize(
    ("quantization", "error"), [(None, 0.0), ("float16", 1e-3), ("int16", 2e-3), ("int8", 0.02)]
)
def test_a_converted_opus_is_the_opus(
    tmp_path: Path, quantization: str | None, error: float
) -> None:
    write_opus(tmp_path / "opus")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a package that it does not use here
        converter = ctranslate2.converters.TransformersConverter(str(tmp_path / "opus"))
        converter.convert(str(tmp_path / "ct2"), quantization=quantization)
    for name in ("source.spm", "target.spm"):
        shutil.copy(tmp_path / "opus" / name, tmp_path / "ct2")
    wanted, found = (
        read_marian(tmp_path / "opus", AS_TOLD),
        read_ctranslate2(tmp_path / "ct2", GERMAN),
    )
    assert found.source_end
    assert found.special_ids == wanted.special_ids
    assert list(found.pieces.written) == list(wanted.pieces.written)
    assert found.model.config == wanted.model.config
    state = found.model.state_dict()
    for name, tensor in wanted.model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=error, atol=error, msg=name)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of CTranslate2 of a model of many languages, whose tags are NLLB's; with its
    SentencePiece model."""
    from transformers import M2M100Tokenizer

    folder = tmp_path_factory.mktemp("many")
    write_m2m100(folder / "source")
    pieces = str(folder / "source" / "sentencepiece.bpe.model")
    M2M100Tokenizer(str(folder / "source" / "vocab.json"), pieces).save_pretrained(
        folder / "source"
    )
    written = read_m2m100(folder / "source", AS_TOLD).pieces.written
    named = {"__de__": "deu_Latn", "__en__": "eng_Latn", "__fr__": "fra_Latn"}
    other = {"__zh__": "zho_Hans", "__sr__": "srp_Cyrl"}
    names = [(named | other).get(piece, piece.strip("_") + "_x") for piece in written[-108:]]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = ctranslate2.converters.transformers.M2M100Loader
        patch.setattr(loader, "get_vocabulary", lambda *_: [*written[:-108], *names])
        converter = ctranslate2.converters.TransformersConverter(str(folder / "source"))
        converter.convert(str(folder / "ct2"))
    shutil.copy(pieces, folder / "ct2")
    return folder / "ct2"


def same_beams(
    bundle: Path, peer: Any, sources: list[list[str]], prefix: list[str] | None, target: str
) -> None:
    """CTranslate2 and the bundle find the same for the texts, whose pieces with tags these are."""
    wanted = peer.translate_batch(
        sources,
        target_prefix=[prefix] * len(sources) if prefix else None,
        beam_size=4,
        num_hypotheses=4,
        max_decoding_length=24 + len(prefix or ()),  # it counts the prefix
        min_decoding_length=0,
        length_penalty=0.0,  # for which the prefix counts there, too
        return_scores=True,
    )
    options = dataclasses.replace(BEAMS, length_penalty=0.0)
    found = Translator(bundle).translate_sentences(TEXTS, options, source="de", target=target)
    for result, theirs in zip(found, wanted, strict=True):
        for ours, output, score in zip(
            result.hypotheses, theirs.hypotheses, theirs.scores, strict=True
        ):
            assert ours.score == pytest.approx(score, abs=1e-3)
            assert list(ours.tokens) == output[len(prefix or ()) :]


def test_tags_on_both_sides_choose_the_languages(many: Path, tmp_path: Path) -> None:
    choice = LanguageChoice(("de", "en"), ("en", "fr"))
    manifest = import_bundle(
        many, tmp_path / "bundle", Form("fp32"), declared=Declared(languages=choice)
    )
    assert manifest.languages.source_tags == {"de": "deu_Latn", "en": "eng_Latn"}
    assert manifest.languages.first_pieces == {"en": "eng_Latn", "fr": "fra_Latn"}
    cut = sentencepiece.SentencePieceProcessor(model_file=str(many / "sentencepiece.bpe.model"))
    sources = [["deu_Latn", *cut.encode(text, return_type=str), "</s>"] for text in TEXTS]
    peer = ctranslate2.Translator(str(many), device="cpu", intra_threads=1)
    for target, tag in manifest.languages.first_pieces.items():
        same_beams(tmp_path / "bundle", peer, sources, [tag], target)
    with pytest.raises(ExportError, match="--to must be of the languages of the model"):
        read_ctranslate2(many, LanguageChoice(("de",), ("xx",)))


def test_tags_of_m2m100_and_nllb_are_distinguished_from_pieces() -> None:
    assert tags_among(["<s>", "a", "__en__", "__ast__", "__no"]) == {
        "en": "__en__",
        "ast": "__ast__",
    }
    nllb = ["abc", "zho_Hans", "zho_Hant", "eng_Latn", "Eng_Latn"]
    assert tags_among(nllb) == {"zh-Hans": "zho_Hans", "zh-Hant": "zho_Hant", "en": "eng_Latn"}


def test_a_tag_before_the_source_chooses_the_target(tmp_path: Path) -> None:
    write_opus(tmp_path / "opus", tags=("eng", "fra"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converter = ctranslate2.converters.TransformersConverter(str(tmp_path / "opus"))
        converter.convert(str(tmp_path / "ct2"))
    for name in ("source.spm", "target.spm"):
        shutil.copy(tmp_path / "opus" / name, tmp_path / "ct2")
    with pytest.raises(ExportError, match="say which the model reads with --from"):
        read_ctranslate2(tmp_path / "ct2", AS_TOLD)
    choice = LanguageChoice(("de",), ("en", "fr"))
    manifest = import_bundle(
        tmp_path / "ct2", tmp_path / "bundle", Form("fp32"), declared=Declared(languages=choice)
    )
    assert manifest.languages.tags == {"en": ">>eng<<", "fr": ">>fra<<"}
    cut = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "ct2" / "source.spm"))
    peer = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", intra_threads=1)
    for target, tag in manifest.languages.tags.items():
        sources = [[tag, *cut.encode(text, return_type=str), "</s>"] for text in TEXTS]
        same_beams(tmp_path / "bundle", peer, sources, None, target)


@pytest.mark.slow
def test_a_package_of_argos_translates_as_ctranslate2_does(tmp_path: Path) -> None:
    package = tmp_path / "translate-de_en-1_9"
    write_model(package / "model", positions="relative", max_relative_distance=4)
    shutil.move(package / "model" / PIECES, package / PIECES)
    (package / "metadata.json").write_text('{"from_code": "de", "to_code": "en"}')
    manifest = import_bundle(package, tmp_path / "bundle", Form("fp32"))
    assert (manifest.languages.source, manifest.languages.target) == (("de",), ("en",))
    assert manifest.tokenizer.source_end is False
    assert read_manifest(tmp_path / "bundle") == manifest
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(package / PIECES))
    peer = ctranslate2.Translator(str(package / "model"), device="cpu", intra_threads=1)
    wanted = peer.translate_batch(
        [pieces.encode(text, return_type=str) for text in TEXTS],
        beam_size=4,
        num_hypotheses=4,
        max_decoding_length=24,
        min_decoding_length=0,
        return_scores=True,
    )
    translator = Translator(tmp_path / "bundle")
    together = translator.translate_sentences(TEXTS, BEAMS)
    for result, theirs in zip(together, wanted, strict=True):
        for ours, output, score in zip(
            result.hypotheses, theirs.hypotheses, theirs.scores, strict=True
        ):
            assert ours.score == pytest.approx(score, abs=1e-4)
            assert list(ours.tokens) == output
    assert together == [translator.translate_sentences([text], BEAMS)[0] for text in TEXTS]
    (linked,) = translator.translate([TEXTS[0]], BEAMS, wishes=Wishes(alignments=True))
    assert linked.hypotheses[0].alignment
    assert translator.translate(["  "], BEAMS)[0].text.strip() == ""


Change = Callable[[Path], object]


def rewritten(name: str, edit: Callable[[str], str]) -> Change:
    return lambda folder: (folder / name).write_text(edit((folder / name).read_text()))


def cut_off(folder: Path) -> None:
    content = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(content[: len(content) // 2])


def of_version(number: int) -> Change:
    def change(folder: Path) -> None:
        content = (folder / "model.bin").read_bytes()
        (folder / "model.bin").write_bytes(struct.pack("<I", number) + content[4:])

    return change


def renamed(old: bytes, new: bytes) -> Change:
    def change(folder: Path) -> None:
        content = (folder / "model.bin").read_bytes()
        assert old in content
        (folder / "model.bin").write_bytes(content.replace(old, new))

    return change


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "ct2"
    write_model(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut_off, "the file is cut off"),
        (of_version(2), "binary version 2 is not supported"),
        (renamed(b"TransformerSpec", b"WhisperSpecific"), "'WhisperSpecific' is not supported"),
        (renamed(b"decoder/alibi\0", b"decoder/alibj\0"), None),
        (renamed(b"layer_0/ffn/layer_norm", b"layer_0/ffn/layer_morn"), "ffn/layer_norm/gamma"),
        (lambda folder: (folder / PIECES).unlink(), "no SentencePiece model"),
        (lambda folder: (folder / "shared_vocabulary.json").unlink(), "shared_vocabulary.json"),
        (
            rewritten("shared_vocabulary.json", lambda text: json.dumps(json.loads(text)[:-1])),
            "and its embedding",
        ),
        (
            rewritten("shared_vocabulary.json", lambda text: text.replace('"e"', '"de_DE"')),
            "'de_DE'",
        ),
        (rewritten("config.json", lambda text: text.replace("</s>", "<end>")), "'<end>'"),
    ],
)
def test_what_is_wrong_is_reported_with_file_and_entry(
    plain: Path, tmp_path: Path, change: Change, message: str | None
) -> None:
    folder = shutil.copytree(plain, tmp_path / "ct2")
    change(folder)
    if message is None:  # a switch that is off may have any name
        read_ctranslate2(folder, GERMAN)
        return
    with pytest.raises(ExportError, match="ct2") as told:
        read_ctranslate2(folder, GERMAN)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_languages_must_be_given(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"give one with --from CODE, got none"):
        import_bundle(plain, tmp_path / "bundle", Form("fp32"))
    with pytest.raises(ExportError, match=r"give one with --to CODE, got en,fr"):
        read_ctranslate2(plain, LanguageChoice(("de",), ("en", "fr")))
    assert not (tmp_path / "bundle").exists()
    assert recognise(plain).family == "ctranslate2"


def test_numbers_are_read_as_ctranslate2_wrote_them(tmp_path: Path) -> None:
    """Against a file put together here, type by type."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    def variable(name: str, array: np.ndarray[Any, Any], kind: int) -> bytes:
        head = text(name) + struct.pack("<B", array.ndim)
        head += b"".join(struct.pack("<I", size) for size in array.shape)
        return head + struct.pack("<BI", kind, array.nbytes) + array.tobytes()

    rows = np.array([[127, -64], [1, 0]], np.int8)
    halves = np.array([1.5, -2.25], np.float16)
    brain = np.array([0x3FC0, 0xC010], np.uint16)  # 1.5 and -2.25 in bfloat16
    content = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<II", 7, 5)
    content += variable("a/weight", rows, 1)
    content += variable("a/weight_scale", np.array([127.0, 2.0], np.float32), 0)
    content += variable("b", halves, 4)
    content += variable("c", brain, 5)
    content += variable("d", np.array(3, np.int16), 2)
    content += struct.pack("<I", 1) + text("e/weight") + text("a/weight")
    (tmp_path / "model.bin").write_bytes(content)
    found = read_spec_file(tmp_path / "model.bin")
    wanted = torch.tensor([[1.0, -64 / 127], [0.5, 0.0]])
    torch.testing.assert_close(found.tensors["a/weight"], wanted)
    torch.testing.assert_close(found.tensors["e/weight"], wanted)
    for name in ("b", "c"):
        assert found.tensors[name].tolist() == [1.5, -2.25]
    assert found.options == {"d": 3.0}
    assert found.tensors.keys() == {"a/weight", "b", "c", "e/weight"}
