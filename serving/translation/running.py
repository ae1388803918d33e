"""Sentences being decoded: running batches, which others join and leave between steps.

Sentences of one beam size are decoded together, with and without shortlists apart; those of other
groups have batches of their own, which take turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from serving.queue.engine import Joined, Progress
from serving.search.beams.beam import BeamSearch
from serving.search.beams.sentence import Finished, Sentence
from serving.search.options import Group
from serving.search.stepper import Stepper
from serving.translation.results import SentenceOutcome
from serving.translation.texts import TextProcessor

JOIN_EVERY = 2
"""Steps of a batch between joins: each runs the encoder on few sentences."""


class Steppers(Protocol):
    """A translation model's step graphs: for the whole vocabulary, and for sentences with
    shortlists (`Sentence.shortlisted`)."""

    @property
    def whole(self) -> Stepper: ...

    @property
    def shortlist(self) -> Stepper: ...


SentenceProgress = Progress[list[int], SentenceOutcome]
"""Its news are ids, prefix included, with which the best hypothesis of a sentence begins."""


class RunningBatches:
    """The `Engine` that decodes on the thread that calls it."""

    lost, company = False, 0

    def __init__(self, texts: TextProcessor, steppers: Steppers) -> None:
        self._texts, self._steppers = texts, steppers
        self._batches: dict[Group, _Batch] = {}
        self.progress: SentenceProgress = Progress()
        """What has not been reported."""

    @property
    def busy(self) -> bool:
        """Whether there is anything to decode or to report."""
        return bool(self._batches) or self.progress.matters

    def join(self, tasks: Mapping[int, Sentence]) -> None:
        """Let sentences of one group join its batch, or begin one."""
        group = next(iter(tasks.values())).group
        began = time.monotonic()
        try:
            if group in self._batches:
                self._batches[group].join(tasks)
            else:
                steppers = self._steppers
                stepper = steppers.shortlist if group.shortlisted else steppers.whole
                self._batches[group] = _Batch(stepper, tasks)
        except Exception as error:  # the others must outlive any failure
            self.progress.failed.extend((number, error) for number in tasks)
            self.progress.rested.append(group)
            return
        batch = self._batches[group]
        joined = Joined(tuple(tasks), began, batch.encode_s, batch.lengths)
        self.progress.joined.append(joined)

    def cancel(self, numbers: Iterable[int]) -> None:
        """Drop sentences, those that have left already aside."""
        for number in numbers:
            for group, batch in list(self._batches.items()):
                batch.cancel(number)
                if not batch.sentences:
                    del self._batches[group]

    def advance(self) -> None:
        """Decode one token of every sentence."""
        for group in list(self._batches):
            self._step(group)

    def collect(self) -> SentenceProgress:
        """What has not been reported, which it then is."""
        progress, self.progress = self.progress, Progress()
        return progress

    def step(self) -> SentenceProgress:
        """One token of every sentence, and what comes of it."""
        self.advance()
        return self.collect()

    def wake(self) -> None:
        """Nothing to do: steps here compute, and never wait to be woken."""

    def restart(self) -> None:
        """Drop every batch, and give the memory of their caches back."""
        self._batches.clear()
        self.collect()

    def close(self) -> None:
        """Nothing is left to end."""

    def _step(self, group: Group) -> None:
        batch, progress = self._batches[group], self.progress
        try:
            finished = batch.step()
        except Exception as error:  # the others must outlive any failure of a batch
            progress.failed.extend((number, error) for number in batch.sentences)
            del self._batches[group]
            return
        progress.news.extend(batch.news())
        for sentence, done in finished:
            try:
                outcome = self._texts.complete(sentence, done)
                progress.outcomes.append((done.index, outcome))
            except Exception as error:  # of this sentence alone: the others of its batch go on
                progress.failed.append((done.index, error))
        if not batch.sentences:
            del self._batches[group]
        elif batch.steps_since_join == JOIN_EVERY:
            progress.rested.append(group)


class _Batch:
    """The running sentences of one group."""

    def __init__(self, stepper: Stepper, sentences: Mapping[int, Sentence]) -> None:
        self.sentences: dict[int, Sentence] = {}
        self.steps_since_join = 0
        self._places: dict[int, int] = {}
        """The search's own number of each sentence."""
        self._numbers: dict[int, int] = {}
        """The other way round."""
        self._streamed: dict[int, int] = {}
        """Ids that were streamed of sentences."""
        self._search = BeamSearch(stepper, list(sentences.values()))
        self._note(range(len(sentences)), sentences)

    @property
    def encode_s(self) -> float:
        """Seconds that the encoder took for those that joined last."""
        return self._search.encode_s

    @property
    def lengths(self) -> tuple[int, ...]:
        """Source ids of all sentences."""
        return tuple(len(sentence.source) for sentence in self.sentences.values())

    def join(self, sentences: Mapping[int, Sentence]) -> None:
        """Give sentences rows of this batch; they are decoded from the next step on."""
        self._note(self._search.add(list(sentences.values())), sentences)

    def cancel(self, number: int) -> None:
        """Drop a sentence, if it is here."""
        if number in self.sentences:
            self._search.cancel(self._places[number])
            self._forget(number)

    def step(self) -> list[tuple[Sentence, Finished]]:
        """One token of every sentence; returns those that are done, by their numbers."""
        done = [replace(f, index=self._numbers[f.index]) for f in self._search.step()]
        self.steps_since_join += 1
        return [(self._forget(finished.index), finished) for finished in done]

    def news(self) -> list[tuple[int, list[int]]]:
        """Streamed sentences of which more is certain than was streamed, and what."""
        news = []
        for number, streamed in self._streamed.items():
            agreed = self._search.agreed(self._places[number])
            if len(agreed) > streamed:
                self._streamed[number] = len(agreed)
                news.append((number, agreed))
        return news

    def _note(self, places: Iterable[int], sentences: Mapping[int, Sentence]) -> None:
        for place, (number, sentence) in zip(places, sentences.items(), strict=True):
            self.sentences[number], self._places[number] = sentence, place
            self._numbers[place] = number
            if sentence.streamed:
                self._streamed[number] = 0
        self.steps_since_join = 0

    def _forget(self, number: int) -> Sentence:
        del self._numbers[self._places.pop(number)]
        self._streamed.pop(number, None)
        return self.sentences.pop(number)
