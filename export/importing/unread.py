"""Describes files and folders that no reader reads, and says what to do with them."""

from __future__ import annotations

import re
from pathlib import Path

from export.errors import ExportError
from export.importing.folder import CONFIG, WEIGHTS, read_json
from export.importing.pointers import is_pointer, pointed
from serving.bundle.folder import MANIFEST
from serving.hub.names import FORMS

ADAPTER = "adapter_config.json"
_ARGOS = ".argosmodel"
_ARCHIVES = frozenset((_ARGOS, ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar"))
_UNPACKERS = {".gz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd"}
"""The programs that unpack a single packed file, unless it is a `.tar`."""
_PARTS = frozenset((".safetensors", ".json", ".spm", ".model", ".h5", ".msgpack", ".ot"))
"""Endings of files that are not a checkpoint by themselves."""
_PICKLES = frozenset((".pt", ".pth", ".pkl", ".pickle", ".ckpt"))
"""Endings of the files of PyTorch and of Python's own pickles."""
_OF_TOKENIZERS = re.compile(
    r"(tokenizer|special_tokens|added_tokens|vocab|merges|chat_template|spiece|source|target"
    r"|sentencepiece|preprocessor|README|LICENSE).*"
)
_HEADS = {
    "ForTokenClassification": "a token classifier, which labels each word",
    "ForQuestionAnswering": "a model that marks answers in a text",
    "ForMultipleChoice": "a model that chooses among answers",
    "ForNextSentencePrediction": "a model that decides whether a sentence follows another",
    "ForSequenceClassification": "a classifier on a model that writes texts",
    "EncoderModel": "the encoder of a translation model alone",
}
"""The purpose of a model, by the ending of its architecture's name."""
_WHOLE_TEXTS = "ForSequenceClassification"
"""The ending of architectures that an encoder of whole texts may have."""


def refuse_missing(source: Path) -> None:
    """Raise ExportError if nothing is there."""
    if not source.exists():
        raise ExportError(f"{source}: there is no such file or folder; {_what_is_read()}")


def refuse_adapter(source: Path) -> None:
    """Raise ExportError if a folder holds an adapter of PEFT (LoRA) and no whole model."""
    path = source / ADAPTER
    if not path.is_file() or any((source / name).exists() for name in WEIGHTS):
        return
    config = read_json(path)
    raise ExportError(
        f"{path}: an adapter ({config.get('peft_type') or 'PEFT'}) of the model "
        f"{config.get('base_model_name_or_path')!r}, not a whole model; load it on that model with "
        "the package peft, write both as one with merge_and_unload() and save_pretrained(FOLDER), "
        "and import that FOLDER"
    )


def refuse_code(source: Path) -> None:
    """Raise ExportError if a `config.json` that no reader knows says that the model is code
    beside it, which `trust_remote_code` of transformers would run."""
    path = source / CONFIG
    if path.is_file() and (code := read_json(path).get("auto_map")):
        named = ", ".join(map(str, code.values())) if isinstance(code, dict) else str(code)
        raise ExportError(
            f"{path}: auto_map names code of its own ({named}), which is never run; take a model "
            "of a family that is supported, without code beside it"
        )


def refuse_head(source: Path, *, reads_whole_texts: bool) -> None:
    """Raise ExportError if `architectures` of a `config.json` names a model for another task than
    the reader's; the reader of encoders also reads classifiers of whole texts."""
    path = source / CONFIG
    if not path.is_file():
        return
    names = read_json(path).get("architectures")
    for name in names if isinstance(names, list) else ():
        for ending, what in _HEADS.items():
            if not str(name).endswith(ending) or (reads_whole_texts and ending == _WHOLE_TEXTS):
                continue
            raise ExportError(
                f"{path}: architectures names {name}, {what}, which is not supported; take a model "
                "that translates, writes texts, embeds texts, or an encoder (BERT) that gives a "
                "whole text one class"
            )


def unknown(source: Path, supported: str) -> ExportError:
    """The error to raise for a file or folder that no reader knows and whose `config.json`, if it
    has one, names no family. `supported` lists the supported families."""
    pointer = next(filter(is_pointer, _inside(source) if source.is_dir() else [source]), None)
    if pointer is not None:
        return pointed(pointer)
    if (source / CONFIG).is_file():
        return _unrecognised(source, supported)
    return _folder(source, supported) if source.is_dir() else _file(source)


def _unrecognised(source: Path, supported: str) -> ExportError:
    return ExportError(
        f"{source / CONFIG}: has no model_type, which says what the model is, as the config.json "
        "beside a checkpoint of transformers does; take that file from where the model comes from, "
        f"or say --family; supported: {supported}"
    )


def _file(source: Path) -> ExportError:
    if _is_archive(source):
        return ExportError(f"{source}: {_packed(source)}")
    if source.suffix == ".onnx":
        return ExportError(
            f"{source}: a graph of ONNX, which is not read; import the checkpoint that it was "
            "made of"
        )
    folder = source.resolve().parent
    if source.suffix in _PARTS or (folder / CONFIG).is_file():
        return ExportError(
            f"{source}: one file of a checkpoint, which is a folder with {CONFIG} beside its "
            f"weights; import the folder: {folder}"
        )
    return ExportError(f"{source}: not a known checkpoint; {_what_is_read()}")


def _folder(source: Path, supported: str) -> ExportError:
    inside = _inside(source)
    files = [path for path in inside if path.is_file()]
    if not inside:
        return ExportError(
            f"{source}: no {CONFIG}: the folder is empty; put a checkpoint there, or download it "
            "again"
        )
    if (source / MANIFEST).is_file():
        return ExportError(
            f"{source}: holds a {MANIFEST}: it is a bundle already, and is served as it is, with "
            f"`macaron serve --model {source}`"
        )
    packed = [path for path in files if _is_archive(path)]
    if packed:
        return ExportError(f"{source}: holds {packed[0].name}: {_packed(packed[0])}")
    below = sorted((*source.glob(f"*/{CONFIG}"), *source.glob(f"snapshots/*/{CONFIG}")))
    if below:
        return ExportError(
            f"{source}: no {CONFIG} in the folder itself, but in one below; import "
            f"{' or '.join(str(path.parent) for path in below[:3])}"
        )
    if files == inside and all(_OF_TOKENIZERS.fullmatch(path.name) for path in files):
        return ExportError(
            f"{source}: holds only a tokenizer ({', '.join(path.name for path in files[:3])}); "
            f"{CONFIG} and the weights ({' or '.join(WEIGHTS)}) are missing: put them beside it, "
            "or download the whole checkpoint"
        )
    pickles = [path.name for path in files if path.suffix in _PICKLES]
    if pickles:
        return ExportError(
            f"{source}: no {CONFIG}, and nothing else says what {', '.join(pickles[:3])} hold; "
            "pickles are not executed to find out: name the one that is a checkpoint of OpenNMT-py "
            "or fairseq (.pt), or save the model by save_pretrained(FOLDER) of transformers, and "
            "import that FOLDER"
        )
    return ExportError(
        f"{source}: no {CONFIG}, which says what the checkpoint is, and no model of Marian, "
        f"CTranslate2, OpenNMT-py or fairseq; supported families: {supported}"
    )


def _inside(folder: Path) -> list[Path]:
    """The files and folders in a folder, without hidden ones."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_archive(path: Path) -> bool:
    return path.suffix.lower() in _ARCHIVES


def _packed(path: Path) -> str:
    """Describe an archive, and how to unpack it."""
    suffix = path.suffix.lower()
    if suffix == _ARGOS:
        return (
            f"a package of Argos Translate, which is a zip; unpack it with `unzip {path} -d "
            "FOLDER`, and import the folder that is then in FOLDER"
        )
    if suffix in _UNPACKERS and Path(path.stem).suffix != ".tar":
        return (
            f"a packed file; unpack it, and the files beside it that are packed, with "
            f"`{_UNPACKERS[suffix]}`, and import what comes out: {path.with_suffix('')}, or the "
            "folder that it is a part of"
        )
    return "an archive; unpack it, and import the folder or file that it holds"


def _what_is_read() -> str:
    return (
        f"SOURCE must be a folder that holds a checkpoint ({CONFIG}), a file of GGUF, a model of "
        "Marian (.npz, .bin or its decoder's .yml), a checkpoint of OpenNMT-py or fairseq (.pt), "
        f"or a name: {FORMS}"
    )
