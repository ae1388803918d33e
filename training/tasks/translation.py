"""The task of training a translation model: from a recipe's files to clean pairs, a tokenizer and
batched ids, once per run folder."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from serving.bundle.tokenizer import Tokenizer
from training.batches.batching import (
    BatchedCorpus,
    CorpusOptions,
    IdPair,
    PairBatch,
    collate,
    encode_prefix,
)
from training.batches.prepared import PreparedText
from training.batches.streaming import Sampling, StreamedCorpus, store_text
from training.corpora.origin_note import check_languages
from training.corpora.pairs import (
    Cleaner,
    CleaningReport,
    Corpus,
    Pair,
    hold_out,
    iterate_pairs,
    iterate_texts,
)
from training.corpora.tables import first_line, iterate_table
from training.errors import CorpusError
from training.models import Transformer, TranslationModel
from training.recipe.config import DataConfig, ParallelFiles, TranslationRecipe, expand
from training.runs.checkpoint import write_atomically
from training.runs.folder import (
    REPORT_FILE,
    VALIDATION_LANGUAGES,
    VALIDATION_SOURCE,
    VALIDATION_TARGET,
)
from training.tasks.guide import Guide, guided_loss
from training.tasks.loss import label_smoothed_loss
from training.tasks.validation import validate
from training.vocabularies.of_run import prepare_tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunData:
    """The training and validation data of a translation model; a `training.tasks.task.Task`."""

    recipe: TranslationRecipe
    tokenizer: Tokenizer
    train: BatchedCorpus | StreamedCorpus
    validation: list[Pair]
    report: CleaningReport
    validation_directions: list[int]
    """The index in `recipe.data.directions` of the direction of each validation pair."""
    guide: Guide | None = None
    """The word alignments that guide attention; None unless the recipe asks for them."""

    @property
    def digest(self) -> str:
        """A hash of the training text: a run is resumed on its own only."""
        return self.train.digest

    @property
    def validation_digest(self) -> str:
        """A digest of the validation text; a run can be resumed only on the text it has begun
        with."""
        texts = [*iterate_texts(self.validation), *self._languages()]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()

    def _languages(self) -> list[str]:
        """The direction of each validation pair in words; empty if there is only one direction."""
        data = self.recipe.data
        if not data.is_multilingual:
            return []
        return [" ".join(data.directions[number]) for number in self.validation_directions]

    def write(self, run: Path) -> None:
        """Write the report of cleaning, and the validation text, on which export compares."""
        report = json.dumps(self.report.to_dict(), indent=1).encode() + b"\n"
        write_atomically(run / REPORT_FILE, report)
        for side, name in enumerate((VALIDATION_SOURCE, VALIDATION_TARGET)):
            lines = "".join(f"{pair[side]}\n" for pair in self.validation)
            write_atomically(run / name, lines.encode())
        if languages := self._languages():
            lines = "".join(f"{direction}\n" for direction in languages)
            write_atomically(run / VALIDATION_LANGUAGES, lines.encode())

    def epoch(self, epoch: int, begun: int = 0, part: int = 0) -> list[list[IdPair]]:
        """The batches of a part of an epoch that begins after so many steps.

        Raises CorpusError if the whole epoch has none.
        """
        with collector_paused():
            if isinstance(self.train, StreamedCorpus):
                batches = self.train.epoch(epoch, begun, part)
            else:
                batches = self.train.epoch(epoch, begun)
        if not batches and not (self.parts(begun) > 1 and any(self.train.trained_on)):
            raise CorpusError("no training pair is left after cleaning; see corpus_report.json")
        return batches

    def parts(self, begun: int) -> int:
        """Number of parts of an epoch that begins after so many steps: 1, unless the text is
        streamed."""
        return self.train.parts(begun) if isinstance(self.train, StreamedCorpus) else 1

    def change_after(self, begun: int) -> int | None:
        """The first step after `begun` at which a corpus ends; None if no corpus ends later."""
        ends = [files.until_step for files in self.recipe.data.corpora if files.weight]
        return min((step for step in ends if step is not None and step > begun), default=None)

    def collate(self, pairs: list[IdPair], device: torch.device) -> PairBatch:
        """Padded tensors of one batch, on a device."""
        batch = collate(pairs)
        if self.guide is not None:
            batch = replace(batch, links_BTS=self.guide.batch(pairs))
        return batch.to(device)

    def loss(self, model: TranslationModel, batch: PairBatch, smoothing: float) -> Tensor:
        """Label-smoothed loss summed over the labels of a batch, plus that of guided alignment if
        the batch has links."""
        if batch.links_BTS is None:
            states = model.states(batch.source_BS, batch.target_BT)
            return label_smoothed_loss(model, states, batch.labels_BT, smoothing)
        assert isinstance(model, Transformer)  # the recipe is checked
        states, context = model.aligned_states(batch.source_BS, batch.target_BT)
        loss = label_smoothed_loss(model, states, batch.labels_BT, smoothing)
        heads = model.config.num_heads
        return loss + self.recipe.optim.alignment_weight * guided_loss(
            context, batch.links_BTS, heads
        )

    def validate(self, model: TranslationModel) -> dict[str, float | str]:
        """Loss on all held-out pairs, BLEU and chrF on some (`validate`)."""
        numbers = self.validation_directions
        return validate(model, self.tokenizer, self.validation, numbers, self.recipe)


def read_corpus(recipe: TranslationRecipe) -> Corpus:
    """Read, clean and split the text of a recipe, or find that in the recipe's cache.

    Raises CorpusError if a file cannot be used, was made by a bundle of other languages, or no
    pair is left.
    """
    check_languages(recipe.data)
    with collector_paused():
        return PreparedText(recipe).corpus(lambda: _clean_corpus(recipe))


def _clean_corpus(recipe: TranslationRecipe) -> Corpus:
    data = recipe.data
    corpora = [list(_without_tags(data, files)) for files in data.corpora]
    validation, numbers = _read_validation(data)
    clean = _Cleaning(data)
    found: list[_Found] = []
    for origin, pairs in enumerate(corpora):
        found += [(source, target, origin) for source, target in clean.corpus(origin, pairs)]
    report = clean.report
    if not found:
        raise CorpusError(f"{data.train[0].name}: no usable pair; {report}".partition("\n")[0])
    if data.validation is None:
        found, held = _hold_out(data, found, report, recipe.loop.seed)
        validation = [(source, target) for source, target, _ in held]
        numbers = [_direction_numbers(data)[origin] for *_, origin in held]
        report.held_out = len(validation)
    train = [(source, target) for source, target, _ in found]
    return Corpus(train, [origin for *_, origin in found], validation, report, numbers)


_Found = tuple[str, str, int]
"""A pair, and which of `data.corpora` it is from."""


class _Cleaning:
    """Cleans the corpora of a recipe, each direction by its own languages, into one report."""

    def __init__(self, data: DataConfig, *, by_digest: bool = False) -> None:
        self._data, self.report = data, CleaningReport()
        self._cleaners = {
            direction: Cleaner(
                data.steps_of(direction), direction, by_digest=by_digest, report=self.report
            )
            for direction in data.directions
        }

    def corpus(self, origin: int, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The good pairs of one of `data.corpora`; they come in the order of these."""
        files = self._data.corpora[origin]
        direction = self._data.direction(files)
        several = self._data.is_multilingual
        name = f"{files.name} ({'-'.join(direction)})" if several else files.name
        return self._cleaners[direction].clean(pairs, name, _first_line(files))


def _direction_numbers(data: DataConfig) -> list[int]:
    """The index in `data.directions` of the direction of each corpus."""
    return [data.directions.index(data.direction(files)) for files in data.corpora]


def _hold_out(
    data: DataConfig, found: list[_Found], report: CleaningReport, seed: int
) -> tuple[list[_Found], list[_Found]]:
    """Split into (training, validation). With several directions, each gives validation pairs in
    proportion to its share of the text; pairs held out in one direction are not trained on in the
    other either."""
    if not data.is_multilingual:
        return hold_out(found, data.held_out_pairs, seed)
    numbers = _direction_numbers(data)
    train: list[_Found] = []
    held: list[_Found] = []
    for number in range(len(data.directions)):
        own = [pair for pair in found if numbers[pair[2]] == number]
        if own:
            count = max(1, data.held_out_pairs * len(own) // len(found))
            rest, some = hold_out(own, count, seed)
            train += rest
            held += some
    of_number = [tuple(reversed(direction)) for direction in data.directions]
    reverses = {(of_number[numbers[origin]], target, source) for source, target, origin in held}
    random.Random(seed).shuffle(held)  # so that each part of it is of all directions
    kept: list[_Found] = []
    for source, target, origin in train:
        if (data.directions[numbers[origin]], source, target) in reverses:
            report.corpora[origin].dropped["held out the other way"] += 1
        else:
            kept.append((source, target, origin))
    if not kept:
        raise CorpusError(
            f"data.held_out_pairs = {data.held_out_pairs} leaves none of the {len(found)} clean "
            "pairs to train on; lower it or add text"
        )
    return kept, held


def _read_validation(data: DataConfig) -> tuple[list[Pair], list[int]]:
    """The pairs of `data.validation`, and which of `data.directions` each is."""
    pairs: list[Pair] = []
    numbers: list[int] = []
    for files in data.validation_corpora:
        some = list(_read(files))
        _check_validation(files, some)
        pairs += some
        numbers += [data.directions.index(data.direction(files))] * len(some)
    if len(data.validation_corpora) > 1:  # so that each part of it is of all directions
        order = list(range(len(pairs)))
        random.Random(1).shuffle(order)
        pairs, numbers = [pairs[i] for i in order], [numbers[i] for i in order]
    return pairs, numbers


def prepare(recipe: TranslationRecipe, run: Path) -> RunData:
    """Clean the text and batch the ids; a run folder without a tokenizer gets one.

    Raises CorpusError or ConfigError if that cannot be done, StorageError if text that is
    streamed cannot be written.
    """
    check_languages(recipe.data)
    with collector_paused():
        data = _stream(recipe, run) if recipe.data.streaming else _load(recipe, run)
    left = [origin for origin, count in enumerate(data.train.trained_on) if count]
    if left and all(recipe.has_ended(origin) for origin in left):
        raise CorpusError(
            "no training pair is left of the corpora that are trained on in the end; see "
            "until_step and weight in data.train"
        )
    for origin, reasons in data.train.dropped.items():
        data.report.corpora[origin].dropped.update(reasons)
    logger.info("%s", data.report)
    if recipe.optim.alignment_weight:
        return replace(data, guide=Guide(_some_pairs(data)))
    return data


def _some_pairs(data: RunData) -> list[IdPair]:
    """All pairs of ids; of streamed text those of one part."""
    if isinstance(data.train, StreamedCorpus):
        return [pair for batch in data.epoch(0) for pair in batch]
    return data.train.ids


def _load(recipe: TranslationRecipe, run: Path) -> RunData:
    """All text in memory."""
    prepared = PreparedText(recipe)
    corpus = prepared.corpus(lambda: _clean_corpus(recipe))
    tokenizer = _tokenizer(recipe, run, iterate_texts(corpus.train))
    weights = corpus_weights(recipe.data, Counter(corpus.origins))
    train = BatchedCorpus(
        corpus.train,
        tokenizer,
        corpus_options(recipe, tokenizer),
        weights=[weights[origin] for origin in corpus.origins],
        origins=corpus.origins,
        ids=prepared.ids(corpus.train, tokenizer),
        seed=recipe.loop.seed,
    )
    return RunData(
        recipe, tokenizer, train, corpus.validation, corpus.report, corpus.validation_directions
    )


def _stream(recipe: TranslationRecipe, run: Path) -> RunData:
    """Prepare text that stays on disk; only a part is in memory at a time."""
    data = recipe.data
    validation, numbers = _read_validation(data)
    prepared = PreparedText(recipe)
    text = prepared.stored_text(lambda folder: _store(recipe, folder))
    tokenizer = _tokenizer(recipe, run, text.texts())
    ids = prepared.stored_ids(text, tokenizer)
    sizes = {origin: len(rows) for origin, (rows, _) in enumerate(text.corpora)}
    sampling = Sampling(data.streaming, corpus_weights(data, sizes), recipe.loop.seed)
    options = corpus_options(recipe, tokenizer)
    train = StreamedCorpus(text, ids, tokenizer, options, sampling)
    return RunData(recipe, tokenizer, train, validation, text.report, numbers)


def _store(recipe: TranslationRecipe, folder: Path) -> None:
    """Clean the text into files, a pair at a time."""
    data = recipe.data
    cleaning = _Cleaning(data, by_digest=True)
    clean = [
        cleaning.corpus(origin, _without_tags(data, files))
        for origin, files in enumerate(data.corpora)
    ]
    store_text(folder, clean, cleaning.report)


def _tokenizer(recipe: TranslationRecipe, run: Path, texts: Iterable[str]) -> Tokenizer:
    tokenizer = prepare_tokenizer(recipe, run, texts)
    assert isinstance(tokenizer, Tokenizer)  # a translation recipe has no word list
    return tokenizer


def corpus_options(recipe: TranslationRecipe, tokenizer: Tokenizer) -> CorpusOptions:
    """The options of batches in a recipe; raises ConfigError for a language tag that is not a piece
    of the vocabulary."""
    return CorpusOptions(
        token_budget=recipe.data.budget,
        max_pieces=recipe.data.max_pieces,
        cost=recipe.model.batch_cost,
        subword_alpha=recipe.data.subword_alpha,
        bpe_dropout=recipe.data.bpe_dropout,
        noise=recipe.data.noise,
        prefixes=_prefixes(recipe.data, tokenizer),
        until=[files.until_step for files in recipe.data.corpora],
    )


def _prefixes(data: DataConfig, tokenizer: Tokenizer) -> list[list[int]]:
    """The ids before each source of each corpus; raises ConfigError for a tag without a piece."""
    tags = data.language_tags
    return [
        encode_prefix(tokenizer, tags.get(data.direction(files)[1]), files.tag)
        for files in data.corpora
    ]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector for the block. It would count the millions of lists of a large
    corpus, none of which is garbage, again and again, which takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def corpus_weights(data: DataConfig, sizes: Mapping[int, int]) -> list[float]:
    """The number of times that the pairs of each corpus come in an epoch, given the corpora's
    `sizes` in pairs.

    With a temperature T the shares are proportional to size^(1/T), where the size is that of the
    direction if there are several; an epoch has as many pairs as there are.
    """
    if data.temperature is None:
        return [files.weight for files in data.corpora]
    corpora = range(len(data.corpora))
    groups = _direction_numbers(data) if data.is_multilingual else list(corpora)
    of_group = Counter[int]()
    for i in corpora:
        of_group[groups[i]] += sizes[i]
    # Of size^(1/T) / size: with T = 1 exactly 1.
    favours = [(of_group[groups[i]] or 1) ** (1 / data.temperature - 1) for i in corpora]
    drawn = sum(favour * sizes[i] for i, favour in enumerate(favours))
    return [favour * sum(sizes.values()) / drawn for favour in favours]


def _read(files: ParallelFiles) -> Iterator[Pair]:
    """Iterate over the pairs of one corpus, read as they are asked for."""
    if files.file is not None:
        only = None
        if files.direction_column is not None:
            only = files.direction_column, f"{files.source_language}>{files.target_language}"
        return iterate_table(expand(files.file), files.columns, only)
    return iterate_pairs(expand(str(files.source)), expand(str(files.target)))


def _first_line(files: ParallelFiles) -> int:
    """The number of the line of the corpus' first pair."""
    return (
        1
        if files.file is None
        else first_line(Path(files.file), files.columns, files.direction_column)
    )


def _without_tags(data: DataConfig, files: ParallelFiles) -> Iterator[Pair]:
    """The pairs of a corpus; raises CorpusError for a tag that is also text: a model could not
    distinguish them."""
    tags = (*data.tags, *data.language_tags.values())
    for number, pair in enumerate(_read(files), _first_line(files)):
        for tag in tags:
            if tag in pair[0] or tag in pair[1]:
                raise CorpusError(
                    f"{files.name}:{number}: the tag {tag!r} of data.train is also text here; "
                    "choose another tag"
                )
        yield pair


def _check_validation(files: ParallelFiles, pairs: list[Pair]) -> None:
    if not any(source.strip() and target.strip() for source, target in pairs):
        raise CorpusError(
            f"{files.name}: no pair of the validation text has words on both sides; give another "
            "data.validation, or leave it out to hold pairs out"
        )
