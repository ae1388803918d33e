"""A language model of pseudo-random numbers behind a scheduler's idea of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from serving.generation.prompts import PromptProcessor
from serving.generation.running import RunningPrompts
from serving.runtime.session import ON_CPU
from serving.search.sampling.drawing import TOP
from serving.search.sampling.prompts import LanguageOutputs, Prompted, PromptScores, chunks
from serving.search.stepper import BeamArrays, StepInputs
from tests.unit.serving.echo import ByteTokenizer, echo_manifest
from tests.unit.serving.search.fake_stepper import FakeModel, FakeState, FakeStepper


class LanguageFakeState(FakeState):
    """Knows its capacity under the name by which batches of language models ask for it."""

    @property
    def caches(self) -> SimpleNamespace:
        """What they ask."""
        return SimpleNamespace(capacity=self.cache_BC2.shape[1])


class FakeLanguageStepper(FakeStepper):
    """`before_step` is called before each step of the sampled batch; `given_up` counts readings
    that were closed before their end."""

    checks_guesses = False
    given_up = 0

    def __init__(self) -> None:
        super().__init__(FakeModel(vocab_size=260, eos_bias=3.0), one_query_first=False)
        self.before_step: Callable[[], None] = lambda: None

    def cache_bytes(self, rows: int, source_length: int, slots: int) -> int:
        """A byte a slot."""
        return rows * slots

    def encode(self, sources: Sequence[Sequence[int]]) -> LanguageFakeState:
        """Empty caches."""
        return LanguageFakeState([()] * len(sources), np.zeros((len(sources), 0, 2), np.int64))

    def read(
        self, prompts: Sequence[Sequence[int]], labels: Sequence[Sequence[int]] | None = None
    ) -> Generator[None, None, tuple[Prompted, PromptScores | None]]:
        """All in the first chunk; the others are there to be waited for."""
        state, longest = self.encode(prompts), max(map(len, prompts))
        state.resize(longest)
        label_scores = np.zeros((len(prompts), longest), np.float32)
        for row, ids in enumerate(prompts):
            slots = tuple(enumerate(ids))
            state.cache_BC2[row, : len(ids)] = np.array(slots).reshape(-1, 2)
            for place, label in enumerate(labels[row] if labels is not None else ()):
                label_scores[row, place] = self.model.log_probs((), slots[: place + 1])[label]
        try:
            for _ in range(chunks(prompts[0])):
                yield
        except GeneratorExit:
            self.given_up += 1
            raise
        nothing = np.zeros((*label_scores.shape, 0))
        scores = PromptScores(label_scores, nothing.astype(np.float32), nothing.astype(np.int32))
        used_B = np.array([len(ids) for ids in prompts], np.int64)
        return Prompted(state, longest, used_B, 0), scores if labels is not None else None

    def bind_next(self, state: FakeState, rows: BeamArrays, top: int) -> None:
        """Every step goes through `next`."""

    def next(self, state: FakeState, inputs: StepInputs, top: int) -> LanguageOutputs:
        """The distribution after each row's token."""
        assert not state.freed
        self.before_step()
        state.resize(inputs.visible_BQC.shape[2])
        state.write(inputs.write_index_B, inputs.positions_BQ, inputs.token_ids_BQ)
        logits_BV = np.stack(
            [
                self.model.logits((), state.seen(row, c))
                for row, (c,) in enumerate(inputs.visible_BQC)
            ]
        )
        scores_BV = logits_BV - np.log(np.exp(logits_BV).sum(axis=1, keepdims=True))
        order_BT = np.argsort(-scores_BV, axis=1, kind="stable")[:, : min(top, TOP)]
        best_BT = np.take_along_axis(scores_BV, order_BT, axis=1)
        return LanguageOutputs(best_BT, order_BT.astype(np.int32), logits_BV)


class FakeGenerator:
    """A bundle of the fake model; texts are bytes."""

    device = ON_CPU

    def __init__(self) -> None:
        self.stepper: Any = FakeLanguageStepper()
        self.sizes = self.stepper
        manifest = echo_manifest(
            "fake-lm", task="generate", family="lm", decoder_kind="lm", search={}
        )
        self.prompts = PromptProcessor(manifest, ByteTokenizer())

    def engine(self) -> RunningPrompts:
        """Decodes on the thread that calls it."""
        return RunningPrompts(self.prompts, self.stepper)
