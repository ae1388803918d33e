"""Products that embed texts, with the code that their users write around them.

All read texts, cut them at 256 ids, and give vectors of length one, the mean of the states. Shape
letters: B texts, S ids of the longest, D features.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

_LONGEST = 256
"""Largest number of ids of a text, as in the folder of all-MiniLM-L6-v2."""


class _Embedder:
    """The common part of all products that embed texts: `_embed` gives the vectors of a call."""

    _embed: Callable[[list[str]], Any]
    version: str

    def read(self, texts: list[str], batch: int) -> None:
        """Vectors of all texts in calls of `batch`."""
        for start in range(0, len(texts), batch):
            self._embed(texts[start : start + batch])

    def vectors(self, texts: list[str]) -> list[list[float]]:
        """Vectors [B,D] of one call."""
        return [[float(number) for number in vector] for vector in self._embed(texts)]


class SentenceTransformers(_Embedder):
    """sentence-transformers with PyTorch, in fp32 or, with `half`, in fp16."""

    def __init__(self, folder: str, threads: int, device: str, half: bool) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        model = SentenceTransformer(folder, device=device)
        if half:
            model.half()
        self._embed = lambda texts: model.encode(
            texts, batch_size=len(texts), show_progress_bar=False, normalize_embeddings=True
        )
        self.version = f"sentence-transformers {version('sentence-transformers')}"


class FastEmbed(_Embedder):
    """FastEmbed on local files, as it finds a model on a hub only otherwise."""

    def __init__(self, folder: str, file: str, size: int, threads: int) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        name = f"local/{Path(folder).name}"
        TextEmbedding.add_custom_model(
            model=name,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf=name),
            dim=size,
            model_file=file,
        )
        model = TextEmbedding(name, threads=threads, specific_model_path=folder)
        self._embed = lambda texts: list(model.embed(texts, batch_size=len(texts)))
        self.version = f"fastembed {version('fastembed')}"


class Runtime(_Embedder):
    """ONNX Runtime with tokenizers, the mean and the norm around it."""

    def __init__(self, file: str, tokenizer: str, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        known = {each.name for each in session.get_inputs()}

        def states(inputs: dict[str, Any]) -> Any:
            return session.run(None, {n: array for n, array in inputs.items() if n in known})[0]

        self._embed = _around(tokenizer, states)
        self.version = f"onnxruntime {version('onnxruntime')}"


class OpenVino(_Embedder):
    """OpenVINO with tokenizers, the mean and the norm around it."""

    def __init__(self, file: str, tokenizer: str, threads: int) -> None:
        import openvino

        core = openvino.Core()
        # fp32 products in bf16, as OpenVINO has them on some processors, would be another model.
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        model = core.compile_model(core.read_model(file), "CPU", settings)
        known = {name for each in model.inputs for name in each.get_names()}
        request = model.create_infer_request()

        def states(inputs: dict[str, Any]) -> Any:
            used = {name: array for name, array in inputs.items() if name in known}
            return request.infer(used, share_inputs=True)[0]

        self._embed = _around(tokenizer, states)
        self.version = f"openvino {version('openvino')}"


class OpenVinoQuantiser:
    """NNCF, which makes int8 of a model for OpenVINO with texts to fit its scales to."""

    def __init__(self) -> None:
        import nncf

        self._nncf = nncf
        self.version = f"nncf {version('nncf')}"

    def quantise(self, source: str, target: str, tokenizer: str, texts: list[str]) -> None:
        """Write a graph of ONNX as OpenVINO's int8."""
        import openvino

        read, graph = _tokenizer(tokenizer), openvino.Core().read_model(source)
        known = {name for each in graph.inputs for name in each.get_names()}

        def inputs(text: str) -> dict[str, Any]:
            arrays = _arrays([read.encode(text)])
            return {name: array for name, array in arrays.items() if name in known}

        model = self._nncf.quantize(
            graph,
            self._nncf.Dataset(texts, inputs),
            model_type=self._nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
        )
        openvino.save_model(model, target)


def _tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(file)
    found.enable_truncation(_LONGEST)
    found.enable_padding()
    return found


def _arrays(encoded: list[Any]) -> dict[str, Any]:
    """The inputs [B,S] of a padded call."""
    import numpy as np

    ids_BS = np.array([each.ids for each in encoded], np.int64)
    mask_BS = np.array([each.attention_mask for each in encoded], np.int64)
    return {
        "input_ids": ids_BS,
        "attention_mask": mask_BS,
        "token_type_ids": np.zeros_like(ids_BS),
    }


def _around(file: str, states: Callable[[dict[str, Any]], Any]) -> Callable[[list[str]], Any]:
    """Wrap a model's states [B,S,D] in the least code that anyone can write around it."""
    import numpy as np

    read = _tokenizer(file)

    def embed(texts: list[str]) -> Any:
        encoded = read.encode_batch(texts) if len(texts) > 1 else [read.encode(texts[0])]
        inputs = _arrays(encoded)
        weights_BS1 = inputs["attention_mask"][:, :, None].astype(np.float32)
        mean_BD = (states(inputs) * weights_BS1).sum(1) / weights_BS1.sum(1)
        return mean_BD / np.linalg.norm(mean_BD, axis=1, keepdims=True)

    return embed
