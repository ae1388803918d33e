"""Products with each sentence's own rows of a table, as `lower_listed_logits` writes them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups

COLUMNS = "columns"
"""The extra input of a step graph that chooses from shortlists."""
_LISTED = (
    ("Transpose", "Gather"),
    ("Transpose", "Split", "Gather"),
    ("BitwiseXor", "Cast", "Transpose", "Gather"),
)
"""The operators before a product with listed rows of a table, from the last to the first: the
product is of floats, of parts of them, or of integers."""


def fuse_listed_logits(groups: Groups, node: NodeProto) -> None:
    """Gather and multiply at once.

    before    columns -> Gather E -> Transpose -> MatMul x
    after     x, E, columns -> ShortlistLogits

    before    columns -> Gather E s8 -> ... -> MatMulInteger x u8 -> Cast -> Mul scales
    after     x u8, its scale, E s8, scales, zero point, columns -> ShortlistLogitsInteger

    With a bias, as columns -> Gather b -> Unsqueeze -> Add, they are BiasedShortlistLogits and
    BiasedShortlistLogitsInteger, whose last input is b.
    """
    chains = (groups.chain_before(node.input[1], kind) for kind in _LISTED)
    chain = next(filter(None, chains), None)
    if chain is None or chain[-1].input[1] != COLUMNS or COLUMNS not in groups.inputs:
        return
    if node.op_type == "MatMul":
        _fuse_floats(groups, node, chain)
    else:
        _fuse_integers(groups, node, chain)


def _fuse_floats(groups: Groups, product: NodeProto, chain: list[NodeProto]) -> None:
    """Fuse the product; if it is the first of products of parts, fuse their sum."""
    rows, output = product.input[0], product.output[0]
    if len(chain) == 3:
        rows = groups.producers[rows].input[0]
        sums = groups.chain_after(output, ["Add"] * (len(chain[1].output) - 1))
        if sums is None:
            return
        output = sums[-1].output[0]
    inside = groups.between([rows], [output])
    _replace(groups, inside, Call("ShortlistLogits", (rows, *chain[-1].input), [output]))


def _fuse_integers(groups: Groups, product: NodeProto, chain: list[NodeProto]) -> None:
    """The product with the scaling that follows it."""
    scaled = groups.chain_after(product.output[0], ("Cast", "Mul"))
    if scaled is None:
        return
    both = groups.chain_before(scaled[1].input[1], ("Mul", "Unsqueeze", "Gather"))
    if both is None:
        return
    group = [*chain[::-1], product, scaled[0], *both[::-1], scaled[1]]
    row_scale, (scales, columns) = both[0].input[1], both[2].input
    rows, table, zero_point = product.input[0], chain[-1].input[0], product.input[2]
    inputs = (rows, row_scale, table, scales, zero_point, columns)
    _replace(groups, group, Call("ShortlistLogitsInteger", inputs, scaled[1].output))


def _replace(groups: Groups, group: list[NodeProto], call: Call) -> None:
    """Replace a group and the bias that follows it, if there is one, by a call."""
    added = groups.chain_after(call.outputs[0], ("Add",))
    biases = groups.chain_before(added[0].input[1], ("Unsqueeze", "Gather")) if added else None
    if added is not None and biases is not None and biases[1].input[1] == COLUMNS:
        group = [*group, *biases[::-1], *added]
        inputs = (*call.inputs, biases[1].input[0])
        call = Call(f"Biased{call.name}", inputs, added[0].output)
    groups.replace(group, call)
