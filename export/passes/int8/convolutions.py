"""Convolutions along a hypothesis in standard operators.

Shape letters: B sentences, Q queries, W = K - 1 ancestors, K taps, D model, H heads, E head.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, helper

from export.passes.int8.operands import cast
from export.passes.int8.rewriting import Rewriting
from training.models.operators.traced import ANCESTOR_CONVOLUTION


def lower_convolutions(graph: Rewriting, node: NodeProto) -> bool:
    """Write to the cache, gather the ancestors' rows, multiply by the taps, add up.

    before    x [B,Q,D], cache, write index, ancestors, kernel [B,Q,H,K] -> AncestorConvolution
    after     x, cache, write index -> TensorScatter -> GatherND -> [B,Q,W,D] -> Mul 0 or 1
              ancestors -> Slice -> Max 0 --------------^
              x -> [B,Q,1,D] -> Concat these -> [B,Q,K,H,E] -> Mul kernel -> ReduceSum -> [B,Q,D]

    All sizes are read from the inputs, so that layers of different widths have the same body.
    """
    if node.op_type != ANCESTOR_CONVOLUTION.partition("::")[2]:
        return False
    x, cache, write_index, ancestors, kernel = node.input
    output, appended = node.output
    for name in node.input:
        graph.give_shape(name)

    def vector(*numbers: int) -> str:
        return graph.constant(np.array(numbers), "_".join(["vector", *map(str, numbers)]))

    def add(operator: str, inputs: list[str], name: str, **attributes: object) -> str:
        made = [helper.make_attribute(key, value) for key, value in attributes.items()]
        return graph.add(operator, inputs, f"{output}_{name}", made)

    graph.add(
        "TensorScatter",
        [cache, x, write_index],
        appended,
        [helper.make_attribute("axis", 1)],
    )
    heads = add("Shape", [kernel], "heads", start=2, end=3)
    taps = add("Shape", [kernel], "taps", start=3, end=4)
    dim = add("Shape", [x], "dim", start=2, end=3)
    count = add("Sub", [taps, vector(1)], "count")
    slots = add("Slice", [ancestors, vector(0), count, vector(2)], "slots")
    zero = graph.constant(np.array(0), "zero_slot")
    known = add("Max", [slots, zero], "known")
    index = add("Reshape", [known, vector(0, -1, 1)], "index")
    rows = add("GatherND", [appended, index], "rows", batch_dims=1)
    shape = add("Concat", [vector(0, -1), count, dim], "past_shape", axis=0)
    rows = add("Reshape", [rows, shape], "past_rows")
    seen = add("GreaterOrEqual", [slots, zero], "is_seen")
    seen = graph.add("Cast", [seen], f"{output}_seen", cast(onnx.TensorProto.FLOAT))
    seen = add("Unsqueeze", [seen, vector(3)], "seen_rows")
    past = add("Mul", [rows, seen], "past")
    own = add("Unsqueeze", [x, vector(2)], "own")
    taken = add("Concat", [own, past], "taken", axis=2)
    shape = add("Concat", [vector(0, 0), taps, heads, vector(-1)], "taken_shape", axis=0)
    taken = add("Reshape", [taken, shape], "taken_heads")
    weights = add("Transpose", [kernel], "by_tap", perm=[0, 1, 3, 2])
    weights = add("Unsqueeze", [weights, vector(4)], "weights")
    products = add("Mul", [taken, weights], "products")
    sums = add("ReduceSum", [products, vector(2)], "sums", keepdims=0)
    graph.add("Reshape", [sums, vector(0, 0, -1)], output)
    graph.mark_shaped(output, appended)
    return True
