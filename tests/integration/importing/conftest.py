"""What tests of imported models have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def short_sentences(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Bundles are compared on the beginnings of eight built-in sentences of a language: models of
    random weights seldom end an output before it is as long as it may be."""
    from export.importing import subjects

    given = json.loads(subjects.SENTENCES.read_text(encoding="utf-8"))
    short = tmp_path_factory.mktemp("sentences") / "sentences.json"
    begun = {language: [text[:20] for text in texts[:8]] for language, texts in given.items()}
    short.write_text(json.dumps(begun), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subjects, "SENTENCES", short)
        yield
