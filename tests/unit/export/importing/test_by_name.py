"""What `export import` refuses of a model by name, before its weights are downloaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.__main__ import main
from tests.toy.hub import Repository, ToyHub, toy_hub, use


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyHub]:
    with toy_hub() as server:
        use(server, tmp_path, monkeypatch)
        yield server


def refused(hub: ToyHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the import of `toy/model` ends."""
    assert main(["import", "toy/model", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: toy/model")
    return line


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "qwen9"}, "model_type 'qwen9' is not supported; supported: gguf, "),
        (
            {"model_type": "x", "auto_map": {"AutoModel": "modeling_x.XModel"}},
            "auto_map names code of its own (modeling_x.XModel), which is never run",
        ),
        ({"model_type": "bert", "architectures": ["BertForTokenClassification"]}, "labels each"),
    ],
)
def test_a_model_that_nothing_reads_is_reported_before_its_weights_are_downloaded(
    hub: ToyHub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    config: dict[str, object],
    said: str,
) -> None:
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": b"0" * 100}
    hub.repositories["toy/model"] = Repository(files)
    line = refused(hub, tmp_path, capsys)
    assert line.startswith("error: toy/model/config.json: ")
    assert said in line
    assert hub.downloads() == ["config.json"]


def test_an_adapter_is_reported_as_one(
    hub: ToyHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"0"}
    hub.repositories["toy/model"] = Repository(files)
    assert "not a whole model" in refused(hub, tmp_path, capsys)


def test_a_bundle_needs_no_import(
    hub: ToyHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add("toy/model", Path(__file__).resolve().parents[4] / "models" / "intents")
    line = refused(hub, tmp_path, capsys)
    assert line.endswith("served as it is, with `macaron serve --model toy/model`")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--precision", "int7"], "--target cpu --precision int7 is not supported; use one of: "),
        (["--precision", "fp32", "--activations", "static"], "needs --precision int8, got fp32"),
    ],
)
def test_a_wrong_form_is_refused_before_the_hub_is_asked(
    hub: ToyHub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    hub.repositories["toy/model"] = Repository({"config.json": b"{}"})
    assert main(["import", "toy/model", str(tmp_path / "out"), *words]) == 1
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert hub.asked == []
