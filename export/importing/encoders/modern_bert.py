"""Reads the options of a ModernBERT besides its sizes (Warner et al. 2024, "Smarter, Better,
Faster, Longer: A Modern Bidirectional Encoder")."""

from __future__ import annotations

from typing import Any, get_args

from export.errors import ExportError
from export.importing.folder import Options, number_of
from training.models.networks.bert import Pooling

_FULL, _SLIDING = "full_attention", "sliding_attention"
_GLOBAL_BASE, _LOCAL_BASE = 160_000.0, 10_000.0


def read_options(options: Options) -> dict[str, Any]:
    """The fields of a BertConfig; raises ExportError for unsupported options. Biases, which no
    published model has, are read if present."""
    for name in ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"):
        options.get(name)
    options.must("hidden_activation", "gelu", default="gelu")
    options.must("classifier_activation", "gelu", default="gelu")
    options.must("causal_mask", False, default=False)
    for name in ("classifier_dropout", "layer_norm_eps"):  # which `transformers` does not read here
        options.get(name)
    count = options.integer("num_hidden_layers")
    kinds = _layer_kinds(options, count)
    both = _bases(options)
    # Of the window both sides are counted.
    half = options.integer("local_attention", 128) // 2
    windows = tuple(half if kind == _SLIDING else 0 for kind in kinds)
    if half < 1 and any(kind == _SLIDING for kind in kinds):
        raise ExportError(f"{options.path}: local_attention must be >= 2, got {2 * half}")
    return {
        "norm": "pre",
        "embedding_norm": True,
        "activation": "geglu",
        "positions": "rotary",
        "rotary_base": both[_FULL],
        "window_rotary_base": both[_SLIDING],
        "layer_windows": windows if any(windows) else (),
    }


def classifier_pooling(tree: dict[str, Any], path: object) -> Pooling:
    """The vector of a text that a classifier reads; raises ExportError for another name."""
    name = tree.get("classifier_pooling", "cls")
    for pooling in get_args(Pooling):
        if name == pooling:
            return pooling  # type: ignore[no-any-return]
    raise ExportError(f"{path}: classifier_pooling must be 'cls' or 'mean', got {name!r}")


def _layer_kinds(options: Options, count: int) -> list[str]:
    """The kind of each layer: from `layer_types`, or a window for all but every n-th layer."""
    each = options.integer("global_attn_every_n_layers", 3, least=1)
    mostly = [_SLIDING if number % each else _FULL for number in range(count)]
    kinds: Any = options.get("layer_types", mostly)
    known = isinstance(kinds, list) and all(kind in (_FULL, _SLIDING) for kind in kinds)
    if not known or len(kinds) != count:
        raise ExportError(
            f"{options.path}: layer_types must be {_FULL!r} or {_SLIDING!r} for each of the "
            f"{count} layers, got {kinds!r}"
        )
    return list(kinds)


def _bases(options: Options) -> dict[str, float]:
    """The base of rotary positions for either kind of layer. Older files hold it beside the other
    options."""
    options.must_be(None, "rope_scaling")
    everywhere = options.number("global_rope_theta", _GLOBAL_BASE)
    own = options.given("local_rope_theta", _LOCAL_BASE) is not None
    local = options.number("local_rope_theta", _LOCAL_BASE) if own else everywhere
    bases = {_FULL: everywhere, _SLIDING: local}
    by_kind = options.get("rope_parameters", {})
    for kind in bases:
        scaling = (by_kind.get(kind) or {}) if isinstance(by_kind, dict) else by_kind
        if not isinstance(scaling, dict) or scaling.keys() - {"rope_type", "type", "rope_theta"}:
            raise ExportError(
                f"{options.path}: rope_parameters of {kind} must have only rope_type and "
                f"rope_theta, got {scaling!r}"
            )
        if scaling.get("rope_type", scaling.get("type", "default")) != "default":
            raise ExportError(
                f"{options.path}: rope_parameters of {kind} must be of the type 'default', got "
                f"{scaling!r}"
            )
        base = scaling.get("rope_theta", bases[kind])
        bases[kind] = number_of(f"{options.path}: rope_parameters of {kind}: rope_theta", base)
    return bases
