"""SmolLM3 (Bakouch et al. 2025, "SmolLM3"), from Hugging Face `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from export.errors import ExportError
from export.importing.folder import Options
from export.importing.language_models.families.llama import NAMES
from export.importing.language_models.model import ImportedLanguageModel
from export.importing.language_models.options import (
    FULL,
    SLIDING,
    head_width,
    layer_kinds,
    read_decoder,
    read_sizes,
    read_window,
    windows_of,
)
from export.importing.language_models.rotary import read_rotary
from export.importing.model import read_options

BASE = 2_000_000.0
"""Base of rotary positions."""


def read_smollm3(folder: Path) -> ImportedLanguageModel:
    """Read a folder of a SmolLM3, a Llama some of whose layers have no positions; raises
    ExportError, with file and entry, if something is not supported."""
    options = read_options(folder)
    sizes = read_sizes(options, tied=True, kv_heads=4)
    options.must("hidden_act", "silu", default="silu")
    sizes |= read_rotary(options, head_width(sizes), BASE)
    sizes["attention_bias"] = options.flag("attention_bias", False)
    sizes["ffn_bias"] = options.flag("mlp_bias", False)
    longest = options.integer("max_position_embeddings")
    turned = _turned_layers(options, sizes["num_decoder_layers"])
    if not all(turned):
        sizes["rotary_layers"] = turned
    sizes |= _windows(options, turned)
    # A number of parts in which products are computed, which `transformers` does not read here.
    return read_decoder(folder, options, sizes, NAMES, "SmolLM3", longest, ("pretraining_tp",))


def _turned_layers(options: Options, count: int) -> tuple[int, ...]:
    """A number for each layer: 1 if it has rotary positions, 0 if not."""
    each = options.integer("no_rope_layer_interval", 4, least=1)
    listed: Any = options.get("no_rope_layers")
    turned = (
        [int((number + 1) % each != 0) for number in range(count)] if listed is None else listed
    )
    known = isinstance(turned, list) and all(number in (0, 1) for number in turned)
    if not known or len(turned) < count:
        raise ExportError(
            f"{options.path}: no_rope_layers must be 0 or 1 for each of the {count} layers, got "
            f"{turned!r}"
        )
    return tuple(turned[:count])


def _windows(options: Options, turned: tuple[int, ...]) -> dict[str, Any]:
    """The windows of layers without positions, if `use_sliding_window` is set, or as `layer_types`
    says."""
    used, width = options.flag("use_sliding_window", False), read_window(options, None)
    sliding = used and width is not None
    default = [SLIDING if sliding and not each else FULL for each in turned]
    kinds = layer_kinds(options, len(turned), default)
    return windows_of(kinds, width)
