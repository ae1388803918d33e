"""`python -m bench server`, and both systems behind the HTTP layer, on a model too small to tell
anything of speed."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.errors import BenchError
from bench.runs.decoding.server import (
    SYSTEMS,
    TAIL_EVERY,
    TAIL_TIMES,
    layouts,
    texts_of,
    write_systems,
)
from bench.subjects.job import Search
from bench.subjects.materials import folder_name, job_for, random_subject
from bench.subjects.scenarios import OUR_INT8, Setting
from bench.systems.processes.served import Served

pytestmark = pytest.mark.usefixtures("traced_once")


@pytest.mark.slow
def test_both_systems_answer_the_same_requests(tmp_path: Path) -> None:
    subject = random_subject("tiny", 3, 4)
    texts = texts_of(subject)
    bundle = write_systems(subject, tmp_path)
    assert bundle == tmp_path / folder_name(OUR_INT8)
    answers = []
    for system in SYSTEMS:
        job = job_for(system, Setting(1, 1), subject, tmp_path)
        with Served(system.name, job, bundle, Search(2, subject.max_length), 2) as served:
            body = json.dumps({"q": texts, "source": "xx", "target": "yy"}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(served.url, body, headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                answers.append(json.load(answer)["translatedText"])
    ours, theirs = ([text.split() for text in answer] for answer in answers)
    assert [len(words) for words in ours] == [len(words) for words in theirs] == [25] * 4
    # int8 is rounded in two ways, and a random model is flat: the first words agree.
    assert sum(a[0] == b[0] for a, b in zip(ours, theirs, strict=True)) >= 3


def test_a_long_tail_is_made_of_the_same_words() -> None:
    subject = random_subject("tiny", 3, 45)
    texts, tailed = texts_of(subject), texts_of(subject, long_tail=True)
    long = [n for n, (text, other) in enumerate(zip(texts, tailed, strict=True)) if text != other]
    assert long == list(range(0, len(texts), TAIL_EVERY))
    for n in long:
        parts = [texts[(n + k) % len(texts)] for k in range(TAIL_TIMES)]
        assert tailed[n].split() == [word for part in parts for word in part.split()]
    assert len(set(tailed)) == len(tailed)


def test_a_server_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    job = job_for(OUR_INT8, Setting(1, 1), random_subject("tiny", 3, 4), tmp_path)
    with pytest.raises(BenchError, match="the server of ours did not start"):
        Served("ours", job, tmp_path / "nothing", Search(2, 25), 2)


def test_every_core_has_a_thread_in_one_process_or_a_process() -> None:
    assert [str(layout) for layout in layouts("onnx", 1)] == ["1 x 1 x 1"]
    found = [str(layout) for layout in layouts("ctranslate2", 2)]
    assert found == ["1 x 1 x 1", "1 x 1 x 2", "1 x 2 x 1", "2 x 1 x 1"]


@pytest.mark.slow
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--shape tiny --random-weights 3"
    options += " --seconds 1 --repetitions 2 --threads 1 --beam 2 --busy"
    assert main(["server", *options.split()]) == 0
    out = capsys.readouterr().out
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| ")]
    names = [row[0].removeprefix("| ") for row in rows]
    assert names[2:4] == [system.name for system in SYSTEMS]
    assert names[6:] == ["scheduler alone", "over HTTP", "HTTP"]
    assert all(float(cell.strip("| ")) > 0 for row in rows[6:8] for cell in row[1:])
    header = [cell.strip("| ") for cell in rows[0]]
    for row in rows[2:4]:
        assert row[header.index("failed")] == "0"
        assert float(row[header.index("at most, requests/s")]) > 1
    assert main(["server", "--shape", "joint-tiny"]) == 1
    assert "no joint-representation models" in capsys.readouterr().err
