"""Makes pairs of texts that mean the same, to fit sentence embeddings to: `python -m training
pairs`.

Translations are such pairs (Artetxe and Schwenk 2019), and so are two texts of one language that
have a translation in common, which are paraphrases (Bannard and Callison-Burch 2005).
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from training.corpora.pairs import Corpus, Pair, iterate_lines
from training.errors import ConfigError, CorpusError
from training.recipe.config import Recipe, TranslationRecipe
from training.recipe.filters import Languages, bare
from training.runs.checkpoint import write_atomically
from training.runs.replacing import check_free
from training.tasks.translation import corpus_weights, read_corpus

_MOST_ALIKE = 12
"""Largest number of translations of a text that is used: a text with more, such as `Ja.`, says
little about their meaning."""
_LEAST_WORDS = 4
"""Least number of words of a text: shorter texts have too many meanings for a common translation to
make them alike."""
_SUFFIXES = (".tsv", ".tsv.gz")


@dataclass(frozen=True)
class MadePairs:
    """A table that was written."""

    out: Path
    translations: int
    """Lines of a text and its translation."""
    paraphrases: int
    """Lines of two texts of one language."""
    left_out: int
    """Number of pairs that were left out: one text is among those to leave out, or both texts are
    the same."""


def make_pairs(
    recipe: Recipe,
    out: Path,
    leave_out: Sequence[Path],
    *,
    texts_of: tuple[str, Path] | None = None,
    force: bool,
) -> MadePairs:
    """Write the pairs of a translation recipe as a table in random order; either text of a pair may
    come first.

    The text is cleaned as for translation. If the weight of a corpus is below 1, that share of it
    is drawn; a weight above 1 counts as 1, since a batch should not hold a pair twice. A pair is
    left out if one of its texts is in the validation text, or in a file of `leave_out` (lines, or a
    .tsv with a text in each column); case and punctuation do not matter. `texts_of` names a
    language and a file for the table's texts in that language, each once, for a teacher to read.

    Raises ConfigError for a recipe of another kind, and if `out` cannot be written; CorpusError for
    text that cannot be read.
    """
    if not isinstance(recipe, TranslationRecipe):
        raise ConfigError(
            f"pairs are made of parallel text, and {recipe.name} is not a recipe of translation; "
            "name one whose data.train lists parallel files"
        )
    if not out.name.endswith(_SUFFIXES):
        raise ConfigError(f"OUT must end in {' or '.join(_SUFFIXES)}, got {out}")
    check_free(out, leave_out, force=force)
    if texts_of is not None:
        check_free(texts_of[1], leave_out, force=force)
    corpus = read_corpus(recipe)
    held = {bare(text) for text in _texts(corpus.validation, leave_out)}
    drawn = random.Random(recipe.loop.seed)
    found = _Pairs(held)
    for pair, languages in _sample(recipe, corpus, drawn):
        found.add(pair, languages)
    translations = len(found.lines)
    for pair, languages in _paraphrases(recipe, corpus):
        found.add(pair, languages)
    if texts_of is not None:
        language, path = texts_of
        texts = found.texts.get(language, {})
        if not texts:
            raise ConfigError(
                f"--texts-of must name one of {', '.join(sorted(found.texts))}, got {language!r}"
            )
        _write(path, "".join(f"{text}\n" for text in texts))
    lines = [pair if drawn.random() < 0.5 else pair[::-1] for pair in found.lines]
    drawn.shuffle(lines)
    if not lines:
        raise CorpusError("no pair is left to write; leave fewer texts out, or add text")
    _write(out, "".join("\t".join(map(_cell, pair)) + "\n" for pair in lines))
    return MadePairs(out, translations, len(lines) - translations, found.left_out)


class _Pairs:
    """A collection of pairs; a pair and its reverse count as the same."""

    def __init__(self, held: set[str]) -> None:
        self._held, self._seen = held, set[tuple[str, ...]]()
        self.lines: list[Pair] = []
        self.texts: dict[str, dict[str, None]] = {}
        """The texts of each language, in the order in which they were added."""
        self.left_out = 0

    def add(self, pair: Pair, languages: Languages) -> None:
        """Take a pair that may be learnt from and has not been taken."""
        key = tuple(sorted(map(bare, pair)))
        if key[0] == key[1] or not self._held.isdisjoint(key):
            self.left_out += 1
        elif key not in self._seen:
            self._seen.add(key)
            self.lines.append(pair)
            for language, text in zip(languages, pair, strict=True):
                self.texts.setdefault(language, {})[_cell(text)] = None


def _texts(validation: Iterable[Pair], files: Iterable[Path]) -> Iterator[str]:
    for pair in validation:
        yield from pair
    for path in files:
        for line in iterate_lines(path):
            yield from line.split("\t") if ".tsv" in path.suffixes else (line,)


def _sample(
    recipe: TranslationRecipe, corpus: Corpus, drawn: random.Random
) -> Iterator[tuple[Pair, Languages]]:
    sizes = dict.fromkeys(range(len(recipe.data.corpora)), 0)
    for origin in corpus.origins:
        sizes[origin] += 1
    weights = corpus_weights(recipe.data, sizes)
    for pair, origin in zip(corpus.train, corpus.origins, strict=True):
        if drawn.random() < weights[origin]:
            yield pair, recipe.data.direction(recipe.data.corpora[origin])


def _paraphrases(recipe: TranslationRecipe, corpus: Corpus) -> Iterator[tuple[Pair, Languages]]:
    """Pairs of paraphrases: two texts of one language that translate the same text of another."""
    directions = [recipe.data.direction(files) for files in recipe.data.corpora]
    alike: dict[tuple[Languages, str], dict[str, str]] = {}
    for (source, target), origin in zip(corpus.train, corpus.origins, strict=True):
        languages = directions[origin]
        for way, of, text in ((languages, source, target), (languages[::-1], target, source)):
            if len(text.split()) >= _LEAST_WORDS:
                alike.setdefault((way, bare(of)), {}).setdefault(bare(text), text)
    for ((_, target), _), texts in alike.items():
        if 2 <= len(texts) <= _MOST_ALIKE:
            for pair in combinations(texts.values(), 2):
                yield pair, (target, target)


def _write(out: Path, text: str) -> None:
    content = text.encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    # Without a time in it: the same text makes the same file.
    write_atomically(out, gzip.compress(content, 6, mtime=0) if out.suffix == ".gz" else content)


def _cell(text: str) -> str:
    return " ".join(text.split())
