"""An encoder of others to a bundle, exported as a run's is."""

from __future__ import annotations

import json
from pathlib import Path

from export.bundles.encoder import (
    COMPARED,
    FITTED,
    ComparedTexts,
    EncoderForm,
    check_enough,
    write_encoder_bundle,
)
from export.bundles.folder import check_free
from export.graphs.writing import choose_activations
from export.importing.encoder_folder import read_encoder
from export.texts.labelled import read_task
from export.texts.texts import SENTENCES
from serving.bundle.encoder_tokenizer import EncodedText, EncoderTokenizer
from serving.bundle.manifest import Activations, Manifest
from training.corpora.pairs import read_lines
from training.models.bert import Pooling


def write_foreign_encoder(
    source: Path,
    out: Path,
    *,
    text: Path | None = None,
    precision: str,
    activations: Activations | None = None,
    pooling: Pooling | None = None,
    task: Path | None = None,
    attribution: str = "",
    priority: int = 0,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of a Hugging Face folder of a BERT, for embeddings or, where it has a
    classifier, for classes.

    int8 is fitted to `text`, one text a line, and the bundle is compared with the checkpoint on it;
    without it there are built-in sentences of several languages, and each row of activations has a
    scale of its own. `task` is a table of labelled texts: two texts and how alike they are, or a
    text, or two, and their label. Raises ExportError (ParityError) without leaving anything behind.
    """
    if activations is None and text is None:
        activations = "row"
    form = EncoderForm(precision, choose_activations(precision, "cpu", activations), priority)
    check_free(out, force=force)
    foreign = read_encoder(source, pooling)

    def compared(tokenizer: EncoderTokenizer) -> ComparedTexts:
        labelled = read_task(task, tokenizer, foreign.labels) if task else None
        if text is None:
            return ComparedTexts("built-in sentences", _built_in(tokenizer), labelled)
        return ComparedTexts(text.name, _read_texts(text, tokenizer), labelled)

    return write_encoder_bundle(foreign, out, form, compared, {"attribution": attribution})


def _read_texts(path: Path, tokenizer: EncoderTokenizer) -> list[EncodedText]:
    """The texts of a file, one a line, the ends of long ones cut off; raises ExportError where
    there are too few."""
    lines = [line for line in read_lines(path) if line.strip()]
    check_enough(path, len(lines))
    if len(lines) > FITTED + COMPARED:
        lines = [*lines[:COMPARED], *lines[-FITTED:]]
    return [tokenizer.encode(line, truncate=True) for line in lines]


def _built_in(tokenizer: EncoderTokenizer) -> list[EncodedText]:
    """The built-in sentences of all languages."""
    listed = json.loads(SENTENCES.read_text(encoding="utf-8"))
    return [tokenizer.encode(line, truncate=True) for lines in listed.values() for line in lines]
