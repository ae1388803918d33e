"""Texts in, translations out, on the thread that asks: what the command line and Python use."""

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
from serving.queue.engine import Engine
from serving.queue.limits import BatchLimits, usual_limits
from serving.runtime.device import batches_at_once, open_device
from serving.runtime.session import ON_CPU, Device, DeviceUse
from serving.runtime.shortlist_stepper import ShortlistStepper
from serving.runtime.translation_stepper import Encoder, OnnxStepper
from serving.search.beams.sentence import Finished, Sentence
from serving.search.options import SearchOptions
from serving.search.stepper import Stepper
from serving.text.characters import check_text
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
    SentenceOutcome,
    Split,
    Translation,
    check_single,
    gathered,
)
from serving.translation.running import RunningBatches, Steppers
from serving.translation.scoring import score_pairs
from serving.translation.texts import TextProcessor, load_texts
from serving.translation.ticket import Request

if TYPE_CHECKING:  # a server that starts needs neither files nor names of models
    from serving.documents.files import FileTranslation, FileWishes
    from serving.documents.unit import Translated, Unit

_WARM_UP_TEXT = "A warm-up."
_ALLOWING = "zero_shot=True (on the command line --zero-shot)"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is rarely asked of the translation of texts in Python."""

    target_prefix: str | Sequence[str] = ""
    """What translations begin with: one text for all, or one a text; of several sentences the
    first gets it."""
    alignments: bool = False
    """Whether each hypothesis gets word links."""
    terms: Terms = NO_TERMS
    """Terms that every sentence's translation must or may not hold."""
    glossary: Sequence[TermIndex] = ()
    """Glossaries of these languages: what a sentence holds of them is put into its translation.
    They are for texts and files; `translate_sentences` leaves them out."""
    memory: MemoryUse | None = None
    """A memory of these languages, whose sentences are not decoded, or begin as it has them;
    likewise for texts and files alone. What it has heeds no prefix and no terms."""


NO_WISHES = Wishes()


class BundleSteppers:
    """The step graphs of a translation bundle, each loaded at first use."""

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
    """Translates with a model in this process, whatever it was loaded from."""

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
        """`workers` batches, decoded at once, share the memory of `limits`. With `zero_shot` pairs
        of languages are allowed on which the model was not trained."""
        self._zero_shot = zero_shot
        self.texts, self.steppers = texts, steppers
        self.workers, self._limits = workers, limits or usual_limits(device.name)
        self.device = device
        """What it runs on."""

    @property
    def manifest(self) -> Manifest:
        """What the bundle's manifest says of it."""
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
        source, target = self.manifest.languages.trained[0]
        self.translate_sentences([_WARM_UP_TEXT], source=source, target=target)

    def direction(self, source: str | None, target: str | None) -> tuple[str, str]:
        """The languages that are meant, of which what is clear from the bundle may be left out.

        Raises UnknownLanguageError, which lists the pairs, where the model does not translate that,
        or several pairs fit.
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

        `source` and `target` are language codes, for a bundle of several directions.
        What is not for a model (markup, placeholders, numbers, symbols) is kept. Without `split` a
        text, or a block of markup, is one sentence. `wishes` hold prefixes, word links and terms.
        `progress` is called with the number of texts just finished. Raises RequestError for a text
        that cannot be read or is too long, and DecodingError where the model fails on one.
        """
        options = options or self.default_options
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
        """Read a text, to be given to `translate_read`; see `translate`, which raises the same. The
        wish for a prefix is that of this text."""
        check_text(text)
        document = Document(text, format)
        source, target = self.direction(source, target)
        document.divide(
            source, self.texts.fits, split=split, target=target, spells=self.texts.spells
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
        assert isinstance(wishes.target_prefix, str)  # of this text alone
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
            self.texts.demand(sentence)  # which refuses what is too large for any batch
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
        """Each text's index with its translation, or with what it failed with, as they end: one
        that cannot be read or is too long does not end the others. See `translate`; the wish for a
        prefix is that of every text."""
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
        """Each text's index with its translation, or with what it failed with, as they end."""
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
        """Translate a file into another of the same kind (docs/how-to/documents.md), which is there
        whole or not at all; equal sentences are translated once.

        `progress` is called with the number of sentences that are done, and of all. What an
        interruption leaves, `.NAME.partial` beside the target, the next call goes on with. Raises
        DocumentError for a file that cannot be read, TooLongError for too long a paragraph,
        InvalidOptionError where the target may not be written, and OSError.
        """
        from serving.documents.files import NO_FILE_WISHES, translate_file

        options = options or self.default_options
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
        """Translate one sentence each, just as it is: nothing is divided, kept or put right.

        This is what a model is measured by. Results are in input order; for the rest see
        `translate`.
        """
        options = dataclasses.replace(options or self.default_options, verify=False)
        source, target = self.direction(source, target)
        prepared = [
            self._prepare(text, options, source, target, own)
            for text, own in _with_wishes(sentences, wishes)
        ]
        return _in_order(self._translate(dict(enumerate(prepared))), progress)

    def _translate(
        self, sentences: Mapping[Key, Sentence | None]
    ) -> Iterator[tuple[Key, Translation | DecodingError]]:
        """Each sentence's key and translation, or what the model failed with on it; None, for which
        the model has no pieces, becomes an empty one."""
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
        """One translation with the hypotheses of several sentences."""
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
        """Log-probabilities of given translations (source, target); results in input order. The
        languages are as `translate` takes them.

        Raises RequestError for a text that cannot be read or is too long, DecodingError where the
        model gives a non-finite score.
        """
        languages = self.direction(source, target)
        return score_pairs(self.texts, self.steppers.whole, self._limits, pairs, languages)


def _with_wishes(texts: str | Sequence[str], wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    """Each text with the wishes that are its own, where one prefix may be that of all texts."""
    every = [texts] if isinstance(texts, str) else list(texts)
    if isinstance(wishes.target_prefix, str):
        return ((text, wishes) for text in every)
    each = [replace(wishes, target_prefix=prefix) for prefix in wishes.target_prefix]
    return zip(every, each, strict=True)


def _in_order(
    ended: Iterator[tuple[int, Translation | ServingError]], progress: Callable[[int], None] | None
) -> list[Translation]:
    """All translations in the order of their numbers; raises the first error that comes."""
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
        """Load and check a bundle, which a path or a model's name stands for
        (`Helsinki-NLP/opus-mt-de-en`: downloaded and imported once); raises BundleError where it
        cannot be used.

        `threads` (default: the processors at hand) are shared by `workers` batches that are decoded
        at once: one worker is best for single sentences, one for each thread for many. All workers
        together keep to the memory of `limits`. On a GPU there are no more than it has streams for,
        one unless MACARON_CUDA_STREAMS says otherwise. With `zero_shot` a bundle of
        several directions also translates between languages of its own on whose pair it was not
        trained.
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
