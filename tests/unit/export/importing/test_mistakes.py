"""What the import refuses: one line with file and entry, and nothing left behind."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from export.__main__ import main
from export.errors import ExportError
from export.importing.bundle import recognise
from export.importing.model import Declared
from export.importing.subjects import licence_of_card
from tests.toy.checkpoints import write_m2m100, write_opus, write_t5
from tests.toy.encoders import save_encoder
from tests.toy.language_checkpoints import write_gpt2, write_llama
from tests.toy.t5gemma import write_t5gemma

POSITIONS = "model.encoder.embed_positions.weight"
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    write_opus(folder / "opus")
    write_m2m100(folder / "m2m100")
    return {name: folder / name for name in ("opus", "m2m100")}


def config(**changed: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    return change


def weights(edit: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        edit(tensors)
        save_file(tensors, path)

    return change


def cut_off(name: str) -> Change:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return change


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Bomb(folder / "exploded")}))


def saved_by_torch(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"a": Bomb(folder / "exploded")}, folder / "pytorch_model.bin")


def cut_bin(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    cut_off("pytorch_model.bin")(folder)


def fewer_pieces(folder: Path) -> None:
    path = folder / "vocab.json"
    ids = json.loads(path.read_text())
    ids.pop("<pad>")
    path.write_text(json.dumps(ids))


def lone(name: str) -> Change:
    return lambda folder: (folder / name).write_text("{")


@pytest.mark.parametrize(
    ("source", "change", "words"),
    [
        ("opus", config(model_type="t6"), ["config.json", "model_type 't6'", "marian, m2m_100"]),
        ("opus", remove("config.json"), ["no config.json", "supported families"]),
        ("opus", lone("config.json"), ["config.json", "not valid JSON"]),
        (
            "opus",
            config(use_rotary=True),
            ["config.json", "'use_rotary' (True) is not known", "supported"],
        ),
        ("opus", config(activation_function="gelu_new"), ["activation_function 'gelu_new'"]),
        ("opus", config(normalize_before=True), ["config.json", "normalize_before True", "False"]),
        (
            "opus",
            config(share_encoder_decoder_embeddings=False),
            ["'model.encoder.embed_tokens.weight' is missing"],
        ),
        ("opus", config(decoder_ffn_dim=96), ["encoder_ffn_dim and decoder_ffn_dim", "[48, 96]"]),
        ("opus", config(num_beams=500), ["config.json", "num_beams", "[1, 64], got 500"]),
        ("opus", config(length_penalty="long"), ["config.json", "length_penalty", "'long'"]),
        ("opus", config(d_model="wide"), ["config.json", "d_model", "'wide'"]),
        ("opus", config(encoder_attention_heads=5, decoder_attention_heads=5), ["num_heads"]),
        ("opus", config(eos_token_id=4), ["vocab.json", "</s> has the id 0", "eos_token_id is 4"]),
        ("opus", config(vocab_size=99, decoder_vocab_size=99), ["pad_token_id", "vocab_size 99"]),
        (
            "opus",
            weights(lambda t: t.update({"model.encoder.layers.0.gate": torch.ones(3)})),
            ["model.safetensors", "'model.encoder.layers.0.gate' [3] is not known"],
        ),
        (
            "opus",
            weights(lambda t: t.pop("model.decoder.layers.1.fc2.bias")),
            ["model.safetensors", "'model.decoder.layers.1.fc2.bias' is missing"],
        ),
        (
            "opus",
            weights(lambda t: t.update({"model.decoder.layers.1.fc2.bias": torch.ones(7)})),
            ["model.decoder.layers.1.fc2.bias", "[32]", "[7]"],
        ),
        (
            "opus",
            weights(lambda t: t.update({"lm_head.weight": t["model.shared.weight"] + 1})),
            ["lm_head.weight", "model.shared.weight", "share one"],
        ),
        (
            "opus",
            weights(lambda t: t.update({POSITIONS: torch.ones(9, 32)})),
            ["model.encoder.embed_positions.weight", "sinusoids"],
        ),
        (
            "opus",
            weights(lambda t: t["model.decoder.layers.1.fc2.bias"][3:5].fill_(float("nan"))),
            ["model.safetensors: 'model.decoder.layers.1.fc2.bias'", "2 of 32 are NaN or infinite"],
        ),
        (
            "m2m100",
            weights(lambda t: t["model.shared.weight"][9].fill_(float("inf"))),
            ["model.safetensors: 'model.shared.weight' must hold finite numbers, but 32 of"],
        ),
        ("opus", cut_off("model.safetensors"), ["model.safetensors", "cut off"]),
        ("opus", cut_bin, ["pytorch_model.bin", "cut off"]),
        ("opus", pickled, ["pytorch_model.bin", "never is"]),
        ("opus", saved_by_torch, ["pytorch_model.bin", "never is"]),
        ("opus", remove("model.safetensors"), ["no weights"]),
        ("opus", remove("source.spm"), ["source.spm is missing", "put it beside"]),
        ("opus", remove("vocab.json"), ["vocab.json is missing"]),
        ("opus", cut_off("target.spm"), ["target.spm", "no usable SentencePiece model"]),
        ("opus", fewer_pieces, ["vocab.json", "rows of the embedding"]),
        ("opus", remove("tokenizer_config.json"), ["source_lang None", "--from CODE"]),
        ("m2m100", config(vocab_size=400), ["does not fit the embedding of 400 rows"]),
        ("m2m100", remove("sentencepiece.bpe.model"), ["sentencepiece.bpe.model is missing"]),
        (
            "m2m100",
            remove("vocab.json"),
            ["vocab.json is missing", "NLLB has them in tokenizer.json"],
        ),
        ("m2m100", config(normalize_before=False), ["normalize_before False"]),
    ],
)
def test_what_is_refused(
    sources: dict[str, Path],
    source: str,
    change: Change,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "given"
    shutil.copytree(sources[source], folder)
    change(folder)
    before = sorted(tmp_path.rglob("*"))
    assert main(["import", str(folder), str(tmp_path / "out"), "--precision", "fp32"]) == 1
    told = capsys.readouterr()
    (line,) = [line for line in told.err.splitlines() if line.startswith("error: ")]
    assert [word for word in words if word not in line] == []
    assert told.err.splitlines()[-1] == line
    assert told.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_texts_that_exclude_each_other(
    sources: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text("a\n")
    words = ["import", str(sources["opus"]), str(tmp_path / "out"), "--text", str(text)]
    assert main([*words, "--dev", str(text), str(text)]) == 1
    assert "give one of them" in capsys.readouterr().err
    assert main([*words, "--to", "Englisch?"]) == 1
    assert "--to must be codes" in capsys.readouterr().err
    assert main(words) == 1  # int8 is fitted to more than one sentence
    assert "at least 8 sentences" in capsys.readouterr().err
    both = ["--from", "de", "--to", "de"]
    assert main(["import", str(sources["m2m100"]), str(tmp_path / "out"), *both]) == 1
    assert "no pair of two languages" in capsys.readouterr().err
    assert main([*words, "--family", "umt5"]) == 1
    assert "'umt5' is not supported" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_licence_is_that_of_the_card(sources: dict[str, Path], tmp_path: Path) -> None:
    assert licence_of_card(sources["opus"]) == "cc-by-4.0"
    assert licence_of_card(tmp_path) is None
    (tmp_path / "README.md").write_text("license: mit\n")  # no front matter
    assert licence_of_card(tmp_path) is None


WRONG: tuple[object, ...] = ("64", [1], {"a": 1}, 1.5, 10**9, 10**400)
SOURCES: dict[str, Callable[[Path], object]] = {
    "opus": write_opus,
    "t5": write_t5,
    "t5gemma": write_t5gemma,
    "gpt2": write_gpt2,
    "llama": write_llama,
    "gemma3": partial(write_llama, kind="Gemma3Text"),
    "gpt_neox": partial(write_llama, kind="GPTNeoX", num_key_value_heads=None),
    "bert": save_encoder,
}


def _entries(tree: dict[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places of all numbers and flags in a tree."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _entries(value, (*place, name))
        elif isinstance(value, int | float):
            yield (*place, name)


@pytest.mark.parametrize("source", SOURCES)
def test_a_value_of_another_kind_or_size_is_refused_in_words(source: str, tmp_path: Path) -> None:
    """Whatever an entry of a configuration says, it is read, or refused with a message, and never
    takes the memory that a size of a billion would."""
    SOURCES[source](tmp_path)
    path, declared = tmp_path / "config.json", Declared(pooling="mean")
    written = path.read_text()
    for place in _entries(json.loads(written)):
        for value in WRONG:
            tree = json.loads(written)
            reduce(getitem, place[:-1], tree)[place[-1]] = value
            path.write_text(json.dumps(tree))
            with suppress(ExportError):  # which `main` makes one line of
                recognise(tmp_path).read(tmp_path, declared)


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        ("opus", "d_model", "an integer"),
        ("opus", "scale_embedding", "true or false"),
        ("t5", "d_kv", "an integer"),
        ("t5", "num_decoder_layers", "an integer"),
        ("t5", "relative_attention_num_buckets", "an integer"),
        ("t5", "layer_norm_epsilon", "a finite number"),
        ("t5gemma", "tie_word_embeddings", "true or false"),
        ("gpt2", "n_inner", "an integer"),
        ("llama", "num_key_value_heads", "an integer"),
        ("llama", "rms_norm_eps", "a finite number"),
        ("gemma3", "sliding_window", "an integer"),
        ("bert", "hidden_size", "an integer"),
        ("bert", "layer_norm_eps", "a finite number"),
    ],
)
@pytest.mark.parametrize("value", ["64", [64], {}])
def test_the_entry_the_kind_and_the_value_are_named(
    source: str, name: str, kind: str, value: object, tmp_path: Path
) -> None:
    SOURCES[source](tmp_path)
    config(**{name: value})(tmp_path)
    said = rf"config\.json: {name} must be {kind}.*, got {re.escape(repr(value))}"
    with pytest.raises(ExportError, match=said):
        recognise(tmp_path).read(tmp_path, Declared(pooling="mean"))
