"""`python -m bench bundles` on bundles that are too small to tell anything of speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from serving.bundle.folder import parse_manifest
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from tests.conftest import TinyModel
from training.metrics.bleu import measure_quality

SOURCES = ("b a c", "a", "", "c c b a", "a b")
REFERENCES = ("a b", "c a", "c", "b", "a a c b")


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    for name, lines in (("source", SOURCES), ("reference", REFERENCES)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference")]


def test_each_bundle_has_a_row(
    tiny_model: TinyModel,
    tiny_bundle: Path,
    text: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Quality is that of the bundle's own output; the first bundle's speed is that of the first
    bundle; the picture names them all."""
    systems = ["--system", f"one={tiny_bundle}", "--system", f"two={tiny_bundle}"]
    options = ["--batch", "1,3", "--repetitions", "2", "--beam-size", "2", "--threads", "1"]
    picture = tmp_path / "speed.png"
    assert main(["bundles", *systems, *text, *options, "--busy", "--plot", str(picture)]) == 0
    output = capsys.readouterr()
    rows = [line.strip("|").split("|") for line in output.out.splitlines() if "| one" in line]
    rows += [line.strip("|").split("|") for line in output.out.splitlines() if "| two" in line]
    one, two = ([cell.strip() for cell in row] for row in rows)
    translator = Translator(tiny_bundle, threads=1)
    found = translator.translate_sentences(SOURCES, SearchOptions(beam_size=2))
    quality = measure_quality([each.text for each in found], list(REFERENCES))
    scores = [f"{quality.bleu:.2f}", f"{quality.chrf:.2f}"]
    assert one[1:5] == two[1:5] == [parse_manifest(tiny_bundle).precision, one[2], *scores]
    assert one[6] == one[8] == "1.00"
    assert float(two[6]) > 0
    assert output.err.count("3 sentences a call: repetition") == 3
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_is_a_folder_is_found_before_the_work(
    tiny_bundle: Path, text: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bundles", "--system", f"a={tiny_bundle}", *text, "--threads", "1", "--busy"]
    assert main([*command, "--plot", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: --plot must name a file, {tmp_path} is a folder\n"


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        (["{0}"], "--system must be NAME=PATH, got '{0}'"),
        (["a={0}", "a={0}"], "every --system must have a name of its own, got 'a' twice"),
        (["a={0}/nowhere"], "{0}/nowhere"),
    ],
)
def test_bad_systems_are_one_line(
    tiny_bundle: Path,
    text: list[str],
    capsys: pytest.CaptureFixture[str],
    systems: list[str],
    message: str,
) -> None:
    chosen = [word for each in systems for word in ("--system", each.format(tiny_bundle))]
    assert main(["bundles", *chosen, *text, "--threads", "1", "--busy"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {message.format(tiny_bundle)}")
