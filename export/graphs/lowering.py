"""The passes that lower an exported graph, and their order."""

from __future__ import annotations

from collections.abc import Collection

import onnx
from onnx import numpy_helper

from export.arithmetic.quantize import ALIKE, Products, weight_key
from export.passes.cuda_operators import check_operators
from export.passes.fold_scalars import fold_scalars, original_of
from export.passes.fold_transposes import fold_transposes
from export.passes.fusing.groups import Groups
from export.passes.fusing.mixing.attention import (
    fuse_attention,
    fuse_attention_by_head,
    fuse_biased_attention,
)
from export.passes.fusing.mixing.convolutions import fuse_convolutions
from export.passes.fusing.mixing.packed_attention import fuse_packed_attention
from export.passes.fusing.mixing.reach_masks import fuse_reach_masks
from export.passes.fusing.mixing.relative_attention import fuse_relative_attention
from export.passes.fusing.mixing.rotations import fuse_rotations
from export.passes.fusing.products.biases import fuse_biases, fuse_tied_products
from export.passes.fusing.products.choices import (
    fuse_candidates,
    fuse_shortlist_candidates,
    fuse_top_tokens,
)
from export.passes.fusing.products.listed_logits import fuse_listed_logits
from export.passes.fusing.products.wide_products import fuse_wide_products, fuse_wide_rounding
from export.passes.fusing.rows.embeddings import fuse_embeddings
from export.passes.fusing.rows.gates import fuse_geglu, fuse_swiglu
from export.passes.fusing.rows.norms import fuse_norms, fuse_post_norms, fuse_rms_norms
from export.passes.fusing.rows.rounding import fuse_gelu_rounding, fuse_row_rounding
from export.passes.fusing.rows.sinusoids import fuse_sinusoids
from export.passes.graph_check import check_graph
from export.passes.int8.convolutions import lower_convolutions
from export.passes.int8.embeddings import lower_embeddings
from export.passes.int8.keep_rows_flat import drop_reshapes, keep_rows_flat
from export.passes.int8.listed_logits import lower_listed_logits
from export.passes.int8.products import lower_products
from export.passes.int8.rewriting import Rewriting
from export.passes.mixed_precision import mixed_precision
from export.passes.quantize_weights import quantize_weights

RULES = (
    lower_embeddings,
    lower_listed_logits,
    lower_convolutions,
    lower_products,
    keep_rows_flat,
    drop_reshapes,
)
"""Passes tried in this order at each node, in one walk: one flattens values for the next."""
FUSIONS = (
    ("LogSoftmax", fuse_candidates),
    ("LogSoftmax", fuse_shortlist_candidates),
    ("MatMul", fuse_listed_logits),
    ("MatMulInteger", fuse_listed_logits),
    ("LogSoftmax", fuse_top_tokens),
    ("Attention", fuse_packed_attention),
    ("Attention", fuse_attention),
    ("Attention", fuse_attention_by_head),
    ("Softmax", fuse_biased_attention),
    ("Softmax", fuse_relative_attention),
    ("Add", fuse_reach_masks),
    ("ReduceSum", fuse_convolutions),
    ("Concat", fuse_wide_rounding),
    ("QuantizeLinear", fuse_norms),
    ("LayerNormalization", fuse_post_norms),
    ("RMSNormalization", fuse_rms_norms),
    ("Sigmoid", fuse_swiglu),
    ("Gelu", fuse_geglu),
    ("Concat", fuse_rotations),
    ("MatMulIntegerToFloat", fuse_wide_products),
    ("MatMulIntegerToFloat", fuse_biases),
    ("MatMulIntegerToFloat", fuse_tied_products),
    ("Gelu", fuse_gelu_rounding),
    ("QuantizeLinear", fuse_row_rounding),
    ("Cast", fuse_embeddings),
    ("Concat", fuse_sinusoids),
)
"""Passes that each visit all nodes of one kind of operator, in this order."""


def lower(
    model: onnx.ModelProto,
    *,
    int8: bool,
    flat_outputs: frozenset[str] = frozenset(),
    products: Products = ALIKE,
) -> onnx.ModelProto:
    """The graph for the CPU: fp32 or int8. Activations have a scale for each row unless `products`
    says otherwise.

    `flat_outputs` get the shape [M,*]: ONNX Runtime copies what it reshapes into an output, and
    logits are large.
    """
    fold_transposes(model)
    scaled = fold_scalars(model)
    lowered = Rewriting(
        model,
        scaled=scaled,
        int8=int8,
        flat_outputs=flat_outputs,
        products=products,
    ).run(RULES)
    fuse(lowered)
    check_graph(lowered, full_check=False)
    return lowered


def lower_for_cuda(
    model: onnx.ModelProto,
    element: int,
    *,
    half: Collection[str],
    flat_outputs: frozenset[str] = frozenset(),
    exact: frozenset[bytes] = frozenset(),
    int8_weights: bool = False,
) -> onnx.ModelProto:
    """The graph for a GPU: standard operators only, and MatMulNBits for products in FLOAT16 with
    int8 weights. `element` is FLOAT, FLOAT16 or BFLOAT16.

    A product stays fp32 if `exact` has the key of its weights. `half` names the inputs and outputs
    that have 16 bits (see `mixed_precision`). Raises ExportError for an operator without a kernel
    there, and for attention on values that are too large for fp16.
    """
    fold_transposes(model)
    scaled = fold_scalars(model)
    constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    kept = {
        name
        for name in constants
        if exact and weight_key(original_of(name, scaled, constants)[0]) in exact
    }
    lowered = Rewriting(
        model, scaled=scaled, int8=False, flat_outputs=flat_outputs, products=ALIKE
    ).run(RULES)
    typed = mixed_precision(lowered, element, half=half, exact=kept)
    if int8_weights:
        typed = quantize_weights(typed)
    check_graph(typed, full_check=True)
    check_operators(typed)
    return typed


def fuse(model: onnx.ModelProto) -> None:
    """Turn groups of operators for which a kernel exists into functions; changes the model."""
    groups = Groups(model)
    for op_type, fuse_at in FUSIONS:
        groups.each(op_type, fuse_at)
    groups.finish()
