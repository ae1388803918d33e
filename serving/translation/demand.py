"""What decoding a sentence asks of a batch."""

from __future__ import annotations

from serving.queue.limits import Demand
from serving.search.prefix_tree import most_slots
from serving.search.sentence import Sentence
from serving.search.stepper import CacheCosts


def demand(sentence: Sentence, sizes: CacheCosts) -> Demand:
    """What decoding a sentence may take."""
    options, length = sentence.options, len(sentence.source)
    slots = most_slots(
        len(sentence.target_prefix),
        options.beam_size,
        sentence.max_steps,
        sizes.repack_every,
    )
    return Demand(options.beam_size, length, slots, sentence.shortlisted)
