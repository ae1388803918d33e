"""Selects the files of a repository that make up a model, by their names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from serving.errors import ModelNameError
from serving.hub.names import HubName

_CARD = "README.md"
_CONFIG, _ADAPTER = "config.json", "adapter_config.json"
_TEXTS = re.compile(r".*\.(json|txt|model|spm|jinja|ya?ml)|README\.md|.*bpecodes|codes?|.*\.codes")
"""Names of files with a model's sizes, vocabulary and languages: small files, which are read
first."""
_POOLING = re.compile(r"\d+_Pooling/config\.json")
_MARIAN = re.compile(r".*\.npz|(model|lex).*\.bin")
_WEIGHTS = (
    re.compile(r"model\.safetensors"),
    re.compile(r"model-\d+-of-\d+\.safetensors"),
    re.compile(r"pytorch_model\.bin"),
    re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
)
"""Names of the weights of `transformers`, in order of preference: safetensors before pickles, whole
files before shards."""


@dataclass(frozen=True)
class Selection:
    """The files of a model."""

    first: tuple[str, ...]
    """Files that describe the model; they are looked at before the rest is downloaded."""
    rest: tuple[str, ...]
    remark: str = ""
    """Remark for users about the files; empty if there is none."""


def select(name: HubName, files: Sequence[str]) -> Selection:
    """Select the files to download from a repository with these files.

    Raises ModelNameError if they include no format that can be imported.
    """
    root = [file for file in files if "/" not in file]
    texts = tuple(file for file in root if _TEXTS.fullmatch(file))
    card = tuple(file for file in root if file == _CARD)
    if name.file is not None:
        return Selection(card, (_given_file(name, files),))
    weights = next(filter(None, (_matching(pattern, root) for pattern in _WEIGHTS)), ())
    if _CONFIG in root and weights:
        pooling = tuple(file for file in files if _POOLING.fullmatch(file))
        return Selection((*texts, *pooling), weights, _remark(weights))
    if "model.bin" in root and _CONFIG in root:  # of CTranslate2
        return Selection((), (*texts, "model.bin"))
    gguf = tuple(file for file in files if file.endswith(".gguf"))
    if gguf:
        return Selection(card, (_only(name, gguf),))
    if _ADAPTER in root:
        return Selection(texts, ())
    marian = _matching(_MARIAN, root)
    if marian and any(file.endswith((".spm", ".yml")) for file in root):
        return Selection((), (*texts, *marian))
    checkpoints = tuple(file for file in root if file.endswith(".pt"))
    if len(checkpoints) == 1:
        return Selection((), (*texts, *checkpoints), _remark(checkpoints))
    raise _nothing(name, root)


def _matching(pattern: re.Pattern[str], files: Iterable[str]) -> tuple[str, ...]:
    return tuple(file for file in files if pattern.fullmatch(file))


def _given_file(name: HubName, files: Sequence[str]) -> str:
    assert name.file is not None
    if name.file not in files:
        raise ModelNameError(f"{name}: there is no such file; {_listed_gguf(files)}")
    return name.file


def _only(name: HubName, files: Sequence[str]) -> str:
    if len(files) > 1:
        raise ModelNameError(
            f"{name}: has several GGUF files; choose one, for example {name}:{files[0]}; "
            f"{_listed_gguf(files)}"
        )
    return files[0]


def _listed_gguf(files: Sequence[str]) -> str:
    found = [file for file in files if file.endswith(".gguf")]
    return f"there are: {', '.join(found)}" if found else "it has no GGUF files"


def _remark(weights: Sequence[str]) -> str:
    if PurePosixPath(weights[0]).suffix == ".safetensors":
        return ""
    return (
        f"its weights are pickles ({weights[0]}): only tensors are read from them, and no code in "
        "them is executed"
    )


def _nothing(name: HubName, root: Sequence[str]) -> ModelNameError:
    others = [file for file in root if not file.startswith(".") and file != _CARD]
    listed = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")
    what = f"its files are {listed}" if others else "it has only a card"
    return ModelNameError(
        f"{name}: has no model that Macaron can read: neither {_CONFIG} with model.safetensors or "
        "pytorch_model.bin, nor a GGUF file, a CTranslate2 or Marian model, or a single .pt; "
        f"{what}"
    )
