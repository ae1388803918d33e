"""Gives a bundle a dictionary of the words that its model does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from export.bundles.columns import read_pairs, translating, write_list
from export.errors import ExportError
from serving.text.dictionary import Dictionary, DictionaryEntry, fault_of, words_of
from serving.text.inflection import plain
from serving.threads import default_threads
from serving.translation.lookup import is_translated
from serving.translation.translator import Translator

FILE = "dictionary.tsv"
_WRITTEN = "+"
"""Before a word that is written, but not looked up, because it has other meanings, too."""


def add_dictionary(bundle: Path, file: Path, languages: Sequence[str]) -> int:
    """Write the words of a file that a bundle's model does not know into the bundle, in place of
    those that it has, for the pairs of languages that it translates. Each line has words of one
    meaning in each of the `languages` (`serving.text.dictionary`), separated by tabs; a language
    that has none is left empty. A word with a plus before it is a translation only, and is not
    looked up. A word is known if the model translates it and its plural, each alone, as the line
    says, and if the vocabulary has one of them as a piece: then there was much to learn it from.

    Returns how many there are. Raises ExportError for a bundle that does not translate, for lines
    of another form, and if no line has a pair of the bundle's languages, or none has a word that
    the model does not know.
    """
    manifest = translating(bundle, "dictionaries")
    found = _merged(_entries(file, languages, manifest.languages.trained))
    unknown = _unknown(Translator(bundle, workers=default_threads()), found)
    if not unknown:
        raise ExportError(f"{file}: the model knows all {len(found)} words; it needs no dictionary")
    return write_list(bundle, manifest, "dictionary_file", FILE, unknown)


def _entries(
    file: Path, languages: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> Iterator[DictionaryEntry]:
    """An entry for each word of each line, for each pair of languages."""
    for line, source, words, target, translations in read_pairs(file, languages, pairs, "words"):
        if fault := fault_of(words) or fault_of(translations):
            raise ExportError(f"{file}: line {line}: {fault}")
        written = ", ".join(word.removeprefix(_WRITTEN) for word in words_of(translations))
        if _would_agree(target, words_of(written)[0]):
            continue
        for word in words_of(words):
            if not word.startswith(_WRITTEN):
                yield DictionaryEntry(source, word, target, written)


def _would_agree(language: str, word: str) -> bool:
    """Whether a translation is an adjective, whose form would have to agree with a noun."""
    return word.count("/") == 3 or (language == "de" and word[0].islower())


def _merged(entries: Iterable[DictionaryEntry]) -> list[DictionaryEntry]:
    """The entries with those of one word in one: what any of its lines says is right."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for source, word, target, translations in entries:
        found.setdefault((source, plain(word), target), []).extend(words_of(translations))
    return [DictionaryEntry(*key, ", ".join(dict.fromkeys(every))) for key, every in found.items()]


def _unknown(translator: Translator, entries: Sequence[DictionaryEntry]) -> list[DictionaryEntry]:
    """The entries with a form that the model translates as something else, and with none that is
    a piece of its vocabulary."""
    wrong: set[DictionaryEntry] = set()
    entries = [
        entry for entry in entries if not any(map(translator.texts.is_piece, entry.word.split("/")))
    ]
    for source, target in dict.fromkeys((entry.source, entry.target) for entry in entries):
        asked = [
            (entry, form)
            for entry in entries
            if (entry.source, entry.target) == (source, target)
            for form in entry.word.split("/")
        ]
        outputs = translator.translate_sentences(
            [form for _, form in asked], source=source, target=target
        )
        for (entry, form), output in zip(asked, outputs, strict=True):
            matches = Dictionary([entry]).found(form, source, target)
            if not all(is_translated(match, output.text, target) for match in matches):
                wrong.add(entry)
    return [entry for entry in entries if entry in wrong]
