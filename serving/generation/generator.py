"""Prompts in, text out: a language model bundle, loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from serving.bundle.load_tokenizer import load_tokenizer
from serving.bundle.manifest import Manifest, read_manifest
from serving.errors import BundleError, DecodingError, InvalidOptionError, RequestError
from serving.generation.choices import (
    ChoiceBuilder,
    Generation,
    Prompt,
    TokenScore,
    best_choices,
    text_offsets,
    written_form,
)
from serving.runtime.language_stepper import LanguageStepper
from serving.search.beam import BeamSearch
from serving.search.ids import EOS_ID
from serving.search.prompts import PromptScores, chunks
from serving.search.sampled_batch import Generated, GenerationBatch, SampledOutput
from serving.search.sampling import Uniforms
from serving.search.sampling_options import GenerationOptions, parse_generation_options
from serving.search.sentence import Finished, Hypothesis, Sentence
from serving.text.characters import check_text
from serving.threads import default_threads

_MAX_ROWS = 64
_SCORED_ROWS = 16


class Generator:
    """A language model bundle, loaded.

    >>> Generator("models/lm-cascade").generate("The film was")[0][0].text  # doctest: +SKIP
    """

    def __init__(self, bundle: str | Path, *, threads: int | None = None) -> None:
        """Load and check a bundle; raises BundleError where it cannot be used."""
        if threads is not None and threads < 1:
            raise InvalidOptionError(f"threads must be >= 1, got {threads}")
        folder = Path(bundle)
        self.manifest: Manifest = read_manifest(folder)
        if self.manifest.task != "generate":
            raise BundleError(f"{folder}: task must be 'generate', got {self.manifest.task!r}")
        files, size = self.manifest.tokenizer, self.manifest.sizes.vocab_size
        self.tokenizer = load_tokenizer(folder / files.source_file, files.kind, size)
        self.stepper = LanguageStepper(folder, self.manifest, threads or default_threads())

    @property
    def default_options(self) -> GenerationOptions:
        """The bundle's own options."""
        return parse_generation_options(self.manifest.search)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        options: GenerationOptions | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Generation]]:
        """`num_hypotheses` outputs for each prompt, best first where there is a ranking.

        `progress` is called with the number of prompts just finished. Raises RequestError for a
        prompt that cannot be read, DecodingError where the model fails on one.
        """
        many = isinstance(prompts, Sequence) and not isinstance(prompts, str)
        if many and prompts and isinstance(prompts[0], int):
            many = False
        listed: list[Prompt] = list(prompts) if many else [prompts]  # type: ignore[arg-type, list-item]
        options = options or self.default_options
        encoded = [self.encode(prompt) for prompt in listed]
        self.check_options(options)
        if options.beam_size > 1:
            return [self._search(ids, options, progress) for ids in encoded]
        return self._sample(encoded, options, progress)

    def score(self, prompts: Sequence[Prompt], num_logprobs: int = 0) -> list[list[TokenScore]]:
        """The tokens of each prompt with their log-probabilities, eos not among them.

        Raises RequestError for a prompt that cannot be read.
        """
        encoded = [self.encode(prompt) for prompt in prompts]
        results: dict[int, list[TokenScore]] = {}
        order = sorted(range(len(prompts)), key=lambda index: len(encoded[index]))
        while order:
            number = chunks(encoded[order[0]][:-1])
            batch = [i for i in order[:_SCORED_ROWS] if chunks(encoded[i][:-1]) == number]
            order = order[len(batch) :]
            prompted, scores = self.stepper.score(
                [encoded[i][:-1] for i in batch], [encoded[i][1:] for i in batch]
            )
            self.stepper.free(prompted.state)
            for row, index in enumerate(batch):
                found = self.prompt_scores(
                    prompts[index], encoded[index], scores.of(row), num_logprobs
                )
                # The eos before a text is ours.
                results[index] = found[1:] if isinstance(prompts[index], str) else found
        return [results[index] for index in range(len(prompts))]

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, never empty: a text follows the eos that ends the one before.

        Raises RequestError for text or ids that the model cannot read.
        """
        if isinstance(prompt, str):
            check_text(prompt)
            return [EOS_ID, *self.tokenizer.encode(prompt)]
        size = self.manifest.sizes.vocab_size
        for place, token in enumerate(prompt):
            if not 0 <= token < size:
                raise RequestError(
                    f"token ids must be in [0, {size - 1}] for this model, got {token} at {place}"
                )
        return list(prompt) or [EOS_ID]

    def check_options(self, options: GenerationOptions) -> None:
        """Raise InvalidOptionError for options that this model cannot follow."""
        size = self.manifest.sizes.vocab_size
        for token, _ in options.logit_bias:
            if not 0 <= token < size:
                raise InvalidOptionError(
                    f"logit_bias: token ids must be in [0, {size - 1}] for this model, got {token}"
                )
        if options.num_logprobs > size:
            raise InvalidOptionError(
                f"num_logprobs must be at most {size} for this model, got {options.num_logprobs}"
            )

    def outputs(
        self, key: int, prompt: list[int], options: GenerationOptions
    ) -> list[SampledOutput]:
        """The rows of a sampled prompt, with keys from `key` on."""
        seed = int.from_bytes(os.urandom(8)) if options.seed is None else options.seed
        return [
            SampledOutput(key + choice, prompt, options, Uniforms(seed, choice))
            for choice in range(options.num_choices)
        ]

    def start_search(self, prompt: list[int], options: GenerationOptions) -> BeamSearch:
        """A beam search from one prompt; its sentence has the index 0."""
        sentence = Sentence((), options.search_options, prompt[1:], start=prompt[0])
        return BeamSearch(self.stepper, [sentence])

    def complete_search(self, prompt: list[int], finished: Finished) -> list[Generation]:
        """What a beam search has found; raises the DecodingError that ended it."""
        if finished.error is not None:
            raise finished.error
        return [self._from_hypothesis(prompt, found) for found in finished.hypotheses]

    def prompt_scores(
        self, prompt: Prompt, ids: list[int], scores: PromptScores, num_logprobs: int
    ) -> list[TokenScore]:
        """The ids of a prompt with what one row of a batch has found for all but the first.

        Raises DecodingError where that is not finite.
        """
        if isinstance(prompt, str):
            offsets = [0, *(begin for begin, _ in self.tokenizer.spans(prompt))]
        else:
            offsets = text_offsets(self.tokenizer, ids)
        found = [TokenScore(ids[0], written_form(self.tokenizer, ids[0]), 0, None)]
        labels = scores.labels_BP[0, : len(ids) - 1]
        if not np.isfinite(labels).all():
            raise DecodingError("the model gave a non-finite score for this prompt")
        top_tokens = scores.top_tokens_BPT[0, :, :num_logprobs].tolist()
        top_scores = scores.top_scores_BPT[0, :, :num_logprobs].tolist()
        for place, (token, label) in enumerate(zip(ids[1:], labels.tolist(), strict=True)):
            top = tuple(
                (written_form(self.tokenizer, other), score)
                for other, score in zip(top_tokens[place], top_scores[place], strict=True)
            )
            form = written_form(self.tokenizer, token)
            found.append(TokenScore(token, form, offsets[place + 1], label, top))
        return found

    def _search(
        self,
        prompt: list[int],
        options: GenerationOptions,
        progress: Callable[[int], None] | None,
    ) -> list[Generation]:
        found = [Generation("", (), "length")] * options.num_hypotheses
        if options.max_length > 0:
            search = self.start_search(prompt, options)
            finished: list[Finished] = []
            while search.live:
                finished += search.step()
            found = self.complete_search(prompt, finished[0])
        if progress:
            progress(1)
        return found

    def _sample(
        self,
        prompts: list[list[int]],
        options: GenerationOptions,
        progress: Callable[[int], None] | None,
    ) -> list[list[Generation]]:
        count = options.num_choices
        waiting = [
            output
            for index, prompt in enumerate(prompts)
            for output in self.outputs(index * count, prompt, options)
        ]
        builders = {
            output.key: ChoiceBuilder(self.tokenizer, output.prompt, options) for output in waiting
        }
        left = dict.fromkeys(range(len(prompts)), count)
        if options.max_length == 0:
            waiting.clear()
            if progress:
                progress(len(prompts))
        batch = GenerationBatch(self.stepper)
        try:
            while waiting or len(batch):
                room = _MAX_ROWS - len(batch)
                if waiting and (not len(batch) or room >= _MAX_ROWS // 4):
                    batch.add(waiting[:room])
                    del waiting[:room]
                for event in batch.step():
                    if event.error is not None:
                        raise event.error
                    builder = builders[event.key]
                    builder.push(event)
                    if builder.finish_reason:
                        batch.remove(event.key)
                        left[event.key // count] -= 1
                        if progress and not left[event.key // count]:
                            progress(1)
        finally:
            batch.close()
        return [
            best_choices(
                [builders[index * count + choice].finished() for choice in range(count)], options
            )
            for index in range(len(prompts))
        ]

    def _from_hypothesis(self, prompt: list[int], found: Hypothesis) -> Generation:
        tokens = [*found.tokens[len(prompt) - 1 :], *([EOS_ID] if found.finished else [])]
        scores = found.token_scores[len(found.token_scores) - len(tokens) :]
        builder = ChoiceBuilder(self.tokenizer, prompt, GenerationOptions(max_length=len(tokens)))
        for token, score in zip(tokens, scores, strict=True):
            builder.push(Generated(0, token, score))
        return builder.finished()
