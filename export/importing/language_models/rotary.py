"""Rotary positions in the options of folders of `transformers`: their base, and their scaling for
texts that are longer than those of the first training."""

from __future__ import annotations

import math
import reprlib
from pathlib import Path
from typing import Any

import torch

from export.errors import ExportError
from export.importing.folder import MOST, Options, number_of
from export.importing.language_models.model import ImportedLanguageModel

_SCALING = "rope_scaling"
_SCALED_BY: dict[str, dict[str, str]] = {
    "default": {},
    "linear": {"factor": "rotary_factor"},
    "llama3": {
        "factor": "rotary_factor",
        "low_freq_factor": "rotary_low_factor",
        "high_freq_factor": "rotary_high_factor",
        "original_max_position_embeddings": "rotary_trained_length",
    },
}
"""Kinds of scaling of rotary positions: the numbers that each needs, and their names here."""
_YARN = "yarn"
_OF_YARN = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate")
"""The options of YaRN beside its factor and the length of the first training."""
_ROTARY = frozenset({"type", "rope_type", "rope_theta", *_SCALED_BY["llama3"]})
"""The options of all kinds of rotary positions beside `partial_rotary_factor`."""


def rotary_options(options: Options) -> tuple[str, dict[str, Any]]:
    """The options of rotary positions in one place, and the name of the one that holds them."""
    scaling = options.get(_SCALING)
    name, rope = "rope_parameters", options.get("rope_parameters")
    if rope is None:
        name, rope = _SCALING, scaling or {}
    elif scaling not in (None, rope):
        raise ExportError(
            f"{options.path}: rope_parameters and {_SCALING} say different things about rotary "
            "positions; keep the one that is right"
        )
    if not isinstance(rope, dict):
        raise ExportError(f"{options.path}: {name} must be a JSON object, got {rope!r}")
    base = options.get("rope_theta")
    return name, {**({} if base is None else {"rope_theta": base}), **rope}


def rotary_number(path: Path, name: str, rope: dict[str, Any], key: str, default: float) -> float:
    """A number among the options of rotary positions, which the option `name` holds; the default if
    it is missing or null. Raises ExportError for another kind of value."""
    value = rope.get(key)
    return number_of(f"{path}: {name}: {key}", default if value is None else value)


def read_rotary(options: Options, width: int, base: float = 10000.0) -> dict[str, Any]:
    """The base of rotary positions and their scaling. `width` is that of a head, `base` the
    family's default. Raises ExportError for an unknown kind of scaling."""
    name, rope = rotary_options(options)
    if not _is_yarn(rope):
        return rotary_sizes(options.path, name, rope, base, _YARN)
    _check_whole(options.path, name, rope)
    check_rotary(options.path, name, rope, *_OF_YARN)
    base = rotary_number(options.path, name, rope, "rope_theta", base)
    truncate = rope.get("truncate", True)
    return yarn_sizes(_yarn_numbers(options), width, base, truncate=truncate)


def stretched(options: Options, longest: int) -> tuple[int, float]:
    """The number of positions that a model reads, and the factor of turned queries and keys. The
    number is larger than `longest`, the model's own, with `yarn` only."""
    name, rope = rotary_options(options)
    if not _is_yarn(rope):
        return longest, 1.0
    numbers = _yarn_numbers(options)
    factor, trained = numbers["factor"], numbers["original_max_position_embeddings"]
    both = numbers["mscale"], numbers["mscale_all_dim"]
    above, below = both if all(both) else (1.0, 0.0)
    usual = temperature(factor, above) / temperature(factor, below)
    scale = rotary_number(options.path, name, rope, "attention_factor", usual)
    return max(longest, int(trained * factor)), scale


def _kind(rope: dict[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _is_yarn(rope: dict[str, Any]) -> bool:
    """Whether positions are scaled by YaRN. Early files of Phi-3 call `longrope`, which has lists
    of factors, `yarn` too."""
    return _kind(rope) == _YARN and "short_factor" not in rope


def temperature(factor: float, share: float) -> float:
    """The factor by which scores grow with the length of texts (Peng et al. 2023, equation 22)."""
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def _yarn_numbers(options: Options) -> dict[str, float]:
    """The numbers of YaRN, with defaults for missing ones."""
    name, rope = rotary_options(options)
    trained = "original_max_position_embeddings"
    found = {
        "factor": rope.get("factor"),
        trained: options.get(trained, rope.get(trained) or options.get("max_position_embeddings")),
        "beta_fast": rope.get("beta_fast") or 32.0,
        "beta_slow": rope.get("beta_slow") or 1.0,
        "mscale": rope.get("mscale") or 0.0,
        "mscale_all_dim": rope.get("mscale_all_dim") or 0.0,
    }
    check_yarn(options.path, name, found)
    return found


def check_yarn(path: Path, name: str, numbers: dict[str, Any]) -> None:
    """Raise ExportError for a number of YaRN that is missing or too small."""
    for key, value in numbers.items():
        least = 0.0 if key.startswith("mscale") else 1.0 if key == "factor" else 1e-6
        if type(value) not in (int, float) or not least <= value <= MOST:
            above = isinstance(value, int | float) and value > MOST
            bound = f"<= {MOST}" if above else f">= {least:g}"
            raise ExportError(
                f"{path}: {name} of the type {_YARN!r} needs a number {key} {bound}, got "
                f"{reprlib.repr(value)}"
            )


def yarn_sizes(
    numbers: dict[str, float], width: int, base: float, *, truncate: bool = True
) -> dict[str, Any]:
    """The base of rotary positions, and the factors by which the angles of `width` features turn
    more slowly (Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language
    Models", section 3.2). Angles that turn often in the texts of the first training do not change,
    those that turn at most once are divided by the factor, and others in part."""

    def place(turns: float) -> float:
        """The place of an angle that turns so often, among the angles of a head."""
        positions = numbers["original_max_position_embeddings"] / (turns * 2 * math.pi)
        return width * math.log(positions) / (2 * math.log(base))

    low, high = place(numbers["beta_fast"]), place(numbers["beta_slow"])
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001  # as in transformers
    slowed_F = ((torch.arange(width // 2) - low) / (high - low)).clamp(0.0, 1.0)
    slower_F = 1.0 / (slowed_F / numbers["factor"] + (1.0 - slowed_F))
    factors = tuple(slower_F.tolist())
    return {"rotary_base": base, "rotary_scaling": "listed", "rotary_factors": factors}


def rotary_sizes(
    path: Path, name: str, rope: dict[str, Any], base: float, *others: str
) -> dict[str, Any]:
    """The same of the option `name`, which may name the `others` elsewhere."""
    kind = _kind(rope)
    if not isinstance(kind, str) or kind not in _SCALED_BY:
        raise ExportError(
            f"{path}: {name} of the type {kind!r} is not supported; it must be one of "
            f"{', '.join(map(repr, (*_SCALED_BY, *others)))}"
        )
    _check_whole(path, name, rope)
    check_rotary(path, name, rope)
    found: dict[str, Any] = {"rotary_base": rotary_number(path, name, rope, "rope_theta", base)}
    if kind == "default":
        return found
    for key in _SCALED_BY[kind]:
        if rope.get(key) is None:
            raise ExportError(f"{path}: {name} of the type {kind!r} needs a number {key}")
        number_of(f"{path}: {name}: {key}", rope[key])
    found["rotary_scaling"] = kind
    return found | {ours: rope[key] for key, ours in _SCALED_BY[kind].items()}


def _check_whole(path: Path, name: str, rope: dict[str, Any]) -> None:
    """Raise ExportError if only a part of a head's features is turned."""
    partial = rope.get("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise ExportError(
            f"{path}: {name}: partial_rotary_factor {partial!r} is not supported for this family; "
            "it must be 1.0"
        )


def turned_features(path: Path, count: int, width: int) -> int:
    """The number of features of a head that are turned; 0 stands for all. Raises ExportError for a
    number that is odd, below 2, or larger than the head's width."""
    if count % 2 or not 0 < count <= width:
        raise ExportError(
            f"{path}: rotary positions must turn an even number of the {width} features of a head, "
            f"got {count}"
        )
    return 0 if count == width else count


def check_rotary(path: Path, name: str, rope: dict[str, Any], *others: str) -> None:
    """Raise ExportError for an unknown option of rotary positions."""
    known = {*_ROTARY, "partial_rotary_factor", *others}
    for key in sorted(rope.keys() - known):
        raise ExportError(
            f"{path}: {name}: {key!r} ({rope[key]!r}) is not known; supported: "
            f"{', '.join(sorted(known))}"
        )


def scale_turned(read: ImportedLanguageModel, factor: float) -> None:
    """Multiply the turned features of queries and keys by a factor, as if sines and cosines were
    multiplied. If queries and keys are normalised, the gains of their norms are multiplied."""
    if factor == 1.0:
        return
    config, state = read.model.config, read.model.state_dict()
    width = config.head_width
    turned = config.num_heads + config.kv_heads
    for number in range(config.num_decoder_layers):
        if config.of_layer(number).positions != "rotary":
            continue
        place = f"layers.{number}.self_attention"
        if config.query_key_norm == "none":
            kinds = ("weight", "bias") if config.attention_bias else ("weight",)
            rows = [state[f"{place}.in_proj.{kind}"][: turned * width] for kind in kinds]
        else:
            rows = [state[f"{place}.query_key_norm.{part}.weight"] for part in ("query", "key")]
        for each in rows:
            each.unflatten(0, (-1, width))[:, : config.rotary_width] *= factor
