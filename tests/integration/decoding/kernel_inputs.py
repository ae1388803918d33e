"""Inputs of the native operators, drawn for any number of rows, queries and slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.arrays import Floats, Ints

HEADS, WIDTH, VOCABULARY = 2, 20, 300
DIM = HEADS * WIDTH
SIZES: dict[str, Any] = {"model_dim": DIM, "num_heads": HEADS, "ffn_dim": 48}


def floats(generator: np.random.Generator, *shape: int) -> Floats:
    return generator.standard_normal(shape).astype(np.float32)


def scale_and_zero() -> list[NDArray[Any]]:
    return [np.array(0.03, np.float32), np.array(128, np.uint8)]


def mask_of(generator: np.random.Generator, rows: int, queries: int, capacity: int) -> Floats:
    """Every query sees something; the standard operator gives NaN where one does not."""
    hidden = generator.random((rows, 1, queries, capacity)) < 0.5
    hidden[..., generator.integers(capacity)] = False
    return np.where(hidden, np.float32(-np.inf), np.float32(0))


Make = Callable[[np.random.Generator, int, int, int], tuple[list[NDArray[Any]], dict[str, Any]]]


def tree(by_head: bool, rounded: bool, width: int = WIDTH) -> Make:
    """Queries, keys and values of tree attention, with `width` numbers a head."""
    dim = HEADS * width

    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        capacity += queries
        shape = (rows, HEADS, capacity, width) if by_head else (rows, capacity, dim)
        inputs = [
            floats(generator, rows, queries, 3 * dim),
            floats(generator, *shape),
            floats(generator, *shape),
            generator.integers(0, capacity - queries + 1, rows),
            mask_of(generator, rows, queries, capacity),
        ]
        attributes = {"scale": 0.3} if by_head else {"scale": 0.3, "num_heads": HEADS}
        return inputs + (scale_and_zero() if rounded else []), attributes

    return make


def biased_tree(rounded: bool) -> Make:
    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        inputs, _ = tree(by_head=False, rounded=False)(generator, rows, queries, capacity)
        inputs[0][..., :DIM] *= 0.3  # the function takes no scale
        some_rows, some_queries = generator.choice([1, rows]), generator.choice([1, queries])
        inputs.append(floats(generator, some_rows, HEADS, some_queries, inputs[1].shape[1]))
        return inputs + (scale_and_zero() if rounded else []), {}

    return make


def relative_tree(rounded: bool) -> Make:
    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        inputs, _ = tree(by_head=False, rounded=False)(generator, rows, queries, capacity)
        distances, slots = int(generator.integers(1, 10)), inputs[1].shape[1]
        inputs.append(generator.integers(0, distances, (rows, queries, slots)))
        inputs += [floats(generator, distances, WIDTH), floats(generator, distances, WIDTH)]
        inputs.append(np.array(WIDTH**-0.5, np.float32))
        return inputs + (scale_and_zero() if rounded else []), {}

    return make


def rotary(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    turned, half = 2 * HEADS, WIDTH // 2
    angles = floats(generator, generator.choice([1, rows]), queries, 1, half)
    inputs = [
        floats(generator, rows, queries, 3 * DIM),
        np.cos(angles),
        np.sin(angles),
        np.array([2 * DIM, DIM]),
        np.array([rows, queries, turned, 2, half]),
        np.array([rows, queries, turned, half]),
        np.array([rows, queries, 2 * DIM]),
    ]
    return inputs, {}


def gated(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    return [2 * floats(generator, rows, queries, 2 * SIZES["ffn_dim"])], {}


def rms_residual(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    (x, y, weight, *_), attributes = norm_by_row(generator, rows, queries, capacity)
    return [x, y, weight], attributes


def convolution(rounded: bool) -> Make:
    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        capacity, width = capacity + queries, int(generator.integers(2, 9))
        ancestors = generator.integers(0, capacity, (rows, queries, 8))
        for told in ancestors.reshape(-1, 8):
            told[generator.integers(0, 9) :] = -1
        shared = int(generator.integers(2))
        inputs = [
            floats(generator, rows, queries, DIM),
            floats(generator, rows, capacity, DIM),
            generator.integers(0, capacity - queries + 1, rows),
            ancestors,
            floats(generator, *((1, 1) if shared else (rows, queries)), HEADS, width),
        ]
        return inputs + (scale_and_zero() if rounded else []), {}

    return make


def masked(rounded: bool) -> Make:
    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        inputs = [
            floats(generator, rows, queries, DIM),
            floats(generator, rows, capacity, DIM),
            floats(generator, rows, capacity, DIM),
            mask_of(generator, rows, queries, capacity),
        ]
        return inputs + (scale_and_zero() if rounded else []), {"scale": 0.3, "num_heads": HEADS}

    return make


def row_scales(count: int) -> list[NDArray[Any]]:
    """Zero points, the least peak, and what a peak is times for its scale."""
    return [
        np.full(count, 128, np.uint8),
        np.array(1e-8, np.float32),
        np.array(1 / 127, np.float32),
    ]


def add_norm(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    repeated = 1 if capacity % 2 else rows
    inputs = [
        floats(generator, rows, queries, DIM),
        floats(generator, repeated, queries, DIM),
        floats(generator, DIM),
        floats(generator, DIM),
        *scale_and_zero(),
    ]
    return inputs, {"epsilon": 0.5}


def add_post_norm(rounded: bool) -> Make:
    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        inputs, attributes = add_norm(generator, rows, queries, capacity)
        # A sum may be of any shapes that go together.
        shapes = ((rows, queries, DIM), (1, queries, 1), (queries, DIM), (rows, 1, DIM), (1,))
        inputs[1] = floats(generator, *shapes[capacity % len(shapes)])
        if capacity % 3 == 0:
            inputs[:2] = inputs[1::-1]
        return inputs if rounded else inputs[:4], attributes

    return make


def packed(rounded: bool) -> Make:
    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        lengths = generator.integers(1, capacity + 1, rows)
        real = np.arange(capacity) < lengths[:, None]
        starts = np.cumsum(lengths)[:, None] - lengths[:, None]
        slots = starts + np.minimum(np.arange(capacity), lengths[:, None] - 1)
        hidden = np.where(real, np.float32(0), np.float32(-np.inf))
        inputs = [
            floats(generator, 1, lengths.sum(), 3 * DIM),
            *(3 * slots + part for part in range(3)),
            np.array(0.3, np.float32),
            np.repeat(hidden[:, None, None], capacity, axis=2),
            np.flatnonzero(real)[None],
        ]
        return inputs + (scale_and_zero() if rounded else []), {"scale": 1.0, "num_heads": HEADS}

    return make


def norm_by_row(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    count = rows * queries
    shapes = ((count, DIM), (count, 1), (1, DIM), (DIM,), (1,))
    summands = [floats(generator, count, DIM), floats(generator, *shapes[capacity % len(shapes)])]
    inputs = [*summands[:: 1 if capacity % 3 else -1], floats(generator, DIM)]
    return [*inputs, floats(generator, DIM), *row_scales(count)], {"epsilon": 0.5}


def packed_by_row(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    (qkv, *others), attributes = packed(rounded=False)(generator, rows, queries, capacity)
    return [qkv[0], *others, *row_scales(qkv.shape[1])], attributes


def quantized_rows(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    x = floats(generator, rows * queries, capacity)
    x[:1] *= generator.integers(2)  # of nothing but zeros
    return [x, *row_scales(rows * queries)], {}


def biased_product(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    # Around what a vector and a panel hold: one, and no multiple of 4 or 64.
    inputs = int(generator.choice([1, 3, 40, 64, 67, 130]))
    outputs = int(generator.choice([1, capacity, 8 * capacity]))
    return [
        generator.integers(0, 256, (rows * queries, inputs), dtype=np.uint8),
        generator.integers(-127, 128, (inputs, outputs), dtype=np.int8),
        (generator.random((rows * queries, 1)) / 1000).astype(np.float32),
        generator.random(outputs).astype(np.float32),
        np.array(128, np.uint8),
        floats(generator, outputs),
    ], {}


def product(*, wide: bool, bias: bool, tied: bool = False) -> Make:
    """`tied`: the weight is a table [N,K]."""

    def make(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        times = 2 if wide else 1
        inputs, attributes = biased_product(generator, times * rows, queries, capacity)
        if tied:
            inputs[1] = np.ascontiguousarray(inputs[1].T)
        return inputs if bias else inputs[:-1], attributes

    return make


def quantized_gelu(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    return [3 * floats(generator, rows, queries, capacity), *scale_and_zero()], {}


def gather(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    table = generator.integers(-127, 128, (capacity, DIM)).astype(np.int8)
    return [
        table,
        floats(generator, capacity, 1),
        generator.integers(0, capacity, (rows, queries)),
    ], {}


def sinusoids(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    positions = np.repeat(generator.integers(0, 10 * capacity, (rows, 1)), queries, axis=1)
    frequencies = generator.random(DIM // 2).astype(np.float32)
    return [positions, np.array(1, np.float32), frequencies], {}


def reach_mask(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    inputs = [
        mask_of(generator, rows, queries, capacity),
        generator.integers(0, 2 * capacity, (rows, queries)),
        generator.integers(0, 2 * capacity, (rows, capacity)),
    ]
    return inputs, {"reach": int(generator.integers(1, capacity + 1))}


def beam_candidates(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    logits = (4 * floats(generator, rows * queries, VOCABULARY)).astype(np.float32)
    scores = beam_scores(generator, rows, queries)
    return [logits, scores, generator.integers(0, VOCABULARY, (rows, queries))], {}


def beam_scores(generator: np.random.Generator, rows: int, queries: int) -> NDArray[Any]:
    """Of as many beams as queries; one query may stand for several, as at the first step."""
    beams = queries if queries > 1 else int(generator.integers(1, 7))
    scores = 3 * floats(generator, rows, beams)
    scores[: rows if beams > queries else 1, 1:] = -np.inf
    return scores


def lists(generator: np.random.Generator, rows: int, least: int, most: int) -> Ints:
    """Pieces of each sentence, with -1 behind the last."""
    found = [generator.permutation(VOCABULARY)[:most] for _ in range(rows)]
    columns = np.array(found, np.int64).reshape(rows, most)
    for row in columns:
        row[generator.integers(least, most + 1) :] = -1
    return columns


def shortlist_logits(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    table = floats(generator, VOCABULARY, DIM)
    return [floats(generator, rows, queries, DIM), table, lists(generator, rows, 1, capacity)], {}


def shortlist_logits_integer(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    dim = int(generator.choice([DIM, 64, 200]))
    scales = (rows, queries, 1) if generator.random() < 0.5 else ()
    inputs = [
        generator.integers(0, 256, (rows, queries, dim), dtype=np.uint8),
        np.asarray(generator.random(scales) + 0.01, np.float32),
        generator.integers(-127, 128, (VOCABULARY, dim), dtype=np.int8),
        generator.random(VOCABULARY).astype(np.float32) / 100,
        np.array(generator.choice([0, 128]), np.uint8),
        lists(generator, rows, 1, capacity),
    ]
    return inputs, {}


def biased(make: Make) -> Make:
    """The same with a bias for each piece, the last input."""

    def make_biased(
        generator: np.random.Generator, rows: int, queries: int, capacity: int
    ) -> tuple[list[NDArray[Any]], dict[str, Any]]:
        inputs, attributes = make(generator, rows, queries, capacity)
        return [*inputs, floats(generator, VOCABULARY)], attributes

    return make_biased


def shortlist_candidates(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    scores = beam_scores(generator, rows, queries)
    wanted = 2 * scores.shape[1]  # and no list has fewer pieces
    columns = lists(generator, rows, wanted, wanted + capacity)
    return [4 * floats(generator, rows, queries, columns.shape[1]), columns, scores], {}


def top_tokens(
    generator: np.random.Generator, rows: int, queries: int, capacity: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    logits = (4 * floats(generator, rows * queries, VOCABULARY)).astype(np.float32)
    labels = generator.integers(0, VOCABULARY, (rows, queries))
    return [logits, labels, np.arange(generator.choice([1, 16, 64]))], {}


CASES: dict[str, Make] = {
    "TreeAttention": tree(by_head=False, rounded=False),
    "TreeAttentionQuantize": tree(by_head=False, rounded=True),
    "TreeAttentionByHead": tree(by_head=True, rounded=False),
    "TreeAttentionByHeadQuantize": tree(by_head=True, rounded=True),
    "BiasedTreeAttention": biased_tree(rounded=False),
    "BiasedTreeAttentionQuantize": biased_tree(rounded=True),
    "RelativeTreeAttention": relative_tree(rounded=False),
    "RelativeTreeAttentionQuantize": relative_tree(rounded=True),
    "Rotary": rotary,
    "Swiglu": gated,
    "GegluTanh": gated,
    "AddRmsNorm": rms_residual,
    "AncestorConvolution": convolution(rounded=False),
    "AncestorConvolutionQuantize": convolution(rounded=True),
    "MaskedAttention": masked(rounded=False),
    "MaskedAttentionQuantize": masked(rounded=True),
    "AddNormQuantize": add_norm,
    "AddNormQuantizeRows": norm_by_row,
    "AddPostNorm": add_post_norm(rounded=False),
    "AddPostNormQuantize": add_post_norm(rounded=True),
    "AddPostNormQuantizeRows": norm_by_row,
    "PackedAttention": packed(rounded=False),
    "PackedAttentionQuantize": packed(rounded=True),
    "PackedAttentionQuantizeRows": packed_by_row,
    "QuantizeRows": quantized_rows,
    "QuantizeReluRows": quantized_rows,
    "GeluQuantizeRows": quantized_rows,
    "GeluQuantize": quantized_gelu,
    "BiasedProduct": product(wide=False, bias=True),
    "QuantizeRowsTwice": quantized_rows,
    "QuantizeReluRowsTwice": quantized_rows,
    "WideProduct": product(wide=True, bias=False),
    "BiasedWideProduct": product(wide=True, bias=True),
    "TiedProduct": product(wide=False, bias=False, tied=True),
    "BiasedTiedProduct": product(wide=False, bias=True, tied=True),
    "TiedWideProduct": product(wide=True, bias=False, tied=True),
    "BiasedTiedWideProduct": product(wide=True, bias=True, tied=True),
    "GatherDequantize": gather,
    "Sinusoids": sinusoids,
    "ReachMask": reach_mask,
    "Candidates": beam_candidates,
    "ShortlistLogits": shortlist_logits,
    "ShortlistLogitsInteger": shortlist_logits_integer,
    "BiasedShortlistLogits": biased(shortlist_logits),
    "BiasedShortlistLogitsInteger": biased(shortlist_logits_integer),
    "ShortlistCandidates": shortlist_candidates,
    "TopTokens": top_tokens,
}
