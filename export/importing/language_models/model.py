"""The result of all readers of foreign language models: a model of `training.models`, its
vocabulary and its chat template. Functions here also read the last two from a folder of
`transformers`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from export.errors import ExportError
from export.importing.folder import Options, read_json
from export.importing.model import find_file
from export.importing.vocabularies.text_side import TOKENIZER
from serving.search.ids import SpecialIds
from training.errors import ConfigError
from training.models import CausalLanguageModel, LanguageModelConfig

TEMPLATE = "chat_template.jinja"
"""Name of the file with the chat template, in checkpoints and in bundles."""

_NAMES = """chunk_size_feed_forward dtype architectures attention_dropout attn_pdrop embd_pdrop
id2label initializer_range is_llama_config label2id model_type output_attentions
output_hidden_states problem_type reorder_and_upcast_attn resid_pdrop return_dict summary_activation
summary_first_dropout summary_proj_to_labels summary_type summary_use_proj task_specific_params
torch_dtype transformers.js_config transformers_version use_cache"""
HARMLESS = frozenset(_NAMES.split())
"""Options of training, of other tasks and of the library itself, which change no logit."""


@dataclass(frozen=True)
class ImportedLanguageModel:
    """A checkpoint of a language model that has been read."""

    kind: str
    """Description of the model for people."""
    model: CausalLanguageModel
    tokenizer: bytes
    """The content of a file of the `tokenizers` library."""
    special_ids: SpecialIds
    max_positions: int
    """Tokens of prompt and output together."""
    chat_template: str | None = None
    licence: str | None = None
    """The licence of the weights, if the checkpoint itself names it."""
    other_ends: tuple[int, ...] = ()
    """Ids that end a text as eos does."""


def loaded(path: Path, sizes: dict[str, Any], state: dict[str, Tensor]) -> CausalLanguageModel:
    """The model of these sizes and weights, in evaluation mode; raises ExportError if `path`
    has sizes that fit nothing."""
    model = CausalLanguageModel(model_config(path, sizes))
    model.load_state_dict(state)
    return model.eval()


def model_config(path: Path, sizes: dict[str, Any]) -> LanguageModelConfig:
    """The configuration of these sizes; raises ExportError if they fit nothing."""
    try:
        return LanguageModelConfig(**sizes, dropout=0.0)
    except ConfigError as error:
        raise ExportError(f"{path}: {error}") from error


def special_ids_of(
    options: Options, generation: Options, vocab_size: int
) -> tuple[SpecialIds, tuple[int, ...]]:
    """The special ids, and the ids that end a text beside eos. Generation's options come before the
    model's; eos is the first of several ends. An id that the checkpoint does not name becomes the
    end of text, which then never occurs where that id would be used."""
    found: dict[str, list[int]] = {}
    for name in ("bos", "eos", "pad"):
        key = f"{name}_token_id"
        value, path = generation.get(key), generation.path
        default = options.get(key)
        if value is None:
            value, path = default, options.path
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if len(listed) > 1 and name != "eos":
            raise ExportError(f"{path}: {key} must be one id, got {value!r}")
        if not all(type(each) is int and 0 <= each < vocab_size for each in listed):
            raise ExportError(f"{path}: {key} must be in [0, {vocab_size - 1}], got {value!r}")
        found[name] = list(dict.fromkeys(listed))
    if not found["eos"]:
        raise ExportError(f"{options.path}: eos_token_id is missing, which ends a text")
    eos, *others = found["eos"]
    first, pad = (next(iter(found[name]), eos) for name in ("bos", "pad"))
    return SpecialIds(pad=pad, unk=eos, bos=first, eos=eos), tuple(others)


def read_tokenizer(folder: Path) -> bytes:
    """The tokenizer file of a folder; raises ExportError if there is none."""
    return find_file(folder, TOKENIZER, "the vocabulary in the form of tokenizers").read_bytes()


def read_chat_template(folder: Path) -> str | None:
    """The chat template of a folder, the default one of several, or None if it has none."""
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    path = folder / "tokenizer_config.json"
    template = read_json(path).get("chat_template") if path.is_file() else None
    if isinstance(template, list):
        named = {
            each.get("name"): each.get("template") for each in template if isinstance(each, dict)
        }
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise ExportError(f"{path}: chat_template must be a text, got {type(template).__name__}")
    return template
