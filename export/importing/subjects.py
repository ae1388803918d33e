"""Checkpoints as subjects of an export, with the texts on which they are compared; by task, which
also decides the options that a user may give."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from export.bundles.encoder import (
    COMPARED,
    FITTED,
    EncoderSubject,
    ReadEncoder,
    check_enough,
)
from export.bundles.language import GENERATION_DEFAULTS, LanguageSubject
from export.bundles.subject import Form, Subject
from export.bundles.translation import ComparedText, TranslationSubject
from export.errors import ExportError
from export.importing.folder import read_json
from export.importing.language_models.model import TEMPLATE, ImportedLanguageModel
from export.importing.model import Declared, Imported
from export.importing.vocabularies.text_side import TOKENIZER, fast_vocabulary, text_side
from export.texts.dev_set import DevSet
from export.texts.labelled import read_task
from export.texts.texts import (
    PASSAGE,
    SENTENCES,
    DocumentReader,
    TextPair,
    Texts,
    compared_windows,
    fitting_sentences,
    fitting_windows,
    read_sources,
)
from export.texts.vocabulary import Vocabulary
from serving.bundle.languages import Languages
from serving.bundle.manifest import TokenizerFiles
from serving.bundle.tokenizer import ids_of_pieces
from training.corpora.pairs import read_lines

_PAIRS = 16
"""Number of pairs of languages for which a text is read in turn."""
_WINDOW = 128
"""Number of tokens read at once when a language model's bundle and checkpoint are compared."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """The thing that is imported: its path, the form of the bundle, texts, and what else the user
    says about it."""

    path: Path
    form: Form
    texts: Texts
    declared: Declared

    @property
    def label(self) -> str:
        """Name of the model in messages: its origin, or its path if it has none."""
        return self.declared.origin or str(self.path)

    def origin(self, kind: str, licence: str | None) -> dict[str, Any]:
        """The model's origin as the manifest states it."""
        name = self.declared.origin or self.path.resolve().name
        weights = (
            f"Licence of the weights: {licence}." if licence else "It names no licence of them."
        )
        return {
            "attribution": f"Imported from {name}: {kind}. {weights}",
            "recipe": {"imported": {"from": name, "kind": kind, "licence": licence or ""}},
        }


@dataclass(frozen=True)
class Kind:
    """The common part of all model families of one task."""

    name: str
    options: frozenset[str]
    """The options of `export import` that the task has a use for, beside those that all tasks
    use."""
    subject: Callable[[Any, Source], Subject[Any]]
    """Makes the subject of an export from the result of a reader."""

    def refuse_others(self, source: Source) -> None:
        """Raise ExportError for an option that the task does not use."""
        texts, declared = source.texts, source.declared
        given = {
            "--dev": texts.dev,
            "--test": texts.tests,
            "--from": declared.languages.source,
            "--to": declared.languages.target,
            "--licence": declared.licence,
            "--task": texts.task,
            "--pooling": declared.pooling,
            "--attribution": declared.attribution,
        }
        for option, value in given.items():
            if value and option not in self.options:
                raise ExportError(
                    f"{source.path}: {self.name} does not take {option}; it takes "
                    f"{', '.join(sorted(self.options))}, and --text FILE to be compared on"
                )


def licence_of_card(source: Path) -> str | None:
    """The licence in the front matter of the checkpoint's card, or None if it names none."""
    try:
        folder = source if source.is_dir() else source.parent
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    front = re.match(r"---\n(.*?)\n---", card, re.DOTALL)
    value = r"^license:([ \t]*\S.*|(?:\n[ \t]*- .*)+)$"  # one, or a list of several
    found = re.search(value, front[1], re.MULTILINE) if front else None
    if found is None:
        return None
    lines = (line.strip().removeprefix("- ") for line in found[1].strip().split("\n"))
    return ", ".join(line.strip().strip("\"'") for line in lines)


def _translation(imported: Imported, source: Source) -> TranslationSubject:
    config, languages = imported.model.config, imported.languages
    if not languages.trained:
        raise ExportError("--from and --to leave the model no pair of two languages to translate")
    layers = f"{config.num_encoder_layers}+{config.num_decoder_layers} layers"
    sizes = f"{layers} of width {config.model_dim}, {config.vocab_size} pieces"
    logger.info("%s: %s, %s, %s", source.label, imported.kind, sizes, languages.listing)
    shortlist = imported.shortlist if source.form.target == "cpu" else None  # no other has them
    text = text_side(
        imported.pieces,
        imported.special_ids,
        config.vocab_size,
        source.path,
        source_end=imported.source_end,
    )
    return TranslationSubject(
        imported.model,
        text.vocabulary,
        text.files,
        {
            "special_ids": imported.special_ids,
            "tokenizer": text.tokenizer,
            "languages": languages,
            "search": imported.search | ({"shortlist": True} if shortlist else {}),
            **source.origin(imported.kind, source.declared.licence or licence_of_card(source.path)),
        },
        _compared_text(text.vocabulary, languages, source),
        max_source=imported.max_source,
        shortlist=shortlist,
    )


def _compared_text(vocabulary: Vocabulary, languages: Languages, source: Source) -> ComparedText:
    """The texts to compare on, with the tags that the model needs; raises an error if a file is
    wrong."""
    form, texts = source.form, source.texts
    if texts.dev is not None:
        if len(languages.trained) > 1 and languages.is_multilingual:
            raise ExportError(
                "--dev is for a model of one direction; give --text FILE with source text, and "
                "--test-direction FROM TO NAME SOURCE REFERENCE to score one direction"
            )
        name, text, file = texts.dev.name, texts.dev.read(), texts.dev.source
    elif texts.text is not None:
        name, file = f"{texts.text.name} (source text alone)", texts.text
        text = read_sources(file)
    else:
        built_in = read_json(SENTENCES)
        language = next((code for code in languages.source if code in built_in), "en")
        name, file = f"built-in sentences ({language})", SENTENCES
        text = DevSet(built_in[language], None)
    fitting = fitting_sentences(form.precision, form.activations, file, text)
    tests = tuple(_scored(languages, test) for test in texts.tests)
    return ComparedText(name, _addressed(vocabulary, languages, text), fitting, tests)


def _addressed(vocabulary: Vocabulary, languages: Languages, text: DevSet) -> DevSet:
    """A text whose sentences are assigned to the pairs of languages in turn."""
    if not (languages.is_multilingual or languages.source_tags):
        return text
    ids = ids_of_pieces(vocabulary.source)
    prefixes, firsts = [], []
    pairs = languages.trained[:: -(-len(languages.trained) // _PAIRS)]  # from all over the list
    for (source, target), _ in zip(cycle(pairs), text.sources, strict=False):
        tags = languages.source_tags.get(source), languages.tags.get(target)
        pieces = [tag for tag in tags if tag is not None] + [*languages.prefixes.get(target, ())]
        prefixes.append([ids[piece] for piece in pieces])
        first = languages.first_pieces.get(target)
        firsts.append([] if first is None else [ids[first]])
    return replace(text, prefixes=prefixes, target_prefixes=firsts)


def _scored(languages: Languages, test: TextPair) -> tuple[str, DevSet]:
    several = len(languages.trained) > 1 and languages.is_multilingual
    if several and test.languages not in languages.trained:
        raise ExportError(
            f"{test.name}: the model translates {languages.listing}, and which of these the "
            "text is must be given: name it as --test-direction FROM TO NAME SOURCE REFERENCE"
        )
    return test.name, test.read()


def _language_model(imported: ImportedLanguageModel, source: Source) -> LanguageSubject:
    config, special_ids = imported.model.config, imported.special_ids
    sizes = f"{config.num_decoder_layers} layers of width {config.model_dim}"
    logger.info("%s: %s, %s, %d ids", source.label, imported.kind, sizes, config.vocab_size)
    vocabulary = fast_vocabulary(imported.tokenizer, config.vocab_size, special_ids, source.path)
    reader = DocumentReader(vocabulary, min(_WINDOW, imported.max_positions), special_ids.bos)
    files, template = {TOKENIZER: imported.tokenizer}, imported.chat_template
    if template is not None:
        files[TEMPLATE] = template.encode()
    text = source.texts.text
    file = text or PASSAGE
    windows = compared_windows(reader, file, read_sources(file).sources)
    licence = source.declared.licence or licence_of_card(source.path) or imported.licence
    return LanguageSubject(
        imported.model,
        reader,
        files,
        {
            "special_ids": special_ids,
            "other_ends": imported.other_ends,
            "tokenizer": TokenizerFiles(
                kind="tokenizers",
                source_file=TOKENIZER,
                target_file=TOKENIZER,
                chat_template_file=None if template is None else TEMPLATE,
            ),
            "search": GENERATION_DEFAULTS,
            **source.origin(imported.kind, licence),
        },
        text.name if text else "built-in passage (en)",
        windows,
        fitting_windows(source.form.precision, file, windows),
        max_positions=imported.max_positions,
    )


def _encoder(encoder: ReadEncoder, source: Source) -> EncoderSubject:
    texts, reader = source.texts, encoder.text_reader()
    task = read_task(texts.task, reader, encoder.labels) if texts.task else None
    if texts.text is None:
        name, built_in = "built-in sentences", json.loads(SENTENCES.read_text(encoding="utf-8"))
        lines = [line for listed in built_in.values() for line in listed]
    else:
        name, lines = texts.text.name, [line for line in read_lines(texts.text) if line.strip()]
        check_enough(texts.text, len(lines))
        if len(lines) > FITTED + COMPARED:
            lines = [*lines[:COMPARED], *lines[-FITTED:]]
    compared = [reader.encode(line, truncate=True) for line in lines]
    attribution = source.declared.attribution
    if source.declared.origin and not attribution:
        attribution = source.origin("an encoder", licence_of_card(source.path))["attribution"]
    facts = {"attribution": attribution}
    return EncoderSubject(encoder, name, compared, task, facts)


TRANSLATION = Kind(
    "a translation model",
    frozenset({"--dev", "--test", "--from", "--to", "--licence"}),
    _translation,
)
LANGUAGE_MODEL = Kind("a language model", frozenset({"--licence"}), _language_model)
ENCODER = Kind("an encoder", frozenset({"--task", "--pooling", "--attribution"}), _encoder)
