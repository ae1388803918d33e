"""Bodies of functions: names by place, constants of their own, and what a kernel must know."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from export.passes.domains import MACARON
from export.passes.fusing.functions import Call, is_closed, make_function

OPSETS = [helper.make_opsetid("", 24)]
CONSTANTS = {
    "two": numpy_helper.from_array(np.array(2, np.float32), "two"),
    "seven": numpy_helper.from_array(np.array(7), "seven"),
}

node = helper.make_node


def made(nodes: list[NodeProto], call: Call) -> tuple[FunctionProto, dict[str, object]]:
    return make_function(nodes, call, CONSTANTS, OPSETS)


def doubled(prefix: str) -> FunctionProto:
    nodes = [
        node("Mul", [f"{prefix}x", "two"], [f"{prefix}m"]),
        node("Add", [f"{prefix}m", f"{prefix}x"], [f"{prefix}y"]),
    ]
    return made(nodes, Call("Triple", [f"{prefix}x"], [f"{prefix}y"]))[0]


def test_groups_of_one_form_have_one_body_whatever_their_values_are_called() -> None:
    body = doubled("layer_1_")
    assert body == doubled("layer_2_")
    assert (body.name, body.domain) == ("Triple", MACARON)
    assert (list(body.input), list(body.output)) == (["input_0"], ["output_0"])
    assert [each.op_type for each in body.node] == ["Constant", "Mul", "Add"]


def test_a_body_computes_what_the_group_does() -> None:
    call = node("Triple", ["x"], ["y"], domain=MACARON)
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([call], "calls", values[:1], values[1:])
    opsets = [*OPSETS, helper.make_opsetid(MACARON, 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[doubled("")])
    onnx.checker.check_model(model)
    x = np.array([1, 5], np.float32)
    (found,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(found, 3 * x)


@pytest.mark.parametrize(
    ("kind", "given", "public"),
    [
        ("Attention", {"q_num_heads": 4, "kv_num_heads": 4, "scale": 0.5},
         {"num_heads": 4, "scale": 0.5}),
        ("LayerNormalization", {"epsilon": 0.25, "axis": -1}, {"epsilon": 0.25}),
        ("Softmax", {"axis": 1}, {}),
    ],
)  # fmt: skip
def test_what_a_kernel_must_know_is_the_function_s_own(
    kind: str, given: dict[str, object], public: dict[str, object]
) -> None:
    function, attributes = made([node(kind, ["x"], ["y"], **given)], Call("Any", ["x"], ["y"]))
    assert attributes == public
    assert list(function.attribute) == sorted(public)
    told = {a.name: a.ref_attr_name for a in function.node[0].attribute}
    assert {name for name, reference in told.items() if not reference} == given.keys() - {
        name for name, reference in told.items() if reference
    }
    assert {reference for reference in told.values() if reference} == set(public)


def test_a_given_constant_is_an_attribute_and_no_number_of_the_body() -> None:
    nodes = [node("Less", ["x", "seven"], ["y"])]
    function, attributes = made(nodes, Call("Near", ["x"], ["y"], given={"seven": ("reach", 7)}))
    assert attributes == {"reach": 7}
    constant = function.node[0]
    assert (constant.op_type, constant.attribute[0].ref_attr_name) == ("Constant", "reach")


def test_a_value_stands_for_another_that_is_the_same() -> None:
    nodes = [node("Shape", ["other"], ["s"]), node("Reshape", ["x", "s"], ["y"])]
    open_ = made(nodes, Call("Shaped", ["x"], ["y"]))[0]
    closed = made(nodes, Call("Shaped", ["x"], ["y"], same={"other": "x"}))[0]
    assert not is_closed(open_)
    assert is_closed(closed)
    assert list(closed.node[0].input) == ["input_0"]


def test_inputs_that_are_left_out_stay_so() -> None:
    function, _ = made([node("Clip", ["x", "", "two"], ["y"])], Call("Cut", ["x"], ["y"]))
    assert list(function.node[-1].input) == ["input_0", "", function.node[0].output[0]]
    assert is_closed(function)
