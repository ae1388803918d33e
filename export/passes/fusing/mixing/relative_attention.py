"""Fuses attention with a vector for each distance from a query to a key, written out."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import NodeProto, numpy_helper

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups, integer_attribute
from export.passes.fusing.mixing.caches import (
    HEADS_FIRST,
    KEYS_LAST,
    flat_before_heads,
    has_three_axes,
    turns,
    written_caches,
)

_ACROSS = [0, 1, 3, 2]
"""The order of axes that makes columns of looked up vectors [B,Q,C,E]."""


def fuse_relative_attention(groups: Groups, node: NodeProto) -> None:
    """Attention on caches [B,C,D] (`training.models.sublayers.positions.RelativePositions`).

        before    projection -> Split -> q -> Reshape -> Transpose -> Mul scale -> MatMul
                      -> k, v -> TensorScatter (caches) -> Reshape -> Transpose -----^
                  Mul -> Transpose -> MatMul with vectors of keys -> Transpose
                  both MatMul -> Add -> Add visible -> Softmax
                  Softmax -> MatMul with the values
                          -> Transpose -> MatMul with vectors of values -> Transpose
                  both MatMul -> Add -> Transpose -> Reshape [B,Q,D] -> QuantizeLinear
        after     projection, caches, write index, visible, places [B,Q,C] in the tables, tables
                  [R,E] of keys and of values, scale -> RelativeTreeAttentionQuantize

    `visible` has 0 and -inf alone. Before and after Mul and the last Add, values may be made flat.
    The body does without that, because shapes depend on the whole graph.
    """
    asked = groups.chain_before(node.input[0], ("Add", "Add", "MatMul"))
    if asked is None or integer_attribute(node, "axis", -1) not in (-1, 3):
        return
    masked, scores, product = asked
    flat = _Flat(groups)
    scaled, of_keys = (
        flat.computed(product.input[0], "Mul"),
        _looked_up(groups, scores.input[1], _ACROSS),
    )
    weighed = _weighed(groups, node, flat)
    if masked.input[1] not in groups.inputs or scaled is None or weighed is None:
        return
    if of_keys is None or of_keys.multiplied != product.input[0]:
        return
    if groups.number(scaled.input[1]) is None or weighed.beside.index != of_keys.index:
        return
    names = flat.same.get(scaled.input[0], scaled.input[0]), product.input[1], weighed.values
    sizes = _heads(groups, names[0])
    if sizes is None or flat.sizes - {sizes} or of_keys.size != weighed.beside.size:
        return
    if of_keys.size[1] != sizes[1]:
        return
    axes = HEADS_FIRST, KEYS_LAST, HEADS_FIRST
    apart = [flat_before_heads(groups, n, a, sizes[0]) for n, a in zip(names, axes, strict=True)]
    written = None if None in apart else written_caches(groups, *map(str, apart))
    if written is None:
        return
    split, key, value = written
    caches, tables = (key.input[0], value.input[0]), (of_keys.table, weighed.beside.table)
    places = key.input[2], masked.input[1], of_keys.places
    inputs = (split.input[0], *caches, *places, *tables, scaled.input[1])
    outputs = (weighed.merged, key.output[0], value.output[0])
    group = groups.between((*inputs, *flat.shapes, of_keys.index), outputs)
    group.insert(0, groups.producers[of_keys.index])  # all layers share it; bodies must be equal
    groups.replace_rounded(group, Call("RelativeTreeAttention", inputs, outputs, same=flat.same))


class _Flat:
    """Values that are made flat and get their own shape back, [B,H,Q,E]."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.same: dict[str, str] = {}
        """What the body reads in place of values that only a reshape leads to."""
        self.shapes: list[str] = []
        """The shapes that flat values get back."""
        self.sizes: set[tuple[int, int]] = set()
        """Heads and their width, as in these shapes."""

    def computed(self, name: str, kind: str) -> NodeProto | None:
        """The operator of this kind that gives a value: either it computes on flat values, and this
        is the result in its own shape, or nothing is made flat."""
        node: NodeProto | None = self._groups.producers.get(name)
        shape: NodeProto | None = None
        if node is not None and node.op_type == "Reshape":
            shape, name = node, node.input[0]
            node = self._groups.producers.get(name)
        if node is None or node.op_type != kind:
            return None
        variable = [each for each in node.input if each not in self._groups.constants]
        made_flat = [self._made_flat(each) for each in variable]
        if shape is None:
            return None if any(made_flat) else node
        if not all(made_flat) or not self._has_own_shape(shape):
            return None
        self.same |= {each: str(before) for each, before in zip(variable, made_flat, strict=True)}
        self.same[shape.output[0]] = name
        return node

    def _made_flat(self, name: str) -> str | None:
        """The value that is made flat, [M,E], to give this one; None if it is not."""
        before = self._groups.chain_before(name, ("Reshape",))
        shape = self._groups.constants.get(before[0].input[1]) if before else None
        if before is None or shape is None or list(shape.dims) != [2]:
            return None
        return str(before[0].input[0])

    def _has_own_shape(self, reshape: NodeProto) -> bool:
        """Whether a flat value gets the shape [B,H,Q,E] back."""
        sizes = self._groups.producers.get(reshape.input[1])
        if sizes is None or sizes.op_type != "Concat" or len(sizes.input) != 4:
            return False
        heads, width = (self._groups.constants.get(sizes.input[axis]) for axis in (1, 3))
        if heads is None or width is None:
            return False
        self.shapes.append(reshape.input[1])
        self.sizes.add((numpy_helper.to_array(heads).item(), numpy_helper.to_array(width).item()))
        return True


@dataclass(frozen=True)
class _LookedUp:
    """The product of a value [B,H,Q,*] with vectors that are looked up for each query."""

    multiplied: str
    table: str
    places: str
    """Where in the table they are, [B,Q,C]."""
    index: str
    """The same, [B,Q,C,1]."""
    size: tuple[int, int]
    """Rows of the table, and their width."""


@dataclass(frozen=True)
class _Weighed:
    """What a Softmax weighs."""

    values: str
    """The values of keys, [B,H,C,E]."""
    beside: _LookedUp
    merged: str
    """The result, [B,Q,D]."""


def _looked_up(groups: Groups, name: str, axes: list[int] | None = None) -> _LookedUp | None:
    """How a value [B,H,Q,M] comes from vectors of distances, whose axes are turned to `axes`."""
    chain = groups.chain_before(name, ("Transpose", "MatMul", "Transpose"))
    if chain is None or not turns(chain[0], HEADS_FIRST) or not turns(chain[2], HEADS_FIRST):
        return None
    vectors = chain[1].input[1]
    if axes is not None:
        turned = groups.chain_before(vectors, ("Transpose",))
        if turned is None or not turns(turned[0], axes):
            return None
        vectors = turned[0].input[0]
    found = groups.chain_before(vectors, ("GatherND",))
    places = groups.producers.get(found[0].input[1]) if found else None
    table = groups.constants.get(found[0].input[0]) if found else None
    if found is None or table is None or places is None or places.op_type != "Unsqueeze":
        return None
    if len(table.dims) != 2 or integer_attribute(found[0], "batch_dims"):
        return None
    if groups.axis_of(places) not in (-1, 3):
        return None
    (name, index), (rows, width) = found[0].input, table.dims
    return _LookedUp(chain[2].input[0], name, places.input[0], index, (rows, width))


def _weighed(groups: Groups, node: NodeProto, flat: _Flat) -> _Weighed | None:
    """What the weights of a Softmax are for: the values of keys and the vectors of distances."""
    products = [user for user in groups.users[node.output[0]] if user.op_type == "MatMul"]
    if len(products) != 1 or len(groups.users[node.output[0]]) != 2:
        return None
    if node.output[0] in groups.outputs:
        return None
    after = groups.chain_after(products[0].output[0], ("Add",))
    after = after or groups.chain_after(products[0].output[0], ("Reshape", "Add"))
    if after is None or products[0].input[0] != node.output[0]:
        return None
    end = groups.chain_after(after[-1].output[0], ("Transpose", "Reshape"))
    end = end or groups.chain_after(after[-1].output[0], ("Reshape", "Transpose", "Reshape"))
    if end is None or not turns(end[-2], HEADS_FIRST) or not has_three_axes(groups, end[-1]):
        return None
    total = flat.computed(end[-2].input[0], "Add")
    if total is None:
        return None
    own, other = (flat.same.get(name, name) for name in total.input)
    beside = _looked_up(groups, other)
    if own != products[0].output[0] or beside is None or beside.multiplied != node.output[0]:
        return None
    return _Weighed(products[0].input[1], beside, end[-1].output[0])


def _heads(groups: Groups, name: str) -> tuple[int, int] | None:
    """Heads and their width of a value [B,H,*,E] that has just been divided."""
    chain = groups.chain_before(name, ("Transpose", "Reshape"))
    shape = groups.constants.get(chain[1].input[1]) if chain else None
    sizes = [] if shape is None else numpy_helper.to_array(shape).tolist()
    return (sizes[2], sizes[3]) if len(sizes) == 4 else None
