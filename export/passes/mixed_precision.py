"""16-bit arithmetic for GPUs, and masks that their kernels take."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.errors import ExportError
from export.passes.dataflow import live_nodes

MASK_FILL: dict[int, float] = {
    TensorProto.FLOAT: -1e30,
    TensorProto.BFLOAT16: -1e30,
    TensorProto.FLOAT16: -3e4,
}
"""The value that replaces -inf in masks of attention, by their type: ONNX Runtime's
memory-efficient kernels make NaN of lower ones. In fp16 a score can be added without overflow."""
_PRODUCTS = ("MatMul", "Gemm")
_MOVING = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Split")
"""Operators that only move the values of their first input."""


def mixed_precision(
    model: onnx.ModelProto, element: int, *, half: Collection[str], exact: Collection[str]
) -> onnx.ModelProto:
    """Give the products with weights and the attentions of a lowered fp32 graph a 16-bit type of
    ONNX, `element`.

        before    norm -> Gemm (W, b) -> Relu -> Gemm -> Add x -> norm
        after     norm -> Cast -> Gemm (W, b in 16 bits) -> Relu -> Gemm -> Cast -> Add x -> norm

    Writing to caches of that type also has it, and so do operators that only move such values.
    Norms, softmax (that of attention too), the residual stream and log-probabilities stay fp32; so
    does attention whose keys and values are the same and not from a product, which is the mean of a
    text's states. Logits become fp32 after their product, once for all readers. `half` names the
    inputs and outputs of the graph that have the type, `exact` the weights whose products do not.
    With FLOAT as `element` only masks change.

    Raises ExportError if attention reads the output of a product in `exact`.
    """
    return _Typing(model, element, half, exact).run()


class _Typing:
    """The nodes of the new graph so far, and in which types each value exists there."""

    def __init__(
        self, model: onnx.ModelProto, element: int, half: Collection[str], exact: Collection[str]
    ) -> None:
        self._model, self._element, self._exact = model, element, exact
        self._is_half = element != TensorProto.FLOAT
        self._interface = set(half) if self._is_half else set()
        self._constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        self._factors = {
            name
            for name, value in self._constants.items()
            if value.dtype == np.float32 and value.ndim == 0 and abs(value) <= 1
        }
        """Scalars that make nothing larger."""
        self._producers = {o: node for node in model.graph.node for o in node.output}
        self._heads = self._find_heads()
        self._nodes: list[NodeProto] = []
        self._half = {i.name for i in model.graph.input} & self._interface
        """Values that are made in 16 bits, and have their name."""
        self._cast: dict[str, str] = {}
        """The name of the cast of each value that is needed in the other type as well."""
        self._masks: dict[tuple[str, int], str] = {}
        """Masks without -inf, by the name of the mask and the type of its attention."""
        self._wide: set[str] = set()
        """Values too large for 16 bits."""
        self._new: dict[str, TensorProto] = {}

    def run(self) -> onnx.ModelProto:
        """The new graph."""
        for node in self._model.graph.node:
            if node.op_type == "Attention":
                self._attend(node)
            elif node.op_type == "TensorScatter" and node.input[0] in self._half:
                self._check_width(node, node.input[1])
                inputs = [self._as_half(name) for name in node.input[:2]]
                self._append(node, [*inputs, node.input[2]], half=True)
            elif self._is_half and self._multiplies(node):
                self._append(node, [self._as_half(name) for name in node.input], half=True)
                if node.output[0] in self._heads:
                    self._widen(self._nodes[-1])
            elif self._follows(node):
                inputs = [self._as_half(n) if n in self._factors else n for n in node.input]
                self._append(node, inputs, half=True)
            else:
                self._append(node, [self._as_full(name) for name in node.input], half=False)
        for output in self._model.graph.output:
            self._give_output(output.name)
        return self._written()

    def _find_heads(self) -> set[str]:
        """Outputs of the products to which log-softmax is applied."""
        heads: set[str] = set()
        for node in self._model.graph.node:
            if node.op_type == "LogSoftmax":
                before = self._producers.get(node.input[0])
                while before is not None and before.op_type not in _PRODUCTS:
                    before = self._producers.get(before.input[0])
                heads.update(before.output if before is not None else ())
        return heads

    def _multiplies(self, node: NodeProto) -> bool:
        """Whether a node is a product of rows with weights that is of 16 bits."""
        if node.op_type not in _PRODUCTS or node.input[1] not in self._constants:
            return False
        if node.input[1] in self._exact:
            self._wide.update(node.output)
            return False
        return True

    def _follows(self, node: NodeProto) -> bool:
        """Whether a node reads 16-bit values without a cast: none of these can make them
        overflow."""
        follows = node.op_type in (*_MOVING, "Gather", "Relu")
        follows |= node.op_type == "Mul" and node.input[1] in self._factors
        if follows and node.input[0] in self._wide:
            self._wide.update(node.output)
        return follows and node.input[0] in self._half

    def _attend(self, node: NodeProto) -> None:
        """Write an attention with a finite mask, and its softmax in fp32."""
        inputs = list(node.input)
        for name in inputs[:3] if self._is_half else []:
            self._check_width(node, name)
        pools = inputs[1] == inputs[2] and inputs[2] not in self._half
        half = self._is_half and not pools
        if len(inputs) > 3 and inputs[3]:
            inputs[3] = self._mask(inputs[3], self._element if half else TensorProto.FLOAT)
        attributes = []
        if half:
            inputs[:3] = [self._as_half(name) for name in inputs[:3]]
            attributes = [helper.make_attribute("softmax_precision", TensorProto.FLOAT)]
        else:
            inputs[:3] = [self._as_full(name) for name in inputs[:3]]
        self._append(node, inputs, half=half, attributes=attributes)

    def _mask(self, name: str, element: int) -> str:
        """A mask without -inf in the type of its attention; -inf is replaced before the mask is
        moved or repeated."""
        key = name, element
        if key not in self._masks:
            half = element != TensorProto.FLOAT
            kind = "" if element == self._element else "_full"
            node, self._masks[key] = self._producers.get(name), f"{name}_mask{kind}"
            if node is not None and node.op_type in _MOVING:
                moved = NodeProto()
                moved.CopyFrom(node)
                moved.input[0] = self._mask(node.input[0], element)
                moved.output[0] = self._masks[key]
                moved.name = moved.output[0]
                self._nodes.append(moved)
            else:
                value = np.array(MASK_FILL[element], np.float32)
                fill = self._constant(value, f"mask_fill{kind}")
                finite = f"{name}_finite" if half else self._masks[key]
                clip = helper.make_node("Clip", [self._as_full(name), fill], [finite], name=finite)
                self._nodes.append(clip)
                if half:
                    self._cast_to(element, finite, self._masks[key])
        return self._masks[key]

    def _check_width(self, node: NodeProto, name: str) -> None:
        if name in self._wide:
            raise ExportError(
                f"{node.op_type} reads {name}, which comes near the largest number of fp16; use "
                "--precision bf16 or fp32"
            )

    def _as_half(self, name: str) -> str:
        """A value, or a constant, in 16 bits."""
        if not name or name in self._half:
            return name
        if name in self._constants:
            dtype = helper.tensor_dtype_to_np_dtype(self._element)
            return self._constant(self._constants[name].astype(dtype), f"{name}_half")
        if name not in self._cast:
            self._cast[name] = self._cast_to(self._element, name, f"{name}_half")
        return self._cast[name]

    def _as_full(self, name: str) -> str:
        """A value in fp32; unchanged if it does not have 16 bits."""
        if name not in self._half:
            return name
        if name not in self._cast:
            self._cast[name] = self._cast_to(TensorProto.FLOAT, name, f"{name}_full")
        return self._cast[name]

    def _give_output(self, name: str) -> None:
        """Give an output of the graph its declared type."""
        if (name in self._half) == (name in self._interface):
            return
        made = f"{name}_made"
        for node in self._nodes:
            for names in (node.input, node.output):
                for place, value in enumerate(names):
                    names[place] = made if value == name else value
        element = self._element if name in self._interface else TensorProto.FLOAT
        self._cast_to(element, made, name)

    def _append(
        self,
        node: NodeProto,
        inputs: list[str],
        *,
        half: bool,
        attributes: list[onnx.AttributeProto] | None = None,
    ) -> None:
        """Write a node with these inputs and more attributes."""
        copy = NodeProto()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend(inputs)
        copy.attribute.extend(attributes or [])
        self._nodes.append(copy)
        if half:
            self._half.update(node.output)

    def _widen(self, node: NodeProto) -> None:
        """Convert the 16-bit output of a product to fp32, under its name."""
        name = node.output[0]
        node.output[0] = f"{name}_narrow"
        self._half.discard(name)
        self._cast_to(TensorProto.FLOAT, node.output[0], name)

    def _cast_to(self, element: int, name: str, output: str) -> str:
        self._nodes.append(helper.make_node("Cast", [name], [output], name=output, to=element))
        return output

    def _constant(self, value: np.typing.NDArray[np.generic], name: str) -> str:
        self._new.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def _written(self) -> onnx.ModelProto:
        """The model with the new nodes, the constants that these read, and their types."""
        graph = self._model.graph
        nodes = live_nodes(self._nodes, {output.name for output in graph.output})
        used = {name for node in nodes for name in node.input}
        constants = [i for i in (*graph.initializer, *self._new.values()) if i.name in used]
        for values, names in (
            (graph.input, self._interface),
            (graph.output, self._interface),
            (graph.value_info, self._half),
        ):
            for value in values:
                if value.name in names:
                    value.type.tensor_type.elem_type = self._element
        for part, entries in ((graph.node, nodes), (graph.initializer, constants)):
            kept = list(entries)
            del part[:]
            part.extend(kept)
        return self._model
