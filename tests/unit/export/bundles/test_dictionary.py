"""A dictionary that a bundle is given."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from export.__main__ import main
from export.bundles.dictionary import FILE, add_dictionary
from export.errors import ExportError
from serving.bundle.folder import read_manifest
from serving.errors import BundleError
from serving.translation.translator import Translator

MODELS = Path(__file__).resolve().parents[4] / "models"
UNKNOWN = "Zwerchfell/Zwerchfelle"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return shutil.copytree(MODELS / "macaron-de-en", tmp_path / "bundle")


def test_a_bundle_gets_the_words_that_its_model_does_not_know(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "words.txt"
    file.write_text(
        f"{UNKNOWN}, +Fell, Diaphragma\tdiaphragm/diaphragms, +midriff\tdiaphragme\n"
        "\tflour\tfarine\n"
        "Wasser\twater\t\n"  # is known
        "Buch\tvolume/volumes\t\n"  # is a piece of the vocabulary, and so known better
    )
    assert main(["dictionary", str(bundle), str(file), "--languages", "de,en,fr"]) == 0
    assert json.loads(capsys.readouterr().out)["words"] == 2
    written = (bundle / FILE).read_text()
    assert written == (
        f"de\t{UNKNOWN}\ten\tdiaphragm/diaphragms, midriff\n"
        "de\tDiaphragma\ten\tdiaphragm/diaphragms, midriff\n"
    )
    manifest = read_manifest(bundle)
    assert manifest.dictionary_file == FILE
    assert manifest.files[FILE] == hashlib.sha256(written.encode()).hexdigest()
    (found,) = Translator(bundle, threads=1).translate("Das Zwerchfell ist ein Muskel.")
    assert "diaphragm" in found.text.lower()
    file.write_text("Dachlawine\troof avalanche\n")
    add_dictionary(bundle, file, ["de", "en"])  # in place of those that it has
    assert (bundle / FILE).read_text() == "de\tDachlawine\ten\troof avalanche\n"


def test_german_adjectives_are_not_written(tmp_path: Path) -> None:
    bundle = shutil.copytree(MODELS / "macaron-en-de", tmp_path / "bundle")
    file = tmp_path / "words.txt"
    file.write_text("verschimmelt\tmouldy\nZwerchfell\tdiaphragm\n")
    add_dictionary(bundle, file, ["de", "en"])
    assert (bundle / FILE).read_text() == "en\tdiaphragm\tde\tZwerchfell\n"


def test_adjectives_of_four_forms_are_not_written(tmp_path: Path) -> None:
    bundle = shutil.copytree(MODELS / "macaron-fr-es-en", tmp_path / "bundle")
    file = tmp_path / "words.txt"
    file.write_text("mouldy\tmoisi/moisie/moisis/moisies\nattic\tgrenier/greniers\n")
    add_dictionary(bundle, file, ["en", "fr"])
    lines = (bundle / FILE).read_text().splitlines()
    assert "fr\tmoisi/moisie/moisis/moisies\ten\tmouldy" in lines
    assert not any(line.startswith("en\tmouldy") for line in lines)


def test_what_is_refused(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("Mehl\tflour\nSalz\n")
    with pytest.raises(ExportError, match=r"line 2 must have 2 columns, one for each of de,en"):
        add_dictionary(bundle, file, ["de", "en"])
    file.write_text("Mehl\tflour\nSalz/Salze/Salzen\tsalt\n")
    with pytest.raises(ExportError, match=r"line 2: 'Salz/Salze/Salzen' must be a word, a sing"):
        add_dictionary(bundle, file, ["de", "en"])
    file.write_text("Wasser\twater\n")
    with pytest.raises(ExportError, match=r"the model knows all 1 words; it needs no dictionary"):
        add_dictionary(bundle, file, ["de", "en"])
    with pytest.raises(ExportError, match=r"no line has words from de to en"):
        add_dictionary(bundle, file, ["es", "en"])
    with pytest.raises(ExportError, match="dictionaries are for bundles that translate"):
        add_dictionary(MODELS / "lm-cascade", file, ["de", "en"])


def test_a_damaged_file_is_named(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("Dachlawine\troof avalanche\n")
    add_dictionary(bundle, file, ["de", "en"])
    (bundle / FILE).write_text("de\tDachlawine\n")
    with pytest.raises(BundleError, match=r"dictionary.tsv"):
        Translator(bundle, threads=1)
