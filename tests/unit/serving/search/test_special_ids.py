"""A vocabulary whose end and start are elsewhere gives the same search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from serving.arrays import Floats, Ints
from serving.search.beams.beam import decode
from serving.search.beams.constraints import Constraints
from serving.search.beams.sentence import Sentence
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from tests.unit.serving.search.fake_stepper import FakeModel, FakeStepper, Slots

OWN = np.arange(12)
THEIRS = np.array([11, 1, 2, 0, *range(4, 10), 3, 10])
"""Where each id of ours is there: the end is 0, what was padding 11."""


@dataclass
class Renumbered(FakeModel):
    """The same model with other ids."""

    def logits(self, source: tuple[int, ...], slots: Slots) -> Floats:
        """[V]"""
        back = np.argsort(THEIRS).tolist()
        own = super().logits(
            tuple(back[i] for i in source), tuple((place, back[i]) for place, i in slots)
        )
        return own[back]


OPTIONS = {
    "plain": SearchOptions(beam_size=3, num_hypotheses=3, max_length=9),
    "edited": SearchOptions(
        beam_size=3, num_hypotheses=3, min_length=3, max_length=9, repetition_penalty=1.3
    ),
    "alone": SearchOptions(beam_size=1, max_length=9),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("required", [(), ((5, 6),)])
def test_ids_are_names_alone(name: str, required: tuple[tuple[int, ...], ...]) -> None:
    def search(ids: Ints, model: FakeModel) -> list[tuple[tuple[int, ...], float]]:
        terms = Constraints(tuple(tuple(ids[list(term)].tolist()) for term in required))
        sentences = [
            Sentence(
                ids[[*source, EOS_ID]].tolist(),
                OPTIONS[name],
                ids[prefix].tolist(),
                start=int(ids[BOS_ID]),
                ends=(int(ids[EOS_ID]),),
                constraints=terms if required else None,
            )
            for source, prefix in (([4, 5], []), ([6, 7, 8], [7]), ([9], [4, 5]))
        ]
        found = decode(FakeStepper(model), sentences)
        back = np.argsort(ids)
        return [
            (tuple(back[list(h.tokens)].tolist()), round(h.score, 4))
            for each in found
            for h in each.hypotheses
        ]

    own = search(OWN, FakeModel(seed=3, eos_bias=1.0))
    assert search(THEIRS, Renumbered(seed=3, eos_bias=1.0)) == own
    assert len({tokens for tokens, _ in own}) > 2
