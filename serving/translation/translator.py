"""Translates texts on the calling thread, for the command line and for Python."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from serving.bundle.folder import parse_manifest
from serving.bundle.manifest import Manifest
from serving.errors import DecodingError, InvalidOptionError, RequestError, ServingError
from serving.queue.limits import BatchLimits, usual_limits
from serving.runtime.device import batches_at_once, open_device
from serving.runtime.session import ON_CPU, Device, DeviceUse
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import Encoder, OnnxStepper
from serving.search.beams.sentence import Finished, Sentence
from serving.search.options import SearchOptions
from serving.search.stepper import Stepper
from serving.text.characters import check_text, listed
from serving.text.document import Document, Format
from serving.text.glossary import TermIndex
from serving.text.memory.segments import Draft, MemoryUse
from serving.text.terms import NO_TERMS, Terms
from serving.threads import default_threads
from serving.translation.distinct import translate_units
from serving.translation.offline import decode_in_batches
from serving.translation.reading import TextInSentences, taken
from serving.translation.results import (
    Again,
    Done,
    Score,
    Split,
    Translation,
    check_single,
    gathered,
    needs_one_sentence,
)
from serving.translation.running import RunningBatches, Steppers
from serving.translation.scoring import score_pairs
from serving.translation.texts import TextProcessor, load_texts
from serving.translation.ticket import Request

if TYPE_CHECKING:  # imported later, because a starting server needs neither files nor model names
    from serving.documents.files import FileTranslation, FileWishes
    from serving.documents.unit import Translated, Unit

_WARM_UP_TEXT = "A warm-up."
_ALLOWING = "zero_shot=True (on the command line --zero-shot)"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """Less common options of translating texts in Python."""

    target_prefix: str | Sequence[str] = ""
    """The texts with which translations must begin: one for all texts, or one per text. If a text
    has several sentences, it applies to the first."""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
    terms: Terms = NO_TERMS
    """Terms that the translation of every sentence must or must not contain."""
    glossary: Sequence[TermIndex] = ()
    """Glossaries of these languages. The terms that a sentence contains are put into its
    translation. `translate_sentences` ignores them."""
    memory: MemoryUse | None = None
    """A memory of these languages. Its sentences are not decoded, or begin as in the memory;
    prefixes and terms do not apply to its translations. `translate_sentences` ignores it."""

    def __post_init__(self) -> None:
        """Raise InvalidOptionError for one glossary in place of a sequence."""
        if isinstance(self.glossary, TermIndex):
            raise InvalidOptionError(
                "glossary must be a sequence of TermIndex, got one; put it into a list",
                parameter="glossary",
            )


NO_WISHES = Wishes()


class BundleSteppers:
    """The step graphs of a translation bundle; each is loaded at its first use."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int, device: Device) -> None:
        self._loaded_from, self._device = (folder, manifest, threads), device

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(*self._loaded_from, self._device)

    @functools.cached_property
    def whole(self) -> Stepper:
        """The graph for the whole vocabulary."""
        return OnnxStepper(*self._loaded_from, encoder=self._encoder, device=self._device)

    @functools.cached_property
    def shortlist(self) -> Stepper:
        """The graph for sentences with shortlists."""
        return ShortlistStepper(*self._loaded_from, encoder=self._encoder, device=self._device)


class ModelTranslator:
    """Translates with a loaded model in this process."""

    def __init__(
        self,
        texts: TextProcessor,
        steppers: Steppers,
        *,
        workers: int = 1,
        limits: BatchLimits | None = None,
        device: DeviceUse = ON_CPU,
        zero_shot: bool = False,
    ) -> None:
        """`workers` batches are decoded at once and share the memory of `limits`. `zero_shot`
        allows language pairs on which the model was not trained."""
        self._zero_shot = zero_shot
        self.texts, self.steppers = texts, steppers
        self.workers, self._limits = workers, limits or usual_limits(device.name)
        self.device = device
        """The device that the model runs on."""

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self.texts.manifest

    @property
    def default_options(self) -> SearchOptions:
        """The bundle's default search options."""
        return self.texts.default_options

    def _options(self, options: SearchOptions | None) -> SearchOptions:
        """The given options, or the bundle's. Raises InvalidOptionError for what is none."""
        if options is not None and not isinstance(options, SearchOptions):
            raise InvalidOptionError(
                f"options must be SearchOptions, got {type(options).__name__}; write "
                "SearchOptions(beam_size=4)",
                parameter="options",
            )
        return options or self.default_options

    def engine(self) -> RunningBatches:
        """The engine that decodes on the calling thread."""
        return RunningBatches(self.texts, self.steppers)

    def warm_up(self) -> None:
        """Translate something, because the first translation takes longer."""
        source, target = self.manifest.languages.trained[0]
        self.translate_sentences([_WARM_UP_TEXT], source=source, target=target)

    def direction(self, source: str | None, target: str | None) -> tuple[str, str]:
        """The source and target language. Either may be omitted if the bundle leaves no choice.

        Raises UnknownLanguageError, which lists the pairs, if the model does not translate this
        pair or if several pairs fit.
        """
        return self.manifest.languages.choose(
            source, target, allowing=_ALLOWING, zero_shot=self._zero_shot
        )

    def translate(
        self,
        texts: str | Sequence[str],
        options: SearchOptions | None = None,
        *,
        source: str | None = None,
        target: str | None = None,
        format: Format = "text",
        split: bool = True,
        wishes: Wishes = NO_WISHES,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate texts of any number of sentences, as the server does; results in input order.

        `source` and `target` are language codes, for a bundle of several directions. Markup,
        placeholders, numbers and symbols are kept. Without `split` a text, or a block of markup, is
        one sentence. `wishes` has prefixes, word links and terms. `progress` is called with the
        number of texts just finished. Raises RequestError for a text that cannot be read or is too
        long, and DecodingError if the model fails on one.
        """
        options = self._options(options)
        read = [
            self.read(
                text, options, source=source, target=target, format=format, split=split, wishes=own
            )
            for text, own in _with_wishes(texts, wishes)
        ]
        return _in_order(self.translate_read(read), progress)

    def read(
        self,
        text: str,
        options: SearchOptions,
        *,
        source: str | None = None,
        target: str | None = None,
        format: Format = "text",
        split: bool = True,
        wishes: Wishes = NO_WISHES,
    ) -> TextInSentences:
        """Read a text for `translate_read`; parameters and errors are those of `translate`. The
        prefix in `wishes` is the one of this text."""
        check_text(text)
        document = Document(text, format)
        source, target = self.direction(source, target)
        whole = wishes.memory or needs_one_sentence(options, wishes.terms)
        document.divide(
            source,
            self.texts.fits,
            split=split,
            target=target,
            spells=self.texts.spells,
            usual=None if whole else self.texts.usual,
            score=self.texts.score,
            greeting=None
            if whole or wishes.target_prefix
            else functools.partial(self.texts.greeting, source=source, target=target),
        )
        if len(document.sentences) > 1:
            check_single(options, wishes.terms, len(document.sentences))
        with_links = wishes.alignments or document.needs_links or bool(wishes.glossary)
        own = replace(wishes, alignments=with_links)
        sentences = []
        known, drafts = taken(document, wishes.memory) if wishes.memory else ({}, {})
        for number, sentence in enumerate(document.sentences):
            draft = drafts.get(number)
            sentences.append(
                None
                if number in known
                else self._prepare(sentence, options, source, target, own, draft)
            )
            own = replace(own, target_prefix="")
        return TextInSentences(
            document, sentences, wishes.alignments, with_links, target, wishes.glossary, known
        )

    def _prepare(
        self,
        text: str,
        options: SearchOptions,
        source: str,
        target: str,
        wishes: Wishes,
        draft: Draft | None = None,
    ) -> Sentence | None:
        assert isinstance(wishes.target_prefix, str)  # an error of this text only
        sentence = self.texts.prepare(
            Request(
                text=text,
                source=source,
                target=target,
                options=options,
                target_prefix=wishes.target_prefix,
                alignments=wishes.alignments,
                terms=wishes.terms,
                draft=draft,
            )
        )
        if sentence is not None:
            self.texts.demand(sentence)  # which refuses a text that is too large for any batch
        return sentence

    def translate_each(
        self,
        texts: Sequence[str],
        options: SearchOptions,
        *,
        source: str | None = None,
        target: str | None = None,
        format: Format = "text",
        split: bool = True,
        wishes: Wishes = NO_WISHES,
    ) -> Iterator[tuple[int, Translation | ServingError]]:
        """Yield each text's index with its translation or its error, as they end. A text that fails
        does not stop the others. The parameters are those of `translate`; a prefix in `wishes`
        applies to every text."""
        source, target = self.direction(source, target)
        read: dict[int, TextInSentences] = {}
        for index, text in enumerate(texts):
            try:
                read[index] = self.read(
                    text,
                    options,
                    source=source,
                    target=target,
                    format=format,
                    split=split,
                    wishes=wishes,
                )
            except RequestError as error:
                yield index, error
        numbers = list(read)
        for number, result in self.translate_read(list(read.values())):
            yield numbers[number], result

    def translate_read(
        self, texts: Sequence[TextInSentences]
    ) -> Iterator[tuple[int, Translation | ServingError]]:
        """Yield each text's index with its translation or its error, as they end."""
        waiting: dict[tuple[int, int], Sentence | None] = {}
        found: list[dict[int, Translation]] = [{} for _ in texts]
        for index, text in enumerate(texts):
            waiting |= {(index, number): s for number, s in text.waiting.items()}
            if not text.waiting:
                yield index, text.joined({})
        failed: set[int] = set()
        for (index, number), result in self._translate(waiting):
            if index in failed:
                continue
            if isinstance(result, ServingError):
                failed.add(index)
                yield index, result
                continue
            found[index][number] = result
            if len(found[index]) == len(texts[index].waiting):
                yield index, texts[index].joined(found[index])

    def translate_file(
        self,
        source_path: str | Path,
        target_path: str | Path,
        options: SearchOptions | None = None,
        *,
        source: str | None = None,
        target: str | None = None,
        wishes: FileWishes | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> FileTranslation:
        """Translate a file into another of the same kind (docs/how-to/documents.md).

        The target is written completely or not at all. Equal sentences are translated once.
        `progress` is called with the number of finished sentences and their total. After an
        interruption the next call continues with `.NAME.partial` beside the target. Raises
        DocumentError for a file that cannot be read, TooLongError for a paragraph that is too long,
        InvalidOptionError if the target may not be written, and OSError.
        """
        from serving.documents.files import NO_FILE_WISHES, translate_file

        options = self._options(options)
        source, target = self.direction(source, target)
        out = Path(target_path)
        asked = wishes or NO_FILE_WISHES

        def read(unit: Unit) -> TextInSentences:
            own = Wishes(
                alignments=unit.links,
                terms=asked.terms,
                glossary=asked.glossary,
                memory=asked.memory,
            )
            return self.read(
                unit.text,
                options,
                source=source,
                target=target,
                format=unit.format,
                wishes=own,
            )

        def translate(units: Sequence[Unit]) -> tuple[list[Translated], list[str]]:
            return translate_units(units, read, self._translate, out, made_by.hexdigest(), progress)

        begun_so = asked.memory is not None and asked.memory.as_prefix
        made_by = sha256(
            repr((self.manifest, options, source, target, asked.terms, begun_so)).encode()
        )
        asked = dataclasses.replace(asked, target_language=target)
        return translate_file(Path(source_path), out, translate, asked)

    def translate_sentences(
        self,
        sentences: str | Sequence[str],
        options: SearchOptions | None = None,
        *,
        source: str | None = None,
        target: str | None = None,
        wishes: Wishes = NO_WISHES,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translation]:
        """Translate each text as one sentence, without dividing, keeping or repairing anything.

        Models are measured with this. Results are in input order; parameters and errors are those
        of `translate`.
        """
        options = dataclasses.replace(self._options(options), verify=False)
        source, target = self.direction(source, target)
        prepared = [
            self._prepare(text, options, source, target, own)
            for text, own in _with_wishes(sentences, wishes)
        ]
        return _in_order(self._translate(dict(enumerate(prepared))), progress)

    def _translate(
        self, sentences: Mapping[Key, Sentence | None]
    ) -> Iterator[tuple[Key, Translation | DecodingError]]:
        """Yield each sentence's key with its translation or its error. None, a sentence without
        pieces, gets an empty translation."""
        waiting: dict[Key, Sentence] = {}
        for key, sentence in sentences.items():
            if sentence is None:
                yield key, Translation("")
            else:
                waiting[key] = sentence
        while waiting:  # a second round decodes what was sent back
            again: dict[Key, Sentence] = {}
            for key, finished in self._decode(waiting):
                try:
                    outcome = self.texts.complete(waiting[key], finished)
                except DecodingError as error:
                    yield key, error
                    continue
                match outcome:
                    case Done(translation):
                        yield key, translation
                    case Again(other):
                        again[key] = other
                    case Split(parts):
                        yield key, self._gathered(parts)
            waiting = again

    def _gathered(self, sentences: Sequence[Sentence]) -> Translation | DecodingError:
        """A single translation with the hypotheses of several sentences."""
        parts: dict[int, Translation] = {}
        for number, result in self._translate(dict(enumerate(sentences))):
            if isinstance(result, DecodingError):
                return result
            parts[number] = result
        return gathered([parts[number] for number in range(len(parts))])

    def _decode(self, sentences: dict[Key, Sentence]) -> Iterator[tuple[Key, Finished]]:
        keys = list(sentences)
        for shortlisted in (False, True):
            part = {
                number: sentences[key]
                for number, key in enumerate(keys)
                if sentences[key].shortlisted == shortlisted
            }
            if part:
                stepper = self.steppers.shortlist if shortlisted else self.steppers.whole
                for number, finished in decode_in_batches(
                    stepper, part, self.workers, self._limits
                ):
                    yield keys[number], finished

    def score(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        source: str | None = None,
        target: str | None = None,
    ) -> list[Score]:
        """The log-probabilities of given pairs (source, target), in input order.

        The languages are those of `translate`. Raises RequestError for a text that cannot be read
        or is too long, and DecodingError if the model gives a non-finite score.
        """
        languages = self.direction(source, target)
        return score_pairs(self.texts, self.steppers.whole, self._limits, pairs, languages)


def _with_wishes(texts: str | Sequence[str], wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    """Each text with its own wishes; one prefix may apply to all texts. Raises RequestError for
    what is no text, no `Wishes`, and for prefixes that are not one for each text."""
    every = listed(texts)
    if not isinstance(wishes, Wishes):
        raise InvalidOptionError(
            f"wishes must be Wishes, got {type(wishes).__name__}", parameter="wishes"
        )
    if isinstance(wishes.target_prefix, str):
        return ((text, wishes) for text in every)
    prefixes = listed(wishes.target_prefix, "target_prefix")
    if len(prefixes) != len(every):
        raise InvalidOptionError(
            f"target_prefix must be one text, or one for each of the {len(every)} texts, got "
            f"{len(prefixes)}",
            parameter="target_prefix",
        )
    for prefix in prefixes:
        check_text(prefix, "target_prefix")
    each = [replace(wishes, target_prefix=prefix) for prefix in prefixes]
    return zip(every, each, strict=True)


def _in_order(
    ended: Iterator[tuple[int, Translation | ServingError]], progress: Callable[[int], None] | None
) -> list[Translation]:
    """All translations by number; raises the first error."""
    results: dict[int, Translation] = {}
    for index, result in ended:
        if isinstance(result, ServingError):
            raise result
        results[index] = result
        if progress:
            progress(1)
    return [results[index] for index in range(len(results))]


class Translator(ModelTranslator):
    """A translation bundle, loaded.

    Examples:
        >>> Translator("models/macaron-de-en").translate("Guten Morgen!")[0].text
        'Good morning!'
    """

    def __init__(
        self,
        bundle: str | Path,
        *,
        threads: int | None = None,
        workers: int = 1,
        limits: BatchLimits | None = None,
        zero_shot: bool = False,
    ) -> None:
        """Load and check a bundle; raises BundleError if it is unusable.

        `bundle` is a path, or the name of a model (`Helsinki-NLP/opus-mt-de-en`), which is
        downloaded and imported once. `threads` (default: all usable processors) are shared by
        `workers` batches that are decoded at once. One worker is best for single sentences, one per
        thread for many. All workers share the memory of `limits`. A GPU has one worker, or as many
        as MACARON_CUDA_STREAMS says. With `zero_shot` a bundle of several directions also
        translates between its languages if it was not trained on the pair.
        """
        if threads is not None and threads < 1:
            raise InvalidOptionError(f"threads must be >= 1, got {threads}", parameter="threads")
        from serving.hub.pull import bundle_folder

        folder = bundle_folder(bundle)
        workers = batches_at_once(parse_manifest(folder), workers)
        texts = load_texts(folder, workers, limits)
        each = max(1, (threads or default_threads()) // workers)
        cache_bytes = (limits or BatchLimits()).max_cache_bytes
        device = open_device(folder, texts.manifest, cache_bytes, workers)
        steppers = BundleSteppers(folder, texts.manifest, each, device)
        super().__init__(
            texts,
            steppers,
            workers=workers,
            limits=limits,
            device=device.use,
            zero_shot=zero_shot,
        )
        _ = steppers.shortlist if self.default_options.shortlist else steppers.whole  # loads it
