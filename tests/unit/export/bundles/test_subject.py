"""A subject to a bundle: in which order it is asked, and that a bundle is whole or not there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from export.arithmetic.choice import Arithmetic, Fitting
from export.bundles.subject import Form, Found, write_bundle
from export.errors import ExportError, ParityError
from export.texts.texts import NO_TEXTS
from serving.bundle.folder import MANIFEST, parse_manifest
from serving.bundle.manifest import Manifest, Quality

SHIPPED = Path(__file__).resolve().parents[4] / "models" / "macaron-de-en"
SCORE = Quality(data="news", metric="BLEU", value=1.5)
FORM = Form(precision="fp32", priority=3)


@dataclass
class FakeSubject:
    """Has no weights: its graphs are those of a shipped bundle."""

    form: Form
    error: str = ""
    asked: list[str] = field(default_factory=list)
    model: nn.Linear = field(default_factory=lambda: nn.Linear(2, 2))
    facts: Mapping[str, Any] = field(default_factory=lambda: {"attribution": "Made up"})
    text_name: str = "a text"

    @property
    def files(self) -> Mapping[str, bytes]:
        name = parse_manifest(SHIPPED).tokenizer.source_file
        return {name: (SHIPPED / name).read_bytes()}

    def fitting(self) -> Fitting[nn.Linear]:
        self.asked.append("fitting")
        return Fitting(lambda model: None, lambda twin: [], 0.0)

    def write_graphs(
        self, arithmetic: Arithmetic[nn.Linear], folder: Path, name: str, form: Form
    ) -> Manifest:
        self.asked.append("write_graphs")
        assert arithmetic.model is self.model
        assert form == self.form
        for path in SHIPPED.iterdir():
            if path.name not in (MANIFEST, *self.files):
                shutil.copy(path, folder / path.name)
        return parse_manifest(SHIPPED).model_copy(update={"name": name, "quality": ()})

    def compare(self, arithmetic: Arithmetic[nn.Linear], folder: Path, manifest: Manifest) -> Found:
        self.asked.append("compare")
        assert manifest.attribution == "Made up"
        assert (folder / manifest.tokenizer.source_file).is_file()
        if self.error:
            raise ParityError(self.error)
        return {"sentences": 7}, (SCORE,)


def test_a_bundle_has_what_its_subject_says(tmp_path: Path) -> None:
    made: list[FakeSubject] = []

    def prepare(form: Form) -> FakeSubject:
        made.append(FakeSubject(form))
        return made[0]

    manifest = write_bundle(prepare, tmp_path / "out", FORM, NO_TEXTS)
    (subject,) = made
    assert subject.asked == ["fitting", "write_graphs", "compare"]
    assert subject.form.activations == "row"  # chosen before it is prepared
    assert (manifest.name, manifest.priority) == ("out", 3)
    assert (manifest.attribution, manifest.quality) == ("Made up", (SCORE,))
    assert manifest.parity["data"] == "a text"
    assert manifest.parity["sentences"] == 7
    assert (tmp_path / "out" / "README.md").is_file()


def test_what_is_not_good_enough_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="too far off"):
        write_bundle(
            lambda form: FakeSubject(form, "too far off"), tmp_path / "out", FORM, NO_TEXTS
        )
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_bundle(FakeSubject, out, FORM, NO_TEXTS)
    with pytest.raises(ExportError, match="--force"):
        write_bundle(FakeSubject, out, FORM, NO_TEXTS)
    other = Form(precision="fp32", priority=4)
    assert write_bundle(FakeSubject, out, other, NO_TEXTS, force=True).priority == 4


def test_a_form_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    def prepare(form: Form) -> FakeSubject:
        raise AssertionError(form)

    with pytest.raises(ExportError, match="--precision int8 is not supported"):
        write_bundle(prepare, tmp_path / "out", Form("int8", "cuda"), NO_TEXTS)
