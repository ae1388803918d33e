"""Converts texts into sentences to decode and results into texts, for a translation bundle; runs no
model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.arrays import Floats
from serving.bundle.folder import read_manifest
from serving.bundle.load_tokenizer import load_tokenizers
from serving.bundle.manifest import Manifest, check_shortlist
from serving.bundle.tokenizer import Scored, TextTokenizer, ids_of_pieces
from serving.checking.invariants import faults, is_noteworthy
from serving.errors import (
    BundleError,
    InvalidOptionError,
    RequestError,
    TooLongError,
    UnknownLanguageError,
)
from serving.queue.limits import BatchLimits, Demand
from serving.runtime.cache_tensors import CacheSizes
from serving.search.beams.alternatives import continuations, first_tokens
from serving.search.beams.sentence import Drafted, Finished, Hypothesis, Original, Sentence
from serving.search.options import SearchOptions, parse_options
from serving.search.prefix_tree import most_slots
from serving.search.stepper import CacheCosts
from serving.text.alignment import Link, Span, word_links, word_spans, word_weights
from serving.text.characters import check_text
from serving.text.dictionary import WORD, Dictionary, read_dictionary
from serving.text.inflection import plain
from serving.text.memory.segments import Draft, changed_words
from serving.text.phrases import Phrases, read_phrases
from serving.text.placing.casing import label_in_small_letters
from serving.text.stream import TextStream
from serving.text.terms import NO_TERMS, TermReader
from serving.translation.drafting import begun, first_changed, ids_before, shortened
from serving.translation.lookup import Lookup, look_up, with_entries
from serving.translation.results import (
    Again,
    Done,
    SentenceOutcome,
    Split,
    TextHypothesis,
    Translation,
)
from serving.translation.ticket import Request
from serving.translation.verification import is_copied, read_again_if_copied, verified

_REMEMBERED = 1024
"""Number of texts whose pieces are cached: more than most requests have sentences."""
_LOOP_LENGTH, _LOOP_TIMES, _GUARD_NGRAM = 8, 4, 3


class TextProcessor:
    """Tokenizers, limits and defaults of a translation bundle."""

    def __init__(
        self,
        manifest: Manifest,
        source: TextTokenizer,
        target: TextTokenizer,
        sizes: CacheCosts,
        max_cache_bytes: int,
        phrases: Phrases | None = None,
        dictionary: Dictionary | None = None,
    ) -> None:
        """`sizes` are the cache sizes; one sentence may take at most `max_cache_bytes`. Raises
        BundleError for a language tag that a text could be encoded to, and for a prefix with
        unknown pieces."""
        languages = manifest.languages
        self.manifest, self.target = manifest, target
        self.sizes, self._max_cache_bytes = sizes, max_cache_bytes
        self._source, self._terms = source, TermReader(target)
        self._phrases, self._dictionary = phrases, dictionary
        self._tags = _tag_ids(manifest.name, languages.tags, source)
        self._source_tags = _tag_ids(manifest.name, languages.source_tags, source)
        self._prefixes = _prefix_ids(manifest.name, languages.prefixes, source)
        self._first_pieces = _tag_ids(manifest.name, languages.first_pieces, target)
        self._most_before = languages.most_before
        self._start, self._ends = manifest.decoding_ids.bos, manifest.ends
        self._source_end = [manifest.decoding_ids.eos] if manifest.tokenizer.source_end else []
        self.first_length = 1 if self._first_pieces else 0
        """Number of language ids at the beginning of each translation."""
        # Needed twice: to check whether a text fits, and at its submission.
        self._source_pieces = functools.lru_cache(_REMEMBERED)(functools.partial(_pieces, source))
        self._spells = functools.lru_cache(_REMEMBERED)(functools.partial(_spells, source))
        self._of_bytes = not _spells(source, "a")
        self.score = source.score if isinstance(source, Scored) else None
        """The score of a word in the source's vocabulary, if it has such scores."""

    @property
    def _max_source(self) -> int:
        limit = self.manifest.sizes.max_source
        assert limit is not None  # as the manifest's reader has checked
        return limit

    @functools.cached_property
    def default_options(self) -> SearchOptions:
        """The default search options of the bundle."""
        return parse_options(self.manifest.search)

    def prepare(self, request: Request) -> Sentence | None:
        """The sentence to decode, or None for a blank text, which stays blank.

        Raises InvalidTextError, TooLongError, UnknownLanguageError, or InvalidOptionError for a
        shortlist that the bundle does not have and for a term that the model cannot write. The
        memory that decoding takes is not checked here: `demand` does that.
        """
        text, options, terms = request.text, request.options, request.terms
        if options.shortlist:
            check_shortlist(options, self.manifest)
        name = "translation" if request.given else "target_prefix"
        prefix = self.encode_target(request.target_prefix, name)
        ids = self.encode_source(text, request.source, request.target)
        if not (text.strip() and self._source_pieces(text)):
            return None
        if request.given:
            return self._to_score(ids, request.target, prefix)
        phrase = self._phrase(request)
        if phrase is not None:
            given = self._to_score(ids, request.target, self.encode_target(phrase, "phrase"))
            return dataclasses.replace(given, text=text if request.alignments else None, known=True)
        begin = [*self.first_pieces(request.target), *prefix]
        options = self._within_positions(options, len(ids), len(begin))
        draft = request.draft
        original = None
        if options.verify and not request.target_prefix:
            original = self._original(request)
        lookup = None if original is None else self._lookup(request, original)
        with_links = request.alignments or lookup is not None
        sentence = Sentence(
            ids,
            options,
            begin,
            start=self._start,
            ends=self._ends,
            text=text if with_links else None,
            constraints=None if terms is NO_TERMS else self._terms.constraints(text, terms),
            original=original,
            # A translation that may still be repaired is streamed afterwards.
            streamed=request.stream
            and draft is None
            and lookup is None
            and not (options.return_alternatives or (original and original.noteworthy)),
            lookup=lookup,
        )
        label = self._label(request, original)
        if label is not None:
            small = self.encode_source(label, request.source, request.target)
            return read_again_if_copied(sentence, label, small, alignments=with_links)
        if not options.return_alternatives:
            return sentence if draft is None else self._drafted(sentence, draft, request)
        self.demand(sentence)
        return first_tokens(sentence)

    def _phrase(self, request: Request) -> str | None:
        """The translation of a set phrase, which is its only hypothesis. Where it has to be another
        one, and where the model's own is wanted (`verify`), there is none."""
        options = request.options
        free = not (request.target_prefix or request.draft) and request.terms is NO_TERMS
        if not self._phrases or not (free and options.verify) or options.max_length:
            return None
        if options.return_alternatives:
            return None
        source, target = self._languages(request)
        return self._phrases.translation(request.text, source or "", target or "")

    def _lookup(self, request: Request, original: Original) -> Lookup | None:
        """What the dictionary says about words of a text; None where the request itself says how
        the translation has to be."""
        if self._dictionary is None or request.draft or request.options.return_alternatives:
            return None
        if request.terms is not NO_TERMS or not (original.source and original.target):
            return None
        # Most sentences have no such word: they are not searched for any.
        pair = original.source, original.target
        text = request.text
        words = WORD.findall(text if text.isascii() else plain(text))
        first = words[:1] and [words[0][:1].lower() + words[0][1:]]
        if self._dictionary.first_words.get(pair, frozenset()).isdisjoint((*words, *first)):
            return None
        return look_up(self._dictionary, text, *pair, linked=request.alignments)

    def _languages(self, request: Request) -> tuple[str | None, str | None]:
        """The languages of a request: the model's if it has one pair and the request names none."""
        languages = self.manifest.languages
        ours = request.source or (languages.source[0] if len(languages.source) == 1 else None)
        theirs = request.target or (languages.target[0] if len(languages.target) == 1 else None)
        return ours, theirs

    def _within_positions(
        self, options: SearchOptions, source_length: int, prefix_length: int
    ) -> SearchOptions:
        """The options, with the model's largest max_length if none is set and the usual one exceeds
        the model's positions."""
        most = self.manifest.sizes.max_positions
        if most is None or options.max_length is not None:
            return options
        room = max(1, most - prefix_length)
        if options.max_steps(source_length) <= room:
            return options
        return dataclasses.replace(options, max_length=room)

    def _drafted(self, sentence: Sentence, draft: Draft, request: Request) -> Sentence:
        """The draft, to be read before the sentence is decoded. Returns the sentence itself if it
        shares no beginning with the draft, or if the model cannot read the draft."""
        self.demand(sentence)
        changed = changed_words(request.text, draft.source)
        if changed is None or not draft.target:
            return sentence
        try:
            ids = self.encode_source(draft.source, request.source, request.target)
            given = self.encode_target(draft.target, "draft")
            reading = self._to_score(ids, request.target, given)
            self.demand(reading)
            # All of the draft may become the beginning.
            self.demand(dataclasses.replace(sentence, target_prefix=reading.target_prefix))
        except RequestError:
            return sentence
        return dataclasses.replace(reading, text=draft.source, draft_of=Drafted(sentence, changed))

    def _begun(self, sentence: Sentence, drafted: Drafted, read: Hypothesis) -> Sentence:
        """The sentence of a draft that was read, with the shared beginning as its prefix."""
        *ids, _ = sentence.target_prefix[self.first_length :]
        words = word_spans(self.target.decode(ids))
        alike = 0
        if words and read.attention_TS is not None and sentence.text is not None:
            weights_IJ = word_weights(*self._attention(read.attention_TS, sentence, words, ids))
            alike = first_changed(weights_IJ, drafted.changed)
        count = ids_before(ids, words[:alike], self.target)[-1] if alike else 0
        return begun(drafted, read, self.first_length, count, self.target)

    def _to_score(self, source: list[int], language: str | None, target: list[int]) -> Sentence:
        """A sentence with a given translation: one step after its end yields all scores."""
        return Sentence(
            source,
            SearchOptions(beam_size=1, max_length=len(target) + 2, loop_guard=False, verify=False),
            [*self.first_pieces(language), *target, self._ends[0]],
            start=self._start,
            ends=self._ends,
            counted=len(target) + 1,
            given=True,
        )

    def fits(self, text: str) -> bool:
        """Whether a sentence has few enough pieces for the model."""
        return self._most_before + len(self._source_pieces(text)) < self._max_source

    def usual(self, text: str) -> bool:
        """Whether a sentence is as short as those that the model translates whole."""
        limit = self.manifest.sizes.usual_source
        return limit is None or self._most_before + len(self._source_pieces(text)) < limit

    def greeting(self, text: str, source: str, target: str) -> int:
        """The end of a greeting with which a sentence begins and which is a set phrase: `Liebe
        Anna, wie geht es dir?` 0 if there is none."""
        return self._phrases.greeting(text, source, target) if self._phrases else 0

    def spells(self, text: str) -> bool:
        """Whether the source's vocabulary can write a text without single bytes and unknown pieces;
        always True for a vocabulary of bytes only."""
        return self._of_bytes or self._spells(text)

    def is_piece(self, word: str) -> bool:
        """Whether the source's vocabulary has a word as one piece."""
        return len(self._source_pieces(word)) == 1

    def text_stream(self) -> TextStream:
        """A stream that turns pieces into text as they come."""
        return TextStream(self.target, ())

    def complete(self, sentence: Sentence, finished: Finished) -> SentenceOutcome:
        """The next action for a sentence whose search has ended.

        Raises DecodingError if the model failed on this sentence.
        """
        outcome = self._outcome(sentence, finished)
        if isinstance(outcome, Done) and isinstance(sentence.lookup, Lookup):
            return Done(with_entries(outcome.translation, sentence.lookup))
        return outcome

    def _outcome(self, sentence: Sentence, finished: Finished) -> SentenceOutcome:
        """The next action, before what the dictionary says is put in."""
        if finished.error is not None:
            raise finished.error
        if sentence.draft_of is not None:
            return Again(self._begun(sentence, sentence.draft_of, finished.hypotheses[0]))
        if sentence.given:
            return Done(self._scored(finished.hypotheses[0], sentence))
        if sentence.first_of is not None:
            parts = continuations(sentence, finished)
            if parts:
                return Split(tuple(parts))
        if sentence.beginning is not None:
            best = finished.hypotheses[0]
            shorter = shortened(sentence, best, self.first_length, self.target)
            if shorter is not None:
                return Again(shorter)
        options = sentence.options
        guarded = options.loop_guard and options.no_repeat_ngram_size == 0
        if guarded and ends_in_loop(finished.hypotheses[0].tokens):
            guard = dataclasses.replace(options, no_repeat_ngram_size=_GUARD_NGRAM)
            return Again(dataclasses.replace(sentence, options=guard, guarded=True))
        hypotheses = self._to_texts(finished.hypotheses, sentence)
        warnings = ["repetition"] if sentence.guarded else []
        if not hypotheses[0].finished:
            warnings.append("max_length")
        if any(hypothesis.missing for hypothesis in finished.hypotheses):
            warnings.append("constraints")
        translation = Translation(
            hypotheses[0].text,
            hypotheses,
            tuple(warnings),
            beginning="" if sentence.beginning is None else sentence.beginning.text,
        )
        other, original = sentence.if_copied, sentence.original
        if other and original and is_copied(original.text, translation.text):
            return Again(other)
        return self._verified(sentence, translation, finished.others)

    def _label(self, request: Request, original: Original | None) -> str | None:
        """How else a label may be read, if its translation is compared with it and the request asks
        for nothing more."""
        if original is None or original.source is None or self.score is None:
            return None
        if original.text.endswith((".", "!", "?")):  # as most sentences
            return None
        if request.draft or request.terms is not NO_TERMS or request.options.return_alternatives:
            return None
        return label_in_small_letters(original.text, original.source, self.score)

    def _original(self, request: Request) -> Original:
        """The text that a translation is compared with."""
        ours, theirs = self._languages(request)
        return Original(request.text, ours, theirs, is_noteworthy(request.text, (ours, theirs)))

    def _verified(
        self, sentence: Sentence, translation: Translation, others: Sequence[Hypothesis]
    ) -> Done | Again:
        """The translation, compared with its source and repaired if needed, or the sentence to
        decode instead. A second search repairs the translation of the first."""
        original = sentence.original
        if original is None:
            return Done(translation)
        first = translation if original.first is None else original.first
        assert isinstance(first, Translation)
        wrong = faults(original.text, first.text, (original.source, original.target))
        if not wrong:
            return Done(translation)
        more = functools.partial(self._to_texts, others, sentence)
        return verified(sentence, original, translation, wrong, more, self._terms)

    def encode_source(
        self, text: str, source: str | None = None, target: str | None = None
    ) -> list[int]:
        """Token ids of a source: language tags if the bundle has them, piece ids and, if sources
        have one, eos; raises InvalidTextError, TooLongError or UnknownLanguageError."""
        if not isinstance(text, str):
            check_text(text)  # which says so; a list could not be looked up
        pieces, limit = self._source_pieces(text), self._max_source - self._most_before
        if len(pieces) >= limit:
            raise TooLongError(
                f"text must have at most {limit - 1} pieces for this model, got {len(pieces)}; "
                "split it into sentences",
                parameter="text",
            )
        return [
            *_chosen(self._source_tags, "source", source),
            *_chosen(self._tags, "target", target),
            *_chosen(self._prefixes, "target", target),
            *pieces,
            *self._source_end,
        ]

    def first_pieces(self, target: str | None) -> Sequence[int]:
        """The `first_length` ids of the target language that begin each translation; raises
        UnknownLanguageError."""
        return _chosen(self._first_pieces, "target", target)

    def demand(self, sentence: Sentence) -> Demand:
        """The demand of decoding a sentence. Raises what `check_memory` does, and TooLongError for
        an output that could exceed the model's positions."""
        most, prefix = self.manifest.sizes.max_positions, len(sentence.target_prefix)
        if most is not None and prefix + sentence.max_steps > most:
            raise TooLongError(
                f"an output of this model must have at most {most} pieces, got {prefix} in its "
                f"prefix and up to {sentence.max_steps} more; shorten target_prefix or lower "
                "max_length",
                parameter="max_length",
            )
        asked = demand(sentence, self.sizes)
        self._check_bytes(asked, self.sizes.cache_bytes(1, asked.source_length, asked.slots))
        return asked

    def check_memory(self, demand: Demand) -> None:
        """Raise TooLongError for a row that alone could exceed the cache."""
        self._check_bytes(demand, self.sizes.cache_bytes(1, demand.source_length, demand.slots))

    def _check_bytes(self, demand: Demand, needed: int) -> None:
        limit = self._max_cache_bytes
        if needed > limit:
            raise TooLongError(
                f"the text may need {needed / 2**20:.0f} MiB of cache (source of "
                f"{demand.source_length} ids, beam_size {demand.group.beam_size}, up to "
                f"{demand.slots} slots), max_cache_bytes allows {limit / 2**20:.0f} MiB; split it, "
                "or lower beam_size or max_length",
                parameter="text",
            )

    def encode_target(self, text: str, name: str) -> list[int]:
        """Piece ids of a target; raises as `encode_source` does and calls the text by its
        `name`."""
        if text == "":  # None is no text
            return []
        check_text(text, name)
        target, limit = self.target.encode(text), self._max_source
        if len(target) > limit:
            raise TooLongError(
                f"{name} must have at most {limit} pieces, got {len(target)}", parameter=name
            )
        return target

    def _to_texts(
        self, hypotheses: Sequence[Hypothesis], sentence: Sentence
    ) -> tuple[TextHypothesis, ...]:
        return tuple(self._to_text(hypothesis, sentence) for hypothesis in hypotheses)

    def _to_text(self, hypothesis: Hypothesis, sentence: Sentence) -> TextHypothesis:
        ended, calibration = hypothesis.finished, self.manifest.calibration
        probability = None
        if calibration is not None:
            forced = len(sentence.target_prefix) - sentence.counted
            length = len(hypothesis.tokens) - forced
            score = self.default_options.score(hypothesis.cumulative, length, ended=ended)
            probability = calibration.probability(score)
        tokens = list(hypothesis.tokens)[self.first_length :]
        text = self.target.decode(tokens)
        return TextHypothesis(
            text=text,
            score=hypothesis.score,
            cumulative=hypothesis.cumulative,
            tokens=tuple(self.target.pieces(tokens)),
            token_scores=hypothesis.token_scores[self.first_length :],
            finished=ended,
            probability=probability,
            alignment=self._links(hypothesis, sentence, text),
        )

    def _scored(self, hypothesis: Hypothesis, sentence: Sentence) -> Translation:
        """The given translation with its scores; the step after its end is left out."""
        *tokens, _ = sentence.target_prefix[self.first_length :]
        token_scores = hypothesis.token_scores[self.first_length : len(sentence.target_prefix)]
        cumulative = sum(token_scores)
        score = self.default_options.score(cumulative, len(tokens), ended=True)
        text, calibration = self.target.decode(tokens), self.manifest.calibration
        links = None
        if sentence.text is not None and hypothesis.attention_TS is not None:
            words = word_spans(text)
            links = word_links(*self._attention(hypothesis.attention_TS, sentence, words, tokens))
        found = TextHypothesis(
            text=text,
            score=score,
            cumulative=cumulative,
            tokens=tuple(self.target.pieces(tokens)),
            token_scores=token_scores,
            finished=True,
            # Of a known translation the model's own opinion says little.
            probability=None
            if calibration is None or sentence.known
            else calibration.probability(score),
            alignment=links,
        )
        return Translation(text, (found,))

    def _links(
        self, hypothesis: Hypothesis, sentence: Sentence, target: str
    ) -> tuple[Link, ...] | None:
        if sentence.text is None or hypothesis.attention_TS is None:
            return None
        ids = list(hypothesis.tokens)[self.first_length :]
        words = word_spans(target)
        return word_links(*self._attention(hypothesis.attention_TS, sentence, words, ids))

    def _attention(
        self, attention_TS: Floats, sentence: Sentence, words: Sequence[Span], ids: list[int]
    ) -> tuple[Floats, Sequence[Span], Sequence[Span], Sequence[Span], Sequence[Span]]:
        """The arguments of `word_weights`: attention of ids to a sentence, and the words and pieces
        of both."""
        text = sentence.text or ""
        own = len(self._source_pieces(text)) + len(self._source_end)
        return (
            attention_TS[self.first_length :, len(sentence.source) - own :],
            word_spans(text),
            self._source.spans(text),
            words,
            self.target.decoded_spans(ids),
        )


def demand(sentence: Sentence, sizes: CacheCosts) -> Demand:
    """The demand of a sentence."""
    group, prefix = sentence.group, len(sentence.target_prefix)
    slots = most_slots(
        prefix, group.beam_size, sentence.max_steps, sizes.repack_every, spare=sizes.spare_slots
    )
    return Demand(group, len(sentence.source), slots)


def load_texts(
    folder: Path, workers: int, limits: BatchLimits | None, devices: int = 1
) -> TextProcessor:
    """Check a bundle and load what texts need; raises BundleError if it is unusable.

    `workers` batches are decoded at the same time; those on each of the `devices` share the memory
    of `limits`.
    """
    if workers < 1:
        raise InvalidOptionError(f"workers must be >= 1, got {workers}", parameter="workers")
    manifest = read_manifest(folder)
    if manifest.task != "translate":
        raise BundleError(f"{folder}: task must be 'translate', got {manifest.task!r}")
    source, target = load_tokenizers(folder, manifest)
    max_cache_bytes = (limits or BatchLimits()).shared(workers, devices).max_cache_bytes
    phrases = read_phrases(folder / manifest.phrases_file) if manifest.phrases_file else None
    dictionary = manifest.dictionary_file and read_dictionary(folder / manifest.dictionary_file)
    sizes = CacheSizes(manifest)
    return TextProcessor(
        manifest, source, target, sizes, max_cache_bytes, phrases, dictionary or None
    )


def _chosen(
    ids: Mapping[str, Sequence[int]], parameter: str, language: str | None
) -> Sequence[int]:
    """The ids of a language; empty if the model uses none."""
    if not ids:
        return ()
    if language is None or language not in ids:
        raise UnknownLanguageError(
            f"{parameter} must be one of {sorted(ids)}, got {language!r}", parameter=parameter
        )
    return ids[language]


def _prefix_ids(
    name: str, prefixes: Mapping[str, Sequence[str]], tokenizer: TextTokenizer
) -> dict[str, tuple[int, ...]]:
    """The ids before each language's sources in the bundle of this name."""
    ids = ids_of_pieces(tokenizer) if prefixes else {}
    missing = {piece for pieces in prefixes.values() for piece in pieces} - ids.keys()
    if missing:
        raise BundleError(
            f"{name}: {min(missing)!r}, of languages.prefixes, is not a piece of its vocabulary; "
            "export the bundle again"
        )
    return {
        language: tuple(ids[piece] for piece in pieces) for language, pieces in prefixes.items()
    }


def _tag_ids(
    name: str, tags: Mapping[str, str], tokenizer: TextTokenizer
) -> dict[str, tuple[int, ...]]:
    """The id of each language's tag in the bundle of this name."""
    ids: dict[str, tuple[int, ...]] = {}
    for language, tag in tags.items():
        found = tokenizer.control_id(tag)
        if found is None:
            raise BundleError(
                f"{name}: {tag!r}, the tag of {language}, is not a control piece of its "
                "vocabulary; export the bundle again"
            )
        ids[language] = (found,)
    return ids


def ends_in_loop(tokens: Sequence[int]) -> bool:
    """Whether a cycle of 1 to 8 tokens is repeated four times at the end."""
    for length in range(1, _LOOP_LENGTH + 1):
        end = list(tokens[-length * _LOOP_TIMES :])
        if len(end) == length * _LOOP_TIMES and end == end[:length] * _LOOP_TIMES:
            return True
    return False


def _pieces(tokenizer: TextTokenizer, text: str) -> list[int]:
    """The piece ids of a text. Raises InvalidTextError for characters that no model can read."""
    check_text(text)
    return tokenizer.encode(text)


def _spells(tokenizer: TextTokenizer, text: str) -> bool:
    return not any(i == tokenizer.unk_id or tokenizer.is_byte(i) for i in tokenizer.encode(text))
