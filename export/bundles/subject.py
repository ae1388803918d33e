"""A model to a bundle: graphs, files, parity, quality, manifest; whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from export.arithmetic.choice import Arithmetic, Fitting, choose_arithmetic
from export.arithmetic.half import HALF_TYPES
from export.arithmetic.quantize import ModuleT
from export.bundles.card import finish
from export.bundles.folder import check_free, new_folder, with_makers
from export.errors import ParityError
from export.gates.gpu import check_tests, gate_notes
from export.graphs.writing import choose_activations
from export.texts.texts import Texts
from serving.bundle.folder import read_manifest
from serving.bundle.manifest import Activations, Manifest, Quality

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Form:
    """What a bundle is to be: its arithmetic, for which machine, and its rank among others."""

    precision: str = "int8"
    target: str = "cpu"
    activations: Activations | None = None
    """Of int8; None is for static ones, where there is a text to which they can be fitted."""
    priority: int = 0


Found = tuple[dict[str, Any], tuple[Quality, ...]]
"""What a manifest says of parity, as plain data, and of quality."""


class Subject(Protocol[ModuleT]):
    """What a task traces, compares and writes: a model with its text side and the texts to compare
    it on, wherever its weights come from."""

    @property
    def model(self) -> ModuleT:
        """The checkpoint's."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of its text side, by name."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Fields of the manifest for the text side, the search and the origin."""

    @property
    def text_name(self) -> str:
        """Of the text on which the bundle is compared."""

    def fitting(self) -> Fitting[ModuleT]:
        """The text to which its arithmetic is fitted, and how."""

    def write_graphs(
        self, arithmetic: Arithmetic[ModuleT], folder: Path, name: str, form: Form
    ) -> Manifest:
        """Write the graphs; returns the manifest of a bundle of that name, which knows no facts
        yet."""

    def compare(self, arithmetic: Arithmetic[ModuleT], folder: Path, manifest: Manifest) -> Found:
        """Compare what has been written with the checkpoint, and score it; raises ParityError where
        it is not good enough."""


def write_bundle(
    prepare: Callable[[Form], Subject[ModuleT]],
    out: Path,
    form: Form,
    texts: Texts,
    *,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of the subject that `prepare` reads, fitted to, compared on and scored
    on these texts, all on the CPU; `force` replaces a bundle that is there.

    `prepare` gets the form with its activations chosen, and raises where a file is wrong.
    Raises ExportError (ParityError) without leaving anything behind.
    """
    activations = choose_activations(form.precision, form.target, form.activations)
    form = replace(form, activations=activations)
    check_tests(form.precision, len(texts.tests) + len(texts.test_texts))
    check_free(out, force=force)
    subject = prepare(form)
    with new_folder(out) as folder:
        try:
            made = _write(subject, folder, out.name, form, half_head=True)
        except ParityError as error:
            if form.precision not in HALF_TYPES:
                raise
            logger.info("with logits in %s: %s; they are tried in fp32", form.precision, error)
            for path in folder.iterdir():
                path.unlink()
            made = _write(subject, folder, out.name, form, half_head=False)
            made = made.model_copy(update={"parity": {**made.parity, "head_refused": str(error)}})
        finish(folder, made)
    return read_manifest(out)


def _write(
    subject: Subject[ModuleT], folder: Path, name: str, form: Form, *, half_head: bool
) -> Manifest:
    """Write and compare a bundle's files; returns its manifest. With `half_head` logits have the
    precision's 16 bits, where it has any."""
    assert form.activations is not None
    arithmetic = choose_arithmetic(
        subject.model, subject.fitting(), form.precision, form.activations, half_head=half_head
    )
    manifest = subject.write_graphs(arithmetic, folder, name, form)
    for file, content in subject.files.items():
        (folder / file).write_bytes(content)
    manifest = manifest.model_copy(update={**subject.facts, "priority": form.priority})
    found, quality = subject.compare(arithmetic, folder, manifest)
    parity = {"data": subject.text_name, **found, **arithmetic.report, **gate_notes(manifest)}
    return with_makers(manifest.model_copy(update={"parity": parity, "quality": quality}))
