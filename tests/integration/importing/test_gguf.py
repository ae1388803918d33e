"""Llama in files of GGUF: against `transformers` and against what a file itself says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from export.__main__ import main
from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle
from export.importing.language_models.gguf.file import read_gguf
from serving.generation.generator import Generator
from serving.search.sampling_options import GenerationOptions
from tests.toy.language_checkpoints import ROWS, TEMPLATE, VOCABULARY, write_llama

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread")

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
NAMES = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
HEADS = {"q_proj": 4, "k_proj": 2}


def their_name(name: str) -> str:
    short = name.removesuffix(".weight").removeprefix("model.layers.")
    number, _, part = short.partition(".")
    found = NAMES[part] if number.isdecimal() else NAMES[short]
    return f"blk.{number}.{found}.weight" if number.isdecimal() else f"{found}.weight"


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter stores queries and keys: turned features side by side."""
    halves = rows.reshape(heads, 2, -1, rows.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def write_gguf(
    folder: Path,
    kind: str,
    rotary: dict[str, Any] | None = None,
    slower: np.ndarray | None = None,
    **changed: Any,
) -> Any:
    """folder/model.gguf, whose matrices are of that type, of a small Llama with these positions;
    returns the Llama, with the values that they then have."""
    options = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
    rotary = rotary or {"rope_type": "default", "rope_theta": 500.0}
    theirs = write_llama(folder / "folder", **options, rope_parameters=rotary)
    writer = gguf.GGUFWriter(folder / "model.gguf", changed.pop("architecture", "llama"))
    values = {
        "block_count": 2, "context_length": 128, "embedding_length": 64, "feed_forward_length": 96,
        "attention.head_count": 4, "attention.head_count_kv": 2, "rope.dimension_count": 16,
    }  # fmt: skip
    for name, value in values.items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("llama.rope.freq_base", rotary["rope_theta"])
    writer.add_string("general.license", "mit")
    add_tokenizer(writer, folder / "folder")
    for name, value in changed.items():
        writer.add_string(name.replace("__", "."), value)
    if slower is not None:
        writer.add_tensor("rope_freqs.weight", slower)
    type_, state = gguf.GGMLQuantizationType[kind], {}
    for name, tensor in load_file(folder / "folder" / "model.safetensors").items():
        rows = tensor.numpy()
        for part, heads in HEADS.items():
            rows = interleaved(rows, heads) if part in name else rows
        if rows.ndim == 2:
            packed = gguf.quantize(rows, type_)
            writer.add_tensor(their_name(name), packed, raw_dtype=type_)
            state[name] = gguf.dequantize(gguf.quantize(tensor.numpy(), type_), type_)
        else:
            writer.add_tensor(their_name(name), rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    theirs.load_state_dict({n: torch.tensor(v) for n, v in state.items()}, strict=False)
    return theirs


def add_tokenizer(writer: Any, folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    pieces = [tokenizer.id_to_token(i) for i in range(VOCABULARY)]
    pieces += [f"<extra{i}>" for i in range(ROWS - VOCABULARY)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types([3] * 3 + [1] * (VOCABULARY - 3) + [4] * (ROWS - VOCABULARY))
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(ROWS - 1)
    writer.add_eom_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


@pytest.mark.parametrize("kind", TYPES)
def test_logits_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    theirs = write_gguf(tmp_path, kind)
    imported = read_gguf(tmp_path / "model.gguf")
    ids = torch.randint(0, ROWS, (3, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(imported.model(ids), theirs(ids).logits, atol=1e-4, rtol=0)
    assert imported.licence == "mit"
    assert (imported.special_ids.eos, imported.other_ends) == (2, (ROWS - 1,))


def test_positions_are_scaled_as_llama_3_does(tmp_path: Path) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rotary = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0}
    rotary |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rotary["original_max_position_embeddings"] = 8192
    theirs = write_gguf(tmp_path / "plain", "F32", rotary)
    scaled = LlamaRotaryEmbedding(theirs.config).inv_freq.numpy()
    slower = (500000.0 ** (-np.arange(8) / 8) / scaled).astype(np.float32)
    assert slower[0] == 1
    assert 1.5 < slower.max() <= 32.1
    write_gguf(tmp_path / "file", "F32", rotary, slower)
    imported = read_gguf(tmp_path / "file" / "model.gguf")
    ids = torch.randint(0, ROWS, (2, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(imported.model(ids), theirs(ids).logits, atol=1e-4, rtol=0)
    write_gguf(tmp_path / "other", "F32", rotary, slower**0.5)
    with pytest.raises(ExportError, match="must scale positions as Llama 3"):
        read_gguf(tmp_path / "other" / "model.gguf")


def test_a_file_becomes_a_bundle_as_its_folder_does(tmp_path: Path) -> None:
    write_gguf(tmp_path, "F32")
    import_bundle(tmp_path / "model.gguf", tmp_path / "file", Form("fp32"))
    import_bundle(tmp_path / "folder", tmp_path / "other", Form("fp32"))
    file, folder = (Generator(tmp_path / name, threads=1) for name in ("file", "other"))
    texts, options = ["the old man", "漢字 3", ""], GenerationOptions(max_length=20, temperature=0)
    assert [file.encode(text) for text in texts] == [folder.encode(text) for text in texts]
    assert [o[0].text for o in file.generate(texts, options)] == [
        o[0].text for o in folder.generate(texts, options)
    ]
    chat = [{"role": "user", "content": "the old man"}]
    assert file.prompts.encode_chat(chat) == folder.prompts.encode_chat(chat)
    assert file.manifest.recipe["imported"]["licence"] == "mit"


Change = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("written", "change", "words"),
    [
        ({"architecture": "mamba"}, None, ["general.architecture 'mamba'", "'llama'"]),
        (
            {"tokenizer__ggml__pre": "bloom"},
            None,
            ["tokenizer.ggml.pre 'bloom'", "gpt-2"],
        ),
        ({"llama__rope__scaling__type": "ntk"}, None, ["llama.rope.scaling.type 'ntk'"]),
        ({"llama__logit_scale": "2"}, None, ["the option 'llama.logit_scale' ('2') is not known"]),
        ({}, lambda content: content[:2000], ["cannot be read, it may be cut off"]),
        ({}, lambda content: content[:-2000], ["cannot be read, it may be cut off"]),
        (
            {},
            lambda content: content.replace(
                named("blk.1.ffn_down.weight", 0), named("blk.1.ffn_down.weight", 77)
            ),
            ["the tensor 'blk.1.ffn_down.weight' has the type 77"],
        ),
        (
            {},
            lambda content: content.replace(b"blk.1.ffn_down.", b"blk.1.ffn_gown."),
            ["the tensor 'blk.1.ffn_down.weight' is missing"],
        ),
    ],
)
def test_what_is_not_read_is_reported_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    written: dict[str, Any],
    change: Change | None,
    words: list[str],
) -> None:
    path = tmp_path / "model.gguf"
    if written.keys() & {"tokenizer__ggml__pre"}:  # which is there already, and stands first
        write_gguf(tmp_path, "F32")
        content = path.read_bytes()
        path.write_bytes(content.replace(string("gpt-2"), string("bloom")))
    else:
        write_gguf(tmp_path, "F32", **written)
    if change is not None:
        content = path.read_bytes()
        path.write_bytes(change(content))
        assert path.read_bytes() != content
    code = main(["import", str(path), str(tmp_path / "out" / "model"), "--precision", "fp32"])
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 1
    assert all(word in told[-1] for word in [str(path), *words]), told
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def string(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


def named(name: str, kind: int) -> bytes:
    """The entry of a matrix [64,96] up to its type."""
    shape = b"".join(axis.to_bytes(8, "little") for axis in (96, 64))
    return string(name) + (2).to_bytes(4, "little") + shape + kind.to_bytes(4, "little")


def test_without_the_package_its_name_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ExportError, match=r"needs the package gguf; install it with"):
        read_gguf(tmp_path / "model.gguf")
