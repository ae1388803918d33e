"""What the import of language models refuses: one line with file and entry, and nothing left
behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from export.__main__ import main
from export.importing.language_models.families.llama import read_llama
from export.importing.language_models.model import read_chat_template
from tests.toy.language_checkpoints import ROWS, TEMPLATE, write_gpt2, write_llama

Change = Callable[[Path], object]
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    write_gpt2(folder / "gpt2")
    write_llama(folder / "llama")
    return {name: folder / name for name in ("gpt2", "llama")}


def config(file: str = "config.json", **changed: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / file
        tree = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(tree | changed))

    return change


def weights(edit: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file(tensors, folder / "model.safetensors")

    return change


def scaled(kind: str) -> Change:
    return config(rope_parameters={"rope_type": kind, "rope_theta": 500.0, "factor": 2.0})


def cut_off(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:900])


@pytest.mark.parametrize(
    ("source", "change", "words"),
    [
        ("llama", scaled("su"), ["config.json", "rope_parameters of the type 'su'", "'yarn'"]),
        ("llama", scaled("llama3"), ["rope_parameters", "'llama3' needs a number low_freq_factor"]),
        (
            "llama",
            config(rope_parameters=None, rope_scaling={"type": "dynamic", "factor": 2.0}),
            ["rope_scaling of the type 'dynamic'", "'default'"],
        ),
        ("llama", config(head_dim=16), ["config.json", "head_dim 16", "it must be 8"]),
        ("llama", config(hidden_act="gelu"), ["hidden_act 'gelu'", "'silu'"]),
        ("llama", config(num_key_value_heads=3), ["config.json", "num_kv_heads", "got 3"]),
        ("llama", config(qk_norm=True), ["'qk_norm' (True) is not known", "supported"]),
        (
            "llama",
            config("generation_config.json", eos_token_id=ROWS),
            ["generation_config.json: eos_token_id must be in", f"got {ROWS}"],
        ),
        (
            "llama",
            config("generation_config.json", eos_token_id=[1, ROWS]),
            ["eos_token_id must be in", f"got [1, {ROWS}]"],
        ),
        ("llama", config(pad_token_id=[1, 2]), ["pad_token_id must be one id, got [1, 2]"]),
        ("llama", config("tokenizer_config.json", chat_template=3), ["chat_template must be a"]),
        (
            "llama",
            weights(lambda t: t.pop("model.layers.1.mlp.up_proj.weight")),
            ["model.safetensors", "'model.layers.1.mlp.up_proj.weight' is missing"],
        ),
        (
            "llama",
            weights(lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)})),
            ["the layer 'model.layers.0.self_attn.q_norm.weight'", "is not known"],
        ),
        (
            "llama",
            weights(lambda t: t.update({EMBEDDING: t[EMBEDDING][:-9].clone()})),
            [f"'{EMBEDDING}' must be [{ROWS}, 32] by config.json"],
        ),
        ("llama", cut_off("model.safetensors"), ["model.safetensors: cannot be read"]),
        ("llama", cut_off("tokenizer.json"), ["tokenizer.json: no usable tokenizer"]),
        (
            "llama",
            lambda folder: (folder / "tokenizer.json").unlink(),
            ["tokenizer.json is missing, the vocabulary"],
        ),
        ("gpt2", config(scale_attn_by_inverse_layer_idx=True), ["scale_attn_by_inverse_layer"]),
        ("gpt2", config(activation_function="mish"), ["activation_function 'mish'", "gelu_new"]),
        (
            "gpt2",
            weights(lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1})),
            ["'lm_head.weight' differs from 'transformer.wte.weight'"],
        ),
    ],
)
def test_it_is_reported_in_one_line_and_nothing_is_left(
    sources: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: str,
    change: Change,
    words: list[str],
) -> None:
    folder = tmp_path / "given"
    shutil.copytree(sources[source], folder)
    change(folder)
    assert main(["import", str(folder), str(tmp_path / "out" / "lm")]) == 1
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.count(str(folder)) >= 1
    assert all(word in told for word in words), told
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_what_belongs_to_translation_is_refused(
    sources: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["import", str(sources["gpt2"]), str(tmp_path / "out")]
    text = str(sources["gpt2"] / "config.json")
    for option in (["--to", "de"], ["--dev", text, text], ["--test", "a", text, text]):
        assert main([*words, *option]) == 1
        told = capsys.readouterr().err
        assert f"a language model does not take {option[0]}; it takes --licence" in told
    assert main(["import", str(sources["llama"]), *words[2:], "--precision", "fp32",
                 "--target", "cuda"]) == 1  # fmt: skip
    assert "does not support grouped queries" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_weights_may_be_pickled_tensors(sources: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "given"
    shutil.copytree(sources["llama"], folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    found, wanted = (read_llama(path).model.state_dict() for path in (folder, sources["llama"]))
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_templates_are_found_where_they_lie(sources: dict[str, Path], tmp_path: Path) -> None:
    assert read_chat_template(sources["llama"]) == TEMPLATE
    assert read_chat_template(sources["gpt2"]) is None
    several = [{"name": "tool", "template": "a"}, {"name": "default", "template": "b"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert read_chat_template(tmp_path) == "b"
    (tmp_path / "chat_template.jinja").write_text("c")
    assert read_chat_template(tmp_path) == "c"
