"""Another project's language model to a bundle, exported as a run's is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from export.bundles.language import ComparedDocuments, ExportedLanguageModel, write_language_bundle
from export.bundles.translation import Form
from export.importing.language_models.gguf import read_gguf
from export.importing.language_models.gpt2 import read_gpt2
from export.importing.language_models.llama import read_llama
from export.importing.language_models.model import TEMPLATE, ImportedLanguageModel
from export.importing.vocabularies.text_side import TOKENIZER, fast_vocabulary
from export.texts.texts import (
    PASSAGE,
    DocumentReader,
    compared_windows,
    fitting_windows,
    read_sources,
)
from serving.bundle.manifest import Manifest, TokenizerFiles

LANGUAGE_READERS: dict[str, Callable[[Path], ImportedLanguageModel]] = {
    "gpt2": read_gpt2,
    "llama": read_llama,
    "mistral": read_llama,
    "gguf": read_gguf,
}
"""By the name of the family: the `model_type` of a folder of `transformers`, or a file's kind."""

_WINDOW = 128
"""Tokens that are read at once where bundle and checkpoint are compared."""

logger = logging.getLogger(__name__)


def import_language_bundle(
    imported: ImportedLanguageModel,
    source: Path,
    out: Path,
    form: Form,
    *,
    licence: str | None,
    text: Path | None,
) -> Manifest:
    """Write the bundle `out` of a language model that was read at `source`, compared on a text or
    on the built-in passage; raises ExportError (ParityError) without leaving anything
    behind."""
    config = imported.model.config
    logger.info(
        "%s: %s, %d layers of width %d, %d ids",
        source,
        imported.kind,
        config.num_decoder_layers,
        config.model_dim,
        config.vocab_size,
    )
    vocabulary = fast_vocabulary(
        imported.tokenizer, config.vocab_size, imported.special_ids, source
    )
    length = min(_WINDOW, imported.max_positions)
    reader = DocumentReader(vocabulary, length, imported.special_ids.bos)
    file = text or PASSAGE
    lines = read_sources(file).sources
    windows = compared_windows(reader, file, lines)
    return write_language_bundle(
        ExportedLanguageModel(
            imported.model,
            reader,
            _files(imported),
            _facts(imported, source, licence or imported.licence),
            imported.max_positions,
        ),
        out,
        form,
        ComparedDocuments(
            text.name if text else "built-in passage (en)",
            windows,
            fitting_windows(form.precision, file, windows),
        ),
    )


def _files(imported: ImportedLanguageModel) -> dict[str, bytes]:
    files = {TOKENIZER: imported.tokenizer}
    if imported.chat_template is not None:
        files[TEMPLATE] = imported.chat_template.encode()
    return files


def _facts(imported: ImportedLanguageModel, source: Path, licence: str | None) -> dict[str, Any]:
    """What the manifest tells of the vocabulary and of where the model comes from."""
    name = source.resolve().name
    told = f"Licence of the weights: {licence}." if licence else "It tells no licence of them."
    return {
        "special_ids": imported.special_ids,
        "other_ends": imported.other_ends,
        "tokenizer": TokenizerFiles(
            kind="tokenizers",
            source_file=TOKENIZER,
            target_file=TOKENIZER,
            chat_template_file=None if imported.chat_template is None else TEMPLATE,
        ),
        "attribution": f"Imported from {name}: {imported.kind}. {told}",
        "recipe": {"imported": {"from": name, "kind": imported.kind, "licence": licence or ""}},
    }
