"""Makes a bundle of another project's checkpoint: recognises it, reads it, and exports it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from export.bundles.folder import check_apart
from export.bundles.subject import Form, Subject, write_bundle
from export.errors import ExportError
from export.importing.automatic import write_first
from export.importing.encoders.family import FAMILIES
from export.importing.encoders.folder import read_encoder
from export.importing.encoders.sentences import transformer_folder
from export.importing.folder import CONFIG, has_checkpoint_file, has_config, read_json
from export.importing.hugging_face.bart import read_bart
from export.importing.hugging_face.m2m100 import read_m2m100
from export.importing.hugging_face.marian import read_marian
from export.importing.hugging_face.mbart import read_mbart
from export.importing.hugging_face.pegasus import read_pegasus
from export.importing.hugging_face.t5 import read_t5
from export.importing.hugging_face.t5gemma import read_t5gemma
from export.importing.language_models.families.gemma import (
    read_gemma2,
    read_gemma3,
    read_gemma3_with_pictures,
)
from export.importing.language_models.families.gpt2 import read_gpt2
from export.importing.language_models.families.gpt_neox import read_gpt_neox
from export.importing.language_models.families.llama import read_llama
from export.importing.language_models.families.olmo2 import read_olmo2
from export.importing.language_models.families.phi3 import read_phi3
from export.importing.language_models.families.qwen import read_qwen2, read_qwen3
from export.importing.language_models.families.smollm3 import read_smollm3
from export.importing.language_models.gguf.file import is_gguf, read_gguf
from export.importing.marian.folder import has_marian
from export.importing.marian.model import read_marian_model
from export.importing.model import NOTHING_DECLARED, Declared, Imported, LanguageChoice
from export.importing.subjects import ENCODER, LANGUAGE_MODEL, TRANSLATION, Kind, Source
from export.importing.toolkits.ctranslate2 import find_model, read_ctranslate2
from export.importing.toolkits.fairseq import has_fairseq, read_fairseq
from export.importing.toolkits.opennmt import read_opennmt
from export.importing.unread import (
    refuse_adapter,
    refuse_code,
    refuse_head,
    refuse_missing,
    unknown,
)
from export.texts.texts import NO_TEXTS, Texts
from serving.bundle.manifest import Manifest
from serving.hub.cache import AUTO


@dataclass(frozen=True)
class Reader:
    """The reader of one family of checkpoints."""

    family: str
    """Name of the toolkit, or the `model_type` of a folder of `transformers`."""
    kind: Kind
    recognises: Callable[[Path], bool]
    """Whether a folder or a file belongs to this family."""
    read: Callable[[Path, Declared], Any]
    """Reads a checkpoint. Raises ExportError, with file and entry, for anything unsupported."""


def _translation(
    family: str,
    read: Callable[[Path, LanguageChoice], Imported],
    recognises: Callable[[Path], bool] | None = None,
) -> Reader:
    """A reader that is chosen by `model_type`, unless `recognises` is given."""
    return Reader(
        family,
        TRANSLATION,
        recognises or _of_type(family),
        lambda source, declared: read(source, declared.languages),
    )


def _language_model(family: str, read: Callable[[Path], Any]) -> Reader:
    return Reader(family, LANGUAGE_MODEL, _of_type(family), lambda source, _: read(source))


def _encoder(family: str) -> Reader:
    return Reader(
        family,
        ENCODER,
        lambda source: _of_type(family)(transformer_folder(source)),
        lambda source, declared: read_encoder(source, declared.pooling),
    )


def _of_type(family: str) -> Callable[[Path], bool]:
    return lambda source: has_config(source) and _model_type(source) == family


def _model_type(source: Path) -> str:
    return str(read_json(source / CONFIG).get("model_type"))


READERS = (
    Reader("gguf", LANGUAGE_MODEL, is_gguf, lambda source, _: read_gguf(source)),
    _translation("ctranslate2", read_ctranslate2, lambda source: find_model(source) is not None),
    _translation("marian", read_marian),
    _translation("m2m_100", read_m2m100),
    _translation("mbart", read_mbart),
    _translation("pegasus", read_pegasus),
    _translation("bart", read_bart),
    _translation("t5", read_t5),
    _translation("mt5", read_t5),
    _translation("t5gemma", read_t5gemma),
    _language_model("gpt2", read_gpt2),
    _language_model("llama", read_llama),
    _language_model("mistral", read_llama),
    _language_model("qwen2", read_qwen2),
    _language_model("qwen3", read_qwen3),
    _language_model("phi3", read_phi3),
    _language_model("gemma2", read_gemma2),
    _language_model("gemma3_text", read_gemma3),
    _language_model("gemma3", read_gemma3_with_pictures),
    _language_model("olmo2", read_olmo2),
    _language_model("gpt_neox", read_gpt_neox),
    _language_model("smollm3", read_smollm3),
    *(_encoder(family) for family in FAMILIES),
    _translation("marian-nmt", read_marian_model, has_marian),
    _translation("fairseq", read_fairseq, has_fairseq),
    _translation("opennmt-py", read_opennmt, has_checkpoint_file),
)
"""All readers; the first one that recognises a checkpoint reads it."""

_SUPPORTED = ", ".join(reader.family for reader in READERS)


def import_bundle(
    source: Path,
    out: Path,
    form: Form,
    texts: Texts = NO_TEXTS,
    declared: Declared = NOTHING_DECLARED,
    *,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of the checkpoint at `source`.

    The bundle is compared with the checkpoint on a text with references, on a text without, or else
    on built-in sentences (for a language model, a passage). int8 has static activations only if
    there is a text to fit them to. The precision AUTO is the smallest one whose loss is within the
    limits. Raises ExportError (ParityError) with file and entry; then nothing is left behind.
    """
    check_apart(out, [source, *texts.files])
    reader = recognise(source, declared.family)
    reader.kind.refuse_others(Source(source, form, texts, declared))

    def prepare(chosen: Form) -> Subject[Any]:
        return reader.kind.subject(
            reader.read(source, declared), Source(source, chosen, texts, declared)
        )

    def write(chosen: Form) -> Manifest:
        if chosen.activations is None and texts.dev is None and texts.text is None:
            chosen = replace(chosen, activations="row")
        return write_bundle(prepare, out, chosen, texts, force=force)

    return write_first(write, form) if form.precision == AUTO else write(form)


def recognise(source: Path, family: str | None = None) -> Reader:
    """The reader of the checkpoint at `source`: that of `family` if given, else the first that
    recognises it. Raises ExportError, which describes the source, if there is none."""
    refuse_missing(source)
    refuse_adapter(source)
    for reader in READERS:
        if reader.recognises(source) if family is None else reader.family == family:
            refuse_head(source, reads_whole_texts=reader.kind is ENCODER)
            return reader
    refuse_code(source)
    if family is not None or (has_config(source) and "model_type" in read_json(source / CONFIG)):
        raise ExportError(
            f"{source / CONFIG}: model_type {family or _model_type(source)!r} is not supported; "
            f"supported: {_SUPPORTED}; name one with --family if the file names none"
        )
    raise unknown(source, _SUPPORTED)
