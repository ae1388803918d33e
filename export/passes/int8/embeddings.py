"""Tables of embeddings in int8."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto

from export.arithmetic.quantize import quantize_columns, weight_key
from export.passes.fold_scalars import original_of
from export.passes.int8.operands import cast
from export.passes.int8.rewriting import Rewriting


def lower_embeddings(graph: Rewriting, node: NodeProto) -> bool:
    """Look up int8 rows and multiply them by their scale.

    before    ids -> Gather E [V,D] f32
    int8      ids -> Gather E [V,D] s8 -> Cast -> Mul
              ids -> Gather scales [V,1] -------^
    """
    table = graph.constants.get(node.input[0]) if node.op_type == "Gather" else None
    if not graph.int8 or table is None or table.ndim != 2 or table.dtype != np.float32:
        return False
    (name, ids), output = node.input, node.output[0]
    original, scaled_by = original_of(name, graph.scaled, graph.constants)
    quantized, scale = quantize_columns(original.astype(np.float32, copy=False).T)
    rows = graph.constant(np.ascontiguousarray(quantized.T), f"{name}_s8")
    graph.tables.setdefault(weight_key(quantized.T), rows)
    scales = graph.constant(scale[:, None] * scaled_by, f"{name}_scale")
    looked_up = graph.add("Gather", [rows, ids], f"{output}_s8")
    as_float = graph.add("Cast", [looked_up], f"{output}_f32", cast(onnx.TensorProto.FLOAT))
    factor = graph.add("Gather", [scales, ids], f"{output}_scale")
    graph.add("Mul", [as_float, factor], output)
    graph.mark_shaped(output)
    return True
