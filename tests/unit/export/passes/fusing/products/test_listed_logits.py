"""Products with the rows of each sentence's list in one operator, from what the lowering makes of
them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from export.passes.fusing.products.listed_logits import fuse_listed_logits
from export.passes.int8.listed_logits import lower_listed_logits
from tests.unit.export.passes.small_graph import check_fused, rewritten
from tests.unit.export.passes.small_listed import listed, listed_feed

FUSIONS = {"MatMul": fuse_listed_logits, "MatMulInteger": fuse_listed_logits}


@pytest.mark.parametrize("dim", [8, 128, 129, 300])
def test_a_product_of_floats_is_one_operator_however_many_parts_it_has(dim: int) -> None:
    model, feed = rewritten(listed(dim), lower_listed_logits), listed_feed(dim)
    (call,) = check_fused(model, feed, FUSIONS, ["ShortlistLogits"])
    assert list(call.input) == ["x", "table", "columns"]
    assert list(call.output) == ["logits"]


def test_a_product_of_integers_goes_with_its_scales() -> None:
    model = rewritten(listed(8), lower_listed_logits, int8=True)
    (call,) = check_fused(model, listed_feed(8), FUSIONS, ["ShortlistLogitsInteger"])
    assert list(call.input)[2:] == ["table_s8", "table_column_scale", "zero_point", "columns"]


@pytest.mark.parametrize(("int8", "name"), [(False, ""), (True, "Integer")])
@pytest.mark.parametrize("dim", [8, 300])
def test_a_bias_of_the_pieces_goes_with_the_product(int8: bool, name: str, dim: int) -> None:
    model = rewritten(listed(dim, biased=True), lower_listed_logits, int8=int8)
    kernel = f"BiasedShortlistLogits{name}"
    (call,) = check_fused(model, listed_feed(dim), FUSIONS, [kernel])
    assert list(call.input)[-2:] == ["columns", "bias"]
    assert list(call.output) == ["logits"]


def test_a_sum_with_numbers_of_other_pieces_is_no_bias() -> None:
    model = rewritten(listed(8, biased=True), lower_listed_logits, int8=True)
    gather = next(node for node in model.graph.node if node.input[0] == "bias")
    gather.input[1] = "others"
    feed = listed_feed(8)
    feed["others"] = feed["columns"][::-1].copy()
    value = onnx.helper.make_tensor_value_info("others", onnx.TensorProto.INT64, ["B", "L"])
    model.graph.input.append(value)
    check_fused(model, feed, FUSIONS, ["ShortlistLogitsInteger"])


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dim", [8, 300])
def test_rows_that_another_input_lists_stay(int8: bool, dim: int) -> None:
    feed = listed_feed(dim)
    feed["others"] = feed.pop("columns")
    model = rewritten(listed(dim, "others"), lower_listed_logits, int8=int8)
    check_fused(model, feed, FUSIONS, [])


def test_a_sum_of_parts_that_is_read_before_its_end_stays() -> None:
    model = rewritten(listed(300), lower_listed_logits)
    first = next(node for node in model.graph.node if node.op_type == "Add")
    model.graph.output.append(onnx.ValueInfoProto(name=first.output[0]))
    check_fused(model, listed_feed(300), FUSIONS, [])


def test_integers_that_are_read_before_their_scale_stay() -> None:
    model = rewritten(listed(8), lower_listed_logits, int8=True)
    product = next(node for node in model.graph.node if node.op_type == "MatMulInteger")
    model.graph.output.append(onnx.ValueInfoProto(name=product.output[0]))
    check_fused(model, listed_feed(8), FUSIONS, [])


def test_a_product_without_looked_up_rows_stays() -> None:
    model = rewritten(listed(8), lower_listed_logits)
    product = next(node for node in model.graph.node if node.op_type == "MatMul")
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "weight")
    )
    product.input[1] = "weight"
    check_fused(model, listed_feed(8), FUSIONS, [])
