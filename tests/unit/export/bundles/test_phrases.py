"""Set phrases that a bundle is given."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from export.__main__ import main
from export.bundles.phrases import FILE, add_phrases
from export.errors import ExportError
from serving.bundle.folder import read_manifest
from serving.translation.translator import Translator

MODELS = Path(__file__).resolve().parents[4] / "models"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return shutil.copytree(MODELS / "macaron-de-en", tmp_path / "bundle")


def test_a_bundle_gets_the_phrases_of_its_languages(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "phrases.txt"
    file.write_text("Moin!\tAhoy!\tOhé !\n\tBye!\tSalut !\nTschö!\tBye!\t\nMoin!\tAhoy!\t\n")
    assert main(["phrases", str(bundle), str(file), "--languages", "de,en,fr"]) == 0
    assert json.loads(capsys.readouterr().out)["phrases"] == 2
    written = (bundle / FILE).read_text()
    assert written == "de\tMoin!\ten\tAhoy!\nde\tTschö!\ten\tBye!\n"
    manifest = read_manifest(bundle)
    assert manifest.files[FILE] == hashlib.sha256(written.encode()).hexdigest()
    assert Translator(bundle, threads=1).translate("Moin. Tschö!")[0].text == "Ahoy. Bye!"
    file.write_text("Servus!\tHullo!\n")
    add_phrases(bundle, file, ["de", "en"])  # in place of those that it has
    assert (bundle / FILE).read_text() == "de\tServus!\ten\tHullo!\n"


def test_what_is_refused(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "phrases.txt"
    file.write_text("Moin!\tAhoy!\nTschö!\n")
    with pytest.raises(ExportError, match=r"line 2 must have 2 columns, one for each of de,en"):
        add_phrases(bundle, file, ["de", "en"])
    file.write_text("Moin!\tAhoy!\nMoin, {name}!\tAhoy!\n")
    with pytest.raises(ExportError, match=r"line 2: 'Moin, \{name\}!' and 'Ahoy!' must have the"):
        add_phrases(bundle, file, ["de", "en"])
    file.write_text("Moin!\tAhoy!\n")
    with pytest.raises(ExportError, match=r"no line has phrases from de to en"):
        add_phrases(bundle, file, ["es", "en"])
    with pytest.raises(ExportError, match="phrases are for bundles that translate"):
        add_phrases(MODELS / "lm-cascade", file, ["de", "en"])
