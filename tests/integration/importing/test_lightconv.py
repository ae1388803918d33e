"""Checkpoints of fairseq's LightConv and DynamicConv, imported: random weights laid out here by
their documented names, and a slow forward of them in float64, tap by tap."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from numpy.typing import NDArray
from sacremoses import MosesDetokenizer
from torch import Tensor

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle
from export.importing.model import AS_TOLD
from export.importing.toolkits.fairseq import read_fairseq
from serving.translation.translator import Translator
from tests.toy.checkpoints import PAIRS
from tests.toy.fairseq_files import options, save, write_bpe_files, write_files, write_own_files
from training.decoding.stepper import TorchStepper

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

Array = NDArray[np.float64]
DIM, FFN, HEADS, LAYERS = 32, 48, 4, 2
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def conv_options(**changed: Any) -> dict[str, Any]:
    """Those of `models/lightconv.py`, with different convolutions on both sides."""
    found = options(
        arch="lightconv",
        encoder_conv_type="lightweight",
        decoder_conv_type="dynamic",
        encoder_conv_dim=DIM,
        decoder_conv_dim=DIM,
        encoder_kernel_size_list=[3, 7],
        decoder_kernel_size_list=[5],
        encoder_glu=True,
        decoder_glu=True,
        weight_softmax=True,
        weight_dropout=0.1,
        input_dropout=0.1,
    )
    return {**found, **changed}


def widths(given: dict[str, Any], side: str) -> list[int]:
    listed = given[f"{side}_kernel_size_list"]
    return listed * LAYERS if len(listed) == 1 else listed


def random_weights(
    given: dict[str, Any], size: int, source_size: int | None = None
) -> dict[str, Tensor]:
    """Every tensor that the model has, as it saves them."""
    generator = torch.Generator().manual_seed(11)
    found: dict[str, Tensor] = {}

    def add(name: str, *shape: int, scale: float = 0.5) -> None:
        found[name] = torch.randn(shape, generator=generator) * scale

    def product(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", rows, columns)
        add(f"{name}.bias", rows, scale=0.1)

    def norm(name: str) -> None:
        add(f"{name}.weight", DIM, scale=0.2)
        found[f"{name}.weight"] += 1.0
        add(f"{name}.bias", DIM, scale=0.1)

    add("encoder.embed_tokens.weight", source_size or size, DIM, scale=0.15)
    found["decoder.embed_tokens.weight"] = found["encoder.embed_tokens.weight"]
    if not given["share_all_embeddings"]:
        add("decoder.embed_tokens.weight", size, DIM, scale=0.15)
        if not given["share_decoder_input_output_embed"]:
            add("decoder.embed_out", size, DIM, scale=0.15)
    for side in ("encoder", "decoder"):
        found[f"{side}.version"] = torch.tensor([2.0])
        found[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        if given[f"{side}_normalize_before"]:
            norm(f"{side}.layer_norm")
        for number, width in enumerate(widths(given, side)):
            layer = f"{side}.layers.{number}"
            product(f"{layer}.linear1", (2 if given[f"{side}_glu"] else 1) * DIM, DIM)
            product(f"{layer}.linear2", DIM, DIM)
            if given[f"{side}_conv_type"] == "dynamic":
                add(f"{layer}.conv.weight_linear.weight", HEADS * width, DIM)
            else:
                add(f"{layer}.conv.weight", HEADS, 1, width, scale=1.0)
            product(f"{layer}.fc1", FFN, DIM)
            product(f"{layer}.fc2", DIM, FFN)
            norms = ["conv_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
            for name in ["layer_norms.0", "layer_norms.1"] if side == "encoder" else norms:
                norm(f"{layer}.{name}")
            if side == "decoder":
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    product(f"{layer}.encoder_attn.{part}", DIM, DIM)
    return found


class Slow:
    """The forward of `models/lightconv.py` for one sentence."""

    def __init__(self, given: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self.given = given
        self.weights = {name: tensor.double().numpy() for name, tensor in weights.items()}

    def logits(self, source: list[int], target: list[int]) -> Array:
        memory = self.stack("encoder", source, None)
        shared = self.weights["decoder.embed_tokens.weight"]
        output = self.weights.get("decoder.embed_out", shared)
        return self.stack("decoder", target, memory) @ output.T

    def stack(self, side: str, ids: list[int], memory: Array | None) -> Array:
        x = self.weights[f"{side}.embed_tokens.weight"][ids] * math.sqrt(DIM) + np.stack(
            [self.position(2 + n) for n in range(len(ids))]
        )
        before = self.given[f"{side}_normalize_before"]
        for number, width in enumerate(widths(self.given, side)):
            layer = f"{side}.layers.{number}"
            norms = {"conv": f"{layer}.conv_layer_norm", "ffn": f"{layer}.final_layer_norm"}
            if side == "encoder":
                norms = {"conv": f"{layer}.layer_norms.0", "ffn": f"{layer}.layer_norms.1"}
            x = self.residual(
                x, norms["conv"], before, lambda x, at=layer, k=width: self.convolution(x, at, k)
            )
            if memory is not None:
                x = self.residual(
                    x,
                    f"{layer}.encoder_attn_layer_norm",
                    before,
                    lambda x, at=layer: self.attention(x, memory, f"{at}.encoder_attn"),
                )
            x = self.residual(
                x,
                norms["ffn"],
                before,
                lambda x, at=layer: self.linear(
                    np.maximum(self.linear(x, f"{at}.fc1"), 0.0), f"{at}.fc2"
                ),
            )
        return self.norm(x, f"{side}.layer_norm") if before else x

    def residual(self, x: Array, norm: str, before: bool, call: Callable[[Array], Array]) -> Array:
        return x + call(self.norm(x, norm)) if before else self.norm(x + call(x), norm)

    def convolution(self, x: Array, layer: str, width: int) -> Array:
        side = layer.partition(".")[0]
        x = self.linear(x, f"{layer}.linear1")
        if self.given[f"{side}_glu"]:
            x = x[:, :DIM] / (1.0 + np.exp(-x[:, DIM:]))
        padding = width // 2 if side == "encoder" else width - 1
        out = np.zeros_like(x)
        for t in range(len(x)):
            if self.given[f"{side}_conv_type"] == "dynamic":
                taps = (self.weights[f"{layer}.conv.weight_linear.weight"] @ x[t]).reshape(
                    HEADS, -1
                )
            else:
                taps = self.weights[f"{layer}.conv.weight"][:, 0]
            if self.given["weight_softmax"]:
                taps = np.exp(taps) / np.exp(taps).sum(1, keepdims=True)
            for head in range(HEADS):
                part = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
                for tap in range(width):
                    if 0 <= t - padding + tap < len(x):
                        out[t, part] += taps[head, tap] * x[t - padding + tap, part]
        return self.linear(out, f"{layer}.linear2")

    def attention(self, x: Array, memory: Array, name: str) -> Array:
        queries, keys, values = (
            self.linear(of, f"{name}.{part}").reshape(len(of), HEADS, -1)
            for of, part in ((x, "q_proj"), (memory, "k_proj"), (memory, "v_proj"))
        )
        scores = np.einsum("the,she->hts", queries, keys) / math.sqrt(DIM // HEADS)
        shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        heads = np.einsum("hts,she->the", shares, values)
        return self.linear(heads.reshape(len(x), DIM), f"{name}.out_proj")

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def position(self, row: int) -> Array:
        half = DIM // 2
        angles = [row * math.exp(-i * math.log(10000.0) / (half - 1)) for i in range(half)]
        return np.array([*map(math.sin, angles), *map(math.cos, angles)])


def write(folder: Path, **changed: Any) -> tuple[dict[str, Any], dict[str, Tensor], int]:
    size = write_files(folder)
    given = conv_options(**changed)
    weights = random_weights(given, size)
    save(folder, weights, args=argparse.Namespace(**given))
    return given, weights, size


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {
            "encoder_conv_type": "dynamic",
            "decoder_conv_type": "lightweight",
            "encoder_glu": False,
            "decoder_glu": False,
            "encoder_normalize_before": False,
            "decoder_normalize_before": False,
        },
        {"weight_softmax": False},
    ],
    ids=["pre-norm", "post-norm without GLU", "without softmax"],
)
def test_log_probabilities_are_those_of_a_slow_forward(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    given, weights, size = write(tmp_path / "run", **changed)
    assert_as_slow(tmp_path / "run", given, weights, size, size)


@pytest.mark.parametrize("tied", [True, False])
def test_sides_may_have_dictionaries_and_embeddings_of_their_own(
    tmp_path: Path, tied: bool
) -> None:
    source_size, size = write_own_files(tmp_path / "run")
    assert source_size != size
    given = conv_options(share_all_embeddings=False, share_decoder_input_output_embed=tied)
    weights = random_weights(given, size, source_size)
    save(tmp_path / "run", weights, args=argparse.Namespace(**given))
    assert_as_slow(tmp_path / "run", given, weights, source_size, size)


def test_a_model_with_two_vocabularies_becomes_an_int8_bundle_that_translates(
    tmp_path: Path,
) -> None:
    source_size, size = write_own_files(tmp_path / "run")
    given = conv_options(share_all_embeddings=False, share_decoder_input_output_embed=False)
    weights = random_weights(given, size, source_size)
    save(tmp_path / "run", weights, args=argparse.Namespace(**given))
    manifest = import_bundle(tmp_path / "run", tmp_path / "bundle", Form("int8"))
    assert (manifest.sizes.source_vocab_size, manifest.sizes.vocab_size) == (source_size, size)
    translator = Translator(tmp_path / "bundle")
    texts = [source for source, _ in PAIRS[:6]]
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "run" / f"{side}.spm"))
        for side in ("source", "target")
    )
    for text in texts:
        wanted = [i + 1 for i in source.encode(text)]  # its own ids begin behind <unk>, <s>, </s>
        assert translator.texts.encode_source(text) == [*wanted, 2]
    outcomes = translator.translate_sentences(texts)
    assert outcomes == [translator.translate_sentences([text])[0] for text in texts]
    for outcome in outcomes:
        kept = [piece for piece in outcome.hypotheses[0].tokens if piece not in _SPECIAL]
        if len(kept) == len(outcome.hypotheses[0].tokens):
            assert outcome.text == target.decode(kept)


def assert_as_slow(
    folder: Path,
    given: dict[str, Any],
    weights: dict[str, Tensor],
    source_size: int,
    size: int,
) -> None:
    stepper = TorchStepper(read_fairseq(folder, AS_TOLD).model)
    slow = Slow(given, weights)
    generator = torch.Generator().manual_seed(2)
    sources = [
        [*torch.randint(4, source_size, (n,), generator=generator).tolist(), 2] for n in (3, 8)
    ]
    outputs = torch.randint(4, size, (2, 7), generator=generator)
    given_BT = torch.cat([torch.full((2, 1), 2), outputs], 1)
    labels_BT = torch.cat([outputs, torch.full((2, 1), 2)], 1)
    scores_BT = stepper.prefill(
        stepper.encode(sources), given_BT.numpy(), labels_BT.numpy()
    ).scores_BP
    for row, source in enumerate(sources):
        logits = torch.from_numpy(slow.logits(source, given_BT[row].tolist()))
        wanted = logits.log_softmax(-1).gather(1, labels_BT[row][:, None])[:, 0]
        np.testing.assert_allclose(scores_BT[row], wanted.numpy(), rtol=1e-4, atol=1e-4)


def test_a_checkpoint_becomes_an_int8_bundle_that_translates(tmp_path: Path) -> None:
    write(tmp_path / "run", decoder_conv_type="lightweight")
    manifest = import_bundle(tmp_path / "run", tmp_path / "bundle", Form("int8"))
    assert manifest.recipe["imported"]["kind"] == "a LightConv of fairseq"
    translator = Translator(tmp_path / "bundle")
    texts = [source for source, _ in PAIRS[:6]]
    assert translator.translate(texts) == [translator.translate([text])[0] for text in texts]


@pytest.mark.parametrize("fast", [False, True], ids=["subword-nmt", "fastBPE"])
def test_texts_are_cut_by_the_codes_beside_it(tmp_path: Path, fast: bool) -> None:
    cut = write_bpe_files(tmp_path / "run", fast=fast)
    given = conv_options()
    written = [*_SPECIAL, *read_dictionary(tmp_path / "run" / "dict.de.txt")]
    save(tmp_path / "run", random_weights(given, len(written)), args=argparse.Namespace(**given))
    manifest = import_bundle(tmp_path / "run", tmp_path / "bundle", Form("int8"))
    assert manifest.tokenizer.kind == "moses"
    translator = Translator(tmp_path / "bundle")
    texts = [source for source, _ in PAIRS[:6]]
    for text, pieces in zip(texts, cut, strict=False):
        found = translator.texts.encode_source(text)
        assert [written[i] for i in found] == [*pieces, "</s>"]
    outcomes = translator.translate_sentences(texts)
    assert outcomes == [translator.translate_sentences([text])[0] for text in texts]
    detokenizer = MosesDetokenizer("en")
    for outcome in outcomes:
        best = outcome.hypotheses[0]
        kept = [piece for piece in best.tokens if piece not in ("<s>", "<pad>", "</s>")]
        joined = (" ".join(kept) + " ").replace("@@ ", "")
        assert best.text == detokenizer.detokenize(joined.split())


def read_dictionary(path: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "no codes are there; put them beside the weights as bpecodes"),
        ("#version: 0.2\na b\na b c\n", "bpecodes: line 3 must be two pieces to merge"),
    ],
)
def test_codes_that_are_not_there_or_are_none_are_refused(
    tmp_path: Path, lines: str | None, message: str
) -> None:
    write_bpe_files(tmp_path / "run", fast=False)
    given = conv_options()
    written = [*_SPECIAL, *read_dictionary(tmp_path / "run" / "dict.de.txt")]
    args = argparse.Namespace(**given)
    save(tmp_path / "run", random_weights(given, len(written)), args=args)
    codes = tmp_path / "run" / "bpecodes"
    codes.unlink() if lines is None else codes.write_text(lines)
    with pytest.raises(ExportError, match="run") as told:
        read_fairseq(tmp_path / "run", AS_TOLD)
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoder_conv_type": "fast"}, "encoder_conv_type 'fast' is not supported"),
        (
            {"decoder_conv_dim": 64},
            "decoder_conv_dim 64 is not supported; it must be decoder_embed",
        ),
        ({"decoder_glu": False}, "encoder_glu and decoder_glu must be equal"),
        ({"encoder_kernel_size_list": [3, 4]}, "widths must be odd, from 3 on"),
        ({"encoder_kernel_size_list": [3, 5, 7]}, "a width for each of 2 layers, got [3, 5, 7]"),
        ({"encoder_kernel_size_list": "[3,5]"}, "must be a list of widths, got '[3,5]'"),
        (
            {"encoder_kernel_size_list": [3, 9]},
            "'model.encoder.layers.1.conv.weight' must be [4, 9]",
        ),
    ],
)
def test_what_is_not_supported_is_reported_with_file_and_option(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    size = write_files(tmp_path / "run")
    args = argparse.Namespace(**conv_options(**changed))
    save(tmp_path / "run", random_weights(conv_options(), size), args=args)
    with pytest.raises(ExportError, match=r"checkpoint_best\.pt") as told:
        read_fairseq(tmp_path / "run", AS_TOLD)
    assert message in str(told.value)
