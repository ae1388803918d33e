"""Groups of operators that one of the runtime's own kernels computes at once.

Each group becomes a local function of domain `macaron`, whose body is the group. Where the kernels
of serving/native are loaded, ONNX Runtime runs these; everywhere else it runs the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import FunctionProto, NodeProto, helper, numpy_helper

from export.passes.dataflow import live_nodes, users_by_value
from export.passes.domains import MACARON
from export.passes.fusing.functions import Call, is_closed, make_function

VERSION = 1


@dataclass(frozen=True)
class RowRounding:
    """Nodes that round the rows of a value to 8 bits, each row by its own scale."""

    group: list[NodeProto]
    """The nodes, in the order in which they run."""
    rows: str
    """The value [M,K] that they round, after Relu if that is in the group."""
    signed: bool
    """False if nothing is below zero, because it is the output of Relu."""
    inputs: tuple[str, str, str]
    """The zero points [M], the smallest peak, and the factor from a peak to its scale."""
    outputs: tuple[str, str]
    """The rows of 8 bits and their scales [M,1]."""


class Groups:
    """A graph in which groups are found and replaced by calls."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.constants = {i.name: i for i in model.graph.initializer}
        self.inputs = {value.name for value in model.graph.input}
        self.outputs = {output.name for output in model.graph.output}
        self._model, self._graph = model, model.graph
        self._functions: dict[str, FunctionProto] = {}
        self._nodes = list(model.graph.node)
        """The nodes of the graph, in order. The graph gets them at the end, because it copies what
        it is given."""
        self.producers = {output: node for node in self._nodes for output in node.output}
        self.users = users_by_value(model.graph)
        self._places: dict[str, tuple[int, ...]] = {
            node.output[0]: (place,) for place, node in enumerate(self._nodes)
        }
        """The place of each node, by its first output. Places compare in the order in which nodes
        follow each other."""

    def each(self, op_type: str, fuse_at: Callable[[Groups, NodeProto], None]) -> None:
        """Look for a group at each node of that kind."""
        for name in [n.output[0] for n in self._nodes if n.op_type == op_type]:
            if name in self.producers:  # else it is in a group already
                fuse_at(self, self.producers[name])

    def finish(self) -> None:
        """Put the functions into the model, and remove the values that only their bodies use."""
        if not self._functions:
            return
        live = live_nodes(self._nodes, self.outputs)
        del self._graph.node[:]
        self._graph.node.extend(live)
        self._model.functions.extend(self._functions.values())
        self._model.opset_import.append(helper.make_opsetid(MACARON, VERSION))
        used = {name for node in self._graph.node for name in node.input}
        kept = [i for i in self._graph.initializer if i.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)

    def is_static_rounding(self, node: NodeProto) -> bool:
        """Whether a node rounds to 8 bits by constants."""
        return node.op_type == "QuantizeLinear" and set(node.input[1:]) <= self.constants.keys()

    def row_rounding(self, node: NodeProto) -> RowRounding | None:
        """The rounding of rows that ends with a QuantizeLinear; None if the node belongs to another
        rounding.

        x -> Abs -> ReduceMax -> Max -> Mul -> QuantizeLinear -> u8
                                            -> Unsqueeze -> scales

        Without Abs the values come from Relu; then Relu belongs to the group.
        """
        chain = self.chain_before(node.input[1], ("Mul", "Max", "ReduceMax"))
        if chain is None:
            return None
        level, least, peak = chain
        rows, group = node.input[0], [peak, least, level, node]
        signed = peak.input[0] != rows
        if signed:
            magnitude = self.producers.get(peak.input[0])
            if magnitude is None or magnitude.op_type != "Abs" or magnitude.input[0] != rows:
                return None
            group.insert(0, magnitude)
        elif (relu := self.producers.get(rows)) is not None and relu.op_type == "Relu":
            group.insert(0, relu)
            rows = relu.input[0]
        columns = [user for user in self.users[level.output[0]] if user.op_type == "Unsqueeze"]
        if len(columns) != 1:
            return None
        inputs = (node.input[2], least.input[1], level.input[1])
        outputs = (node.output[0], columns[0].output[0])
        return RowRounding([*group, columns[0]], rows, signed, inputs, outputs)

    def used_once(self, name: str) -> bool:
        """Whether exactly one node reads a value, which is not an output of the graph."""
        return name not in self.outputs and len(self.users[name]) == 1

    def chain_before(self, name: str, kinds: Sequence[str]) -> list[NodeProto] | None:
        """The nodes of these kinds that lead to a value by their first inputs, the last first."""
        chain = []
        for kind in kinds:
            node = self.producers.get(name)
            if node is None or node.op_type != kind:
                return None
            chain.append(node)
            name = node.input[0]
        return chain

    def before_reshapes(self, name: str) -> str:
        """The value that only reshapes lead from to this one."""
        while (node := self.producers.get(name)) is not None and node.op_type == "Reshape":
            name = node.input[0]
        return name

    def last_of_three(self, name: str) -> int | None:
        """The last size of a value that has just been reshaped to three axes; None if that is not
        known."""
        chain = self.chain_before(name, ("Reshape",))
        sizes = self.producers.get(chain[0].input[1]) if chain else None
        if sizes is None or sizes.op_type != "Concat" or len(sizes.input) != 3:
            return None
        last = self.constants.get(sizes.input[2])
        if last is None or not all(map(self._is_one_size, sizes.input)):
            return None
        return int(numpy_helper.to_array(last)[0])

    def axis_of(self, node: NodeProto) -> int | None:
        """The only axis in the second input of a Squeeze or Unsqueeze; None if it is not known."""
        axes = self.constants.get(node.input[1]) if len(node.input) == 2 else None
        return None if axes is None or axes.dims != [1] else int(numpy_helper.to_array(axes)[0])

    def _is_one_size(self, name: str) -> bool:
        """Whether a value is one number in a list: a constant, or one size of a shape."""
        constant, node = self.constants.get(name), self.producers.get(name)
        if constant is not None or node is None or node.op_type != "Shape":
            return constant is not None and constant.dims == [1]
        return integer_attribute(node, "end") == integer_attribute(node, "start") + 1

    def chain_after(self, name: str, kinds: Sequence[str]) -> list[NodeProto] | None:
        """The nodes of these kinds to which a value goes, and nowhere else."""
        chain = []
        for kind in kinds:
            if not self.used_once(name) or self.users[name][0].op_type != kind:
                return None
            chain.append(self.users[name][0])
            name = chain[-1].output[0]
        return chain

    def bias_after(self, name: str) -> tuple[NodeProto, str] | None:
        """The addition of a bias to which a value goes, and nowhere else, and the bias."""
        after = self.chain_after(name, ("Add",))
        biases = [value for value in after[0].input if value in self.constants] if after else []
        if after is None or len(biases) != 1 or len(self.constants[biases[0]].dims) != 1:
            return None
        return after[0], biases[0]

    def weight_of(self, product: NodeProto) -> tuple[list[NodeProto], list[str]]:
        """The node that transposes a table into a product's weight, if there is one, and the
        product's inputs with the table in place of the weight.

        table [N,K] s8 -> Transpose -> W
        """
        turned = self.producers.get(product.input[1])
        inputs = list(product.input)
        if turned is None or turned.op_type != "Transpose":
            return [], inputs
        return [turned], [inputs[0], turned.input[0], *inputs[2:]]

    def between(self, starts: Sequence[str], ends: Sequence[str]) -> list[NodeProto]:
        """The nodes that lead from some values to others, in order."""
        wanted, inside = set(ends), []
        for node in reversed(self._nodes):
            if wanted.intersection(node.output) and set(starts).isdisjoint(node.output):
                inside.append(node)
                wanted.update(node.input)
        return inside[::-1]

    def sized_by(self, value: str, group: Sequence[NodeProto]) -> dict[str, str]:
        """Inputs of which a group reads only the first size, with another input that has the same
        size: a program takes each size from whichever input has it."""
        first = _first_axes(self._graph)
        found = {}
        for name in first.keys() & {name for node in group for name in node.input}:
            readers = [node for node in group if name in node.input]
            if name != value and first[name] == first[value] and all(map(_reads_first, readers)):
                found[name] = value
        return found

    def number(self, name: str) -> float | None:
        """The value of a scalar constant; None if the value is not one."""
        constant = self.constants.get(name)
        if constant is None or constant.dims:
            return None
        return float(numpy_helper.to_array(constant))

    def replace_rounded(self, group: list[NodeProto], call: Call) -> None:
        """Replace a group together with the 8-bit rounding of its first output, if that is the
        output's only use."""
        found = self.chain_after(call.outputs[0], ("QuantizeLinear",))
        if found is not None and self.is_static_rounding(found[0]):
            (rounding,) = found
            group = [*group, rounding]
            call = replace(
                call,
                name=f"{call.name}Quantize",
                inputs=(*call.inputs, *rounding.input[1:]),
                outputs=(rounding.output[0], *call.outputs[1:]),
            )
        self.replace(group, call)

    def replace_rounded_by_row(self, group: list[NodeProto], call: Call) -> None:
        """The same for a value [1,M,D] that is made flat and whose rows each have a scale."""
        flat = self.chain_after(call.outputs[0], ("Reshape",))
        ends = self.users[flat[0].output[0]] if flat else []
        last = [user for user in ends if user.op_type == "QuantizeLinear"]
        rounding = self.row_rounding(last[0]) if len(last) == 1 and len(ends) == 2 else None
        if flat is None or rounding is None or not rounding.signed:
            self.replace_rounded(group, call)
            return
        call = replace(
            call,
            name=f"{call.name}QuantizeRows",
            inputs=(*call.inputs, *rounding.inputs),
            outputs=(*rounding.outputs, *call.outputs[1:]),
        )
        self.replace([*group, *flat, *rounding.group], call)

    def replace(self, group: Sequence[NodeProto], call: Call) -> None:
        """Replace a group by a call. The nodes of the group are in order; those that others need
        stay too. The group stays if what is left reads its outputs before its last node."""
        gone = self._not_needed_elsewhere(group, call.outputs)
        if self._read_before(group[-1], gone, call.outputs):
            return
        opsets = self._model.opset_import
        function, attributes = make_function(group, call, self.constants, opsets)
        if not is_closed(function) or self._functions.setdefault(call.name, function) != function:
            return  # another form of the group; a name can have only one, so it stays
        called = helper.make_node(
            call.name, list(call.inputs), list(call.outputs), domain=MACARON, **attributes
        )
        self._exchange(gone, group[-1], called)

    def _exchange(self, gone: set[str], end: NodeProto, called: NodeProto) -> None:
        """Remove the nodes with these first outputs, and put another node after `end`."""
        place = (*self._places[end.output[0]], 1)
        nodes: list[NodeProto] = []
        for node in self._nodes:
            if node.output[0] not in gone:
                nodes.append(node)
            else:
                self._forget(node)
            if node.output[0] == end.output[0]:
                nodes.append(called)
        self._nodes = nodes
        self._places[called.output[0]] = place
        for output in called.output:
            self.producers[output] = called
            self.users.setdefault(output, [])
        for name in called.input:
            self.users.setdefault(name, []).append(called)
            self.users[name].sort(key=lambda user: self._places[user.output[0]])

    def _forget(self, node: NodeProto) -> None:
        del self._places[node.output[0]]
        for output in node.output:
            del self.producers[output]
        for name in node.input:
            users = self.users[name]
            self.users[name] = [user for user in users if user.output[0] != node.output[0]]

    def _read_before(self, end: NodeProto, gone: set[str], outputs: Sequence[str]) -> bool:
        """Whether nodes before `end` read these outputs; those with first outputs in `gone` do not
        count."""
        readers = {user.output[0] for value in outputs for user in self.users[value]} - gone
        return any(self._places[name] < self._places[end.output[0]] for name in readers)

    def _not_needed_elsewhere(self, group: Sequence[NodeProto], outputs: Sequence[str]) -> set[str]:
        """First outputs of the nodes that can be removed; nodes that others need, and their inputs,
        stay."""
        ours = {node.output[0] for node in group}
        for node in reversed(group):
            values = [value for value in node.output if value not in outputs]
            users = [user for value in values for user in self.users[value]]
            needed = any(user.output[0] not in ours for user in users)
            if needed or not self.outputs.isdisjoint(values):
                ours.remove(node.output[0])
        return ours


def _first_axes(graph: onnx.GraphProto) -> dict[str, str]:
    """The name of the first axis of each input that has one."""
    shapes = {value.name: value.type.tensor_type.shape.dim for value in graph.input}
    return {name: dims[0].dim_param for name, dims in shapes.items() if dims and dims[0].dim_param}


def _reads_first(node: NodeProto) -> bool:
    """Whether a node returns only the first size of its input."""
    bounds = (integer_attribute(node, "start"), integer_attribute(node, "end"))
    return node.op_type == "Shape" and bounds == (0, 1)


def integer_attribute(node: NodeProto, name: str, default: int = 0) -> int:
    """An integer attribute of a node; the default if there is none."""
    return next((int(a.i) for a in node.attribute if a.name == name), default)
