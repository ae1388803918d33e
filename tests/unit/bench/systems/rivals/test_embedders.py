"""Products that make vectors, on a graph of three words whose states are their ids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, pre_tokenizers

from bench.systems.processes.rivals import Rival, started
from tests.unit.bench.stand_ins import install, metadata

TEXTS = ["one two", "three", "two two two"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A graph whose state of an id has a 1 in its place, and a tokenizer."""
    words = {"[PAD]": 0, "one": 1, "two": 2, "three": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    table = helper.make_tensor("table", TensorProto.FLOAT, [4, 4], np.eye(4).ravel().tolist())
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["states"])],
        "rows",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["B", "S"])],
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, ["B", "S", 4])],
        [table],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path


def expected() -> list[list[float]]:
    halves = np.sqrt(0.5)
    return [[0, halves, halves, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_onnx_runtime_reads_texts_of_different_lengths_in_one_call(folder: Path) -> None:
    arguments = {
        "file": str(folder / "model.onnx"),
        "tokenizer": str(folder / "tokenizer.json"),
        "threads": 1,
    }
    rival = Rival("ORT", "onnxruntime", "embedders", "Runtime", arguments)
    with started(rival, None, 1) as process:
        np.testing.assert_allclose(
            process.ask("vectors", texts=TEXTS).result, expected(), atol=1e-6
        )
        assert process.ask("read", texts=TEXTS, batch=2).result is None
        assert process.version.startswith("onnxruntime ")


OPENVINO = """\
import json
import numpy as np


class _Input:
    def get_names(self):
        return {"input_ids"}


class _Model:
    inputs = [_Input()]

    def create_infer_request(self):
        return self

    def infer(self, inputs, share_inputs):
        assert set(inputs) == {"input_ids"} and share_inputs
        return [np.eye(4, dtype=np.float32)[inputs["input_ids"]]]


class Core:
    def read_model(self, file):
        return file

    def compile_model(self, model, device, settings):
        assert device == "CPU" and settings["INFERENCE_NUM_THREADS"] == 1
        return _Model()
"""


def test_openvino_is_given_the_inputs_that_its_model_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        folder / "site",
        {"openvino/__init__.py": OPENVINO, **metadata("openvino", "1.0")},
        monkeypatch,
    )
    arguments = {"file": "any", "tokenizer": str(folder / "tokenizer.json"), "threads": 1}
    with started(Rival("OV", "openvino", "embedders", "OpenVino", arguments), None, 1) as process:
        np.testing.assert_allclose(
            process.ask("vectors", texts=TEXTS).result, expected(), atol=1e-6
        )


FASTEMBED = """\
import os


class TextEmbedding:
    known = {}

    @classmethod
    def add_custom_model(cls, model, pooling, normalization, sources, dim, model_file):
        assert normalization and pooling == "mean" and os.environ["HF_HUB_OFFLINE"] == "1"
        cls.known[model] = (dim, model_file)

    def __init__(self, name, threads, specific_model_path):
        self.size, self.file = self.known[name]
        assert os.path.isfile(os.path.join(specific_model_path, self.file))

    def embed(self, texts, batch_size):
        assert batch_size == len(texts)
        for text in texts:
            yield [float(len(text))] * self.size
"""
DESCRIPTION = """\
class PoolingType:
    MEAN = "mean"


class ModelSource:
    def __init__(self, hf):
        self.hf = hf
"""


def test_fastembed_is_given_local_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "fastembed/__init__.py": FASTEMBED,
        "fastembed/common/__init__.py": "",
        "fastembed/common/model_description.py": DESCRIPTION,
        **metadata("fastembed", "0.9"),
    }
    install(folder / "site", files, monkeypatch)
    arguments = {"folder": str(folder), "file": "model.onnx", "size": 2, "threads": 1}
    rival = Rival("FE", "fastembed", "embedders", "FastEmbed", arguments)
    with started(rival, None, 1) as process:
        found = process.ask("vectors", texts=["ab", "abc"]).result
    assert json.dumps(found) == "[[2.0, 2.0], [3.0, 3.0]]"
