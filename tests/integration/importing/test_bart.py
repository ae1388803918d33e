"""BART, imported: what its own library makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from tokenizers.implementations import ByteLevelBPETokenizer

from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.bundle import import_bundle
from export.importing.hugging_face.bart import read_bart
from export.importing.model import AS_TOLD, Declared, FastTokenizerFile, Imported, LanguageChoice
from serving.search.beams.beam import decode
from serving.search.beams.sentence import Hypothesis, Sentence
from serving.search.options import SearchOptions
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.bundles import load_bundles
from serving.server.models.registry import Registry
from serving.text.terms import Terms
from serving.translation.translator import Translator, Wishes
from tests.toy.checkpoints import write_bart
from tests.toy.corpus import toy_pairs
from training.decoding.stepper import TorchStepper

pytestmark = pytest.mark.usefixtures("traced_once", "one_thread", "short_sentences")

TEXTS = [*(source for source, _ in toy_pairs(8, seed=11)), "Zürich, 3 % ≠ 漢字! 🙂", "a <s> b"]
BEAMS = SearchOptions(beam_size=4, num_hypotheses=4, max_length=20, loop_guard=False)
TIE = 1e-4
"""Log-probabilities nearer than this may stand in either order."""


@dataclass(frozen=True)
class Case:
    """A checkpoint, its model as its own library has it, and the ids of the texts."""

    folder: Path
    theirs: Any
    imported: Imported
    sources: list[list[int]]

    def decode(self, options: SearchOptions) -> list[list[Hypothesis]]:
        sentences = [Sentence(ids, options, [0], start=2, ends=(2,)) for ids in self.sources]
        found = decode(TorchStepper(self.imported.model), sentences)
        return [list(each.hypotheses) for each in found]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("bart") / "toy"
    theirs = write_bart(folder)
    # The library's own reader of the two files, to which special pieces are text.
    tokenizer = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    sources = [[0, *tokenizer.encode(text).ids, 2] for text in TEXTS]
    return Case(folder, theirs, read_bart(folder, AS_TOLD), sources)


@pytest.fixture(scope="module")
def translator(case: Case, traced_once: None) -> Translator:
    manifest = import_bundle(case.folder, case.folder.parent / "bundles" / "bart", Form("int8"))
    assert manifest.languages.trained == (("en", "en"),)
    return Translator(case.folder.parent / "bundles" / "bart", threads=1)


def test_it_scores_as_its_own_library_does(case: Case) -> None:
    for ids, hypotheses in zip(case.sources, case.decode(BEAMS), strict=True):
        for found in hypotheses:
            given = torch.tensor([[2, *found.tokens]])
            with torch.no_grad():
                logits = case.theirs(input_ids=torch.tensor([ids]), decoder_input_ids=given).logits
            labels = torch.tensor([*found.tokens, 2])[:, None]
            wanted = logits[0].log_softmax(-1).gather(1, labels)[:, 0].tolist()
            scores = found.token_scores
            np.testing.assert_allclose(scores, wanted[: len(scores)], atol=1e-4)


def test_beams_are_those_of_its_own_library(case: Case) -> None:
    """Without a penalty both searches end when no beam can become better."""
    options = replace(BEAMS, num_hypotheses=1, length_penalty=0.0)
    all_found = [best for best, *_ in case.decode(options)]
    assert {best.finished for best in all_found} == {True, False}
    for ids, best in zip(case.sources, all_found, strict=True):
        theirs = case.theirs.generate(
            torch.tensor([ids]),
            num_beams=4,
            max_new_tokens=21,
            length_penalty=0.0,
            early_stopping="never",
            forced_eos_token_id=None,
            return_dict_in_generate=True,
            output_scores=True,
        )
        if [*best.tokens, *([2] if best.finished else [])] != theirs.sequences[0].tolist()[1:]:
            assert best.cumulative == pytest.approx(theirs.sequences_scores[0].item(), abs=TIE)


def test_texts_have_the_ids_of_its_own_vocabulary(case: Case, translator: Translator) -> None:
    assert [translator.texts.encode_source(text, "en", "en") for text in TEXTS] == case.sources
    for text, ids in zip(TEXTS, case.sources, strict=True):
        assert translator.texts.target.decode(ids) == text


def test_any_batch_is_the_same_to_the_bit(translator: Translator) -> None:
    together = translator.translate(TEXTS, BEAMS, wishes=Wishes(alignments=True))
    alone = [translator.translate(text, BEAMS, wishes=Wishes(alignments=True))[0] for text in TEXTS]
    assert together == alone
    assert len({each.text for each in together}) > 3
    assert all("<s>" not in each.tokens for one in together for each in one.hypotheses)


def test_it_is_served(case: Case, translator: Translator) -> None:
    settings = Settings(bundles=case.folder.parent / "bundles", threads=1, decode_in="threads")
    registry = Registry(settings)
    registry.start(load_bundles(settings))
    with TestClient(create_app(registry, settings)) as client:
        for text in TEXTS[:3]:
            (wanted,) = translator.translate(text)
            asked = {"q": text, "source": "en", "target": "en"}
            found = client.post("/translate", json=asked)
            assert found.json()["translatedText"] == wanted.text
            with client.stream("POST", "/translate", json=asked | {"stream": True}) as response:
                assert "event: done" in "".join(response.iter_text())
    registry.close()


def test_a_term_is_a_word_of_its_own(translator: Translator) -> None:
    """Whose space is part of its first piece."""
    terms, options = Terms(required=("the",)), replace(BEAMS, num_hypotheses=1)
    for found in translator.translate_sentences(TEXTS[:4], options, wishes=Wishes(terms=terms)):
        assert " the" in found.text
        assert "constraints" not in found.warnings


def test_a_vocabulary_in_one_file_is_the_same(case: Case, tmp_path: Path) -> None:
    options = {"prefix": " ", "vocab_size": 330}  # the mask has no row
    write_bart(tmp_path, in_one_file=True, forces_first=False, **options)
    found = read_bart(tmp_path, LanguageChoice(("de",), ("en",)))
    languages = found.languages
    assert (languages.source_tags, languages.first_pieces) == ({"de": "<s>"}, {})
    manifest = import_bundle(
        tmp_path,
        tmp_path / "bundle",
        Form("fp32"),
        declared=Declared(languages=LanguageChoice(("de",), ("en",))),
    )
    assert manifest.parity["logits_max_difference"] < 1e-3
    texts = Translator(tmp_path / "bundle", threads=1).texts
    assert [texts.encode_source(text, "de") for text in TEXTS] == case.sources
    write_bart(tmp_path / "two", **options)
    for each in (found, read_bart(tmp_path / "two", AS_TOLD)):
        assert isinstance(each.pieces, FastTokenizerFile)
        assert b"<mask>" not in each.pieces.content


def test_what_is_refused(case: Case, tmp_path: Path) -> None:
    write_bart(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(
        path.read_text().replace('"forced_bos_token_id": 0', '"forced_bos_token_id": 7')
    )
    with pytest.raises(ExportError, match=r"forced_bos_token_id must be 0, the id of <s>.* got 7"):
        read_bart(tmp_path, AS_TOLD)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ExportError, match=r"merges.txt is missing"):
        read_bart(tmp_path, AS_TOLD)
    assert isinstance(case.imported.pieces, FastTokenizerFile)
    (tmp_path / "tokenizer.json").write_bytes(
        case.imported.pieces.content.replace(b'"<unk>"', b'"<other>"')
    )
    with pytest.raises(ExportError, match=r"tokenizer.json: the piece <unk> is missing"):
        read_bart(tmp_path, AS_TOLD)
