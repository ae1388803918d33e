"""Makes a bundle of a run, for any kind of model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from export.bundles.encoder import trained_encoder
from export.bundles.folder import check_apart
from export.bundles.language import trained_language_model
from export.bundles.subject import Form, Subject, write_bundle
from export.bundles.translation import trained_translation
from export.errors import ExportError
from export.texts.texts import NO_TEXTS, Texts
from serving.bundle.manifest import Manifest
from training.recipe.config import FineTuningRecipe, LanguageRecipe, PretrainingRecipe, Recipe
from training.runs.checkpoint import find_checkpoint
from training.runs.folder import read_run_recipe


def export_run(
    path: Path,
    out: Path,
    form: Form,
    texts: Texts = NO_TEXTS,
    *,
    shortlist: bool = False,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of a run or a checkpoint folder.

    int8 and fp16 are fitted to a text. The bundle is compared with the checkpoint on that text and
    scored on the tests, all on the CPU. With `shortlist` a translation model gets shortlists,
    learnt from the run's training text. Raises ExportError (ParityError); then nothing is left
    behind.
    """
    check_apart(out, [path, *texts.files])
    recipe = read_run_recipe(find_checkpoint(path))
    _refuse_others(recipe, form, texts, shortlist=shortlist)

    def prepare(chosen: Form) -> Subject[Any]:
        if isinstance(recipe, LanguageRecipe):
            return trained_language_model(path, chosen, texts)
        if isinstance(recipe, PretrainingRecipe | FineTuningRecipe):
            return trained_encoder(path, texts)
        return trained_translation(path, chosen, texts, shortlist=shortlist)

    return write_bundle(prepare, out, form, texts, force=force)


def _refuse_others(recipe: Recipe, form: Form, texts: Texts, *, shortlist: bool) -> None:
    """Raise ExportError for options that do not apply to the recipe's kind of model."""
    if isinstance(recipe, LanguageRecipe):
        if shortlist:
            raise ExportError("--shortlist belongs to translation: a language model has no source")
        if texts.dev or texts.tests:
            raise ExportError("--dev and --test belong to translation; use --text and --test-text")
    elif isinstance(recipe, PretrainingRecipe | FineTuningRecipe):
        others = {
            "--shortlist": shortlist,
            "--dev": texts.dev,
            "--test": texts.tests,
            "--test-text": texts.test_texts,
        }
        given = [name for name, value in others.items() if value]
        if given:
            raise ExportError(
                f"{given[0]} is not for an encoder, which is compared on its run's validation "
                "lines or on --text TABLE"
            )
    elif texts.text or texts.test_texts:
        raise ExportError("--text and --test-text belong to language models; use --dev and --test")
