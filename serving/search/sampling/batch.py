"""A running batch of outputs that are sampled token by token. Rows join and leave between steps.

Shape letters: B rows, T likeliest tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from serving.arrays import Ints
from serving.errors import DecodingError, InvalidOptionError, ServingError
from serving.search.ids import EOS_ID
from serving.search.prefix_tree import PrefixTree, Repack
from serving.search.sampling.drawing import (
    Drawing,
    Uniforms,
    draw_from_logits,
    draw_from_top,
    edit_logits,
    listed_tokens,
    needs_logits,
    never_needs_logits,
)
from serving.search.sampling.lookahead import GUESSED, Lookahead
from serving.search.sampling.prompts import LanguageOutputs, Prompted, PromptScores, chunks
from serving.search.sampling_options import GenerationOptions
from serving.search.stepper import BeamArrays, BoundSteps, State, StepInputs, Stepper


class SamplingStepper(Stepper, Protocol):
    """A language model: it reads prompts into new caches, and continues rows with one query
    each."""

    def start(self, prompts: Sequence[Sequence[int]]) -> Prompted:
        """Read prompts that take the same number of chunks (`chunks`)."""
        ...

    def score(
        self, prompts: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]
    ) -> tuple[Prompted, PromptScores]:
        """Read prompts likewise, and score the token that follows each of their tokens."""
        ...

    def next(self, state: State, inputs: StepInputs, top: int) -> LanguageOutputs:
        """Append one token to each row. Returns the next distributions with their `top` likeliest
        tokens, or with all tokens if there are fewer."""
        ...

    def bind_next(
        self, state: State, rows: BeamArrays, top: int
    ) -> tuple[BoundSteps, LanguageOutputs] | None:
        """Steps on these arrays that do what `next` does, and the arrays that each run writes its
        outputs to; None if the stepper has none."""
        ...

    @property
    def checks_guesses(self) -> bool:
        """Whether `follow` is supported and equal to `next` to the bit."""
        ...

    def follow(self, state: State, inputs: StepInputs, top: int) -> LanguageOutputs:
        """Append several tokens to the only row, one after another. Returns the distribution after
        each, one per row."""
        ...


class Generated(NamedTuple):
    """One token of an output, or the reason why the output ended."""

    key: int
    """The key that the caller gave the output."""
    token: int = 0
    log_prob: float = 0.0
    """Log-probability under the model's own distribution, before penalties and temperature."""
    top: tuple[tuple[int, float], ...] = ()
    """The `num_logprobs` likeliest tokens with their log-probabilities."""
    error: ServingError | None = None


@dataclass
class SampledOutput:
    """An output that is sampled in one row of a batch."""

    key: int
    """The caller's name for the output, unique within a batch."""
    prompt: Sequence[int]
    """Token ids, at least one."""
    options: GenerationOptions
    uniforms: Uniforms
    """The random numbers for its tokens, one per step."""
    ends: tuple[int, ...] = (EOS_ID,)
    """The ids that end a text."""
    tokens: list[int] = field(default_factory=list)
    """The tokens sampled so far."""
    listed: int = field(init=False)
    """Number of the likeliest tokens that a draw considers, even if a step lists more for other
    outputs."""
    always_listed: bool = field(init=False)
    """Whether this many tokens suffice at every step, whatever the distribution."""
    lookahead: Lookahead = field(init=False, default_factory=Lookahead)
    """The guesses at the next tokens."""

    def __post_init__(self) -> None:
        self.listed = listed_tokens(self.options)
        self.always_listed = never_needs_logits(self.options)


class GenerationBatch:
    """Outputs that are continued together until their caller removes them. A step adds one token,
    or several if there is only one output and the next tokens were guessed (`Lookahead`)."""

    _tree: PrefixTree
    """The slots of each row. Without a state it is the tree of the last output."""

    def __init__(self, stepper: SamplingStepper, *, guesses: bool = False) -> None:
        """Create an empty batch. With `guesses`, tokens are guessed if the stepper can check
        them."""
        self._stepper, self._guesses = stepper, guesses and stepper.checks_guesses
        self._outputs: list[SampledOutput | None] = []
        """The output of each row; None for an idle row."""
        self._state: State | None = None
        self._standing: _Standing | None = None
        """None after the outputs in the rows have changed."""
        self._bound: _Bound | None = None
        self._may_bind = True

    def __len__(self) -> int:
        """Number of outputs in the batch."""
        return sum(output is not None for output in self._outputs)

    @property
    def capacity(self) -> int:
        """Number of cache slots per row; 0 without rows."""
        return self._tree.capacity if self._state is not None else 0

    def add(self, outputs: Sequence[SampledOutput]) -> None:
        """Add outputs. A prompt that several of them share is read only once."""
        groups: dict[int, dict[tuple[int, ...], list[SampledOutput]]] = {}
        for output in outputs:
            context = tuple(output.prompt[:-1])  # the last token goes through the first step
            groups.setdefault(chunks(context), {}).setdefault(context, []).append(output)
        for prompts in groups.values():
            self.join(list(prompts.values()), self._stepper.start(list(prompts)))

    def remove(self, key: int) -> None:
        """Remove the output with this key, if it is in the batch. Its row becomes idle."""
        for row, output in enumerate(self._outputs):
            if output is not None and output.key == key:
                self._outputs[row] = self._standing = None
                self._tree.clear(row)

    def step(self) -> list[Generated]:
        """The next token of every output, followed by the tokens that were guessed right. An output
        with a broken distribution gets an error and leaves."""
        self._repack()
        if self._state is None:
            return []
        if self._standing is None:
            self._standing = _Standing(self._outputs)
        standing = self._standing
        guess = self._guess(standing)
        if guess:
            return self._follow(guess, self._state, standing)
        for row, output in standing.live:
            standing.tokens_B1[row, 0] = (output.tokens or output.prompt)[-1]
        bound = self._bind(self._state, standing)
        if bound is not None:
            bound.steps.run()
            bound.steps.grow(standing.parents_B1)
            self._tree.went_on(1)
            return self._draw(bound.found, standing)
        inputs = step_inputs(self._tree, standing.tokens_B1[:, 0])
        found = self._stepper.next(self._state, inputs, standing.top)
        self._tree.advance(standing.parents_B1, standing.queries_B)
        return self._draw(found, standing)

    def close(self) -> None:
        """Remove all outputs and free the memory."""
        if self._state is not None:
            self._stepper.free(self._state)
        self._outputs, self._state, self._standing, self._bound = [], None, None, None

    def join(self, sharers: Sequence[Sequence[SampledOutput]], prompted: Prompted) -> None:
        """Add outputs whose prompts have been read except for the last token; those in `sharers[i]`
        share the i-th prompt."""
        state, used_B = prompted.state, prompted.used_B
        counts = [len(outputs) for outputs in sharers]
        if counts != [1] * len(counts):
            rows = np.repeat(np.arange(len(counts)), counts)
            slots = np.broadcast_to(np.arange(prompted.capacity), (len(rows), prompted.capacity))
            used_B = used_B[rows]
            self._stepper.repack(state, Repack(rows, slots, used_B, in_place=False))
        tree = PrefixTree(
            used_B,
            1,
            self._stepper.repack_every,
            reach=self._stepper.reach,
            lookback=self._stepper.lookback,
            first_position=prompted.first_position,
            spare=self._stepper.spare_slots,
        )
        joining = [output for outputs in sharers for output in outputs]
        idle = [row for row, output in enumerate(self._outputs) if output is None][: len(joining)]
        for row, output in zip(idle, joining, strict=False):
            self._outputs[row] = output
        self._outputs += joining[len(idle) :]
        self._standing = None
        if self._state is None:
            self._state, self._tree = state, tree
        else:
            rows = np.array(idle, dtype=np.int64)
            self._stepper.extend(self._state, state, rows)
            self._tree.extend(tree, rows)

    def _repack(self) -> None:
        """Drop slots that are out of reach if that is due, and idle rows if more than a quarter are
        idle."""
        if self._state is None:
            return
        if self._standing is not None:
            if not self._tree.due:
                return
            if self._repacked_in_place(self._standing):
                return
        live = [row for row, output in enumerate(self._outputs) if output is not None]
        if not live:
            self.close()
            return
        idle = len(self._outputs) - len(live)
        rows = np.array(live if idle * 4 > len(self._outputs) else range(len(self._outputs)))
        repack = self._tree.repack(rows)
        if repack is None:
            return
        if not repack.in_place:
            self._bound = None  # it holds the arrays that the stepper replaces
        self._stepper.repack(self._state, repack)
        if len(rows) < len(self._outputs):
            self._outputs, self._standing = [self._outputs[row] for row in rows], None

    def _repacked_in_place(self, standing: _Standing) -> bool:
        """Whether the bound steps have dropped the slots."""
        bound, tree = self._bound, self._tree
        return bool(bound and bound.holds(standing, tree) and tree.repack_bound(bound.steps))

    def _bind(self, state: State, standing: _Standing) -> _Bound | None:
        """Steps on the present arrays; None if the stepper has none."""
        tree = self._tree
        if not self._may_bind or (self._bound and self._bound.holds(standing, tree)):
            return self._bound
        self._bound = None  # it holds the arrays that the stepper may replace
        rows = BeamArrays(
            standing.tokens_B1,
            tree.next_positions[:, None],
            np.zeros(standing.tokens_B1.shape, dtype=np.float32),
            standing.queries_B,
            np.zeros_like(standing.queries_B),
            standing.queries_B > 0,
            *tree.arrays,
            tree.repack_every,
            tree.reach,
            [()] * len(standing.queries_B),
        )
        made = self._stepper.bind_next(state, rows, standing.top)
        self._may_bind = made is not None
        self._bound = made and _Bound(*made, standing, tree.layout)
        return self._bound

    def _guess(self, standing: _Standing) -> list[int]:
        """The guesses for the only output; empty if there are several outputs or no room."""
        tree = self._tree
        if not self._guesses or len(self._outputs) > 1 or tree.steps_left < 2:
            return []
        if tree.used[0] + 1 + GUESSED > tree.capacity:
            return []
        _, output = standing.live[0]
        return output.lookahead.guess(output.prompt, output.tokens)

    def _follow(self, guess: list[int], state: State, standing: _Standing) -> list[Generated]:
        """Draw the next token of the only output, and continue as long as the guesses are right.
        Slots of wrong guesses are overwritten."""
        _, output = standing.live[0]
        inputs = follow_inputs(self._tree, [(output.tokens or output.prompt)[-1], *guess])
        found = self._stepper.follow(state, inputs, standing.top)
        events: list[Generated] = []
        while len(events) < min(1 + len(guess), self._tree.steps_left):
            if events and events[-1].token != guess[len(events) - 1]:
                break
            if events and (
                events[-1].token in output.ends or len(output.tokens) >= output.options.max_length
            ):
                break
            events += self._draw(found.of(len(events)), standing)
            if events[-1].error is not None:
                return events
        for _ in events:
            self._tree.write()
            self._tree.advance(standing.parents_B1, standing.queries_B)
        output.lookahead.note(len(events) - 1)
        return events

    def _draw(self, found: LanguageOutputs, standing: _Standing) -> list[Generated]:
        """Choose the next token of each output and add it; those that fail leave the batch."""
        events: list[Generated] = []
        listed: list[tuple[int, SampledOutput]] = []
        vocab_size = found.logits_BV.shape[1]
        best_B = found.top_scores_BT[:, 0].tolist()
        for row, output in standing.live:
            if not math.isfinite(best_B[row]):
                error = DecodingError("the model gave a non-finite score for this prompt")
                events.append(Generated(output.key, error=error))
            elif output.always_listed or not needs_logits(
                output.options, found.top_scores_BT[row, : output.listed], vocab_size
            ):
                listed.append((row, output))
            else:
                events.append(_draw_alone(output, row, found))
        if listed:
            events += _draw_together(listed, found, standing)
        for event in events:
            if event.error is not None:
                self.remove(event.key)
        return events


class _Standing:
    """Data that a step needs about its outputs. It is computed once while the rows stay the
    same."""

    def __init__(self, outputs: Sequence[SampledOutput | None]) -> None:
        self.live = [(row, output) for row, output in enumerate(outputs) if output is not None]
        self.top = max(output.listed for _, output in self.live)
        """Number of the likeliest tokens that a step lists in every row."""
        self.tokens_B1 = np.zeros((len(outputs), 1), dtype=np.int64)
        """The token that each output feeds into the next step."""
        self.parents_B1 = np.zeros((len(outputs), 1), dtype=np.int32)
        self.queries_B = np.array([output is not None for output in outputs], dtype=np.int64)
        self._drawing: tuple[tuple[int, ...], Drawing] | None = None

    def drawing(self, listed: Sequence[tuple[int, SampledOutput]], count: int) -> Drawing:
        """The options for drawing from `count` listed tokens. The last result is cached, because
        the next call is usually the same."""
        key = (count, *(row for row, _ in listed))
        if self._drawing is None or self._drawing[0] != key:
            self._drawing = key, Drawing.of([output.options for _, output in listed], count)
        return self._drawing[1]


@dataclass(frozen=True)
class _Bound:
    """Steps bound to the arrays of the present outputs and to one layout of the tree."""

    steps: BoundSteps
    found: LanguageOutputs
    """The outputs, which each run overwrites."""
    standing: _Standing
    layout: int

    def holds(self, standing: _Standing, tree: PrefixTree) -> bool:
        """Whether the arrays are still the same ones, and the caches still in the same place."""
        same = standing is self.standing and tree.layout == self.layout
        return same and self.steps.is_current()


def step_inputs(tree: PrefixTree, tokens_B: Ints) -> StepInputs:
    """The inputs of a step that appends these tokens, one query per row. Each gets its slot in the
    tree."""
    return StepInputs(
        token_ids_BQ=tokens_B[:, None],
        positions_BQ=tree.next_positions[:, None],
        write_index_B=tree.write(),
        visible_BQC=tree.visible,
        scores_BK=np.zeros((len(tokens_B), 1), dtype=np.float32),
        slot_positions_BC=tree.slot_positions,
        ancestors_BQW=tree.query_ancestors(1),
    )


def follow_inputs(tree: PrefixTree, tokens: Sequence[int]) -> StepInputs:
    """The inputs of a step that appends these tokens to a tree's only row, one after another. The
    tree does not change."""
    queries = np.arange(len(tokens))
    slots, causal_QQ = tree.used[0] + queries, queries <= queries[:, None]
    visible_QC = np.repeat(tree.visible[0], len(tokens), axis=0)
    visible_QC[:, slots] = np.where(causal_QQ, np.float32(0), np.float32(-np.inf))
    positions_BQ, slot_positions_BC = (
        tree.next_positions + queries[None],
        tree.slot_positions.copy(),
    )
    slot_positions_BC[:, slots] = positions_BQ
    return StepInputs(
        token_ids_BQ=np.array([tokens], dtype=np.int64),
        positions_BQ=positions_BQ,
        write_index_B=tree.used,
        visible_BQC=visible_QC[None],
        scores_BK=np.zeros((1, 1), dtype=np.float32),
        slot_positions_BC=slot_positions_BC,
    )


def _draw_together(
    listed: Sequence[tuple[int, SampledOutput]], found: LanguageOutputs, standing: _Standing
) -> list[Generated]:
    """Draw the next tokens of all outputs for which the listed tokens suffice, at once."""
    scores_BT, count = found.top_scores_BT, found.top_scores_BT.shape[1]
    places = [0] * len(listed)
    if count > 1:
        if len(listed) < len(scores_BT):
            scores_BT = scores_BT[[row for row, _ in listed]]
        uniforms = [output.uniforms[len(output.tokens)] for _, output in listed]
        places = draw_from_top(scores_BT, standing.drawing(listed, count), uniforms)
    events = []
    for (row, output), place in zip(listed, places, strict=True):
        token = found.top_tokens_BT.item(row, place)
        score = found.top_scores_BT.item(row, place)
        output.tokens.append(token)
        top = _top(output, row, found) if output.options.num_logprobs else ()
        events.append(Generated(output.key, token, score, top))
    return events


def _draw_alone(output: SampledOutput, row: int, found: LanguageOutputs) -> Generated:
    """Draw one output's next token from its whole distribution, after its options edited it."""
    logits_V = found.logits_BV[row].copy()
    edit_logits(logits_V, output.prompt, output.tokens, output.options, output.ends)
    if not np.isfinite(logits_V.max()):
        reason = "the options leave no token that could continue this prompt; relax them"
        return Generated(output.key, error=InvalidOptionError(reason))
    token = draw_from_logits(logits_V, output.options, output.uniforms[len(output.tokens)])
    output.tokens.append(token)
    top_scores_T = found.top_scores_BT[row, : output.listed]
    top_tokens_T = found.top_tokens_BT[row, : output.listed]
    places = np.flatnonzero(top_tokens_T == token)
    if places.size:
        log_prob = float(top_scores_T[places[0]])
    else:
        logits_V = found.logits_BV[row]
        log_prob = float(logits_V[token] - (logits_V[top_tokens_T[0]] - top_scores_T[0]))
    return Generated(output.key, token, log_prob, _top(output, row, found))


def _top(output: SampledOutput, row: int, found: LanguageOutputs) -> tuple[tuple[int, float], ...]:
    """The likeliest tokens of a row that the output reports."""
    count = output.options.num_logprobs
    tokens, scores = found.top_tokens_BT[row, :count], found.top_scores_BT[row, :count]
    return tuple(zip(tokens.tolist(), scores.tolist(), strict=True))
