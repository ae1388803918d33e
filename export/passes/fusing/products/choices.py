"""Fuses all operators between logits and the tokens that are chosen from them."""

from __future__ import annotations

from onnx import NodeProto

from export.passes.fusing.functions import Call
from export.passes.fusing.groups import Groups
from export.passes.fusing.products.listed_logits import COLUMNS

_TOP_TOKENS = ("top_scores", "top_tokens", "label_scores")
_CANDIDATES = ("candidate_scores", "candidate_tokens", "candidate_parents", "label_scores")
_SHORTLIST_CANDIDATES = _CANDIDATES[:3]
_SHAPED = {"positions": "label_ids", "token_ids": "label_ids"}
"""Inputs of shape [B,Q] that can replace each other where only their shape is read."""


def fuse_candidates(groups: Groups, node: NodeProto) -> None:
    """The candidates of a beam search.

    before    logits -> LogSoftmax -> Add scores -> ... -> TopK -> ... -> candidates
    after     logits, scores, label_ids -> Candidates -> candidates, label_scores
    """
    if not groups.outputs.issuperset(_CANDIDATES):
        return
    inside = groups.between([node.input[0]], _CANDIDATES)
    inputs = (node.input[0], "scores", "label_ids")
    groups.replace(inside, Call("Candidates", inputs, _CANDIDATES, _SHAPED))


def fuse_shortlist_candidates(groups: Groups, node: NodeProto) -> None:
    """The candidates of a beam search among the columns in each sentence's list.

    before    logits -> Where (columns < 0) -> LogSoftmax -> ... -> TopK -> ... -> candidates
    after     logits, columns, scores -> ShortlistCandidates -> candidates
    """
    hidden = groups.producers.get(node.input[0])
    if hidden is None or hidden.op_type != "Where" or COLUMNS not in groups.inputs:
        return
    name = hidden.input[2]
    inside = groups.between([name], _SHORTLIST_CANDIDATES)
    inputs = (name, COLUMNS, "scores")
    same = groups.sized_by("scores", inside)
    groups.replace(inside, Call("ShortlistCandidates", inputs, _SHORTLIST_CANDIDATES, same))


def fuse_top_tokens(groups: Groups, node: NodeProto) -> None:
    """The likeliest tokens of a language model.

    before    logits -> LogSoftmax -> TopK -> ... -> top_scores, top_tokens
    after     logits, label_ids, top_ranks -> TopTokens -> top_scores, top_tokens, label_scores
    """
    if not groups.outputs.issuperset(_TOP_TOKENS):
        return
    inside = groups.between([node.input[0]], _TOP_TOKENS)
    inputs = (node.input[0], "label_ids", "top_ranks")
    groups.replace(inside, Call("TopTokens", inputs, _TOP_TOKENS, {"output_index": "label_ids"}))
