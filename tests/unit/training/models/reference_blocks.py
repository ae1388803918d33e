"""The layers of the papers, written with plain loops over sentences, heads and positions.

Everything is float64 and one sentence at a time, without padding, caches or batches. Weights come
from a module's state dict. Shape letters: T tokens, S source positions, D model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.models import BertConfig, ModelConfig, TransformerConfig

Array = NDArray[np.float64]
Weights = dict[str, Array]


def weights_of(module: Any) -> Weights:
    return {k: v.detach().double().numpy() for k, v in module.state_dict().items()}


def part(weights: Weights, prefix: str) -> Weights:
    return {k[len(prefix) + 1 :]: v for k, v in weights.items() if k.startswith(prefix + ".")}


def linear(x_TD: Array, weights: Weights, name: str) -> Array:
    return x_TD @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)


def normalise(x_TD: Array, weights: Weights, config: ModelConfig) -> Array:
    """LayerNorm; RMSNorm (Zhang and Sennrich 2019, equation 4); ScaleNorm (Nguyen and Salazar 2019,
    equation 5)."""
    rows = []
    for x_D in x_TD:
        if config.norm_type == "layer":
            mean = x_D.sum() / len(x_D)
            variance = sum((x - mean) ** 2 for x in x_D) / len(x_D)
            row = (x_D - mean) / math.sqrt(variance + config.norm_eps)
            rows.append(row * weights.get("weight", 1.0) + weights.get("bias", 0.0))
        elif config.norm_type == "rms":
            mean_square = sum(x * x for x in x_D) / len(x_D)
            rows.append(x_D / math.sqrt(mean_square + config.norm_eps) * weights["weight"])
        else:
            length = math.sqrt(sum(x * x for x in x_D))
            rows.append(x_D * float(weights["weight"][0]) / max(length, config.norm_eps))
    return np.stack(rows)


def normalise_output(x_TD: Array, weights: Weights, config: ModelConfig, *, norm: bool) -> Array:
    """What stands before the output matrix: the last norm, if any, and FixNorm's factor."""
    if config.fix_norm_scale:
        if norm:
            x_TD = normalise(x_TD, part(weights, "0"), config)
        return x_TD * float(weights["1.weight"][0])
    return normalise(x_TD, weights, config) if norm else x_TD


def vectors_of(weights: Weights, config: ModelConfig) -> Array:
    """The embedding, with FixNorm row by row at length one."""
    table = weights["embedding.weight"]
    if not config.fix_norm:
        return table
    return np.stack([row / math.sqrt(sum(x * x for x in row)) for row in table])


def attend(
    query_TD: Array,
    key_SD: Array,
    value_SD: Array,
    heads: int,
    *,
    causal: bool,
    tables: tuple[Array, Array] | None = None,
    biases: Callable[[int, int], float] = lambda head, distance: 0.0,
) -> Array:
    """Vaswani et al. 2017, equation 1, head by head, query by query, key by key.

    With `tables` of a vector for each distance -k to k, Shaw et al. 2018, equations 3 and 4; with
    `biases` of a head and a distance, Raffel et al. 2020, section 2.1.
    """
    out = np.zeros_like(query_TD)
    width = query_TD.shape[1] // heads
    keys, values = tables or (np.zeros((1, width)), np.zeros((1, width)))
    most = len(keys) // 2
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)
        for t, query in enumerate(query_TD[:, columns]):
            reach = t + 1 if causal else len(key_SD)
            places = [max(-most, min(most, s - t)) + most for s in range(reach)]
            weights = [
                math.exp(
                    float(query @ (key_SD[s, columns] + keys[places[s]])) / math.sqrt(width)
                    + biases(head, s - t)
                )
                for s in range(reach)
            ]
            for s, weight in enumerate(weights):
                value = value_SD[s, columns] + values[places[s]]
                out[t, columns] += weight / sum(weights) * value
    return out


def turn(x_TD: Array, heads: int) -> Array:
    """Su et al. 2021: pairs of features, half a head apart, turned by the position's angle."""
    out, width = x_TD.copy(), x_TD.shape[1] // heads
    for t in range(len(x_TD)):
        for head in range(heads):
            for i in range(width // 2):
                angle = t * 10000.0 ** (-2 * i / width)
                a, b = head * width + i, head * width + width // 2 + i
                out[t, a] = x_TD[t, a] * math.cos(angle) - x_TD[t, b] * math.sin(angle)
                out[t, b] = x_TD[t, a] * math.sin(angle) + x_TD[t, b] * math.cos(angle)
    return out


def attend_to_itself(projected_TP: Array, weights: Weights, config: Any, *, causal: bool) -> Array:
    """The heads' outputs by queries, keys and values side by side."""
    query, key, value = np.split(projected_TP, 3, axis=1)
    tables = None
    if config.positions == "relative_bias":
        table_RH = weights["biases_1RH"][0]

        def biases(head: int, distance: int) -> float:
            return float(table_RH[bucket(distance, config, causal=causal), head])

        return attend(query, key, value, config.num_heads, causal=causal, biases=biases)
    if config.positions == "rotary":
        query, key = turn(query, config.num_heads), turn(key, config.num_heads)
    elif config.positions == "relative":
        tables = weights["relative.keys_1RE"][0], weights["relative.values_1RE"][0]
    return attend(query, key, value, config.num_heads, causal=causal, tables=tables)


def bucket(distance: int, config: TransformerConfig, *, causal: bool) -> int:
    """The bucket of a key's place less the query's: single distances, then ranges whose ends grow
    by one factor from the number of these to the greatest distance."""
    count = config.num_buckets if causal else config.num_buckets // 2
    first = count if distance > 0 and not causal else 0
    single, length = count // 2, abs(distance)
    if length < single:
        return first + length
    factor = (config.max_distance / single) ** (1 / (count - single))
    number, end = single, single * factor
    while number < count - 1 and length >= end:
        number, end = number + 1, end * factor
    return first + number


def self_attention(x_TD: Array, weights: Weights, config: ModelConfig, *, causal: bool) -> Array:
    heads = attend_to_itself(linear(x_TD, weights, "in_proj"), weights, config, causal=causal)
    return project_out(heads, weights, config)


def convolution(x_TD: Array, weights: Weights, config: TransformerConfig, *, causal: bool) -> Array:
    """Wu et al. 2019, equations 4 and 5, position by position, feature by feature, tap by tap."""
    dim, heads = x_TD.shape[1], config.num_heads
    x_TD = linear(x_TD, weights, "in_proj")
    if config.conv_glu:
        x_TD = x_TD[:, :dim] / (1.0 + np.exp(-x_TD[:, dim:]))
    out = np.zeros((len(x_TD), dim))
    for t, x_D in enumerate(x_TD):
        kernel = weights.get("kernel")
        if kernel is None:
            kernel = (weights["kernel_proj.weight"] @ x_D).reshape(heads, -1)
        width = kernel.shape[1]
        for d in range(dim):
            taps = kernel[d * heads // dim]
            if config.kernel_softmax:
                powers = [math.exp(tap) for tap in taps]
                taps = [power / sum(powers) for power in powers]
            for j, tap in enumerate(taps):
                place = t - j + (0 if causal else width // 2)
                if 0 <= place < len(x_TD):
                    out[t, d] += tap * x_TD[place, d]
    return linear(out, weights, "out_proj")


def ssru(x_TD: Array, weights: Weights) -> Array:
    """Kim et al. 2019, section 3.1, position by position."""
    dim = x_TD.shape[1]
    state, states = np.zeros(dim), []
    for x_D in x_TD:
        gate = weights["in_proj.weight"][:dim] @ x_D + weights["forget_bias"]
        kept = 1.0 / (1.0 + np.exp(-gate))
        state = kept * state + (1.0 - kept) * (weights["in_proj.weight"][dim:] @ x_D)
        states.append(np.maximum(state, 0.0))
    return np.stack(states)


def mix(
    x_TD: Array, weights: Weights, config: TransformerConfig | BertConfig, *, causal: bool
) -> Array:
    """What the configuration has on that side to bring positions together."""
    if isinstance(config, BertConfig):
        return self_attention(x_TD, weights, config, causal=causal)
    name = config.decoder_mixing if causal else config.encoder_mixing
    if name == "ssru":
        return ssru(x_TD, weights)
    if name == "attention":
        return self_attention(x_TD, weights, config, causal=causal)
    return convolution(x_TD, weights, config, causal=causal)


def source_attention(x_TD: Array, memory_SD: Array, weights: Weights, config: ModelConfig) -> Array:
    query = linear(x_TD, weights, "query_proj")
    keys, values = np.split(linear(memory_SD, weights, "key_value_proj"), 2, axis=1)
    heads = attend(query, keys, values, config.num_heads, causal=False)
    return project_out(heads, weights, config)


def activate(x: float, name: str) -> float:
    if name in ("relu", "reglu"):
        return max(x, 0.0)
    if name in ("gelu", "geglu"):  # x times the normal distribution's share below x
        return x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))
    if name in ("gelu_tanh", "geglu_tanh"):  # Hendrycks and Gimpel 2016, section 2
        return x * 0.5 * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return x / (1.0 + math.exp(-x))


def feed_forward(x_TD: Array, weights: Weights, config: ModelConfig, activation: str = "") -> Array:
    """Vaswani et al. 2017, equation 2; gated: Shazeer 2020, equation 6."""
    name, hidden = activation or config.activation, x_TD
    gated = "glu" in name
    for projection in ("up_proj", "inner_proj")[: config.ffn_hidden_layers]:
        wide = linear(hidden, weights, projection)
        size = wide.shape[1] // 2 if gated else wide.shape[1]
        hidden = np.zeros((len(x_TD), size))
        for t, wide_t in enumerate(wide):
            for i in range(size):
                hidden[t, i] = activate(float(wide_t[i]), name)
                if gated:
                    hidden[t, i] *= wide_t[size + i]
    return linear(hidden, weights, "down_proj")


def project_out(heads_TD: Array, weights: Weights, config: ModelConfig) -> Array:
    """Attention's last product; in a Weighted Transformer, by branch: sum_i alpha_i FFN_i(kappa_i
    head_i W_i) (Ahmed et al. 2017, equations 5 to 7)."""
    if "out_proj.weight" in weights:
        return linear(heads_TD, weights, "out_proj")
    kappas, alphas = (
        [math.exp(x) for x in weights[f"out_proj.{name}_logits"]] for name in ("kappa", "alpha")
    )
    width, out = heads_TD.shape[1] // config.num_heads, np.zeros_like(heads_TD)
    for i, (kappa, alpha) in enumerate(zip(kappas, alphas, strict=True)):
        head = heads_TD[:, i * width : (i + 1) * width]
        head = linear(head, weights, f"out_proj.projections.{i}") * kappa / sum(kappas)
        ffn = part(weights, f"out_proj.ffns.{i}")
        out += feed_forward(head, ffn, config) * alpha / sum(alphas)
    return out


class ReferenceLayer:
    """One layer: its sublayers in the order of the papers."""

    def __init__(self, weights: Weights, config: TransformerConfig | BertConfig) -> None:
        self.weights, self.config = weights, config

    def sublayer(self, x: Array, name: str, function: Any, scale: float = 1.0) -> Array:
        """The residual around one sublayer; `name` is that of its residual in the module."""
        norm = part(self.weights, f"{name}_residual.norm")
        if self.config.norm == "pre":
            return x + scale * function(normalise(x, norm, self.config))
        return normalise(x + scale * function(x), norm, self.config)

    def ffn(self, x: Array, name: str, scale: float) -> Array:
        weights, config = part(self.weights, name), self.config
        activation = config.first_activation if name == "first_ffn" else config.activation
        return self.sublayer(x, name, lambda y: feed_forward(y, weights, config, activation), scale)

    def __call__(self, x: Array, memory: Array | None) -> Array:
        """An encoder layer where there is no memory, a decoder layer where there is."""
        for name, scale in ORDERS[self.config.block]:
            weights = part(self.weights, name)
            if name.endswith("ffn"):
                x = self.ffn(x, name, scale)
            elif name != "source_attention":
                mixes = mix if name == "self_attention" else self_attention
                x = self.sublayer(
                    x,
                    name,
                    lambda y, own=weights, mixes=mixes: mixes(
                        y, own, self.config, causal=memory is not None
                    ),
                    scale,
                )
            elif memory is not None:
                x = self.sublayer(
                    x,
                    name,
                    lambda y, own=weights: source_attention(y, memory, own, self.config),
                    scale,
                )
        return x


ORDERS = {
    "standard": [("self_attention", 1.0), ("source_attention", 1.0), ("ffn", 1.0)],
    "macaron": [
        ("first_ffn", 0.5),
        ("self_attention", 1.0),
        ("source_attention", 1.0),
        ("ffn", 0.5),
    ],
    "attention_ffn_attention": [
        ("self_attention", 0.5),
        ("source_attention", 1.0),
        ("ffn", 1.0),
        ("last_attention", 0.5),
    ],
    "weighted": [("self_attention", 1.0), ("source_attention", 1.0)],
}


def sinusoid(position: int, dim: int) -> Array:
    """Row `position` of CONTRACTS: sinusoid(p + 1), sine half, then cosine half."""
    half = dim // 2
    angles = [(position + 1) * math.exp(-i * math.log(10000) / (dim / 2 - 1)) for i in range(half)]
    return np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def embed(ids: list[int], table: Array, scale: str, *, positions: bool = True) -> Array:
    """`scale` is what sqrt(D) multiplies: the `token`, its `sum` with the position, or `none`."""
    root = math.sqrt(table.shape[1])
    rows = []
    for p, id_ in enumerate(ids):
        position = sinusoid(p, table.shape[1]) if positions else np.zeros(table.shape[1])
        if scale == "sum":
            rows.append((table[id_] + position) * root)
        else:
            rows.append(table[id_] * (root if scale == "token" else 1.0) + position)
    return np.stack(rows)


def run_layers(x_TD: Array, memory: Array | None, whole: Weights, config: Any) -> Array:
    """All layers of a side, or the steps of its only one (Dehghani et al. 2018)."""
    side = "encoder" if memory is None else "decoder"
    depth, weights = getattr(config, f"num_{side}_layers"), part(whole, side)
    if config.halting:
        return run_halting(x_TD, memory, weights, part(whole, f"{side}_halting"), config, depth)
    for step in range(depth):
        if config.share_layers:
            x_TD = add_signal(x_TD, step, config.positions)
        own = part(weights, "0" if config.share_layers else str(step))
        if config.positions == "relative_bias":  # one for all layers
            own["self_attention.biases_1RH"] = whole[f"{side}_bias.weight_1RH"]
        x_TD = ReferenceLayer(own, config)(x_TD, memory)
    return x_TD


def add_signal(x_TD: Array, step: int, positions: str) -> Array:
    dim = x_TD.shape[1]
    if positions != "sinusoid":
        return x_TD + sinusoid(step, dim)
    return np.stack([x + sinusoid(t, dim) + sinusoid(step, dim) for t, x in enumerate(x_TD)])


def run_halting(
    x_TD: Array,
    memory: Array | None,
    weights: Weights,
    halting: Weights,
    config: Any,
    depth: int,
) -> Array:
    """Graves 2016, equations 5 to 8, position by position; who has halted keeps their state."""
    layer = ReferenceLayer(part(weights, "0"), config)
    unit, bias = halting["weight"], float(halting["bias"][0])
    state, mean = x_TD, np.zeros_like(x_TD)
    sums, running = [0.0] * len(x_TD), [True] * len(x_TD)
    for step in range(depth):
        read = add_signal(state, step, config.positions)
        after, state = layer(read, memory), state.copy()
        for t in range(len(x_TD)):
            if not running[t]:
                continue
            probability = 1.0 / (1.0 + math.exp(-float(read[t] @ unit) - bias))
            halts = sums[t] + probability > config.halting_threshold or step == depth - 1
            mean[t] += after[t] * (1.0 - sums[t] if halts else probability)
            sums[t] += probability
            running[t] = not halts
            state[t] = after[t]
    return mean


def logits(source: list[int], target: list[int], model: Any) -> Array:
    """Logits [T,V] of one sentence pair by the whole reference model."""
    weights, config = weights_of(model), model.config
    table, scale = vectors_of(weights, config), config.embedding_scale
    absolute = config.positions == "sinusoid"
    memory, x = (
        embed(ids, vectors, scale, positions=absolute and not config.share_layers)
        for ids, vectors in (
            (source, weights.get("source_embedding.weight", table)),
            (target, table),
        )
    )
    memory = run_layers(memory, None, weights, config.of_encoder())
    if config.norm == "pre":
        memory = normalise(memory, part(weights, "encoder_norm"), config)
    x = run_layers(x, memory, weights, config)
    x = normalise_output(x, part(weights, "decoder_norm"), config, norm=config.norm == "pre")
    return x @ weights.get("output_matrix", table).T + weights.get("output_bias", 0.0)
