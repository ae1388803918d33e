"""The same weights as a package of Argos Translate, which LibreTranslate serves."""

from __future__ import annotations

import json
from pathlib import Path

from bench.errors import BenchError
from bench.subjects.ctranslate2 import convert_macaron_to_ctranslate2, convert_to_ctranslate2
from serving.text.languages import LANGUAGE_NAMES
from training.models import Transformer
from training.runs.folder import Trained

QUANTIZATION = "int8"
_VERSION = "1.9"
"""The version of the package and of its format; Argos Translate compares it with other packages of
the same pair only."""


def write_argos_package(trained: Trained, folder: Path) -> None:
    """Write the package of a trained model: `metadata.json`, the folder `model` for CTranslate2 in
    int8, and the tokenizer.

    `folder` must not exist. Raises BenchError for a model of several pairs of languages, and for
    one that CTranslate2 does not have.
    """
    model, data = trained.model, trained.recipe.data
    if data.is_multilingual:
        raise BenchError(
            f"{trained.checkpoint}: a package of Argos has one pair of languages, the model "
            f"translates in {len(data.directions)} directions; give the run of a model of one"
        )
    if not isinstance(model, Transformer):
        raise BenchError(
            f"{trained.checkpoint}: CTranslate2 has no model of the architecture "
            f"{model.config.architecture!r}; give the run of a Transformer"
        )
    is_macaron = model.config.block == "macaron"
    convert = convert_macaron_to_ctranslate2 if is_macaron else convert_to_ctranslate2
    vocabulary = trained.tokenizer.pieces(list(range(model.config.vocab_size)))
    convert(model, vocabulary, folder / "model", QUANTIZATION)
    _end_sources(folder / "model" / "config.json")
    (folder / "sentencepiece.model").write_bytes(trained.tokenizer.serialized())
    source, target = data.source_language, data.target_language
    metadata = {
        "package_version": _VERSION,
        "argos_version": _VERSION,
        "from_code": source,
        "from_name": LANGUAGE_NAMES.get(source, source),
        "to_code": target,
        "to_name": LANGUAGE_NAMES.get(target, target),
        "type": "translate",
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=1), encoding="utf-8")


def _end_sources(config: Path) -> None:
    """Let CTranslate2 end each source with eos, because Argos Translate does not."""
    tree = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**tree, "add_source_eos": True}, indent=1), encoding="utf-8")
