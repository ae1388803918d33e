"""The common way of all exports: graphs, files, parity, quality, manifest; atomic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from export import progress
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
from serving.runtime.kernels import compiled_meanwhile
from training.models import Network

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Form:
    """The requested form of a bundle: arithmetic, device, and priority."""

    precision: str = "int8"
    target: str = "cpu"
    activations: Activations | None = None
    """Activations of int8; None means static ones if there is a text to fit them to."""
    priority: int = 0


Found = tuple[dict[str, Any], tuple[Quality, ...]]
"""Parity as plain data for the manifest, and quality figures."""


class Subject(Protocol[ModuleT]):
    """A model to trace, compare and write, with its text side and its comparison texts, from any
    source."""

    @property
    def model(self) -> ModuleT:
        """The checkpoint's model."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """Files of the text side, by name."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Manifest fields for the text side, the search and the origin."""

    @property
    def text_name(self) -> str:
        """Name of the comparison text."""

    def fitting(self) -> Fitting[ModuleT]:
        """The fitting of the model's arithmetic to a text."""

    def write_graphs(
        self, arithmetic: Arithmetic[ModuleT], folder: Path, name: str, form: Form
    ) -> Manifest:
        """Write the graphs; returns the manifest of a bundle with that name, still without the
        facts."""

    def compare(self, arithmetic: Arithmetic[ModuleT], folder: Path, manifest: Manifest) -> Found:
        """Compare the written bundle with the checkpoint and score it; raises ParityError if it is
        not good enough."""


def write_bundle(
    prepare: Callable[[Form], Subject[ModuleT]],
    out: Path,
    form: Form,
    texts: Texts,
    *,
    force: bool = False,
) -> Manifest:
    """Write the bundle `out` of the subject that `prepare` reads. It is fitted, compared and scored
    on these texts on the CPU; `force` replaces an existing bundle.

    `prepare` gets the form with its activations chosen, and raises an error if a file is wrong.
    Raises ExportError (ParityError); then nothing is left behind.
    """
    activations = choose_activations(form.precision, form.target, form.activations)
    form = replace(form, activations=activations)
    check_tests(form.precision, len(texts.tests) + len(texts.test_texts))
    check_free(out, force=force)
    progress.begin("reading")
    subject = prepare(form)
    with compiled_meanwhile(), new_folder(out) as folder:
        try:
            made = _write(subject, folder, out.name, form, half_head=True)
        except ParityError as error:
            if form.precision not in HALF_TYPES or not isinstance(subject.model, Network):
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
    """Write and compare a bundle's files; returns its manifest. With `half_head` logits are
    computed in the precision's 16 bits, if it has 16."""
    assert form.activations is not None
    progress.begin("fitting")
    arithmetic = choose_arithmetic(
        subject.model, subject.fitting(), form.precision, form.activations, half_head=half_head
    )
    progress.begin("graphs")
    manifest = subject.write_graphs(arithmetic, folder, name, form)
    for file, content in subject.files.items():
        (folder / file).write_bytes(content)
    manifest = manifest.model_copy(update={**subject.facts, "priority": form.priority})
    progress.begin("comparing")
    found, quality = subject.compare(arithmetic, folder, manifest)
    parity = {"data": subject.text_name, **found, **arithmetic.report, **gate_notes(manifest)}
    return with_makers(manifest.model_copy(update={"parity": parity, "quality": quality}))
