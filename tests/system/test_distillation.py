"""`training distill` and `backtranslate` with a shipped bundle."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from sacrebleu import sentence_chrf

from serving.bulk.run import failed_rows
from serving.bulk.worker import BulkTask
from serving.search.options import SearchOptions
from serving.translation.translator import Translator
from training.__main__ import main
from training.derive import distillation
from training.errors import StorageError
from training.runs.checkpoint import write_atomically

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
PAIRS = [
    ("Guten Morgen!", "Good day to you!"),
    ("Das ist ein Haus.", "This is one house."),
    ("", ""),
    ("Ich habe keine Zeit.", "I've no time."),
    ("Wie geht es dir? Mir geht es gut.", "How are you doing? I'm well."),
]


def run(*arguments: str | Path) -> str:
    """What a verb of training prints; in a process of its own, for Ray is started there."""
    command = [sys.executable, "-m", "training", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_of_several_translations_the_one_nearest_to_the_reference_is_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.de.gz").write_bytes(gzip.compress(lines(de for de, _ in PAIRS)))
    (tmp_path / "a.en").write_bytes(lines(en for _, en in PAIRS))
    files = [str(tmp_path / "a.de.gz"), str(tmp_path / "a.en")]
    arguments = ["distill", str(MODELS / "macaron-de-en"), *files, str(tmp_path / "taught")]
    told = json.loads(run(*arguments, "--n-best", "4", "--workers", "1"))
    options = SearchOptions(beam_size=5, num_hypotheses=4)
    filled = [(de, en) for de, en in PAIRS if de]
    results = Translator(MODELS / "macaron-de-en", threads=1).translate(
        [de for de, _ in filled], options
    )
    nearest = [
        max(result.hypotheses, key=lambda h: sentence_chrf(h.text, [en]).score).text
        for result, (_, en) in zip(results, filled, strict=True)
    ]
    assert [result.text for result in results] != nearest  # else nothing was chosen
    assert (tmp_path / "taught.de").read_bytes() == lines(de for de, _ in filled)
    assert (tmp_path / "taught.en").read_bytes() == lines(nearest)
    assert (told["pairs"], told["dropped"]) == (4, 1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.de.gz", "a.en", "taught.de", "taught.en", "taught.made.json"]
    assert main(arguments) == 1
    assert "give --force" in capsys.readouterr().err
    itself = [*arguments[:-1], str(tmp_path / "a"), "--force", "--n-best", "2"]
    assert main(itself) == 1  # its files would be a.de and a.en
    assert "a.en: is" in capsys.readouterr().err
    assert (tmp_path / "a.en").read_bytes() == lines(en for _, en in PAIRS)


def test_what_was_decoded_outlives_an_end_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mono.de").write_text("Guten Morgen!\n\nEin Haus.\n")
    decoded: list[Path] = []

    def fake_run(task: BulkTask, out: Path, **_: object) -> int:
        decoded.append(out)
        texts = [json.loads(line)["text"] for line in task.file.read_text().splitlines()]
        rows = [{"translations": [text.upper()] if text else None} for text in texts]
        out.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        failed_rows(out).write_text("{}\n")
        return 1

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".de":
            raise StorageError("disk full")
        write_atomically(path, content)

    def make() -> int:
        return main(["backtranslate", str(MODELS / "macaron-de-en"), str(mono), str(out)])

    mono, out = tmp_path / "mono.de", tmp_path / "back"
    monkeypatch.setattr(distillation, "run", fake_run)
    with monkeypatch.context() as patch:
        patch.setattr(distillation, "write_atomically", full)
        assert make() == 1
    assert not (tmp_path / "back.de").exists()
    assert make() == 0
    assert len(decoded) == 1  # nothing was decoded again
    assert (tmp_path / "back.en").read_text() == "GUTEN MORGEN!\nEIN HAUS.\n"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["back.de", "back.en", "back.made.json", "mono.de"]


def test_text_in_one_language_becomes_the_target_of_parallel_text(tmp_path: Path) -> None:
    texts = ["Good morning!", "", "I have no time."]
    (tmp_path / "mono.en").write_bytes(lines(texts))
    bundle, out = MODELS / "macaron-en-de", tmp_path / "back"
    run("backtranslate", bundle, tmp_path / "mono.en", out, "--workers", "1")
    results = Translator(bundle, threads=1).translate([text for text in texts if text])
    assert (tmp_path / "back.de").read_bytes() == lines(result.text for result in results)
    assert (tmp_path / "back.en").read_bytes() == lines(text for text in texts if text)


@pytest.mark.parametrize(
    ("bundle", "more", "message"),
    [
        ("none", [], "neither a bundle nor a run or a checkpoint"),
        ("lm-cascade", [], "task is generate"),
        ("macaron-de-en", ["--metric", "bleurt"], "--metric must be one of chrf, bleu"),
        ("macaron-de-en", ["--n-best", "100"], "--n-best must be in [1, 64], got 100"),
    ],
)
def test_what_cannot_teach_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bundle: str,
    more: list[str],
    message: str,
) -> None:
    (tmp_path / "a").write_text("a\n")
    files = [str(tmp_path / "a"), str(tmp_path / "a"), str(tmp_path / "out")]
    assert main(["distill", str(MODELS / bundle), *files, *more]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def lines(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()
