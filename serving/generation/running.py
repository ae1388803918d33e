"""The engine of a language model: prompts join and leave its running batch between steps.

Sampled and greedy outputs of all prompts share one batch. Each beam search has a batch of its own;
they take turns with the shared batch, and so do new prompts, which are read one chunk between two
steps.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from serving.errors import without_memory
from serving.generation.choices import ChoiceBuilder, Generation, TokenScore, best_choices
from serving.generation.prompts import PromptProcessor
from serving.generation.ticket import Delta, GenerationDone, PromptRead
from serving.generation.work import PromptTask
from serving.queue.engine import Joined, Progress
from serving.runtime.language_stepper import LanguageStepper
from serving.search.beams.beam import BeamSearch
from serving.search.sampling.batch import Generated, GenerationBatch, SampledOutput
from serving.search.sampling.prompts import Prompted, PromptScores, chunks

_READ_TOGETHER = 8

PromptProgress = Progress[PromptRead | Delta, GenerationDone]


@dataclass(eq=False)
class _Prompt:
    """A prompt that is being read, searched or continued."""

    number: int
    task: PromptTask
    choices: dict[int, ChoiceBuilder] = field(default_factory=dict)
    """Builders of the prompt's sampled outputs, in order, by row key."""
    tokens: tuple[TokenScore, ...] = ()
    """Scores of the prompt's own tokens, if they were requested."""


class RunningPrompts:
    """The `Engine` of a language model; it decodes in the calling thread."""

    lost, company = False, 0

    def __init__(self, prompts: PromptProcessor, stepper: LanguageStepper) -> None:
        self._texts, self._stepper = prompts, stepper
        self._keys = itertools.count()
        self._start()

    def restart(self) -> None:
        """Drop all prompts, free the memory of their caches, and start again."""
        self.close()
        self._start()

    def _start(self) -> None:
        self.progress: PromptProgress = Progress()
        """The outputs and news that were not reported yet."""
        self._prompts: dict[int, _Prompt] = {}
        self._batch = GenerationBatch(self._stepper, guesses=True)
        self._rows: dict[int, tuple[_Prompt, int]] = {}
        """The prompt of each row of the batch, and the number of the choice, by row key."""
        self._readings: list[_Reading] = []
        """Prompts that are being read; those that have waited longest come first."""
        self._shortest = False
        """Whether the prompts with the fewest chunks left get the next chunk."""
        self._searches: dict[int, BeamSearch] = {}

    def join(self, tasks: Mapping[int, PromptTask]) -> None:
        """Start reading prompts; those with the same number of chunks are read together. Searches
        that need no reading start at once."""
        began = time.monotonic()
        joining = [_Prompt(number, task) for number, task in tasks.items()]
        self._prompts.update((prompt.number, prompt) for prompt in joining)
        lengths = [len(p.task.ids) for p in self._prompts.values() for _ in range(p.task.rows)]
        self.progress.joined.append(Joined(tuple(tasks), began, 0.0, tuple(lengths)))
        self.progress.rested.append(joining[0].task.group)  # more may come before the next step
        groups: dict[tuple[int, bool], list[_Prompt]] = {}
        for prompt in joining:
            request = prompt.task.request
            samples = request.options.max_length > 0 and request.options.beam_size == 1
            if samples or request.score_prompt:
                key = (chunks(prompt.task.ids[:-1]), request.score_prompt)
                groups.setdefault(key, []).append(prompt)
            else:
                try:
                    self._begin(prompt, None)
                except Exception as error:  # an error of this prompt only
                    self._fail(prompt, error)
        for (_, score), group in groups.items():
            for start in range(0, len(group), _READ_TOGETHER):
                part = group[start : start + _READ_TOGETHER]
                self._readings.append(_Reading(part, self._stepper, score=score))

    def cancel(self, numbers: Iterable[int]) -> None:
        """Drop prompts; those that have left are ignored."""
        for number in numbers:
            if number in self._prompts:
                self._drop(self._prompts[number])

    @property
    def busy(self) -> bool:
        """Whether there is anything to decode or to report."""
        return bool(self._prompts) or self.progress.matters

    def advance(self) -> None:
        """Read one chunk of a prompt, draw one token of each output, and do one step of each
        search."""
        if self._readings:
            self._read()
        for event in self._batch.step():
            if event.key in self._rows:  # missing if another output of its prompt has failed
                prompt, choice = self._rows[event.key]
                try:
                    self._push(prompt, choice, event)
                except Exception as error:  # an error of this prompt only
                    self._fail(prompt, error)
        for number in list(self._searches):
            self._search(self._prompts[number])

    def collect(self) -> PromptProgress:
        """Return the unreported outputs and news, and forget them."""
        progress, self.progress = self.progress, Progress()
        return progress

    def step(self) -> PromptProgress:
        """`advance`; returns the outputs and news."""
        self.advance()
        return self.collect()

    def wake(self) -> None:
        """Does nothing: `step` computes and never waits."""

    def close(self) -> None:
        """Drop all prompts and free the memory of their caches."""
        for reading in self._readings:
            reading.close()
        self._readings.clear()
        for search in self._searches.values():
            search.close()
        self._searches.clear()
        self._batch.close()

    def _read(self) -> None:
        """Read one chunk, alternately of the prompts that have waited longest and of those with the
        fewest chunks left, so that a short prompt does not wait for the end of a long one. Prompts
        that have been read join the batch."""
        shortest = min(self._readings, key=lambda each: each.left)
        reading = shortest if self._shortest else self._readings[0]
        self._shortest = not self._shortest
        reading.prompts = [p for p in reading.prompts if p.number in self._prompts]
        try:
            done = not reading.prompts or reading.advance()
        except Exception as error:  # the others must outlive any failure of these
            self._readings.remove(reading)
            for prompt in reading.prompts:
                self._fail(prompt, error)
            return
        if done:
            self._readings.remove(reading)
            if reading.prompts:
                self._finish_reading(reading)
            else:
                reading.close()

    def _finish_reading(self, reading: _Reading) -> None:
        """Add the outputs of prompts that have been read to the batch."""
        assert reading.result is not None
        prompted, scores = reading.result
        sharers: list[list[SampledOutput]] = [[] for _ in reading.rows]
        for prompt in reading.prompts:
            row = reading.rows[tuple(prompt.task.ids)]
            try:
                sharers[row] += self._begin(prompt, None if scores is None else scores.of(row))
            except Exception as error:  # an error of this prompt only
                self._fail(prompt, error)
        if any(sharers):
            self._batch.join(sharers, prompted)
        else:
            self._stepper.free(prompted.state)

    def _begin(self, prompt: _Prompt, scores: PromptScores | None) -> list[SampledOutput]:
        """Report that a prompt has been read, and continue it; returns its sampled outputs, which
        must join the batch."""
        request, ids, seed = prompt.task
        options = request.options
        if scores is not None:
            prompt.tokens = tuple(
                self._texts.prompt_scores(request.prompt, ids, scores, options.num_logprobs)
            )
        self.progress.news.append((prompt.number, PromptRead(prompt.tokens)))
        if options.max_length == 0:
            self._deliver_whole(prompt, [Generation("", (), "length")] * options.num_hypotheses)
        elif options.beam_size > 1:
            self._searches[prompt.number] = BeamSearch(
                self._stepper, [self._texts.search(ids, options)]
            )
        else:
            keys = [next(self._keys) for _ in range(options.num_choices)]
            for choice, key in enumerate(keys):
                self._rows[key] = prompt, choice
                prompt.choices[key] = self._texts.builder(ids, options)
            return self._texts.outputs(keys, ids, options, seed)
        return []

    def _push(self, prompt: _Prompt, choice: int, event: Generated) -> None:
        """Add a token to an output; end the prompt if it is complete."""
        if event.error is not None:
            raise event.error
        builder = prompt.choices[event.key]
        text, tokens = builder.push(event)
        reason = builder.finish_reason
        self.progress.news.append((prompt.number, Delta(choice, text, tokens, reason)))
        if reason:
            self._batch.remove(event.key)
            del self._rows[event.key]
            if all(other.finish_reason for other in prompt.choices.values()):
                self._deliver(prompt, [other.finished() for other in prompt.choices.values()])

    def _search(self, prompt: _Prompt) -> None:
        """Do one step of a beam search."""
        try:
            for finished in self._searches[prompt.number].step():
                self._deliver_whole(prompt, self._texts.complete_search(prompt.task.ids, finished))
        except Exception as error:  # an error of this prompt only
            self._fail(prompt, error)

    def _deliver_whole(self, prompt: _Prompt, choices: list[Generation]) -> None:
        """Deliver outputs for which no event was sent."""
        for number, choice in enumerate(choices):
            delta = Delta(number, choice.text, choice.tokens, choice.finish_reason)
            self.progress.news.append((prompt.number, delta))
        self._deliver(prompt, choices)

    def _deliver(self, prompt: _Prompt, generated: list[Generation]) -> None:
        """Deliver the outputs, or the best ones if `best_of` was requested."""
        choices = tuple(best_choices(generated, prompt.task.request.options))
        count = sum(choice.num_generated for choice in generated)
        done = GenerationDone(choices, prompt.tokens, len(prompt.task.ids), count)
        self.progress.outcomes.append((prompt.number, done))
        self._drop(prompt)

    def _fail(self, prompt: _Prompt, error: Exception) -> None:
        self.progress.failed.append((prompt.number, without_memory(error)))
        self._drop(prompt)

    def _drop(self, prompt: _Prompt) -> None:
        """Forget a prompt and free its rows."""
        del self._prompts[prompt.number]
        for key in prompt.choices:
            if self._rows.pop(key, None):
                self._batch.remove(key)
        search = self._searches.pop(prompt.number, None)
        if search is not None:
            search.cancel(0)


class _Reading:
    """Prompts with the same number of chunks that are being read."""

    def __init__(self, prompts: list[_Prompt], stepper: LanguageStepper, *, score: bool) -> None:
        self.prompts = prompts
        unique = dict.fromkeys(tuple(prompt.task.ids) for prompt in prompts)
        self.rows = {ids: row for row, ids in enumerate(unique)}
        """Token ids of each prompt; several tasks may share one."""
        labels = [ids[1:] for ids in unique] if score else None
        self.result: tuple[Prompted, PromptScores | None] | None = None
        """The prompts and their scores, once everything has been read."""
        self.left = chunks(prompts[0].task.ids[:-1])
        """Number of chunks that have not been read yet."""
        self._steps = stepper.read([ids[:-1] for ids in unique], labels)

    def advance(self) -> bool:
        """Read one chunk; returns True once everything has been read, which takes one extra
        call."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.result = end.value
        self.left -= 1
        return self.result is not None

    def close(self) -> None:
        """Free the caches of prompts that nobody wants any more, in the thread that decodes.
        Otherwise the garbage collector would do so later, in the middle of other work."""
        self._steps.close()
