"""Running batches, which sentences join and leave between steps.

Sentences of one beam size are decoded together, with and without shortlists apart. Other groups
have their own batches. All batches take turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from serving.errors import without_memory
from serving.queue.engine import Joined, Progress
from serving.search.beams.beam import BeamSearch
from serving.search.beams.sentence import Finished, Sentence
from serving.search.options import Group
from serving.search.stepper import Stepper
from serving.translation.results import SentenceOutcome
from serving.translation.texts import TextProcessor

JOIN_EVERY = 2
"""Number of steps of a batch between joins. Every join runs the encoder, on few sentences."""


class Steppers(Protocol):
    """A translation model's step graphs: for the whole vocabulary, and for sentences with
    shortlists (`Sentence.shortlisted`)."""

    @property
    def whole(self) -> Stepper: ...

    @property
    def shortlist(self) -> Stepper: ...


SentenceProgress = Progress[list[int], SentenceOutcome]
"""Progress of sentences; its news are the ids with which a sentence's best hypothesis begins,
including the prefix."""


class RunningBatches:
    """The `Engine` that decodes on the calling thread."""

    lost, company = False, 0

    def __init__(self, texts: TextProcessor, steppers: Steppers) -> None:
        self._texts, self._steppers = texts, steppers
        self._batches: dict[Group, _Batch] = {}
        self.progress: SentenceProgress = Progress()
        """The results and news that were not reported yet."""

    @property
    def busy(self) -> bool:
        """Whether there is anything to decode or to report."""
        return bool(self._batches) or self.progress.matters

    def join(self, tasks: Mapping[int, Sentence]) -> None:
        """Add sentences of one group to its batch, or start one."""
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
            self.progress.failed.extend((number, without_memory(error)) for number in tasks)
            self.progress.rested.append(group)
            return
        batch = self._batches[group]
        joined = Joined(tuple(tasks), began, batch.encode_s, batch.lengths)
        self.progress.joined.append(joined)

    def cancel(self, numbers: Iterable[int]) -> None:
        """Drop sentences. Those that have already left are ignored."""
        for number in numbers:
            for group, batch in list(self._batches.items()):
                batch.cancel(number)
                if not batch.sentences:
                    del self._batches[group]

    def advance(self) -> None:
        """Decode a token of every sentence, or several for a millisecond."""
        for group in list(self._batches):
            self._step(group)

    def collect(self) -> SentenceProgress:
        """Return the unreported results and news, and forget them."""
        progress, self.progress = self.progress, Progress()
        return progress

    def step(self) -> SentenceProgress:
        """Decode a token of every sentence, or several; returns the results and news."""
        self.advance()
        return self.collect()

    def wake(self) -> None:
        """Does nothing: these steps compute, and never wait to be woken."""

    def restart(self) -> None:
        """Drop all batches and free the memory of their caches."""
        for batch in self._batches.values():
            batch.close()
        self._batches.clear()
        self.collect()

    def close(self) -> None:
        """Does nothing: there is nothing to stop."""

    def _step(self, group: Group) -> None:
        batch, progress = self._batches[group], self.progress
        try:
            finished = batch.step()
        except Exception as error:  # the others must outlive any failure of a batch
            failed = without_memory(error)
            progress.failed.extend((number, failed) for number in batch.sentences)
            del self._batches[group]
            batch.close()
            return
        progress.news.extend(batch.news())
        for sentence, done in finished:
            try:
                outcome = self._texts.complete(sentence, done)
                progress.outcomes.append((done.index, outcome))
            except Exception as error:  # the others of the batch continue
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
        """The search's number of each sentence, by the caller's number."""
        self._numbers: dict[int, int] = {}
        """The caller's number of each of the search's numbers."""
        self._streamed: dict[int, int] = {}
        """Number of ids streamed so far of each sentence."""
        self._search = BeamSearch(stepper, list(sentences.values()))
        self._note(range(len(sentences)), sentences)

    @property
    def encode_s(self) -> float:
        """Seconds that the encoder took for the sentences that joined last."""
        return self._search.encode_s

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of source ids of each sentence."""
        return tuple(len(sentence.source) for sentence in self.sentences.values())

    def join(self, sentences: Mapping[int, Sentence]) -> None:
        """Give sentences rows of this batch. They are decoded from the next step on."""
        self._note(self._search.add(list(sentences.values())), sentences)

    def cancel(self, number: int) -> None:
        """Drop a sentence if it is in the batch."""
        if number in self.sentences:
            self._search.cancel(self._places[number])
            self._forget(number)

    def step(self) -> list[tuple[Sentence, Finished]]:
        """Decode a token of every sentence, or several for a millisecond; returns the finished ones
        by number."""
        search = self._search
        before, resting = search.num_steps, JOIN_EVERY - self.steps_since_join
        done = search.step(resting) if resting > 0 else search.step()
        self.steps_since_join += search.num_steps - before
        done = [replace(finished, index=self._numbers[finished.index]) for finished in done]
        return [(self._forget(finished.index), finished) for finished in done]

    def close(self) -> None:
        """Free the memory of the batch, which must not be used afterwards."""
        self._search.close()

    def news(self) -> list[tuple[int, list[int]]]:
        """The streamed sentences with new certain ids, and these ids."""
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
