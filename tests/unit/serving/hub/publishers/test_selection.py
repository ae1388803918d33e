"""Which files of a repository are downloaded."""

from __future__ import annotations

import pytest

from serving.errors import ModelNameError
from serving.hub.names import HubName
from serving.hub.publishers.selection import select

NAME = HubName("a/b")
TEXTS = ["README.md", "config.json", "source.spm", "tokenizer_config.json", "vocab.json"]


def chosen(*files: str, file: str | None = None) -> list[str]:
    found = select(HubName("a/b", None, file), files)
    return sorted([*found.first, *found.rest])


def test_of_transformers_one_form_of_the_weights_is_taken() -> None:
    others = ["tf_model.h5", "flax_model.msgpack", "rust_model.ot", "onnx/model.onnx", ".gitignore"]
    pickled = [*TEXTS, "pytorch_model.bin", "training_args.bin", *others]
    assert chosen(*pickled) == sorted([*TEXTS, "pytorch_model.bin"])
    assert chosen(*pickled, "model.safetensors") == sorted([*TEXTS, "model.safetensors"])
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = "model.safetensors.index.json"
    assert chosen(*pickled, *shards, index) == sorted([*TEXTS, *shards, index])


def test_what_says_what_a_model_is_comes_before_the_weights() -> None:
    found = select(NAME, [*TEXTS, "model.safetensors"])
    assert found.rest == ("model.safetensors",)
    assert "config.json" in found.first
    assert found.remark == ""


def test_pickles_are_remarked_on() -> None:
    found = select(NAME, [*TEXTS, "pytorch_model.bin"])
    assert "pickles (pytorch_model.bin): only tensors are read" in found.remark


def test_an_encoder_has_its_pooling_from_a_folder_of_its_own() -> None:
    files = ["config.json", "model.safetensors", "modules.json", "vocab.txt"]
    pooling = "1_Pooling/config.json"
    assert chosen(*files, pooling, "2_Dense/config.json") == sorted([*files, pooling])


@pytest.mark.parametrize(
    "files",
    [
        ["config.json", "model.bin", "shared_vocabulary.json", "source.spm", "target.spm"],
        ["model.npz", "decoder.yml", "vocab.yml", "source.spm", "target.spm"],
        ["model.deen.intgemm.alphas.bin", "lex.50.50.deen.s2t.bin", "vocab.deen.spm"],
        ["checkpoint_best.pt", "dict.de.txt", "dict.en.txt", "bpecodes"],
        ["adapter_config.json"],
    ],
)
def test_other_toolkits_have_files_of_their_own(files: list[str]) -> None:
    assert chosen(*files, "notes.pdf", "sub/config.json") == sorted(files)


def test_a_file_of_gguf_is_the_only_one_or_is_named() -> None:
    assert chosen("a.gguf", "README.md", "image.png") == ["README.md", "a.gguf"]
    with pytest.raises(
        ModelNameError, match=r"choose one, for example a/b:a\.gguf; there are: a.* b/c\."
    ):
        chosen("a.gguf", "b/c.gguf")
    assert chosen("a.gguf", "b/c.gguf", file="b/c.gguf") == ["b/c.gguf"]
    with pytest.raises(ModelNameError, match=r"no such file; there are: a\.gguf"):
        chosen("a.gguf", file="c.gguf")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["config.json", "tf_model.h5"], "its files are config.json, tf_model.h5"),
        (["README.md", ".gitattributes"], "it has only a card"),
        (["a.pt", "b.pt"], "or a single .pt; its files are a.pt, b.pt"),
    ],
)
def test_a_repository_without_a_model_is_reported_with_what_it_holds(
    files: list[str], said: str
) -> None:
    with pytest.raises(ModelNameError) as error:
        chosen(*files)
    assert str(error.value).startswith(
        "a/b: has no model that Macaron can read: neither config.json with"
    )
    assert said in str(error.value)
