"""A checkpoint of another project, imported and served by `bentoml serve`."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from export.bundles.subject import Form
from export.importing.bundle import import_bundle
from serving import Translator
from tests.system.server import running
from tests.toy.checkpoints import write_opus
from tests.toy.corpus import toy_pairs

pytestmark = pytest.mark.usefixtures("traced_once")


@pytest.mark.slow
def test_an_imported_model_is_served_as_any_other(tmp_path: Path) -> None:
    write_opus(tmp_path / "opus-mt-de-en")
    import_bundle(tmp_path / "opus-mt-de-en", tmp_path / "bundles" / "opus", Form("int8"))
    texts = [source for source, _ in toy_pairs(6, seed=3)]
    wanted = Translator(tmp_path / "bundles" / "opus", threads=1).translate(texts)
    (tmp_path / "server").mkdir()
    with running(tmp_path / "bundles", tmp_path / "server") as server:
        answer = server.ask(texts).json()
        card = httpx.get(f"{server.url}/models", timeout=60).json()["models"][0]
    assert answer["translatedText"] == [translation.text for translation in wanted]
    for found, translation in zip(answer["translations"], wanted, strict=True):
        scores = [hypothesis["score"] for hypothesis in found["hypotheses"]]
        assert scores == [hypothesis.score for hypothesis in translation.hypotheses]
    assert "Licence of the weights: cc-by-4.0" in card["attribution"]
