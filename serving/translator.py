"""Texts in, translations out: tokenising, batching by length, the loop guard, forced scoring."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from serving.alignment import Link, word_links, word_spans
from serving.alternatives import continuations, first_tokens
from serving.batches import BatchLimits, Demand, decode_in_batches, demand, fill_batches
from serving.bundle import Manifest, check_shortlist, read_manifest
from serving.bundle_tokenizer import load_tokenizer
from serving.cache import round_up
from serving.errors import (
    BundleError,
    DecodingError,
    InvalidOptionError,
    InvalidTextError,
    TooLongError,
)
from serving.hypotheses import Finished, Hypothesis, Sentence
from serving.options import SearchOptions, parse_options
from serving.session import OnnxStepper
from serving.shortlist_session import ShortlistStepper
from serving.stepper import Stepper
from serving.terms import NO_CONSTRAINTS
from serving.text_stream import TextStream
from serving.threads import default_threads
from serving.tokenizer import BOS_ID, EOS_ID
from serving.translation import Score, TextHypothesis, Translation, gathered
from serving.wanted_terms import NO_TERMS, TermReader, Terms

_REMEMBERED = 256
"""Texts whose pieces are kept."""
_LOOP_LENGTH, _LOOP_TIMES, _GUARD_NGRAM = 8, 4, 3
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


class Translator:
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
        for name, value in (("threads", threads), ("workers", workers)):
            if value is not None and value < 1:
                raise InvalidOptionError(f"{name} must be >= 1, got {value}")
        self._workers, self._limits = workers, limits or BatchLimits()
        folder = Path(bundle)
        self.manifest: Manifest = read_manifest(folder)
        if self.manifest.task != "translate":
            raise BundleError(f"{folder}: task must be 'translate', got {self.manifest.task!r}")
        files, size = self.manifest.tokenizer, self.manifest.sizes.vocab_size
        self._source = self._target = load_tokenizer(folder / files.source_file, files.kind, size)
        if files.target_file != files.source_file:
            self._target = load_tokenizer(folder / files.target_file, files.kind, size)
        self._folder, self._threads = folder, max(1, (threads or default_threads()) // workers)
        self.stepper_for(shortlisted=self.default_options.shortlist)  # loads it

    @functools.cached_property
    def _source_pieces(self) -> Callable[[str], list[int]]:
        """Pieces of a text; asked for twice, whether it fits and when it is submitted."""
        return functools.lru_cache(_REMEMBERED)(self._source.encode)

    @functools.cached_property
    def stepper(self) -> Stepper:
        """The model, loaded at first use."""
        return OnnxStepper(self._folder, self.manifest, self._threads)

    @functools.cached_property
    def shortlist_stepper(self) -> Stepper:
        """The model with shortlists, loaded at first use."""
        return ShortlistStepper(self._folder, self.manifest, self._threads)

    def stepper_for(self, *, shortlisted: bool) -> Stepper:
        """The model for sentences of one kind; see `Sentence.shortlisted`."""
        return self.shortlist_stepper if shortlisted else self.stepper

    @property
    def sizes(self) -> Stepper:
        """A loaded model, to ask for sizes: they are the same for both."""
        return vars(self).get("shortlist_stepper") or self.stepper

    @functools.cached_property
    def _terms(self) -> TermReader:
        return TermReader(self._target)

    @property
    def workers(self) -> int:
        """Batches that may be decoded at once."""
        return self._workers

    @property
    def _max_source(self) -> int:
        limit = self.manifest.sizes.max_source
        assert limit is not None  # as the manifest's reader has checked
        return limit

    @functools.cached_property
    def default_options(self) -> SearchOptions:
        """The bundle's own search options."""
        return parse_options(self.manifest.search)

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
            sentence = self.prepare(text, options, prefix, alignments=alignments, terms=terms)
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
                outcome = self.complete(waiting[index], finished)
                if isinstance(outcome, Sentence):
                    again[index] = outcome
                elif isinstance(outcome, list):
                    parts = dict(self._translate(dict(enumerate(outcome))))
                    yield index, gathered([parts[number] for number in range(len(parts))])
                else:
                    yield index, outcome
            waiting = again

    def _decode(self, sentences: dict[int, Sentence]) -> Iterator[tuple[int, Finished]]:
        for shortlisted in (False, True):
            part = {key: s for key, s in sentences.items() if s.shortlisted == shortlisted}
            if part:
                stepper = self.stepper_for(shortlisted=shortlisted)
                yield from decode_in_batches(stepper, part, self._workers, self._limits)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Score]:
        """Log-probabilities of given translations (source, target); results in input order.

        Raises RequestError for a text that cannot be read or is too long, DecodingError where the
        model gives a non-finite score.
        """
        encoded: dict[int, tuple[list[int], list[int]]] = {}
        for index, (source, target) in enumerate(pairs):
            encoded[index] = (self._encode_source(source), self._encode_target(target, "target"))
        results: dict[int, Score] = {}
        demands = {}
        for index, (source_ids, target_ids) in encoded.items():
            length = len(target_ids) + 1
            demands[index] = Demand(1, max(len(source_ids), length), round_up(length))
            self._check_memory(demands[index])
        for batch in fill_batches(demands, self.sizes, self._limits):
            results |= self._score_batch({index: encoded[index] for index in batch})
        return [results[index] for index in range(len(pairs))]

    def prepare(
        self,
        text: str,
        options: SearchOptions,
        target_prefix: str = "",
        *,
        alignments: bool = False,
        terms: Terms = NO_TERMS,
        stream: bool = False,
    ) -> Sentence | None:
        """The sentence to decode, or None for a blank text, which stays blank.

        Raises InvalidTextError, TooLongError, or InvalidOptionError for a shortlist that the bundle
        does not have and for a term that the model cannot write.
        """
        check_shortlist(options, self.manifest)
        prefix = self._encode_target(target_prefix, "target_prefix")
        source = self._encode_source(text)
        if len(source) == 1:
            return None
        constraints = NO_CONSTRAINTS if terms == NO_TERMS else self._terms.constraints(text, terms)
        sentence = Sentence(
            source,
            options,
            prefix,
            text=text if alignments else None,
            constraints=constraints,
            streamed=stream and not options.return_alternatives,
        )
        self._check_memory(demand(sentence, self.sizes))
        if not options.return_alternatives:
            return sentence
        first = first_tokens(sentence)
        self._check_memory(demand(first, self.sizes))
        return first

    def fits(self, text: str) -> bool:
        """Whether a sentence is short enough for the model, in pieces."""
        return len(self._source_pieces(text)) < self._max_source

    def text_stream(self) -> TextStream:
        """Makes text of a translation's pieces as they come."""
        return TextStream(self._target, ())

    def complete(
        self, sentence: Sentence, finished: Finished
    ) -> Translation | Sentence | list[Sentence]:
        """The translation, or the sentence to decode again where the loop guard found a loop, or
        the sentences whose translations, `gathered`, are this one's.

        Raises DecodingError where the model failed on this sentence.
        """
        if finished.error is not None:
            raise finished.error
        if sentence.first_of is not None:
            parts = continuations(sentence, finished)
            if parts:
                return parts
        options = sentence.options
        guarded = options.loop_guard and options.no_repeat_ngram_size == 0
        if guarded and ends_in_loop(finished.hypotheses[0].tokens):
            guard = dataclasses.replace(options, no_repeat_ngram_size=_GUARD_NGRAM)
            return dataclasses.replace(sentence, options=guard, guarded=True)
        hypotheses = tuple(
            self._to_text(hypothesis, sentence) for hypothesis in finished.hypotheses
        )
        warnings = ["repetition"] if sentence.guarded else []
        if not hypotheses[0].finished:
            warnings.append("max_length")
        if any(hypothesis.missing for hypothesis in finished.hypotheses):
            warnings.append("constraints")
        return Translation(hypotheses[0].text, hypotheses, tuple(warnings))

    def _encode_source(self, text: str) -> list[int]:
        """Piece ids and eos."""
        check_text(text)
        source = [*self._source_pieces(text), EOS_ID]
        limit = self._max_source
        if len(source) > limit:
            raise TooLongError(
                f"text must have at most {limit - 1} pieces for this model, got {len(source) - 1}; "
                "split it into sentences"
            )
        return source

    def _check_memory(self, demand: Demand) -> None:
        """Raise TooLongError for a row that could outgrow the cache alone."""
        limit = self._limits.max_cache_bytes // self._workers
        needed = self.sizes.cache_bytes(1, demand.source_length, demand.slots)
        if needed > limit:
            raise TooLongError(
                f"the text may need {needed / 2**20:.0f} MiB of cache (source of "
                f"{demand.source_length} ids, beam_size {demand.beam_size}, up to {demand.slots} "
                f"slots), max_cache_bytes allows {limit / 2**20:.0f} MiB; split it, or lower "
                "beam_size or max_length"
            )

    def _encode_target(self, text: str, name: str) -> list[int]:
        """Piece ids."""
        if not text:
            return []
        check_text(text)
        target, limit = self._target.encode(text), self._max_source
        if len(target) > limit:
            raise TooLongError(f"{name} must have at most {limit} pieces, got {len(target)}")
        return target

    def _to_text(self, hypothesis: Hypothesis, sentence: Sentence) -> TextHypothesis:
        tokens = list(hypothesis.tokens)
        text = self._target.decode(tokens)
        return TextHypothesis(
            text=text,
            score=hypothesis.score,
            cumulative=hypothesis.cumulative,
            tokens=tuple(self._target.pieces(tokens)),
            token_scores=hypothesis.token_scores,
            finished=hypothesis.finished,
            probability=self._probability(hypothesis, sentence),
            alignment=self._links(hypothesis, sentence.text, text),
        )

    def _probability(self, hypothesis: Hypothesis, sentence: Sentence) -> float | None:
        calibration = self.manifest.calibration
        if calibration is None:
            return None
        forced = len(sentence.target_prefix) - sentence.counted
        length = len(hypothesis.tokens) - forced
        score = self.default_options.score(hypothesis.cumulative, length, ended=hypothesis.finished)
        return calibration.probability(score)

    def _links(
        self, hypothesis: Hypothesis, source: str | None, target: str
    ) -> tuple[Link, ...] | None:
        if source is None or hypothesis.attention_TS is None:
            return None
        return word_links(
            hypothesis.attention_TS,
            word_spans(source),
            self._source.spans(source),
            word_spans(target),
            self._target.decoded_spans(list(hypothesis.tokens)),
        )

    def _score_batch(self, pairs: dict[int, tuple[list[int], list[int]]]) -> dict[int, Score]:
        stepper = self.stepper_for(shortlisted=False)
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
                tokens=tuple(self._target.pieces(target)),
                token_scores=tuple(scores[row, : len(target) + 1].tolist()),
            )
            for row, (index, (_, target)) in enumerate(pairs.items())
        }


def check_text(text: str) -> None:
    """Raise InvalidTextError for NUL or a lone surrogate, naming its place."""
    match = _UNREADABLE.search(text)
    if match:
        raise InvalidTextError(
            f"text must be Unicode without NUL or lone surrogates, got U+{ord(match[0]):04X} at "
            f"character {match.start()}; remove it"
        )


def ends_in_loop(tokens: Sequence[int]) -> bool:
    """Whether a cycle of 1 to 8 tokens stands four times in a row at the end."""
    for length in range(1, _LOOP_LENGTH + 1):
        end = list(tokens[-length * _LOOP_TIMES :])
        if len(end) == length * _LOOP_TIMES and end == end[:length] * _LOOP_TIMES:
            return True
    return False
