"""A Llama in a file of GGUF: its header, its tensors and its vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from export.errors import ExportError
from export.importing.language_models.gguf.file import is_gguf, read_gguf
from tests.unit.export.importing.language_models.small_llama import (
    DIM,
    FFN,
    HEADS,
    KV_HEADS,
    SIZE,
    WIDTH,
    llama_tensors,
)

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

TOKENS = ["<|end|>", "<|start|>", "a", "b", "ab", "Ġ", "Ġab", "<|turn|>", "<tool>"]
MERGES = ["a b", "Ġ ab"]
TYPES = [3, 3, 1, 1, 1, 1, 1, 3, 4]
LAYER = "model.layers.0"
YARN = {"llama__rope__scaling__type": "yarn", "llama__rope__scaling__factor": 4.0}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    f"{LAYER}.input_layernorm": "blk.0.attn_norm",
    f"{LAYER}.post_attention_layernorm": "blk.0.ffn_norm",
    **{f"{LAYER}.self_attn.{part}_proj": f"blk.0.attn_{part}" for part in "qkv"},
    f"{LAYER}.self_attn.o_proj": "blk.0.attn_output",
    **{f"{LAYER}.mlp.{part}_proj": f"blk.0.ffn_{part}" for part in ("gate", "up", "down")},
}


def write(
    path: Path, more: dict[str, np.ndarray] | None = None, leave: str = "", **changed: Any
) -> Path:
    """A file with the small Llama; `changed` are entries of its header, with `__` for a dot."""
    numbers = {
        "llama.block_count": 1, "llama.context_length": 64, "llama.embedding_length": DIM,
        "llama.feed_forward_length": FFN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS, "llama.rope.dimension_count": WIDTH,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 500.0,
        "general.license": "mit", "general.name": " Toy ",
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.token_type": TYPES, "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.eot_token_id": 7,
    }  # fmt: skip
    header: dict[str, Any] = numbers | {n.replace("__", "."): v for n, v in changed.items()}
    writer = gguf.GGUFWriter(path, header.pop("general.architecture", "llama"))
    for name, value in header.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
            add(name, value)
    given = {f"{NAMES[n.removesuffix('.weight')]}.weight": t for n, t in llama_tensors().items()}
    for name, tensor in given.items():
        if name != leave:
            writer.add_tensor(name, tensor.numpy())
    for name, array in (more or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def test_queries_and_keys_are_brought_into_halves(path: Path) -> None:
    imported = read_gguf(write(path))
    assert is_gguf(path)
    given, state = llama_tensors(), imported.model.state_dict()

    def halves(name: str, heads: int) -> torch.Tensor:
        rows = given[f"{LAYER}.self_attn.{name}_proj.weight"].reshape(heads, WIDTH, DIM)
        return torch.cat([rows[:, 0::2], rows[:, 1::2]], 1).reshape(-1, DIM)

    value = given[f"{LAYER}.self_attn.v_proj.weight"]
    wanted = torch.cat([halves("q", HEADS), halves("k", KV_HEADS), value])
    assert torch.equal(state["layers.0.self_attention.in_proj.weight"], wanted)
    assert torch.equal(state["output_matrix"], given["lm_head.weight"])
    config = imported.model.config
    assert (config.kv_heads, config.rotary_base) == (KV_HEADS, 500.0)
    assert (imported.max_positions, imported.licence) == (64, "mit")
    assert imported.kind == "Llama in GGUF (Toy)"
    ids = imported.special_ids
    assert (ids.bos, ids.eos, ids.unk, ids.pad) == (1, 0, 0, 0)
    assert imported.other_ends == (7,)


def test_an_output_that_is_missing_is_the_embedding(path: Path) -> None:
    imported = read_gguf(write(path, leave="output.weight"))
    assert imported.model.config.tie_embeddings


@pytest.mark.parametrize(
    ("kind", "begins"), [("gpt-2", False), ("smollm", False), ("llama-bpe", True)]
)
def test_the_vocabulary_cuts_by_its_merges(path: Path, kind: str, begins: bool) -> None:
    imported = read_gguf(write(path, tokenizer__ggml__pre=kind))
    tokenizer = Tokenizer.from_str(imported.tokenizer.decode())
    first = [1] if begins else []
    assert tokenizer.encode("ab ab<|turn|><tool>").ids == [*first, 4, 6, 7, 8]
    assert tokenizer.decode([4, 6, 7, 8]) == "ab ab<tool>"
    told = read_gguf(write(path, tokenizer__ggml__add_bos_token=not begins))
    found = Tokenizer.from_str(told.tokenizer.decode()).encode("ab").ids
    assert found == ([] if begins else [1]) + [4]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"general__architecture": "gemma"}, "architecture 'gemma' is not supported"),
        ({"llama__expert_count": 8}, "llama.expert_count 8 is not supported"),
        ({"llama__vocab_size": 12}, "llama.vocab_size 12 is not supported; it must be 9"),
        ({"llama__rope__scaling__type": "su"}, "'su' is not supported; it must be 'none' or"),
        (
            {"llama__rope__scaling__type": "yarn"},
            "rope.scaling.factor must be a finite number, got None",
        ),
        (YARN | {"llama__rope__scaling__factor": 0.5}, "needs a number factor >= 1, got 0.5"),
        (YARN | {"llama__rope__scaling__yarn_ext_factor": 0.5}, "yarn_ext_factor 0.5 is not"),
        ({"llama__rope__dimension_count": 4}, "dimension_count 4 is not supported; it must be 2"),
        ({"llama__attention__soft_cap": 30.0}, "'llama.attention.soft_cap' .30.0. is not known"),
        ({"tokenizer__ggml__pre": "bloom"}, "tokenizer.ggml.pre 'bloom' is not supported"),
        ({"tokenizer__ggml__model": "t5"}, "tokenizer.ggml.model 't5' is not supported"),
        ({"tokenizer__ggml__model": "llama"}, "tokenizer.ggml.scores must be of the type list"),
        ({"tokenizer__ggml__eot_token_id": 99}, r"the id of eot must be in \[0, 8\], got 99"),
        ({"tokenizer__ggml__tokens": ["a"] * SIZE}, "holds a token twice"),
        ({"tokenizer__ggml__merges": ["a z"]}, "tokenizer.ggml.merges: "),
        ({"llama__block_count": 2}, r"'blk\.1\.attn_norm\.weight' is missing"),
    ],
)
def test_what_is_not_supported_is_named_with_its_entry(
    path: Path, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=rf"model\.gguf: .*{words}"):
        read_gguf(write(path, **changed))


def test_positions_that_are_slowed_otherwise_than_llama_s_are_refused(path: Path) -> None:
    with pytest.raises(ExportError, match=r"rope_freqs\.weight must scale positions as Llama 3\.1"):
        read_gguf(write(path, {"rope_freqs.weight": np.full(WIDTH // 2, 3.5, np.float32)}))
    llama3 = {"rope_freqs.weight": np.full(WIDTH // 2, 1.0, np.float32)}
    with pytest.raises(ExportError, match=r"type 'yarn' is not supported where tensors"):
        read_gguf(write(path, llama3, **YARN))


def test_other_files_are_none(path: Path) -> None:
    assert not is_gguf(path.parent)
    path.write_bytes(b"GGU")
    assert not is_gguf(path)
    content = write(path).read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert is_gguf(path)
    with pytest.raises(ExportError, match=r"model\.gguf: cannot be read, it may be cut off"):
        read_gguf(path)
