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

from bench.peers import convert_to_ctranslate2
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.ctranslate2 import read_ctranslate2
from export.importing.ctranslate2_file import read_spec_file
from export.importing.marian import read_marian
from export.importing.model import AS_TOLD, LanguageChoice
from serving.bundle.folder import read_manifest
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from tests.toy.checkpoints import PAIRS, pieces_of, randomise, write_opus, write_sentencepiece
from tests.toy.corpus import toy_pairs
from training.models import Transformer, TransformerConfig, build_model
from training.models.embedding import interleaved_sinusoid

ctranslate2 = pytest.importorskip("ctranslate2")
pytestmark = pytest.mark.usefixtures("traced_once", "one_thread")

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


def test_a_package_of_argos_translates_as_ctranslate2_does(tmp_path: Path) -> None:
    package = tmp_path / "translate-de_en-1_9"
    write_model(package / "model", positions="relative", max_relative_distance=4)
    shutil.move(package / "model" / PIECES, package / PIECES)
    (package / "metadata.json").write_text('{"from_code": "de", "to_code": "en"}')
    manifest = import_bundle(package, tmp_path / "bundle", precision="fp32")
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
    (linked,) = translator.translate([TEXTS[0]], BEAMS, alignments=True)
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
            rewritten("shared_vocabulary.json", lambda text: text.replace('"e"', '"deu_Latn"')),
            "'deu_Latn'",
        ),
        (rewritten("config.json", lambda text: text.replace("</s>", "<end>")), "'<end>'"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_entry(
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


def test_languages_must_be_told(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"give one with --from CODE, got none"):
        import_bundle(plain, tmp_path / "bundle", precision="fp32")
    with pytest.raises(ExportError, match=r"give one with --to CODE, got en,fr"):
        read_ctranslate2(plain, LanguageChoice(("de",), ("en", "fr")))
    assert not (tmp_path / "bundle").exists()
    assert recognise(plain) is read_ctranslate2


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
