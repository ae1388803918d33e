"""What tests of imported checkpoints have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def short_sentences(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The built-in sentences, cut to two words each. Models of random weights seldom end, so what
    they write is twice as long as what they read, and a bundle of them is searched many times."""
    from export.importing import subjects

    built_in = json.loads(subjects.SENTENCES.read_text(encoding="utf-8"))
    short = {
        language: [" ".join(line.split()[:2]) for line in lines]
        for language, lines in built_in.items()
    }
    file: Path = tmp_path_factory.mktemp("sentences") / "short.json"
    file.write_text(json.dumps(short), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subjects, "SENTENCES", file)
        yield
