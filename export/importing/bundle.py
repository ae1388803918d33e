"""Another project's checkpoint to a bundle: recognised, read, and exported as a run's is."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from export.bundles.folder import check_free
from export.bundles.translation import ComparedText, ExportedModel, Form, write_bundle
from export.errors import ExportError
from export.gates.gpu import check_tests
from export.graphs.writing import choose_activations
from export.importing.folder import CONFIG, find_checkpoint_file, read_json
from export.importing.hugging_face.bart import read_bart
from export.importing.hugging_face.m2m100 import read_m2m100
from export.importing.hugging_face.marian import read_marian
from export.importing.hugging_face.mbart import read_mbart
from export.importing.hugging_face.pegasus import read_pegasus
from export.importing.hugging_face.t5 import read_t5
from export.importing.language_bundle import LANGUAGE_READERS, import_language_bundle
from export.importing.language_models.gguf import MAGIC
from export.importing.marian.folder import has_marian
from export.importing.marian.model import read_marian_model
from export.importing.model import AS_TOLD, Imported, LanguageChoice
from export.importing.toolkits.ctranslate2 import find_model, read_ctranslate2
from export.importing.toolkits.fairseq import find_dictionaries, read_fairseq
from export.importing.toolkits.opennmt import read_opennmt
from export.importing.vocabularies.text_side import text_side
from export.texts.dev_set import DevSet
from export.texts.texts import SENTENCES, TextPair, fitting_sentences, read_sources
from export.texts.vocabulary import Vocabulary
from serving.bundle.languages import Languages
from serving.bundle.manifest import Activations, Manifest
from serving.bundle.tokenizer import ids_of_pieces

MARIAN, CTRANSLATE2 = "marian-nmt", "ctranslate2"
OPENNMT, FAIRSEQ, GGUF = "opennmt-py", "fairseq", "gguf"
ENCODER = "bert"
"""What `import-encoder` takes."""
READERS: dict[str, Callable[[Path, LanguageChoice], Imported]] = {
    "marian": read_marian,
    "m2m_100": read_m2m100,
    "mbart": read_mbart,
    "pegasus": read_pegasus,
    "bart": read_bart,
    "t5": read_t5,
    "mt5": read_t5,
    MARIAN: read_marian_model,
    CTRANSLATE2: read_ctranslate2,
    OPENNMT: read_opennmt,
    FAIRSEQ: read_fairseq,
}
"""By the name of the family: that of another toolkit, or the `model_type` of a folder of
`transformers`."""

_SUPPORTED = ", ".join((*READERS, *LANGUAGE_READERS))

_PAIRS = 16
"""Of languages, for which a text is read in turn."""

logger = logging.getLogger(__name__)


def import_bundle(
    source: Path,
    out: Path,
    *,
    precision: str,
    target: str = "cpu",
    activations: Activations | None = None,
    family: str | None = None,
    choice: LanguageChoice = AS_TOLD,
    licence: str | None = None,
    priority: int = 0,
    dev: TextPair | Path | None = None,
    tests: tuple[TextPair, ...] = (),
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of the checkpoint at `source`.

    `dev` is what the bundle is compared on: a text with references, or a source text alone, or, if
    left out, built-in sentences (a language model's, a passage). int8 has static activations only
    where a text is given to which they are fitted. Raises ExportError (ParityError), with file and
    entry, without leaving anything behind.
    """
    if activations is None and dev is None:
        activations = "row"
    form = Form(precision, target, choose_activations(precision, target, activations), priority)
    check_tests(precision, len(tests))
    check_free(out, force=force)
    family = family or told_family(source)
    if family in LANGUAGE_READERS:
        if tests or choice != AS_TOLD:
            raise _belongs_to_translation(source)
        return _import_language_model(family, source, out, form, licence, dev)
    imported = recognise(source, family)(source, choice)
    config, languages = imported.model.config, imported.languages
    if not languages.trained:
        raise ExportError("--from and --to leave the model no pair of two languages to translate")
    logger.info(
        "%s: %s, %d+%d layers of width %d, %d pieces, %s",
        source,
        imported.kind,
        config.num_encoder_layers,
        config.num_decoder_layers,
        config.model_dim,
        config.vocab_size,
        languages.listing,
    )
    if target != "cpu":
        imported = replace(imported, shortlist=None)  # only the CPU has them
    exported = _exported(imported, source, licence)
    text = _compared(exported.vocabulary, languages, form, dev, tests)
    return write_bundle(exported, out, form, text, shortlist=imported.shortlist)


def _import_language_model(
    family: str,
    source: Path,
    out: Path,
    form: Form,
    licence: str | None,
    text: TextPair | Path | None,
) -> Manifest:
    if isinstance(text, TextPair):
        raise _belongs_to_translation(source)
    return import_language_bundle(
        LANGUAGE_READERS[family](source),
        source,
        out,
        form,
        licence=licence or told_licence(source),
        text=text,
    )


def _belongs_to_translation(source: Path) -> ExportError:
    return ExportError(
        f"{source}: a language model takes no --dev, --test, --from or --to, which belong to "
        "translation; --text FILE is what it is compared on"
    )


def recognise(
    source: Path, family: str | None = None
) -> Callable[[Path, LanguageChoice], Imported]:
    """What reads a translation model's checkpoint; raises ExportError where nothing does."""
    family = family or told_family(source)
    if family == ENCODER:
        raise ExportError(
            f"{source / CONFIG}: model_type {ENCODER!r} is an encoder's; import it with `python -m "
            f"macaron export import-encoder {source} OUT`"
        )
    if family not in READERS:
        raise ExportError(
            f"{source / CONFIG}: model_type {family!r} is not supported; supported: {_SUPPORTED}; "
            "--family says which of them it is where the file does not"
        )
    return READERS[family]


def told_family(source: Path) -> str:
    """What a folder or a file says that it is; raises ExportError where it says nothing."""
    if _is_gguf(source):
        return GGUF
    if find_model(source) is not None:
        return CTRANSLATE2
    path = source / CONFIG
    if path.is_file():
        return str(read_json(path).get("model_type"))
    if has_marian(source):
        return MARIAN
    if find_checkpoint_file(source) is not None:
        return FAIRSEQ if find_dictionaries(source) else OPENNMT
    if not source.is_dir():
        raise ExportError(
            f"{source}: must be a folder that holds a checkpoint ({CONFIG}), a file of GGUF, a "
            "model of Marian (.npz, .bin or its decoder's .yml) or a checkpoint of OpenNMT-py or "
            "fairseq (.pt)"
        )
    raise ExportError(
        f"{source}: no {CONFIG}, which says what the checkpoint is, and no model of Marian, "
        f"CTranslate2, OpenNMT-py or fairseq; supported families: {_SUPPORTED}"
    )


def _is_gguf(source: Path) -> bool:
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _exported(imported: Imported, source: Path, licence: str | None) -> ExportedModel:
    """The model as the export takes it, and what the manifest tells of it."""
    text = text_side(
        imported.pieces,
        imported.special_ids,
        imported.model.config.vocab_size,
        source,
        source_end=imported.source_end,
    )
    licence = licence or told_licence(source)
    return ExportedModel(
        imported.model,
        text.vocabulary,
        text.files,
        {
            "special_ids": imported.special_ids,
            "tokenizer": text.tokenizer,
            "languages": imported.languages,
            "search": imported.search | ({"shortlist": True} if imported.shortlist else {}),
            "attribution": _attribution(imported, source, licence),
            "recipe": {
                "imported": {
                    "from": source.resolve().name,
                    "kind": imported.kind,
                    "licence": licence or "",
                }
            },
        },
        max_source=imported.max_source,
    )


def _attribution(imported: Imported, source: Path, licence: str | None) -> str:
    origin = f"Imported from {source.resolve().name}: {imported.kind}."
    told = f"Licence of the weights: {licence}." if licence else "It tells no licence of them."
    return f"{origin} {told}"


def told_licence(source: Path) -> str | None:
    """The licence in the front matter of the checkpoint's card, or None where it tells none."""
    try:
        folder = source if source.is_dir() else source.parent
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    front = re.match(r"---\n(.*?)\n---", card, re.DOTALL)
    found = re.search(r"^license:\s*(\S.*?)\s*$", front[1], re.MULTILINE) if front else None
    return found[1].strip("\"'") if found else None


def _compared(
    vocabulary: Vocabulary,
    languages: Languages,
    form: Form,
    dev: TextPair | Path | None,
    tests: tuple[TextPair, ...],
) -> ComparedText:
    """The texts as the model is to be told of them; what is wrong with a file shows here."""
    if isinstance(dev, TextPair):
        if len(languages.trained) > 1 and languages.is_multilingual:
            raise ExportError(
                "--dev is for a model of one direction; give --text FILE with source text, and "
                "--test-direction FROM TO NAME SOURCE REFERENCE to score one direction"
            )
        name, text = dev.name, dev.read()
        file = dev.source
    elif dev is not None:
        name, text, file = f"{dev.name} (source text alone)", read_sources(dev), dev
    else:
        built_in = read_json(SENTENCES)
        language = next((code for code in languages.source if code in built_in), "en")
        name, file = f"built-in sentences ({language})", SENTENCES
        text = DevSet(built_in[language], None)
    fitting = fitting_sentences(form.precision, form.activations, file, text)
    return ComparedText(
        name, _told(vocabulary, languages, text), fitting, tuple(_tests(languages, tests))
    )


def _told(vocabulary: Vocabulary, languages: Languages, text: DevSet) -> DevSet:
    """A text in which each sentence in turn is for the next of the pairs."""
    if not (languages.is_multilingual or languages.source_tags):
        return text
    ids = ids_of_pieces(vocabulary.source)
    prefixes, firsts = [], []
    for (source, target), _ in zip(cycle(_spread(languages)), text.sources, strict=False):
        tags = languages.source_tags.get(source), languages.tags.get(target)
        told = [tag for tag in tags if tag is not None] + [*languages.prefixes.get(target, ())]
        prefixes.append([ids[piece] for piece in told])
        first = languages.first_pieces.get(target)
        firsts.append([] if first is None else [ids[first]])
    return replace(text, prefixes=prefixes, target_prefixes=firsts)


def _spread(languages: Languages) -> tuple[tuple[str, str], ...]:
    """Some of the trained pairs, from all over the list."""
    return languages.trained[:: -(-len(languages.trained) // _PAIRS)]


def _tests(languages: Languages, tests: tuple[TextPair, ...]) -> list[tuple[str, DevSet]]:
    found = []
    for test in tests:
        several = len(languages.trained) > 1 and languages.is_multilingual
        if several and test.languages not in languages.trained:
            raise ExportError(
                f"{test.name}: the model translates {languages.listing}, and which of these the "
                "text is must be told: give it as --test-direction FROM TO NAME SOURCE REFERENCE"
            )
        found.append((test.name, test.read()))
    return found
