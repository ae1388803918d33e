"""Local functions of a graph: a group of nodes becomes a body with its own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper

from export.passes.domains import MACARON

_PUBLIC = {
    ("Attention", "q_num_heads"): "num_heads",
    ("Attention", "kv_num_heads"): "num_heads",
    ("Attention", "scale"): "scale",
    ("Attention", "softcap"): "cap",
    ("LayerNormalization", "epsilon"): "epsilon",
    ("RMSNormalization", "epsilon"): "epsilon",
}
"""Attributes that a kernel must know, by the function's own names for them."""


@dataclass(frozen=True)
class Call:
    """The call of a function, which takes the place of a group of nodes."""

    name: str
    """Name of the function; one name has one body in a graph."""
    inputs: Sequence[str]
    outputs: Sequence[str]
    same: Mapping[str, str] = field(default_factory=dict)
    """Values that replace others in the body."""
    given: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Constants that become attributes: their name and value, by the constant's own name."""


def make_function(
    group: Sequence[NodeProto],
    call: Call,
    constants: Mapping[str, TensorProto],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> tuple[FunctionProto, dict[str, Any]]:
    """The function that a call calls, and the values of its attributes in this one."""
    body = _Body(call, constants)
    for node in group:
        body.copy(node)
    function = helper.make_function(
        MACARON,
        call.name,
        [f"input_{i}" for i in range(len(call.inputs))],
        [f"output_{i}" for i in range(len(call.outputs))],
        body.nodes,
        opsets,
        sorted(body.attributes),
    )
    return function, body.attributes


def is_closed(function: FunctionProto) -> bool:
    """Whether nothing in the body comes from outside."""
    known = {"", *function.input}
    for node in function.node:
        if not known.issuperset(node.input):
            return False
        known.update(node.output)
    return True


class _Body:
    """Copies of nodes; their values are named by their place in the body."""

    def __init__(self, call: Call, constants: Mapping[str, TensorProto]) -> None:
        self.nodes: list[NodeProto] = []
        self.attributes: dict[str, Any] = {}
        self._call, self._constants = call, constants
        self._names = {value: f"input_{i}" for i, value in enumerate(call.inputs)}
        self._names |= {value: f"output_{i}" for i, value in enumerate(call.outputs)}

    def copy(self, node: NodeProto) -> None:
        """Append a node, after the constants that it reads; not one whose output is replaced."""
        if node.output[0] in self._call.same:
            return
        copy = NodeProto(op_type=node.op_type, domain=node.domain)
        copy.input.extend([self._renamed(value) for value in node.input])
        copy.output.extend([self._renamed(value) for value in node.output])
        for attribute in node.attribute:
            public = _PUBLIC.get((node.op_type, attribute.name))
            if public is None:
                copy.attribute.append(attribute)
            else:
                self.attributes[public] = helper.get_attribute_value(attribute)
                copy.attribute.append(_reference(attribute.name, public, attribute.type))
        self.nodes.append(copy)

    def _renamed(self, value: str) -> str:
        value = self._call.same.get(value, value)
        if value and value not in self._names:
            self._names[value] = f"value_{len(self._names)}"
            self._append_constant(value)
        return self._names.get(value, value)

    def _append_constant(self, value: str) -> None:
        """Put a value into the body if it is a constant, or an attribute that is given."""
        name = self._names[value]
        if value in self._call.given:
            public, self.attributes[public] = self._call.given[value]
            constant = helper.make_node("Constant", [], [name])
            constant.attribute.append(_reference("value_int", public, AttributeProto.INT))
            self.nodes.append(constant)
        elif value in self._constants:
            tensor = TensorProto()
            tensor.CopyFrom(self._constants[value])
            tensor.name = name
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))


def _reference(name: str, public: str, kind: AttributeProto.AttributeType) -> AttributeProto:
    """An attribute of a node in the body that is the function's own."""
    return AttributeProto(name=name, ref_attr_name=public, type=kind)
