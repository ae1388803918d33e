"""`bench perplexity` beside PyTorch on the same checkpoint."""

from __future__ import annotations

import gzip
import math
import re
from pathlib import Path

import pytest

from bench.__main__ import main
from tests.conftest import TinyLanguageModel
from training.results.perplexity import evaluate_text


def test_bits_per_byte_are_those_of_the_checkpoint(
    tiny_language_model: TinyLanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tiny_language_model.text.read_text().splitlines()[:20]
    lines[3] = "é"  # two bytes of one character
    text = tmp_path / "text.gz"
    text.write_bytes(gzip.compress("".join(f"{line}\n\n" for line in lines).encode()))
    plain = tmp_path / "plain"
    plain.write_text("".join(f"{line}\n" for line in lines))
    own = evaluate_text(tiny_language_model.run, plain, protocol="rolling", window=2000)
    num_bytes = sum(len(line.encode()) for line in lines)
    bits = own["loss"] * own["tokens"] / math.log(2) / num_bytes
    systems = ["--system", f"one={tiny_language_model.fp32}"]
    assert main(["perplexity", *systems, "--text", f"toy={text}", "--threads", "1"]) == 0
    (row,) = re.findall(r"^\| toy .*$", capsys.readouterr().out, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["toy", "20", f"{num_bytes:,}", f"{bits:.3f} ({math.exp(own['loss']):.1f})"]


def test_wikitext_is_cleaned_and_texts_without_words_are_refused(
    tiny_language_model: TinyLanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wiki, blank = tmp_path / "wiki", tmp_path / "blank"
    wiki.write_text(" = A = \n the man . An <unk> . The boat , \n")
    blank.write_text("\n \n")
    systems = ["--system", f"one={tiny_language_model.fp32}"]
    assert main(["perplexity", *systems, "--wikitext", f"w={wiki}"]) == 0
    cleaned = ["= A =", "the man.", "The boat,"]
    assert f"| w | 3 | {sum(map(len, cleaned))} |" in capsys.readouterr().out
    for arguments, message in (
        (["--text", f"b={blank}"], "text 'b' must have a line that is not blank, got 2"),
        ([], "--text or --wikitext must be given at least once, got neither"),
        (["--text", f"w={wiki}", "--wikitext", f"w={wiki}"], "a name of its own, got 'w' twice"),
    ):
        assert main(["perplexity", *systems, *arguments]) == 1
        assert message in capsys.readouterr().err
