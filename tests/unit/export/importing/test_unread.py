"""What is said of things that no reader reads: what each is, and what to do next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from export.__main__ import main
from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle, recognise
from export.importing.by_name import named_source
from tests.toy.checkpoints import write_opus
from tests.toy.encoders import save_encoder

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 298763421\n"
Change = Callable[[Path], object]


def files(**contents: str) -> Change:
    """Files by their names, `__` for a dot and `_in_` for a slash; the folder is made."""

    def write(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name, content in contents.items():
            path = folder / name.replace("_in_", "/").replace("__", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)

    return write


def head(model_type: str, architecture: str) -> Change:
    return files(
        config__json=json.dumps({"model_type": model_type, "architectures": [architecture]})
    )


ADAPTER = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "org/base"})
UNREAD: list[tuple[str, Change, str, list[str]]] = [
    (
        "a model that is code",
        files(config__json='{"model_type": "own", "auto_map": {"AutoModel": "m.Own"}}'),
        "",
        ["/thing/config.json: auto_map names code of its own (m.Own)", "never run"],
    ),
    (
        "an adapter",
        files(adapter_config__json=ADAPTER, adapter_model__safetensors="x"),
        "",
        ["adapter (LORA)", "'org/base'", "merge_and_unload", "import that FOLDER"],
    ),
    (
        "an adapter with the config of its base",
        files(adapter_config__json="{}", config__json='{"model_type": "llama"}'),
        "",
        ["adapter (PEFT)", "not a whole model"],
    ),
    (
        "a package of Argos",
        files(de_en__argosmodel="PK\3\4"),
        "/de_en.argosmodel",
        ["Argos Translate", "unzip", "import the folder"],
    ),
    (
        "a folder with a package of Argos",
        files(de_en__argosmodel="PK\3\4"),
        "",
        ["holds de_en.argosmodel", "unzip"],
    ),
    ("a packed model", files(model__bin__gz="\x1f"), "/model.bin.gz", ["gunzip", "model.bin,"]),
    ("a folder of packed files", files(lex__bin__gz="", model__bin__gz=""), "", ["lex.bin.gz"]),
    ("a zip", files(model__zip="PK\3\4"), "/model.zip", ["an archive; unpack it"]),
    ("a tar", files(model__tar="x"), "/model.tar", ["an archive; unpack it"]),
    ("a packed tar", files(model__tar__gz="x"), "/model.tar.gz", ["an archive; unpack it"]),
    (
        "a pointer to a GGUF",
        files(a__gguf=POINTER),
        "/a.gguf",
        ["a.gguf: is a pointer of Git LFS", "git lfs pull"],
    ),
    ("a pointer to a .npz", files(model__npz=POINTER), "", ["model.npz: is a pointer of Git LFS"]),
    (
        "a pointer to a model of CTranslate2",
        files(model__bin=POINTER, config__json="{}"),
        "",
        ["model.bin: is a pointer of Git LFS"],
    ),
    (
        "a token classifier",
        head("bert", "BertForTokenClassification"),
        "",
        ["BertForTokenClassification", "a token classifier", "not supported; take"],
    ),
    ("answers in texts", head("bert", "BertForQuestionAnswering"), "", ["marks answers"]),
    ("a choice", head("bert", "BertForMultipleChoice"), "", ["chooses among answers"]),
    ("a next sentence", head("bert", "BertForNextSentencePrediction"), "", ["follows another"]),
    (
        "a Llama that classifies",
        head("llama", "LlamaForSequenceClassification"),
        "",
        ["classifier"],
    ),
    ("a T5's encoder", head("t5", "T5EncoderModel"), "", ["encoder of a translation model"]),
    (
        "a config without a type",
        files(config__json='{"hidden_size": 8}', model__safetensors="x"),
        "",
        ["config.json: has no model_type", "--family", "marian"],
    ),
    ("one file of weights", files(model__safetensors="x"), "/model.safetensors", ["the folder: /"]),
    (
        "a pickle",
        files(config__json='{"model_type": "bert"}', pytorch_model__bin="x"),
        "/pytorch_model.bin",
        ["the folder: /"],
    ),
    ("a config", files(config__json='{"model_type": "bert"}'), "/config.json", ["the folder: /"]),
    (
        "a graph",
        files(model__onnx="x"),
        "/model.onnx",
        ["a graph of ONNX", "import the"],
    ),
    ("a text", files(notes__md="x"), "/notes.md", ["not a known checkpoint", "GGUF"]),
    ("an empty folder", files(), "", ["the folder is empty"]),
    (
        "a tokenizer alone",
        files(tokenizer__json="{}", tokenizer_config__json="{}", vocab__txt="a"),
        "",
        ["holds only a tokenizer", "config.json and the weights", "model.safetensors"],
    ),
    (
        "pickles",
        files(model__pkl="x", optimizer__pth="x"),
        "",
        ["what model.pkl, optimizer.pth hold", "not executed", "save_pretrained(FOLDER)"],
    ),
    ("several checkpoints", files(a__pt="x", b__pt="x"), "", ["name the one", "OpenNMT-py"]),
    ("a bundle", files(manifest__json="{}"), "", ["a bundle already", "macaron serve --model"]),
    (
        "a folder around one",
        files(checkpoint_in_config__json="{}"),
        "",
        ["in one below", "/thing/checkpoint"],
    ),
]


@pytest.mark.parametrize(
    ("make", "place", "words"), [row[1:] for row in UNREAD], ids=[row[0] for row in UNREAD]
)
def test_what_is_not_read_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Change,
    place: str,
    words: list[str],
) -> None:
    make(tmp_path / "thing")
    source, before = f"{tmp_path / 'thing'}{place}", sorted(tmp_path.rglob("*"))
    with pytest.raises(ExportError) as error:
        recognise(Path(source))
    assert [word for word in words if word not in str(error.value)] == []
    assert main(["import", source, str(tmp_path / "out")]) == 1
    assert f"error: {error.value}" in capsys.readouterr().err.splitlines()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["gpt2", "here/a/model.gguf", "./a/b/c", "/nowhere"])
@pytest.mark.parametrize("family", [None, "marian"])
def test_what_is_not_there_and_no_name_is_reported_with_what_names_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, family: str | None
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    with named_source(name) as source, pytest.raises(ExportError) as error:
        recognise(source.path, family)
    assert f"{Path(name)}: there is no such file or folder" in str(error.value)
    assert "OWNER/NAME of a hub" in str(error.value)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "source.spm", "vocab.json"]
)
def test_a_pointer_in_place_of_a_file_that_is_read_is_reported(tmp_path: Path, name: str) -> None:
    write_opus(tmp_path / "opus")
    if name == "pytorch_model.bin":
        (tmp_path / "opus" / "model.safetensors").unlink()
    (tmp_path / "opus" / name).write_text(POINTER)
    with pytest.raises(ExportError, match=f"{name}: is a pointer of Git LFS"):
        import_bundle(tmp_path / "opus", tmp_path / "out", Form("fp32"))


def test_a_pointer_in_place_of_an_encoders_tokenizer_is_reported(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "encoder")
    (folder / "tokenizer.json").write_text(POINTER)
    with pytest.raises(ExportError, match=r"tokenizer.json: is a pointer of Git LFS"):
        import_bundle(folder, tmp_path / "out", Form("fp32"))


def test_a_pointer_that_is_not_read_is_no_matter(tmp_path: Path) -> None:
    write_opus(tmp_path / "opus")
    (tmp_path / "opus" / "tf_model.h5").write_text(POINTER)
    assert recognise(tmp_path / "opus").family == "marian"


def test_weights_of_another_form_are_named(tmp_path: Path) -> None:
    write_opus(tmp_path / "opus")
    shutil.move(tmp_path / "opus" / "model.safetensors", tmp_path / "opus" / "tf_model.h5")
    with pytest.raises(ExportError, match=r"has no weights, .* but tf_model.h5, in a form that"):
        import_bundle(tmp_path / "opus", tmp_path / "out", Form("fp32"))


def test_an_adapters_file_beside_whole_weights_is_no_matter(tmp_path: Path) -> None:
    write_opus(tmp_path / "opus")
    (tmp_path / "opus" / "adapter_config.json").write_text("{}")
    assert recognise(tmp_path / "opus").family == "marian"
