"""The README's way to a model of one's own: the commands as they stand there."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from docx import Document

from tests.system.server import ROOT, environment, free_port, started
from tests.toy.checkpoints import write_opus
from tests.toy.hub import environment as hub_environment
from tests.toy.hub import toy_hub

LIMIT_S = 120
"""Within which a reader of the README has a model by name answering; installing comes before. A
reader's machine does nothing else meanwhile, but this one runs other tests. So what is counted is
the processor time of all processes, which is more than a reader waits: some of it is spent side by
side. The model comes from this machine, so that there is no download to wait for."""
PATIENCE_S = 600
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
        words, log = [*serve, "--port", str(port)], tmp_path / "log.txt"
        before_s = processor_s()
        with started(words, port, ROOT, env, log, within_s=PATIENCE_S) as server:
            assert server.ask("ein Haus").status_code == 200
            server.process.terminate()
            assert server.process.wait(60) == 0
        assert processor_s() - before_s < LIMIT_S
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
