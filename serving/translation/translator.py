"""Texts in, translations out: batching by length, the loop guard, forced scoring."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from serving.bundle.manifest import Manifest
from serving.errors import DecodingError, InvalidOptionError
from serving.queue.engine import Engine
from serving.queue.limits import BatchLimits, Demand
from serving.queue.offline import decode_in_batches, fill_batches
from serving.runtime.encoder import Encoder
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import OnnxStepper
from serving.search.ids import BOS_ID, EOS_ID
from serving.search.options import SearchOptions
from serving.search.prefix_tree import round_up
from serving.search.sentence import Finished, Sentence
from serving.search.stepper import Stepper
from serving.text.terms import NO_TERMS, Terms
from serving.threads import default_threads
from serving.translation.outcomes import Again, Done, SentenceOutcome, Split
from serving.translation.results import Score, Translation, gathered
from serving.translation.running import RunningBatches, Steppers
from serving.translation.texts import TextProcessor, load_texts

_WARM_UP_TEXT = "1 2 3"


class BundleSteppers:
    """The step graphs of a translation bundle, each loaded at first use."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        self._loaded_from = folder, manifest, threads

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(*self._loaded_from)

    @functools.cached_property
    def whole(self) -> Stepper:
        """The graph for the whole vocabulary."""
        return OnnxStepper(*self._loaded_from, encoder=self._encoder)

    @functools.cached_property
    def shortlist(self) -> Stepper:
        """The graph for sentences with shortlists."""
        return ShortlistStepper(*self._loaded_from, encoder=self._encoder)

    def stepper_for(self, *, shortlisted: bool) -> Stepper:
        """The graph for sentences of one kind."""
        return self.shortlist if shortlisted else self.whole


class ModelTranslator:
    """Translates with a model in this process, whatever it was loaded from."""

    def __init__(
        self,
        texts: TextProcessor,
        steppers: Steppers,
        *,
        workers: int = 1,
        limits: BatchLimits | None = None,
    ) -> None:
        """`workers` batches, decoded at once, share the memory of `limits`."""
        self.texts, self.steppers = texts, steppers
        self.workers, self._limits = workers, limits or BatchLimits()

    @property
    def manifest(self) -> Manifest:
        """What the bundle tells of itself."""
        return self.texts.manifest

    @property
    def default_options(self) -> SearchOptions:
        """The bundle's own search options."""
        return self.texts.default_options

    def engine(self) -> Engine[Sentence, list[int], SentenceOutcome]:
        """Decodes sentences on the thread that calls it."""
        return RunningBatches(self.texts, self.steppers)

    def warm_up(self) -> None:
        """Translate something: the first time takes longer."""
        self.translate(_WARM_UP_TEXT)

    def translate(
        self,
        texts: str | Sequence[str],
        options: SearchOptions | None = None,
        *,
        target_prefix: str | Sequence[str] = "",
        alignments: bool = False,
        terms: Terms = NO_TERMS,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate texts, batched by length; results in input order.

        `target_prefix` is one text for all, or one a text; with `alignments` each hypothesis has
        word links; `terms` are those of every text. `progress` is called with the number of texts
        just finished. Raises RequestError for a text that cannot be read or is too long.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        prefixes = [target_prefix] * len(texts) if isinstance(target_prefix, str) else target_prefix
        options = options or self.default_options
        results: list[Translation | None] = [None] * len(texts)
        waiting: dict[int, Sentence] = {}
        for index, (text, prefix) in enumerate(zip(texts, prefixes, strict=True)):
            sentence = self.texts.prepare(text, options, prefix, alignments=alignments, terms=terms)
            if sentence is None:
                results[index] = Translation("")
                if progress:
                    progress(1)
            else:
                waiting[index] = sentence
        for index, result in self._translate(waiting):
            results[index] = result
            if progress:
                progress(1)
        return [result for result in results if result is not None]

    def _translate(self, waiting: dict[int, Sentence]) -> Iterator[tuple[int, Translation]]:
        """Each sentence's key and translation."""
        while waiting:  # a second round decodes what the loop guard sent back
            again: dict[int, Sentence] = {}
            for index, finished in self._decode(waiting):
                match self.texts.complete(waiting[index], finished):
                    case Done(translation):
                        yield index, translation
                    case Again(sentence):
                        again[index] = sentence
                    case Split(sentences):
                        parts = dict(self._translate(dict(enumerate(sentences))))
                        yield index, gathered([parts[n] for n in range(len(parts))])
            waiting = again

    def _decode(self, sentences: dict[int, Sentence]) -> Iterator[tuple[int, Finished]]:
        for shortlisted in (False, True):
            part = {key: s for key, s in sentences.items() if s.shortlisted == shortlisted}
            if part:
                stepper = self.steppers.stepper_for(shortlisted=shortlisted)
                yield from decode_in_batches(stepper, part, self.workers, self._limits)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Score]:
        """Log-probabilities of given translations (source, target); results in input order.

        Raises RequestError for a text that cannot be read or is too long, DecodingError where the
        model gives a non-finite score.
        """
        encoded: dict[int, tuple[list[int], list[int]]] = {}
        for index, (source, target) in enumerate(pairs):
            source_ids = self.texts.encode_source(source)
            encoded[index] = source_ids, self.texts.encode_target(target, "target")
        results: dict[int, Score] = {}
        demands = {}
        for index, (source_ids, target_ids) in encoded.items():
            length = len(target_ids) + 1
            demands[index] = Demand(1, max(len(source_ids), length), round_up(length))
            self.texts.check_memory(demands[index])
        for batch in fill_batches(demands, self.texts.sizes, self._limits):
            results |= self._score_batch({index: encoded[index] for index in batch})
        return [results[index] for index in range(len(pairs))]

    def _score_batch(self, pairs: dict[int, tuple[list[int], list[int]]]) -> dict[int, Score]:
        stepper = self.steppers.stepper_for(shortlisted=False)
        state = stepper.encode([source for source, _ in pairs.values()])
        longest = max(len(target) for _, target in pairs.values()) + 1
        token_ids = np.zeros((len(pairs), longest), dtype=np.int64)
        labels = np.zeros_like(token_ids)
        for row, (_, target) in enumerate(pairs.values()):
            token_ids[row, : len(target) + 1] = [BOS_ID, *target]
            labels[row, : len(target) + 1] = [*target, EOS_ID]
        scores = stepper.prefill(state, token_ids, labels).scores_BP
        stepper.free(state)
        lengths = np.array([len(target) + 1 for _, target in pairs.values()])
        if not np.isfinite(scores[np.arange(longest) < lengths[:, None]]).all():
            raise DecodingError("the model gave a non-finite score")
        return {
            index: Score(
                tokens=tuple(self.texts.target.pieces(target)),
                token_scores=tuple(scores[row, : len(target) + 1].tolist()),
            )
            for row, (index, (_, target)) in enumerate(pairs.items())
        }


class Translator(ModelTranslator):
    """A translation bundle, loaded.

    >>> Translator("models/macaron-de-en").translate("Guten Morgen!")[0].text  # doctest: +SKIP
    'Good morning.'
    """

    def __init__(
        self,
        bundle: str | Path,
        *,
        threads: int | None = None,
        workers: int = 1,
        limits: BatchLimits | None = None,
    ) -> None:
        """Load and check a bundle; raises BundleError where it cannot be used.

        `threads` (default: the processors at hand) are shared by `workers` batches that are decoded
        at once: one worker is best for single sentences, one for each thread for many. All workers
        together keep to the memory of `limits`.
        """
        if threads is not None and threads < 1:
            raise InvalidOptionError(f"threads must be >= 1, got {threads}", parameter="threads")
        folder = Path(bundle)
        texts = load_texts(folder, workers, limits)
        each = max(1, (threads or default_threads()) // workers)
        steppers = BundleSteppers(folder, texts.manifest, each)
        super().__init__(texts, steppers, workers=workers, limits=limits)
        steppers.stepper_for(shortlisted=self.default_options.shortlist)  # loads it
