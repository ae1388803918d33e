"""The README's way to a model of one's own: the commands as they stand there."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from docx import Document

from bench.systems.processes.http_server import free_port
from tests.system.server import ROOT, environment, started
from tests.toy.checkpoints import write_opus
from tests.toy.hub import environment as hub_environment
from tests.toy.hub import toy_hub

LIMIT_S = 120
"""Within which a reader of the README has a model by name answering; installing comes before, and
nothing is downloaded from afar here. A reader's machine does nothing else meanwhile, but this one
may run other tests: then the processor time of all processes counts in place of the time."""
PATIENCE_S = 300
"""How long the test waits, whatever else the machine does."""

pytestmark = pytest.mark.slow


def command(verb: str) -> list[str]:
    """The command of that verb in the section "Your own model", without its comment."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## Your own model\n")[2].partition("\n## ")[0]
    (line,) = re.findall(rf"^macaron {verb} .*", section, re.MULTILINE)
    words = shlex.split(line, comments=True)
    return [sys.executable, "-m", *words]


def processor_s() -> float:
    """Seconds of processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_model_by_name_answers_within_two_minutes(tmp_path: Path) -> None:
    serve, port = command("serve"), free_port()
    name = serve[serve.index("--model") + 1]
    write_opus(tmp_path / "checkpoint")
    with toy_hub() as hub:
        hub.add(name, tmp_path / "checkpoint")
        env = environment(tmp_path / "none", tmp_path) | hub_environment(hub, tmp_path)
        del env["MACARON_BUNDLES"]
        env["MACARON_CACHE"] = str(tmp_path / "empty")  # the kernels are compiled in this time, too
        words, log = [*serve, "--port", str(port)], tmp_path / "log.txt"
        began, before_s = time.monotonic(), processor_s()
        with started(words, port, ROOT, env, log, within_s=PATIENCE_S) as server:
            assert server.ask("ein Haus").status_code == 200
            waited_s = time.monotonic() - began
            server.process.terminate()
            assert server.process.wait(60) == 0
        assert min(waited_s, processor_s() - before_s) < LIMIT_S
        assert "model.safetensors" in hub.downloads()


def test_a_file_is_translated(tmp_path: Path) -> None:
    words = command("translate-file")
    document = Document()
    document.add_paragraph("Guten Morgen!")
    document.save(str(tmp_path / words[-2]))
    (tmp_path / "models").symlink_to(ROOT / "models")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (paragraph,) = Document(str(tmp_path / words[-1])).paragraphs
    assert paragraph.text == "Good morning!"
