"""Groups of operators that the runtime's own kernels do in one go.

Each group becomes a local function of domain `macaron`, whose body is the group: where the kernels
of serving/native are loaded ONNX Runtime runs these, everywhere else the body.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from export.domains import MACARON
from export.folding import live_nodes, users_by_value

VERSION = 1
_TOP_TOKENS = ("top_scores", "top_tokens", "label_scores")
_CANDIDATES = ("candidate_scores", "candidate_tokens", "candidate_parents", "label_scores")
_SHORTLIST_CANDIDATES = _CANDIDATES[:3]
_COLUMNS = "columns"
"""The input that a step graph has where it chooses from shortlists."""
_LISTED = (
    ("Transpose", "Gather"),
    ("Transpose", "Split", "Gather"),
    ("BitwiseXor", "Cast", "Transpose", "Gather"),
)
"""What leads, from the last on, to a product with rows of a table: of floats, of parts of them, of
integers."""
_SHAPED = {"positions": "label_ids", "token_ids": "label_ids"}
"""All are [B,Q]: where only their shape is read, one does for the others."""
_PUBLIC = {
    ("Attention", "q_num_heads"): "num_heads",
    ("Attention", "kv_num_heads"): "num_heads",
    ("Attention", "scale"): "scale",
    ("LayerNormalization", "epsilon"): "epsilon",
}
"""Attributes that a kernel must know, by the function's own names."""


def fuse(model: onnx.ModelProto) -> None:
    """Make functions of the groups that have a kernel; the model is changed."""
    fusing = _Fusing(model)
    fusing.each("LogSoftmax", fusing.candidates)
    fusing.each("LogSoftmax", fusing.shortlist_candidates)
    for product in ("MatMul", "MatMulInteger"):
        fusing.each(product, fusing.shortlist_logits)
    fusing.each("LogSoftmax", fusing.top_tokens)
    fusing.each("Attention", fusing.attention)
    fusing.each("Attention", fusing.attention_by_head)
    fusing.each("Add", fusing.reach_mask)
    fusing.each("QuantizeLinear", fusing.norm)
    fusing.each("Cast", fusing.embedding)
    fusing.each("Concat", fusing.sinusoids)
    fusing.finish()


class _Fusing:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._model, self._graph = model, model.graph
        self._constants = {i.name: i for i in model.graph.initializer}
        self._outputs = {output.name for output in model.graph.output}
        self._functions: dict[str, FunctionProto] = {}
        self._index()

    def each(self, op_type: str, fuse_at: Callable[[NodeProto], None]) -> None:
        """Look for a group at each node of that kind."""
        for name in [n.output[0] for n in self._graph.node if n.op_type == op_type]:
            if name in self._producers:  # else it is in a group already
                fuse_at(self._producers[name])

    def candidates(self, node: NodeProto) -> None:
        """All that lies between the logits and the candidates of a beam search."""
        if not self._outputs.issuperset(_CANDIDATES):
            return
        inside = self._between(node.input[0], _CANDIDATES)
        inputs = (node.input[0], "scores", "label_ids")
        self._replace(inside, "Candidates", inputs, _CANDIDATES, _SHAPED)

    def shortlist_candidates(self, node: NodeProto) -> None:
        """The same of the columns in each sentence's list."""
        hidden = self._producers.get(node.input[0])
        if hidden is None or hidden.op_type != "Where" or not self._has_lists():
            return
        name = hidden.input[2]
        inside = self._between(name, _SHORTLIST_CANDIDATES)
        inputs = (name, _COLUMNS, "scores")
        self._replace(inside, "ShortlistCandidates", inputs, _SHORTLIST_CANDIDATES)

    def shortlist_logits(self, node: NodeProto) -> None:
        """Products with each sentence's own rows of a table (`lowering` writes them)."""
        chains = (self._chain_before(node.input[1], kind) for kind in _LISTED)
        chain = next(filter(None, chains), None)
        if chain is None or chain[-1].input[1] != _COLUMNS or not self._has_lists():
            return
        own = chain[-1]
        if node.op_type == "MatMul":
            rows, output = node.input[0], node.output[0]
            if len(chain) == 3:  # the first of several parts
                rows = self._producers[rows].input[0]
                sums = self._chain_after(output, ["Add"] * (len(chain[1].output) - 1))
                if sums is None:
                    return
                output = sums[-1].output[0]
            inside = self._between(rows, [output])
            self._replace(inside, "ShortlistLogits", (rows, *own.input), [output])
            return
        scaled = self._chain_after(node.output[0], ("Cast", "Mul"))
        both = (
            self._chain_before(scaled[1].input[1], ("Mul", "Unsqueeze", "Gather"))
            if scaled
            else None
        )
        if scaled is None or both is None:
            return
        group = [*chain[::-1], node, scaled[0], *both[::-1], scaled[1]]
        row_scale, (scales, columns) = both[0].input[1], both[2].input
        inputs = (node.input[0], row_scale, own.input[0], scales, node.input[2], columns)
        self._replace(group, "ShortlistLogitsInteger", inputs, scaled[1].output)

    def top_tokens(self, node: NodeProto) -> None:
        """All that lies between the logits and the likeliest tokens of a language model."""
        if not self._outputs.issuperset(_TOP_TOKENS):
            return
        inside = self._between(node.input[0], _TOP_TOKENS)
        inputs = (node.input[0], "label_ids", "top_ranks")
        self._replace(inside, "TopTokens", inputs, _TOP_TOKENS, {"output_index": "label_ids"})

    def attention(self, node: NodeProto) -> None:
        """Attention that skips what the mask hides; with the writing of the caches before it and
        the rounding after it."""
        if len(node.input) != 4 or len(node.output) != 1 or not _attribute(node, "q_num_heads"):
            return
        query, keys, values, mask = node.input
        written = self._written(query, keys, values)
        group, inputs, outputs = [node], [query, keys, values, mask], [node.output[0]]
        name = "MaskedAttention"
        if written is not None:
            split, key, value = written
            name, group = "TreeAttention", [*written, node]
            inputs = [split.input[0], key.input[0], value.input[0], key.input[2], mask]
            outputs += [keys, values]
        self._replace_rounded(group, name, inputs, outputs)

    def attention_by_head(self, node: NodeProto) -> None:
        """The same where caches are laid out by head, and so the new keys and values."""
        if len(node.input) != 4 or len(node.output) != 1 or _attribute(node, "q_num_heads"):
            return
        query, keys, values, mask = node.input
        written = self._written(query, keys, values)
        if written is None:
            return
        split, key, value = written
        heads = self._chain_before(split.input[0], ("Transpose", "Reshape"))
        merged = self._chain_after(node.output[0], ("Transpose", "Reshape"))
        if heads is None or merged is None:
            return
        shape = self._constants.get(merged[1].input[1])
        if shape is None or list(shape.dims) != [3]:  # the kernel gives [B,Q,D]
            return
        group = [*heads[::-1], *written, node, *merged]
        inputs = [heads[1].input[0], key.input[0], value.input[0], key.input[2], mask]
        outputs = [merged[1].output[0], keys, values]
        self._replace_rounded(group, "TreeAttentionByHead", inputs, outputs)

    def reach_mask(self, node: NodeProto) -> None:
        """A mask of what a layer reaches: `visible`, and from 0 to so many positions back."""
        chain = self._chain_before(node.input[1], ("Where", "And"))
        if chain is None or len(chain) != 2:
            return
        where, both = chain
        lower, upper = (self._producers.get(name) for name in both.input)
        if lower is None or upper is None:
            return
        if (lower.op_type, upper.op_type) != ("GreaterOrEqual", "Less"):
            return
        if lower.input[0] != upper.input[0] or self._number(lower.input[1]) != 0:
            return
        difference = self._producers.get(lower.input[0])
        reach = self._number(upper.input[1])
        if difference is None or difference.op_type != "Sub" or reach is None:
            return
        if (self._number(where.input[1]), self._number(where.input[2])) != (0, -math.inf):
            return
        queries = self._chain_before(difference.input[0], ("Unsqueeze", "Unsqueeze"))
        slots = self._chain_before(difference.input[1], ("Unsqueeze",))
        if queries is None or slots is None:
            return
        group = [*queries[::-1], *slots, difference, lower, upper, both, where, node]
        inputs = (node.input[0], queries[1].input[0], slots[0].input[0])
        given = {upper.input[1]: ("reach", int(reach))}
        self._replace(group, "ReachMask", inputs, node.output, given=given)

    def norm(self, node: NodeProto) -> None:
        """A residual, its norm and the rounding of that."""
        norm = self._producers.get(node.input[0])
        if not self._is_static(node) or norm is None or norm.op_type != "LayerNormalization":
            return
        add = self._producers.get(norm.input[0])
        if len(norm.input) != 3 or not self._used_once(node.input[0]):
            return
        if add is None or add.op_type != "Add" or set(add.input) & self._constants.keys():
            return
        inputs = (*add.input, *norm.input[1:], *node.input[1:])
        self._replace([add, norm, node], "AddNormQuantize", inputs, (node.output[0], add.output[0]))

    def embedding(self, node: NodeProto) -> None:
        """Rows of a table of 8 bits."""
        rows = self._producers.get(node.input[0])
        if rows is None or rows.op_type != "Gather" or not self._used_once(node.output[0]):
            return
        product = self._users[node.output[0]][0]
        if product.op_type != "Mul" or not self._used_once(node.input[0]):
            return
        scales = self._producers.get(product.input[1])
        if scales is None or scales.op_type != "Gather" or scales.input[1] != rows.input[1]:
            return
        group = [rows, node, scales, product]
        inputs = (rows.input[0], scales.input[0], rows.input[1])
        self._replace(group, "GatherDequantize", inputs, product.output)

    def sinusoids(self, node: NodeProto) -> None:
        """Encodings of positions."""
        parts = [self._producers.get(name) for name in node.input]
        kinds = [part.op_type for part in parts if part is not None]
        if kinds != ["Sin", "Cos"] or _attribute(node, "axis") != -1:
            return
        chain, sine, cosine = [], *(part for part in parts if part is not None)
        if sine.input[0] != cosine.input[0]:
            return
        name, given = sine.input[0], []
        for op_type in ("Mul", "Unsqueeze", "Add", "Cast"):
            before = self._producers.get(name)
            if before is None or before.op_type != op_type:
                return
            chain.append(before)
            name = before.input[0]
            if op_type in ("Mul", "Add"):
                given.append(before.input[1])
        frequencies, offset = given
        if not {frequencies, offset} <= self._constants.keys():
            return
        group = [*chain[::-1], sine, cosine, node]
        self._replace(group, "Sinusoids", (name, offset, frequencies), node.output)

    def finish(self) -> None:
        """Put the functions into the model; drop what is in their bodies alone."""
        if not self._functions:
            return
        live = live_nodes(list(self._graph.node), self._outputs)
        del self._graph.node[:]
        self._graph.node.extend(live)
        self._model.functions.extend(self._functions.values())
        self._model.opset_import.append(helper.make_opsetid(MACARON, VERSION))
        used = {name for node in self._graph.node for name in node.input}
        kept = [i for i in self._graph.initializer if i.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)

    def _has_lists(self) -> bool:
        """Whether it is a step graph that chooses from shortlists."""
        return _COLUMNS in {value.name for value in self._graph.input}

    def _index(self) -> None:
        self._producers = {output: node for node in self._graph.node for output in node.output}
        self._users = users_by_value(self._graph)

    def _is_static(self, node: NodeProto) -> bool:
        """Whether it rounds to 8 bits by constants."""
        return node.op_type == "QuantizeLinear" and set(node.input[1:]) <= self._constants.keys()

    def _used_once(self, name: str) -> bool:
        return name not in self._outputs and len(self._users[name]) == 1

    def _written(
        self, query: str, keys: str, values: str
    ) -> tuple[NodeProto, NodeProto, NodeProto] | None:
        """The split of a projection and the writing of its parts to the caches, where a query, keys
        and values come from these."""
        split, key, value = (self._producers.get(name) for name in (query, keys, values))
        if split is None or key is None or value is None:
            return None
        kinds = (split.op_type, key.op_type, value.op_type)
        if kinds != ("Split", "TensorScatter", "TensorScatter"):
            return None
        if [query, key.input[1], value.input[1]] != list(split.output):
            return None
        if key.input[2] != value.input[2] or not all(map(self._used_once, split.output)):
            return None
        return split, key, value

    def _chain_before(self, name: str, kinds: Sequence[str]) -> list[NodeProto] | None:
        """The nodes of these kinds that lead to a value by their first inputs, the last first."""
        chain = []
        for kind in kinds:
            node = self._producers.get(name)
            if node is None or node.op_type != kind:
                return None
            chain.append(node)
            name = node.input[0]
        return chain

    def _chain_after(self, name: str, kinds: Sequence[str]) -> list[NodeProto] | None:
        """The nodes of these kinds to which a value goes, and nowhere else."""
        chain = []
        for kind in kinds:
            if not self._used_once(name) or self._users[name][0].op_type != kind:
                return None
            chain.append(self._users[name][0])
            name = chain[-1].output[0]
        return chain

    def _number(self, name: str) -> float | None:
        """The value of a scalar constant."""
        constant = self._constants.get(name)
        if constant is None or constant.dims:
            return None
        return float(numpy_helper.to_array(constant))

    def _between(self, start: str, ends: Sequence[str]) -> list[NodeProto]:
        """The nodes that lead from one value to others, in order."""
        wanted, inside = set(ends), []
        for node in reversed(self._graph.node):
            if wanted.intersection(node.output) and start not in node.output:
                inside.append(node)
                wanted.update(node.input)
        return inside[::-1]

    def _replace_rounded(
        self, group: list[NodeProto], name: str, inputs: list[str], outputs: list[str]
    ) -> None:
        """Replace a group and the rounding of its first output to 8 bits, where that is all it is
        for."""
        found = self._chain_after(outputs[0], ("QuantizeLinear",))
        if found is not None and self._is_static(found[0]):
            name, group = f"{name}Quantize", [*group, found[0]]
            inputs = [*inputs, *found[0].input[1:]]
            outputs = [found[0].output[0], *outputs[1:]]
        self._replace(group, name, inputs, outputs)

    def _replace(
        self,
        group: Sequence[NodeProto],
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        same: Mapping[str, str] | None = None,
        given: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        """Put a call in the place of a group, whose nodes are in order; those that others need as
        well stay, too.

        `same` are values that the body may have in the place of others, `given` constants that
        become attributes.
        """
        function, attributes = self._function(group, name, inputs, outputs, same or {}, given or {})
        if not _is_closed(function) or self._functions.setdefault(name, function) != function:
            return  # another form of the group, of which a name can have only one: it stays
        call = helper.make_node(name, list(inputs), list(outputs), domain=MACARON, **attributes)
        ours = {node.output[0] for node in group}
        for node in reversed(group):  # what others need stays, and what that needs
            values = [value for value in node.output if value not in outputs]
            users = [user for value in values for user in self._users[value]]
            needed = any(user.output[0] not in ours for user in users)
            if needed or not self._outputs.isdisjoint(values):
                ours.remove(node.output[0])
        nodes: list[NodeProto] = []
        for node in self._graph.node:
            if node.output[0] not in ours:
                nodes.append(node)
            if node.output[0] == group[-1].output[0]:
                nodes.append(call)
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        self._index()

    def _function(
        self,
        group: Sequence[NodeProto],
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        same: Mapping[str, str],
        given: Mapping[str, tuple[str, int]],
    ) -> tuple[FunctionProto, dict[str, Any]]:
        """A function with names of its own, and its attributes' values here."""
        names = {value: f"input_{i}" for i, value in enumerate(inputs)}
        names |= {value: f"output_{i}" for i, value in enumerate(outputs)}
        body: list[NodeProto] = []
        attributes: dict[str, Any] = {}

        def rename(value: str) -> str:
            value = same.get(value, value)
            if value and value not in names:
                names[value] = f"value_{len(names)}"
                if value in given:
                    public, attributes[public] = given[value]
                    constant = helper.make_node("Constant", [], [names[value]])
                    constant.attribute.append(
                        AttributeProto(
                            name="value_int", ref_attr_name=public, type=AttributeProto.INT
                        )
                    )
                    body.append(constant)
                elif value in self._constants:
                    tensor = TensorProto()
                    tensor.CopyFrom(self._constants[value])
                    tensor.name = names[value]
                    body.append(helper.make_node("Constant", [], [names[value]], value=tensor))
            return names.get(value, value)

        for node in group:
            copy = NodeProto(op_type=node.op_type, domain=node.domain)
            copy.input.extend([rename(value) for value in node.input])
            copy.output.extend([rename(value) for value in node.output])
            for attribute in node.attribute:
                public = _PUBLIC.get((node.op_type, attribute.name))
                if public is None:
                    copy.attribute.append(attribute)
                else:
                    attributes[public] = helper.get_attribute_value(attribute)
                    copy.attribute.append(
                        AttributeProto(
                            name=attribute.name, ref_attr_name=public, type=attribute.type
                        )
                    )
            body.append(copy)
        function = helper.make_function(
            MACARON,
            name,
            [f"input_{i}" for i in range(len(inputs))],
            [f"output_{i}" for i in range(len(outputs))],
            body,
            self._model.opset_import,
            sorted(attributes),
        )
        return function, attributes


def _attribute(node: NodeProto, name: str) -> int:
    """An integer attribute; 0 where there is none."""
    return next((int(a.i) for a in node.attribute if a.name == name), 0)


def _is_closed(function: FunctionProto) -> bool:
    """Whether nothing in the body comes from outside."""
    known = {"", *function.input}
    for node in function.node:
        if not known.issuperset(node.input):
            return False
        known.update(node.output)
    return True
