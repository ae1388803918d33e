"""Alternatives at one position: the most probable next tokens, each continued by a search."""

from __future__ import annotations

from dataclasses import replace

from serving.search.beams.sentence import Finished, Sentence


def first_tokens(sentence: Sentence) -> Sentence:
    """A sentence whose one-step search finds the most probable first tokens of this one, which has
    `return_alternatives`. Its `first_of` is this one."""
    options, constraints = sentence.options, sentence.constraints
    beams = options.num_hypotheses + 1  # the end may be among them
    one_step = replace(
        options,
        beam_size=beams,
        num_hypotheses=beams,
        length_penalty=0.0,
        coverage_penalty=0.0,
        min_length=0,
        max_length=1,
        patience=1.0,
        loop_guard=False,
        return_alternatives=False,
    )
    return replace(
        sentence,
        options=one_step,
        constraints=constraints and constraints.without_required,
        text=None,
        original=None,
        first_of=sentence,
    )


def continuations(sentence: Sentence, finished: Finished) -> list[Sentence]:
    """The sentences that continue each of the first tokens, most probable first; empty if only the
    end can follow. `sentence` comes from `first_tokens`, and `finished` is its result."""
    whole = sentence.first_of
    if whole is None:
        raise ValueError("only a sentence that looks for first tokens has continuations")
    options = replace(whole.options, num_hypotheses=1, return_alternatives=False)
    tokens = [found.tokens for found in finished.hypotheses if not found.finished]
    return [
        replace(whole, options=options, target_prefix=prefix, counted=1)
        for prefix in tokens[: whole.options.num_hypotheses]
    ]
