"""Checkpoints of OpenNMT-py, imported: compared with what CTranslate2's converter makes of them."""

from __future__ import annotations

import argparse
import dataclasses
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.model import Declared, LanguageChoice
from export.importing.toolkits.ctranslate2 import read_ctranslate2
from export.importing.toolkits.opennmt import read_opennmt
from serving.bundle.moses import MosesVocabulary
from serving.bundle.pieces import vocabulary_file
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from tests.toy.checkpoints import PAIRS, pieces_of, write_sentencepiece
from training.models.sublayers.embedding import interleaved_sinusoid

ctranslate2 = pytest.importorskip("ctranslate2")
pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

GERMAN = LanguageChoice(("de",), ("en",))
PIECES = "sentencepiece.model"
DIM, FFN, HEADS = 32, 48, 4


SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]


def write_checkpoint(
    folder: Path, *, biased: bool = True, own: bool = False, **changed: Any
) -> dict[str, Any]:
    """A checkpoint of two layers a side with random weights, as the trainer saves it; `changed` are
    options, and with `own` source, target and output share nothing. Returns its parts."""
    folder.mkdir(parents=True)
    write_sentencepiece(folder / PIECES, [text for pair in PAIRS for text in pair], 100)
    written = source = [*SPECIAL, *pieces_of(folder / PIECES)]
    if own:
        (folder / PIECES).unlink()
        for side, name in enumerate(("source.spm", "target.spm")):
            write_sentencepiece(folder / name, [p[side] for p in PAIRS], 90 - 10 * side)
        source, written = (
            [*SPECIAL, *pieces_of(folder / name)] for name in ("source.spm", "target.spm")
        )
    options = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": 2,
        "dec_layers": 2,
        "heads": HEADS,
        "position_encoding": True,
        "max_relative_positions": 0,
        "learning_rate": 2.0,  # and a hundred more of training
        **changed,
    }
    torch.manual_seed(1)
    model = {}

    def linear(name: str, rows: int, columns: int, *, bias: bool) -> None:
        model[f"{name}.weight"] = torch.randn(rows, columns) * columns**-0.5
        if bias:
            model[f"{name}.bias"] = torch.randn(rows) * 0.1

    def norm(name: str) -> None:
        model[f"{name}.weight"] = 1.0 + 0.1 * torch.randn(DIM)
        if options.get("layer_norm") != "rms":
            model[f"{name}.bias"] = 0.1 * torch.randn(DIM)

    def attention(name: str, *, own: bool) -> None:
        for part in ("linear_keys", "linear_values", "linear_query", "final_linear"):
            linear(f"{name}.{part}", DIM, DIM, bias=biased)
        if own and (most := options["max_relative_positions"]):
            table = torch.randn(2 * most + 1, DIM // HEADS) * 0.1
            model[f"{name}.relative_positions_embeddings.weight"] = table

    vectors = torch.randn(len(written), DIM) * 0.1
    first = torch.randn(len(source), DIM) * 0.1 if own else vectors
    for side, layers in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        table = first if side == "encoder" else vectors
        model[f"{side}.embeddings.make_embedding.emb_luts.0.weight"] = table
        if options["position_encoding"]:
            table = interleaved_sinusoid(torch.arange(60), DIM)[:, None]
            model[f"{side}.embeddings.make_embedding.pe.pe"] = table
        for number in range(2):
            name = f"{side}.{layers}.{number}"
            attention(f"{name}.self_attn", own=True)
            if side == "decoder":
                attention(f"{name}.context_attn", own=False)
                norm(f"{name}.layer_norm_2")
            norm(f"{name}.layer_norm" + ("_1" if side == "decoder" else ""))
            linear(f"{name}.feed_forward.w_1", FFN, DIM, bias=True)
            linear(f"{name}.feed_forward.w_2", DIM, FFN, bias=True)
            norm(f"{name}.feed_forward.layer_norm")
        norm(f"{side}.layer_norm")
    output = torch.randn(len(written), DIM) * 0.1 if own else vectors
    generator = {"weight": output, "bias": 0.1 * torch.randn(len(written))}
    parts = {
        "model": model,
        "generator": generator,
        "vocab": {"src": source, "tgt": written},
        "opt": argparse.Namespace(**options),
        "optim": {"step": 7},
    }
    torch.save(parts, folder / "model_step_7.pt")
    return parts


@pytest.mark.parametrize(
    ("biased", "changed"),
    [
        (True, {}),
        (True, {"own": True}),
        (False, {"pos_ffn_activation_fn": "gelu"}),
        (True, {"position_encoding": False, "max_relative_positions": 5}),
    ],
)
def test_weights_are_those_that_ctranslate2_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, biased: bool, changed: dict[str, Any]
) -> None:
    folder = tmp_path / "opennmt"
    write_checkpoint(folder, biased=biased, **changed)
    found = read_opennmt(folder, GERMAN)
    assert not found.source_end
    with torch.serialization.safe_globals([argparse.Namespace]):
        converter = ctranslate2.converters.OpenNMTPyConverter(str(folder / "model_step_7.pt"))
        converter.convert(str(tmp_path / "ct2"))
    for path in (*folder.glob("*.model"), *folder.glob("*.spm")):
        shutil.copy(path, tmp_path / "ct2")
    wanted = read_ctranslate2(tmp_path / "ct2", GERMAN)
    # Its converter leaves out the epsilon of OpenNMT-py's norms.
    assert found.model.config == dataclasses.replace(wanted.model.config, norm_eps=1e-6)
    state = found.model.state_dict()
    assert state.keys() == wanted.model.state_dict().keys()
    for name, tensor in wanted.model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0, msg=name)
    assert found.special_ids == wanted.special_ids
    assert found.pieces.written == wanted.pieces.written
    assert found.pieces.source_written == wanted.pieces.source_written
    assert (found.pieces.source_written is not None) == changed.get("own", False)


def test_a_checkpoint_becomes_a_bundle_that_translates(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "opennmt", biased=False)
    file = tmp_path / "opennmt" / "model_step_7.pt"
    assert recognise(file).family == "opennmt-py"
    manifest = import_bundle(
        file, tmp_path / "bundle", Form("fp32"), declared=Declared(languages=GERMAN)
    )
    assert manifest.sizes.num_parameters > 0
    translator = Translator(tmp_path / "bundle")
    texts = [source for source, _ in PAIRS[:6]]
    together = translator.translate(texts)
    assert together == [translator.translate([text])[0] for text in texts]
    assert translator.texts.encode_source(texts[0])[-1] != manifest.decoding_ids.eos


def test_two_vocabularies_translate_as_in_ctranslate2(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "opennmt", own=True)
    file = tmp_path / "opennmt" / "model_step_7.pt"
    with torch.serialization.safe_globals([argparse.Namespace]):
        ctranslate2.converters.OpenNMTPyConverter(str(file)).convert(str(tmp_path / "ct2"))
    for path in (tmp_path / "opennmt").glob("*.spm"):
        shutil.copy(path, tmp_path / "ct2")
    import_bundle(
        tmp_path / "ct2", tmp_path / "bundle", Form("fp32"), declared=Declared(languages=GERMAN)
    )
    peer = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", intra_threads=1)
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "opennmt" / "source.spm")
    )
    texts = [source for source, _ in PAIRS[:6]]
    wanted = peer.translate_batch(
        [pieces.encode(text, return_type=str) for text in texts],
        beam_size=4,
        num_hypotheses=4,
        max_decoding_length=24,
        min_decoding_length=0,
        return_scores=True,
    )
    beams = SearchOptions(beam_size=4, num_hypotheses=4, max_length=24, loop_guard=False)
    found = Translator(tmp_path / "bundle").translate_sentences(texts, beams)
    for result, theirs in zip(found, wanted, strict=True):
        for ours, output, score in zip(
            result.hypotheses, theirs.hypotheses, theirs.scores, strict=True
        ):
            assert ours.score == pytest.approx(score, abs=1e-4)
            assert list(ours.tokens) == output


def test_codes_of_bpe_may_be_beside_it(tmp_path: Path) -> None:
    parts = write_checkpoint(tmp_path / "opennmt")
    folder = tmp_path / "opennmt"
    written = parts["vocab"]["src"]
    written[4:7] = ["Hun@@", "d", "@-@"]
    torch.save(parts, folder / "model_step_7.pt")
    (folder / "codes").write_text("#version: 0.2\nH u\nHu n\n@ -\n@- @</w>\n")
    found = read_opennmt(folder, GERMAN)
    assert found.pieces.moses is not None
    vocabulary = MosesVocabulary(
        found.pieces.moses[0], vocabulary_file(written, found.pieces.control), found.special_ids
    )
    assert vocabulary.pieces(vocabulary.encode("Hund-Hund")) == ["Hun@@", "d", "@-@", "Hun@@", "d"]
    assert vocabulary.decode([4, 5, 6, 4, 5]) == "Hund-Hund"


Change = Callable[[dict[str, Any]], object]


def option(name: str, value: Any) -> Change:
    return lambda parts: setattr(parts["opt"], name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (option("encoder_type", "brnn"), "encoder_type 'brnn' is not supported"),
        (option("max_relative_positions", -1), "(rotary, ALiBi) is not supported"),
        (option("position_encoding", False), "one of position_encoding and max_relative_positions"),
        (option("multiquery", True), "multiquery True is not supported"),
        (lambda parts: parts["vocab"].update(tgt=["a"]), "of the target has 1 pieces and its"),
        (
            lambda parts: parts["vocab"].update(src=parts["vocab"]["src"][::-1]),
            "'<unk>' has the id 0 in the target's",
        ),
        (lambda parts: parts["vocab"].update(src_feats={"case": ["a"]}), "src_feats"),
        (lambda parts: parts.pop("generator"), "not a checkpoint of OpenNMT-py"),
        (
            lambda parts: parts["model"].update({"encoder.adapter.weight": torch.ones(2)}),
            "'encoder.adapter.weight'",
        ),
        (
            lambda parts: parts["model"].pop("decoder.transformer_layers.1.layer_norm_2.weight"),
            "attention/layer_norm/gamma",
        ),
        (lambda parts: parts["vocab"]["src"].pop(), "and its embedding"),
    ],
)
def test_what_is_not_supported_is_reported_with_file_and_entry(
    tmp_path: Path, change: Change, message: str
) -> None:
    parts = write_checkpoint(tmp_path / "opennmt")
    change(parts)
    torch.save(parts, tmp_path / "opennmt" / "model_step_7.pt")
    with pytest.raises(ExportError, match=r"model_step_7\.pt") as told:
        read_opennmt(tmp_path / "opennmt", GERMAN)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_nothing_is_executed(tmp_path: Path) -> None:
    for name, save in (("a.pt", torch.save), ("b.pt", lambda o, p: p.write_bytes(pickle.dumps(o)))):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "model.pt"
        save({"model": Bomb(tmp_path / "exploded")}, path)
        with pytest.raises(ExportError, match="never is"):
            read_opennmt(path, GERMAN)
    write_checkpoint(tmp_path / "cut")
    path = tmp_path / "cut" / "model_step_7.pt"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ExportError, match=r"model_step_7\.pt: cannot be read, it may be cut off"):
        read_opennmt(path, GERMAN)
    assert not (tmp_path / "exploded").exists()
