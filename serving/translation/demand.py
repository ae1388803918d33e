"""What decoding a sentence asks of a batch."""

from __future__ import annotations

from serving.queue.limits import Demand
from serving.search.prefix_tree import most_slots
from serving.search.sentence import Sentence
from serving.search.stepper import CacheCosts


def demand(sentence: Sentence, sizes: CacheCosts) -> Demand:
    """What decoding a sentence may take."""
    beam_size, shortlisted = sentence.group
    prefix = len(sentence.target_prefix)
    slots = most_slots(prefix, beam_size, sentence.max_steps, sizes.repack_every)
    return Demand(beam_size, len(sentence.source), slots, shortlisted)
