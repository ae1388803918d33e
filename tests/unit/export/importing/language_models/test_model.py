"""What all readers of language models say in one way: special ids, tokenizers, templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.language_models.model import (
    loaded,
    model_config,
    read_chat_template,
    read_tokenizer,
    special_ids_of,
)
from training.models import CausalLanguageModel

SIZES = {"model_dim": 8, "num_heads": 2, "ffn_dim": 12, "num_decoder_layers": 1, "vocab_size": 9}


def ids_of(config: dict[str, Any], generation: dict[str, Any] | None = None) -> Any:
    options = Options(Path("config.json"), config)
    return special_ids_of(options, Options(Path("generation.json"), generation or {}), 9)


def test_the_options_of_generation_come_first() -> None:
    found, others = ids_of({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})
    assert (found.pad, found.unk, found.bos, found.eos, others) == (3, 2, 1, 2, ())
    found, _ = ids_of({"bos_token_id": 1, "eos_token_id": 2}, {"eos_token_id": 5})
    assert (found.eos, found.bos) == (5, 1)


def test_of_several_ends_the_first_is_eos_and_what_is_not_named_is_the_end() -> None:
    found, others = ids_of({"eos_token_id": [4, 6, 4, 7]})
    assert (found.pad, found.unk, found.bos, found.eos) == (4, 4, 4, 4)
    assert others == (6, 7)


@pytest.mark.parametrize(
    ("config", "generation", "words"),
    [
        ({}, {}, r"config\.json: eos_token_id is missing, which ends a text"),
        ({"eos_token_id": 9}, {}, r"config\.json: eos_token_id must be in \[0, 8\], got 9"),
        ({"eos_token_id": 1}, {"pad_token_id": -1}, r"generation\.json: pad_token_id must be in"),
        ({"eos_token_id": True}, {}, r"eos_token_id must be in \[0, 8\], got True"),
        ({"eos_token_id": 1, "bos_token_id": [1, 2]}, {}, "bos_token_id must be one id, got"),
    ],
)
def test_ids_that_are_none_are_named(
    config: dict[str, Any], generation: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        ids_of(config, generation)


def test_sizes_that_fit_nothing_are_reported_with_the_file() -> None:
    path = Path("config.json")
    assert model_config(path, SIZES).dropout == 0.0
    with pytest.raises(ExportError, match=r"config\.json: .*num_heads"):
        model_config(path, SIZES | {"num_heads": 3})
    state = CausalLanguageModel(model_config(path, SIZES)).state_dict()
    assert not loaded(path, SIZES, state).training


def test_the_tokenizer_is_its_file(tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match=r"tokenizer\.json is missing, the vocabulary in the form"
    ):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    assert read_tokenizer(tmp_path) == b"{}"


def test_a_chat_template_is_a_file_or_an_option_or_the_default_of_several(tmp_path: Path) -> None:
    assert read_chat_template(tmp_path) is None

    def told(value: Any) -> str | None:
        path = tmp_path / "tokenizer_config.json"
        path.write_text(json.dumps({"chat_template": value}))
        return read_chat_template(tmp_path)

    assert told("{{ a }}") == "{{ a }}"
    several = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    assert told(several) == "d"
    assert told(several[:1]) is None
    with pytest.raises(ExportError, match="chat_template must be a text, got int"):
        told(3)
    (tmp_path / "chat_template.jinja").write_text("{{ file }}")
    assert told("{{ a }}") == "{{ file }}"
