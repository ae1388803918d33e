"""The Python interface of language models: prompts in, text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import SupportsIndex, cast

from serving.bundle.manifest import Manifest
from serving.bundle.tokenizer import TextTokenizer
from serving.errors import InvalidOptionError
from serving.generation.choices import Generation, Prompt, TokenScore, best_choices
from serving.generation.prompts import load_prompts
from serving.generation.running import RunningPrompts
from serving.queue.limits import BatchLimits
from serving.runtime.cache_tensors import CacheSizes
from serving.runtime.device import batches_at_once, open_device
from serving.runtime.language_stepper import LanguageStepper
from serving.search.beams.beam import BeamSearch
from serving.search.beams.sentence import Finished
from serving.search.sampling.batch import GenerationBatch, SampledOutput
from serving.search.sampling.prompts import chunks
from serving.search.sampling_options import GenerationOptions
from serving.text.characters import listed
from serving.threads import default_threads

_WARM_UP_PROMPT = "1 2 3"
_MAX_ROWS = 64
_SCORED_ROWS = 16


class Generator:
    """A language model bundle, loaded.

    Examples:
        >>> Generator("models/lm-cascade").generate("The film was")[0][0].text
    """

    def __init__(
        self,
        bundle: str | Path,
        *,
        threads: int | None = None,
        workers: int = 1,
        limits: BatchLimits | None = None,
    ) -> None:
        """Load and check a bundle, given as a path or a model's name. Raises BundleError if it
        cannot be used.

        `threads` (default: the available processors) are shared by `workers` batches that a
        scheduler decodes at once. More than one is for models whose steps take long: much of a
        short step is Python, which the threads of a process run one at a time. On a GPU there are
        no more batches than streams, one unless MACARON_CUDA_STREAMS says otherwise, and the cache
        memory of a scheduler's `limits` must be free.
        """
        for name, count in (("threads", threads), ("workers", workers)):
            if count is not None and count < 1:
                raise InvalidOptionError(f"{name} must be >= 1, got {count}", parameter=name)
        from serving.hub.pull import bundle_folder

        folder = bundle_folder(bundle)
        self.prompts = load_prompts(folder)
        self.workers = batches_at_once(self.manifest, workers)
        each = max(1, (threads or default_threads()) // self.workers)
        cache_bytes = (limits or BatchLimits()).max_cache_bytes
        device = open_device(folder, self.manifest, cache_bytes, self.workers)
        self.stepper, self.device = LanguageStepper(folder, self.manifest, each, device), device.use

    @property
    def sizes(self) -> CacheSizes:
        """The memory that the model's caches take."""
        return self.stepper

    @property
    def manifest(self) -> Manifest:
        """The bundle's description of itself."""
        return self.prompts.manifest

    @property
    def tokenizer(self) -> TextTokenizer:
        """The vocabulary that prompts are read with and outputs are written with."""
        return self.prompts.tokenizer

    @property
    def default_options(self) -> GenerationOptions:
        """Options from the bundle's manifest, for requests that do not set them."""
        return self.prompts.default_options

    def engine(self) -> RunningPrompts:
        """Decodes prompts on the thread that calls it."""
        return RunningPrompts(self.prompts, self.stepper)

    def warm_up(self) -> None:
        """Continue something, because the first output takes longer."""
        self.generate(_WARM_UP_PROMPT, GenerationOptions(max_length=4))

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt; see `PromptProcessor.encode`."""
        return self.prompts.encode(prompt)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        options: GenerationOptions | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Generation]]:
        """Generate `num_hypotheses` outputs for each prompt, best first if they are ranked.

        `progress` is called with the number of prompts just finished. Raises RequestError for a
        prompt that cannot be read, and DecodingError if the model fails on one.
        """
        if options is not None and not isinstance(options, GenerationOptions):
            raise InvalidOptionError(
                f"options must be GenerationOptions, got {type(options).__name__}; write "
                "GenerationOptions(max_length=20)",
                parameter="options",
            )
        options = options or self.default_options
        encoded = [self.encode(prompt) for prompt in _several(prompts)]
        self.prompts.check_options(options)
        for ids in encoded:
            self.prompts.check_length(ids, options)
        if options.beam_size > 1:
            return [self._search(ids, options, progress) for ids in encoded]
        return self._sample(encoded, options, progress)

    def score(
        self, prompts: Prompt | Sequence[Prompt], num_logprobs: int = 0
    ) -> list[list[TokenScore]]:
        """The tokens of each prompt with their log-probabilities, without eos.

        Raises RequestError for a prompt that cannot be read.
        """
        prompts = _several(prompts)
        options = GenerationOptions(max_length=0, num_logprobs=num_logprobs)
        self.prompts.check_options(options)
        encoded = [self.encode(prompt) for prompt in prompts]
        for ids in encoded:
            self.prompts.check_length(ids, options)
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
                found = self.prompts.prompt_scores(
                    prompts[index], encoded[index], scores.of(row), num_logprobs
                )
                # The ids before a text are added here.
                results[index] = found[self.prompts.num_added(prompts[index]) :]
        return [results[index] for index in range(len(prompts))]

    def _search(
        self,
        prompt: list[int],
        options: GenerationOptions,
        progress: Callable[[int], None] | None,
    ) -> list[Generation]:
        found = [Generation("", (), "length")] * options.num_hypotheses
        if options.max_length > 0:
            search = BeamSearch(self.stepper, [self.prompts.search(prompt, options)])
            finished: list[Finished] = []
            while search.live:
                finished += search.step()
            found = self.prompts.complete_search(prompt, finished[0])
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
        builders = [
            [self.prompts.builder(prompt, options) for _ in range(count)] for prompt in prompts
        ]
        waiting: list[SampledOutput] = []
        places: dict[int, tuple[int, int]] = {}
        """The prompt that each output belongs to, and the number of the choice, by the output's
        key."""
        for index, prompt in enumerate(prompts):
            keys = range(len(places), len(places) + count)
            waiting += self.prompts.outputs(keys, prompt, options, options.own_seed())
            places.update((key, (index, choice)) for choice, key in enumerate(keys))
        if options.max_length == 0:
            waiting.clear()
            if progress:
                progress(len(prompts))
        batch = GenerationBatch(self.stepper, guesses=True)
        try:
            while waiting or len(batch):
                room = _MAX_ROWS - len(batch)
                if waiting and (not len(batch) or room >= _MAX_ROWS // 4):
                    batch.add(waiting[:room])
                    del waiting[:room]
                for event in batch.step():
                    if event.error is not None:
                        raise event.error
                    index, choice = places[event.key]
                    if builders[index][choice].finish_reason:
                        continue  # a stop string ended it before the tokens that were guessed right
                    builders[index][choice].push(event)
                    if builders[index][choice].finish_reason:
                        batch.remove(event.key)
                        if progress and all(other.finish_reason for other in builders[index]):
                            progress(1)
        finally:
            batch.close()
        return [best_choices([other.finished() for other in own], options) for own in builders]


def _several(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """Prompts as a list; a text or a sequence of token ids is one prompt."""
    found = listed(cast("str | Sequence[Prompt]", prompts), "prompts")
    # The rows of an array can be indices, too, if they have one item.
    if found and isinstance(found[0], SupportsIndex) and not getattr(found[0], "shape", ()):
        return [cast("Sequence[int]", found)]
    return [*found]
